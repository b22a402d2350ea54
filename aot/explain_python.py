"""The long texts of errors that only the programming interface raises; `aot.explain` has the others."""

from __future__ import annotations

PYTHON: dict[str, tuple[str, str]] = {
    "E5034": (
        "a PassContext cannot be made of this",
        "PassContext(opt_level=2, required_pass=[...], disabled_pass=[...], config={...}, instruments=[...],\n"
        'add_pass=[("FuseOps", my_pass)]): the message names the argument that has another form.',
    ),
    "E5035": (
        "a pass did not return a module",
        "A pass takes an IRModule and returns one, changed or not. The usual cause is a missing return.",
    ),
    "E5036": (
        "register_pass with wrong arguments",
        '@register_pass(opt_level=1, name="my_pass", required=False, on="relay", after="canonicalize") decorates\n'
        "def my_pass(function, context). `on` is module, relay or tir; `after` is a pass of the compiler (aot dump --list).",
    ),
    "E5100": (
        "an operator does not take these operands or attributes",
        "The message names the operator, the line of your program that called it, and what does not fit: the number of\n"
        "operands, their types or shapes, or an attribute. help(relay.nn.conv2d) lists what an operator takes.",
    ),
    "E5101": (
        "no such operator",
        "No operator of that name is registered. aot.ir.op.Op.list_op_names() lists those that are; operators of your own are\n"
        "registered by a plug-in (docs/plugins.md) or by aot.ir.op.register_op.",
    ),
    "E5102": (
        "a wrong registration",
        "Something was registered twice, or register_op was called with arguments that contradict each other; the message says\n"
        "which. aot.ir.op.reset_op(name) forgets an operator, aot.ir.transform.reset_pass(name) a pass.",
    ),
    "E5103": (
        "an operator lacks an attribute",
        "The attribute map that was asked for (TOpPattern, FEvaluate, FTe ...) does not exist, or has no entry for this\n"
        "operator. An operator without FTe, for example, can be evaluated but not lowered: set it with Op.set_attr.",
    ),
    "E5104": (
        "not an expression, a shape or a value of this type",
        "Graphs are made of relay.var, relay.const and calls of operators. Shapes are sequences of whole numbers above 0,\n"
        "element types are names such as int8, and constants hold numbers that the type can hold.",
    ),
    "E5105": (
        "no such function",
        "An IRModule was asked for a function that it does not have. The message lists those it has.",
    ),
    "E5106": (
        "not a pattern",
        "Patterns are made of is_op, is_constant, is_var, is_expr, is_tuple, is_tuple_get_item and wildcard:\n"
        'is_op("nn.conv2d")(wildcard(), is_constant()). The message names what is something else.',
    ),
}
