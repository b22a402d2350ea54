"""The operands of TFLite's LSTM operators by name, and which kind of LSTM they make."""

from __future__ import annotations

from aot.frontend.view import OperatorView
from aot.ir.type import TensorType
from aot.op.convert import ConvertContext, unsupported
from aot.support.dataclass import dataclass

GATES = ("input", "forget", "cell", "output")


@dataclass(frozen=True, slots=True)
class LstmOperands:
    """Positions of the operands of one direction, for each gate in GATES' order; None for those that are left out.

    `gates` are the indices of the gates that there are: without the input gate it is 1 - forget (CIFG).
    """

    data: int
    weights: tuple[int, ...]
    recurrent: tuple[int, ...]
    peepholes: tuple[int, ...]
    biases: tuple[int, ...]
    projection: int | None
    projection_bias: int | None
    output_state: int
    cell_state: int
    norms: tuple[int, ...]
    auxiliary: tuple[int, ...] = ()

    @property
    def gates(self) -> int:
        return len(self.weights)


def lstm_operands(ctx: ConvertContext, op: OperatorView) -> LstmOperands:
    """Those of LSTM (full kernel) and UNIDIRECTIONAL_SEQUENCE_LSTM."""
    return one_direction(ctx, op, first=1, states=(18, 19), norms=20)


def one_direction(
    ctx: ConvertContext,
    op: OperatorView,
    *,
    first: int,
    states: tuple[int, int],
    data: int = 0,
    norms: int | None = None,
    auxiliary: int | None = None,
) -> LstmOperands:
    """Seventeen operands from `first` on: four weights, four recurrent ones, three peepholes, four biases, projection, its bias;
    where data and states are, and from where on there may be layer normalisation or weights of auxiliary data.
    """

    def present(position: int) -> bool:
        return ctx.input(op, position) is not None

    kept = tuple(g for g in range(4) if g > 0 or present(first))
    norm = () if norms is None else tuple(norms + g for g in kept if len(op.inputs) > norms + 3 and present(norms + g))
    peepholes = tuple(first + 8 + i for i in range(len(kept) - 1) if present(first + 10)) if len(kept) == 4 else ()
    if len(kept) == 3 and present(first + 10):
        peepholes = (first + 9, first + 10)
    aux = () if auxiliary is None else tuple(auxiliary + g for g in kept if present(auxiliary + g))
    found = LstmOperands(
        data,
        tuple(first + g for g in kept),
        tuple(first + 4 + g for g in kept),
        peepholes,
        tuple(first + 11 + g for g in kept),
        first + 15 if present(first + 15) else None,
        first + 16 if present(first + 15) and present(first + 16) else None,
        *states,
        norm,
        aux,
    )
    _check(ctx, op, found)
    return found


def _check(ctx: ConvertContext, op: OperatorView, lstm: LstmOperands) -> None:
    """Operands that are missing, or whose shapes do not match."""
    data = ctx.input_type(op, lstm.data)
    cells, outputs = ctx.input_type(op, lstm.recurrent[-1]).shape[0], ctx.input_type(op, lstm.recurrent[-1]).shape[-1]
    if len(lstm.norms) not in (0, lstm.gates) or len(lstm.auxiliary) not in (0, lstm.gates):
        unsupported(ctx, op, "some gates have operands that others lack", code="E1207")
    wanted = [
        *((p, (cells, data.shape[-1])) for p in lstm.weights),
        *((p, (cells, outputs)) for p in lstm.recurrent),
        *((p, (cells,)) for p in (*lstm.peepholes, *lstm.biases, *lstm.norms)),
        *((p, (outputs, cells)) for p in [lstm.projection] if p is not None),
        *((p, (outputs,)) for p in [lstm.projection_bias] if p is not None),
    ]
    for position, shape in wanted:
        if (found := ctx.input_type(op, position).shape) != shape:
            unsupported(ctx, op, f"operand {position} is {list(found)}, {list(shape)} is expected", code="E1207")
    if lstm.projection is None and cells != outputs:
        unsupported(ctx, op, f"{cells} cells give {outputs} outputs without a projection", code="E1207")


def sequence_shape(data: TensorType, *, time_major: bool) -> tuple[tuple[int, ...], bool]:
    """The data's shape with an axis of time, and whether that comes first: rows are a single step."""
    if len(data.shape) == 2:
        return (1, *data.shape), True
    return data.shape, time_major
