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
    "E5070": (
        "a wrong tensor expression",
        "An argument of te.placeholder, te.compute, te.reduce_axis or of a scalar function does not make sense, or an\n"
        "expression mixes types: both operands of an operator have one type, so convert with x.astype('int32').\n"
        "A reduction (te.sum and so on) must be the whole rule of a compute; what follows it is another compute.",
    ),
    "E5071": (
        "an index may leave its tensor",
        "Every index in the rule of a te.compute must be shown to lie in the tensor, from the extents of the axes and the\n"
        "conditions around it. Clip a computed index with te.clip(index, 0, extent - 1), or guard the access with\n"
        "te.if_then_else(te.all(i >= 1, i <= n), A[i - 1], 0).",
    ),
    "E5072": (
        "the rule of a compute failed",
        "The function given to te.compute raised an exception or returned no expression. It is called once, with one axis for\n"
        "each dimension, and must return the expression of that element. Python's if does not work on axes: use\n"
        "te.if_then_else.",
    ),
    "E5073": (
        "arguments that are not the schedule's",
        "aot.lower and aot.build take the list of tensors that the caller hands in: every placeholder that is read and every\n"
        "output, each once, in the order of the function's parameters.",
    ),
    "E5074": (
        "something that cannot be built",
        "aot.build takes a .tflite model (path or bytes), an IRModule of relay functions, a te.Schedule with its arguments, a\n"
        "PrimFunc, or an IRModule of PrimFuncs. Options belong to models only. The message says what was given.",
    ),
    "E5075": (
        "a function called with the wrong arrays",
        "A compiled function takes one array for each parameter: a numpy array, or an object with __dlpack__, of just the shape\n"
        "and type, C-contiguous; what is written must be writable and overlap nothing. repr(function) shows the parameters.",
    ),
    "E5076": (
        "no such function",
        "The module, or the table of global functions, has no function of that name. module.functions and\n"
        "aot.list_global_func_names() list what there is.",
    ),
    "E5077": (
        "a global function cannot be registered",
        "The name is taken (override=True replaces the function), or the name is not a string, or what was\n"
        "given is not a function.",
    ),
    "E5078": (
        "a module cannot be written or read so",
        "export_library writes .so (a library of this machine), .tar (C sources with the headers they need) and .c;\n"
        "runtime.load_module reads a .so that export_library wrote.",
    ),
    "E5079": (
        "wrong use of the graph executor",
        "GraphModule takes what aot.build makes of a model. Inputs go by name or number; outputs exist after run(). The message\n"
        "lists the names.",
    ),
    "E5080": (
        "a kind of target cannot be registered",
        "The name is taken by another kind or a core, or is no identifier.",
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
    "E5110": (
        "a plug-in fails",
        "A plug-in (--plugin FILE.py, or an installed package of the entry-point group aot.plugins) raised an error while it\n"
        "was loaded; the message has the line. AOT_DEBUG=1 shows the traceback; pip uninstall removes an installed one.",
    ),
    "E5111": (
        "no such plug-in",
        "--plugin takes the path of a Python file that registers things of its own (docs/plugins.md).",
    ),
    "E5112": (
        "a plug-in registers something of the wrong form",
        "register_core takes a Core, register_boards the Path of a folder of board folders, register_oracle a word and a\n"
        "function, from_tflite three words. The message shows what was given (docs/plugins.md).",
    ),
}
