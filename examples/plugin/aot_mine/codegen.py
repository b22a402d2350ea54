"""An external code generator: activations of int8 become calls of a library (../library), `aot compile MODEL --byoc mine`."""

from __future__ import annotations

from collections.abc import Mapping

from aot.byoc import register_external_codegen
from aot.relay.dataflow_pattern import is_op, wildcard
from aot.relay.transform.partition import register_pattern_table
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.function import FuncAttrs
from aot.tir.intrin import EXTERNAL, BlockText, COperand, TensorIntrin
from aot.topi.generic import te_group
from aot.topi.strategy import Group, Lowered


@register_pattern_table("mine")
def pattern_table() -> list[tuple]:
    """Tables of 256 codes, as LOGISTIC, TANH and others become."""
    return [("mine.look_up", is_op("qnn.lut")(wildcard()))]


def lower(group: Group, target: Target, name: str) -> Lowered:
    """A block of one call; it means what the operator's own rule says, which is what the interpreter runs."""
    meaning = te_group.lower(group, target, f"{name}_meaning")
    desc = meaning.func
    (data,), (out,), (table,) = desc.inputs, desc.outputs, desc.consts

    def call(operands: Mapping[str, COperand]) -> BlockText:
        pointers = (operands[buffer.name].pointer for buffer in (data, table, out))
        return BlockText(f"mine_look_up({', '.join(pointers)}, {data.size});")

    b = IRBuilder(name)
    parts = [
        b.input(data.name, (data.size,), data.dtype),
        b.output(out.name, (out.size,), out.dtype),
        b.const(table.name, (table.size,), table.dtype),
    ]
    b.block(TensorIntrin(f"mine.look_up.{data.size}", desc, call, requires=EXTERNAL, header="mine.h"), *parts)
    func = b.finish(FuncAttrs("mine.look_up", group.anchor.span, distances={}))
    constants = {key: value.reshape(-1) for key, value in meaning.constants.items()}
    return Lowered(func, constants, instructions=10 * data.size, code=24)


register_external_codegen("mine", lower)
