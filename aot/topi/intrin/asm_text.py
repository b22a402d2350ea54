"""Inline assembly as C text: the only file that prints asm statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from aot.support.dataclass import dataclass
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var
from aot.tir.intrin import BlockText, COperand, TensorIntrin

COUNTER = ".Laot_i"
"""The symbol that counts the repetitions of `counted`."""
_MOST = 32
"""The largest n for which AOT_REPEAT_n exists."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Lines repeated `count` times.

    A C macro repeats them, not the assembler's .rept or .irp: GCC estimates the size of a template from its number of lines.  If
    it took a block for smaller than it is, it would place constants out of reach of its loads (ADR 14).
    """

    count: int
    lines: Sequence[str | Repeat]


def counted(count: int, lines: Sequence[str]) -> list[str | Repeat]:
    """Repeat `lines` `count` times; offsets made by `counted_offset` contain the number of the repetition, from 0 on."""
    body = [*lines, f".set {COUNTER}, {COUNTER}+1"]
    full, remainder = divmod(count, _MOST)
    return [f".set {COUNTER}, 0", Repeat(full, [Repeat(_MOST, body)]), Repeat(remainder, body)]


def counted_offset(index: int | None, unit: int, more: int) -> str:
    """unit * index + more; None as index means the number of the repetition."""
    return f"{unit}*{COUNTER}+{more}" if index is None else str(unit * index + more)


def add_immediate(register: str, value: int) -> list[str]:
    """ADD or SUB of any constant: one instruction for up to 12 bits or any 8 adjacent bits, otherwise one per such part."""
    op, left, lines = ("add" if value >= 0 else "sub"), abs(value), []
    while left:
        shift = left.bit_length() - 8
        part = left >> shift << shift if left > 4095 else left
        lines.append(f"{op} {register}, {register}, #{part}")
        left -= part
    return lines


def count_instructions(text: Sequence[str | Repeat]) -> int:
    """Instructions that one pass through a text executes, including repetitions."""
    total = 0
    for part in text:
        if isinstance(part, Repeat):
            total += part.count * count_instructions(part.lines)
        else:
            total += not part.endswith(":") and not part.startswith(".")
    return total


def executed(text: Sequence[str | Repeat], trips: Mapping[str, float]) -> float:
    """Instructions that a text executes; `trips`: how often the loop that begins at a label runs, if there is that loop."""
    total, loops = 0.0, list[tuple[str, float]]()
    for part in text:
        if isinstance(part, str) and part.rstrip(":") in trips:
            loops.append((part[:-1], total))
        total += count_instructions([part])
        if isinstance(part, str) and loops and part.endswith(f"{loops[-1][0]}b"):
            label, before = loops.pop()
            total = before + trips[label] * (total - before)
    return total


def asm_template(text: Sequence[str | Repeat], *, indent: str = "      ") -> list[str]:
    """The C lines of a template."""
    out: list[str] = []
    for part in text:
        if isinstance(part, str):
            out.append(f'{indent}"{part}\\n"')
        elif part.count == 1:
            out += asm_template(part.lines, indent=indent)
        elif part.count > 1:
            body = asm_template(part.lines, indent=indent + "  ")
            out += [f"{indent}AOT_REPEAT_{part.count}(", *body[:-1], body[-1] + ")"]
    return out


Operands = Mapping[str, COperand]
"""The operands of a block by name."""
Emit = Callable[[Operands], BlockText]


def block_of(b: IRBuilder, family: str, emit: Emit, *scalars: Var, requires: str = "", ordered: bool = False) -> TensorIntrin:
    """The block whose meaning is what `b` has collected; `scalars`: operands after the buffers.

    It is named after its family (arm_mve, ...) and the builder, and by default requires the family's instruction set.
    """
    desc = replace(b.finish(), scalars=scalars)
    return TensorIntrin(f"{family}.{desc.name}", desc, emit, requires or family.removeprefix("arm_"), ordered=ordered)


def asm(
    operands: Operands, text: Sequence[str | Repeat], pointers: str, ins: Mapping[str, str] | str = "", *,
    counter: str = "", temporaries: Sequence[str] = (), clobbers: Sequence[str] = (), low: str = "", kind: str = "+&",
    before: Sequence[str] = (), after: Sequence[str] = (), first: Sequence[str] = (), last: Sequence[str] = (),
    acc: str = "", end: Mapping[str, str] | None = None, temporaries_first: bool = False,
) -> BlockText:  # fmt: skip
    """One asm statement.

    `pointers`: operands whose pointers the text changes, as `name`, or `name=operand` if the text uses another name; with `>`
    before the name the text writes there, with `*` it does not change the pointer (in memory if `*name:m`), and `name@r1` is a
    fixed register.  `low`: those in low registers, as widening loads require.  `ins`: numbers by name, or by `name:constraint`;
    or a list of operands that are numbers, each as `name` or `name=operand`.  `counter`: a number that the text changes, in the
    same form.  `before` and `after`: declarations before and after counter and temporaries; `first` and `last`: further results
    in GNU C syntax, before and after the pointers.  `acc`: the name of accumulators without their numbers, `name=operand` if the
    operand is not `acc`, `name:constraint` if they are in certain registers.  `end`: by `pointer:constraint`, the bytes up to
    that pointer's value at the end of the loop, which is %[end].  `temporaries_first`: before the pointers.
    """
    if isinstance(ins, str):
        named = [(n, o or n) for n, _, o in (spec.partition("=") for spec in ins.split())]
        ins = {n: operands[o].value for n, o in named}
    array, _, operand = acc.partition("=")
    array, _, where = array.partition(":")
    sums = operands[operand or "acc"].scalars if acc else ()
    outs = [f'[{array}{i}] "{kind}{where or "r"}"({s})' for i, s in enumerate(sums)]
    spare = [f'[{t}] "=&r"(aot_{t})' for t in temporaries]
    outs += [*first, *(spare if temporaries_first else ())]
    declared, inputs = [], dict[str, str]()
    for spec in pointers.split():
        name, _, operand = spec.lstrip(">*").partition("=")
        name, _, register = name.partition("@")
        name, _, memory = name.partition(":")
        start, const = operands[operand or name].pointer, "" if spec[0] == ">" else "const "
        where = "l" if name in low.split() else "r"
        if spec[0] == "*":
            declared.append(f"const void *const aot_{name} = {start};")
            inputs[f"{name}:{memory or where}"] = f"aot_{name}"
        elif register:
            declared.append(f'register {const}void *aot_{name} __asm("{register}") = {start};')
            outs.append(f'"{kind}r"(aot_{name})')
        else:
            declared.append(f"{const}void *aot_{name} = {start};")
            outs.append(f'[{name}] "{kind}{where}"(aot_{name})')
    for key, size in (end or {}).items():
        pointer, _, constraint = key.partition(":")
        declared.append(f"const void *const aot_end = (const uint8_t *)aot_{pointer} + {size};")
        inputs[f"end:{constraint}"] = "aot_end"
    declared += before
    if counter:
        name, _, operand = counter.partition("=")
        declared.append(f"int32_t aot_{name} = {operands[operand or name].value};")
        outs.append(f'[{name}] "{kind}r"(aot_{name})')
    declared += [f"uint32_t {', '.join(f'aot_{t}' for t in temporaries)};"] if temporaries else []
    pairs = [(*key.partition(":"), value) for key, value in (inputs | dict(ins)).items()]
    return AsmBlock(
        [*declared, *after],
        text,
        outs=[*outs, *(() if temporaries_first else spare), *last],
        ins=[f'{f"[{n}] " if n else ""}"{constraint or "r"}"({value})' for n, _, constraint, value in pairs],
        clobbers=clobbers,
    ).emit()


_CONSTRAINT = re.compile(r'^(?:\[\w+\] )?"[=+&]*(\w+)"')
_CORE = re.compile(r"(r\d+|lr)$")
_VECTOR = re.compile(r"s\d+$")


@dataclass(frozen=True, slots=True)
class AsmBlock:
    """One asm statement with its variables, in braces.

    `outs` and `ins` are operands in GNU C syntax, `[n] "+r"(aot_n)`; `clobbers` are registers that the text names itself (flags
    and memory are always included).  The requirements on a build, registers and FPU, are derived from these three.  If an operand
    of `ins` may have the same value as the initial value of a pointer or counter in `outs`, the latter must be "+&r", because GCC
    would otherwise give both one register.
    """

    declarations: Sequence[str]
    text: Sequence[str | Repeat]
    outs: Sequence[str]
    ins: Sequence[str] = ()
    clobbers: Sequence[str] = ()

    @property
    def registers(self) -> int:
        """Core registers that the block occupies at the same time."""
        return sum(kind in ("r", "l", "h") for kind in self._constraints()) + sum(bool(_CORE.match(c)) for c in self.clobbers)

    @property
    def fpu(self) -> bool:
        return "t" in self._constraints() or any(_VECTOR.match(c) for c in self.clobbers)

    def _constraints(self) -> list[str]:
        return [match.group(1) for o in (*self.outs, *self.ins) if (match := _CONSTRAINT.match(o))]

    def emit(self) -> BlockText:
        """The C text, and what it requires of a build."""
        quoted = ", ".join(f'"{c}"' for c in (*self.clobbers, "cc", "memory"))
        lines = ["{", *(f"  {d}" for d in self.declarations), "  __asm volatile(", *asm_template(self.text)]
        lines += [f"      : {', '.join(self.outs)}", f"      : {', '.join(self.ins)}".rstrip(), f"      : {quoted});", "}"]
        return BlockText("\n".join(lines), self.registers, self.fpu)
