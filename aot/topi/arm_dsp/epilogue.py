"""The epilogue of a layer, run over stretches of results: a kernel keeps one iteration's results in scratch memory first.

A residual ADD handles four bytes at a time.  The runs are short, so the result may still overwrite the other operand front to
back.
"""

from __future__ import annotations

from aot.op.qnn.quantize import DequantizeAttrs
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm
from aot.topi.arm_dsp.elementwise import ADD, LANES, NUMBERS_A_TURN, dequantize_8
from aot.topi.layer.elementwise import Factors
from aot.topi.layer.fused import FusedLayer, LayerIo, epilogue_each, residual_factors, table_of

RUN = 25
"""Instructions around a block of assembly."""

FACTORS_EACH, DEQUANTIZE_EACH = 5.6, 4.0
"""Instructions per element in such a block (from counts under QEMU)."""

CLAMP_EACH = 0.75
"""Extra instructions per element if the ADD has limits other than int8's."""

KEPT = 3
"""Instructions per element that is read back from scratch memory."""


class EpilogueRun:
    """Buffers `size` consecutive results: `store` each, then `finish`; `each`: instructions of the epilogue per element
    (`epilogue_each`).

    Kernels whose assembly needs all registers use this for every epilogue: after such a block GCC has no registers left for the
    epilogue's parameters, and with some instruction orders rejects the block.
    """

    def __init__(self, b: IRBuilder, io: LayerIo, plan: Factors | DequantizeAttrs | None, *, size: int, each: int) -> None:
        self._b, self._io, self._plan, self._size, self._each = b, io, plan, size, each
        self._results: Buffer = b.scratch("results", (size,), "int8")

    @property
    def instructions(self) -> float:
        """Instructions of one run, beyond those of the kernel without an epilogue."""
        whole = self._whole
        block = DEQUANTIZE_EACH if isinstance(self._plan, DequantizeAttrs) else FACTORS_EACH
        if isinstance(self._plan, Factors) and self._plan.clamped:
            block += CLAMP_EACH
        return bool(whole) * RUN + whole * block + (self._size - whole) * (KEPT + self._each)

    @property
    def code(self) -> int:
        """Bytes of code."""
        return 250 if self._plan is None else 160

    @property
    def _whole(self) -> int:
        """Elements that the block of assembly handles."""
        lanes = NUMBERS_A_TURN if isinstance(self._plan, DequantizeAttrs) else LANES
        return 0 if self._plan is None else self._size - self._size % lanes

    def store(self, index: Expr, value: Expr) -> None:
        """Store a requantised value; `index` counts from the start of the run."""
        self._b.store(self._results, index, value)

    def finish(self, first: Expr) -> None:
        """Run the epilogue over the buffered results; `first` is the output index of the first one."""
        b, io = self._b, self._io
        done = self._block(first)
        unroll = max(u for u in (4, 3, 2, 1) if (self._size - done) % u == 0)
        if done < self._size:
            with b.for_("i", self._size, start=done, step=unroll) as i:
                for u in range(unroll):
                    value = b.let("result", cast("int32", self._results.load("int8", i + u)))
                    io.store((first + i + u,), value)

    def _block(self, first: Expr) -> int:
        """Emit the block of assembly; return the number of elements that it handles."""
        whole = self._whole
        if self._plan is None or not whole:
            return 0
        b, io, f = self._b, self._io, self._plan
        if isinstance(f, DequantizeAttrs):
            block = dequantize_8("int8", f.zero_point)
            b.block(block, self._results, region(io.out, first), imm(f.scale, "float32"), imm(whole))
        else:
            operands = self._results, region(io.operands[0], first), region(io.out, first)
            b.block(ADD.block(f, whole), *operands, *f.numbers, imm(whole))
        return whole


def epilogue_run(b: IRBuilder, io: LayerIo, layer: FusedLayer, *, target: Target, size: int) -> EpilogueRun | None:
    """Return the buffer for a layer's epilogue; None without an epilogue, or if the epilogue is a table (one load per result)."""
    if not layer.epilogue or table_of(layer) is not None:
        return None
    attrs = layer.epilogue[0].attrs
    plan: Factors | DequantizeAttrs | None = residual_factors(layer, target) if len(io.operands) == 1 else None
    if len(layer.epilogue) == 1 and isinstance(attrs, DequantizeAttrs) and target.has("vfp") and layer.requant.dtype == "int8":
        plan = attrs
    return EpilogueRun(b, io, plan, size=size, each=epilogue_each(layer))


def run_instructions(layer: FusedLayer, run: EpilogueRun | None, *, size: int) -> float:
    """Return the instructions of the epilogue for `size` elements; with an EpilogueRun these are one run."""
    return epilogue_each(layer) * size if run is None else run.instructions
