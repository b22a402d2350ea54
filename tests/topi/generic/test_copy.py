"""Movement of data by nests of runs against the operators' meaning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.op.qnn.arithmetic import AddAttrs
from aot.op.qnn.lut import LutAttrs
from aot.op.tensor import ConcatenateAttrs, PadAttrs, TransposeAttrs
from aot.op.vision import ResizeNearestAttrs
from aot.relay.expr import Call, Expr, Function, Var, call, const, tensor_type
from aot.relay.interpreter import evaluate
from aot.tir.functor import accesses, walk
from aot.tir.stmt import For, If
from aot.topi.generic.copy import Axis, Nest, codes_of, find_nests
from tests.scale import cases as scaled
from tests.topi.groups import check_group, data_of, lowered
from tests.topi.intrin.test_intrin import needs_board
from tests.topi.oncore import run_on

TABLE = LutAttrs(tuple(int(v) for v in np.random.default_rng(0).permutation(256) - 128))
ADD = AddAttrs((3, -5), (1 << 30, 1610612736), (0, -1), 1431655765, -18, -128, -128, 127)
Case = tuple[tuple[Var, ...], Expr]


def var(*shape: int, dtype: str = "int8", name: str = "x") -> Var:
    return Var(name, TensorType(shape, dtype))


def doubled(rows: int, columns: int, factor: int = 2) -> ResizeNearestAttrs:
    rows_taken, columns_taken = (tuple(i // factor for i in range(n * factor)) for n in (rows, columns))
    return ResizeNearestAttrs(rows_taken, columns_taken)


def cases() -> dict[str, Case]:
    x, y, z = var(1, 3, 4, 8), var(1, 3, 4, 4, name="y"), var(1, 3, 4, 3, name="z")
    small = var(1, 2, 2, 4, name="s")
    f = var(2, 3, 2, dtype="float32", name="f")
    odd = var(5, 3, name="o")
    words = var(3, 2, 5, dtype="int16", name="w")
    lut = call("qnn.lut", [x], TABLE)
    pad = PadAttrs(((0, 0), (1, 2), (2, 1), (0, 0)), -7)
    two = const(np.arange(6, dtype=np.int8).reshape(2, 3))
    big = call("image.resize_nearest", [small], doubled(2, 2))
    same = var(1, 4, 4, 4, name="t")
    return {
        "concatenate channels": ((x, y, z), call("concatenate", [x, y, z], ConcatenateAttrs(3))),
        "concatenate words": ((x, y), call("concatenate", [x, y, x], ConcatenateAttrs(3))),
        "concatenate rows": ((x,), call("concatenate", [x, x], ConcatenateAttrs(1))),
        "with a constant": ((odd,), call("concatenate", [odd, two], ConcatenateAttrs(0))),
        "pad": ((x,), call("nn.pad", [x], pad)),
        "pad channels": ((z,), call("nn.pad", [z], PadAttrs(((0, 0), (0, 0), (0, 0), (1, 4)), 9))),
        "pad float": ((f,), call("nn.pad", [f], PadAttrs(((0, 1), (1, 0), (1, 1)), 0.0))),
        "pad int16": ((words,), call("nn.pad", [words], PadAttrs(((1, 0), (0, 0), (0, 1)), -300))),
        "table before pad": ((x,), call("nn.pad", [lut], pad)),
        "table after pad": ((x,), call("qnn.lut", [call("nn.pad", [x], pad)], TABLE)),
        "table amid": ((z,), call("nn.pad", [call("qnn.lut", [call("nn.pad", [z], pad)], TABLE)], pad)),
        "transpose": ((x,), call("transpose", [x], TransposeAttrs((0, 3, 1, 2)))),
        "transpose floats": ((f,), call("transpose", [f], TransposeAttrs((1, 0, 2)))),
        "enlarge": ((small,), big),
        "enlarge by 3": ((z,), call("image.resize_nearest", [z], doubled(3, 4, 3))),
        "shrink unevenly": ((x,), call("image.resize_nearest", [x], ResizeNearestAttrs((0, 2), (0, 1, 3)))),
        "enlarge and add": ((small, same), call("qnn.add", [big, same], ADD)),
        "add to enlarged": ((small, same), call("qnn.lut", [call("qnn.add", [same, big], ADD)], TABLE)),
        "enlarge and join": ((small, same), call("concatenate", [same, call("qnn.lut", [big], TABLE)], ConcatenateAttrs(3))),
        "added, then padded": ((x, var(1, 3, 4, 8, name="v")), PADDED_SUM),
    }


_A, _B = var(1, 3, 4, 8, name="a"), var(1, 3, 4, 8, name="b")
PADDED_SUM = call("nn.pad", [call("qnn.add", [_A, _B], ADD)], PadAttrs(((0, 0), (1, 1), (1, 1), (0, 0)), 4))
CASES = {**cases(), "added, then padded": ((_A, _B), PADDED_SUM)}


@pytest.mark.parametrize("name", sorted(CASES))
def test_movement_equals_meaning(name: str) -> None:
    params, body = CASES[name]
    low = check_group("generic.copy", params, body)
    assert not any(isinstance(s, If) for s in walk(low.func.body)), "a test on an element"


def test_words_where_everything_is_aligned() -> None:
    """Channels in fours are copied as words, and the tensors ask for it; odd ones are not, and ask for nothing."""
    low = lowered("generic.copy", *CASES["concatenate words"])
    assert low is not None
    assert {b.align for b in low.func.inputs + low.func.outputs} == {4}
    assert {a.dtype for s in walk(low.func.body) for a in accesses(s)} == {"uint32"}
    low = lowered("generic.copy", *CASES["with a constant"])
    assert low is not None
    assert {b.align for b in low.func.inputs + low.func.outputs} == {1}


def test_enlarging_is_one_nest() -> None:
    low = lowered("generic.copy", *CASES["enlarge and join"])
    assert low is not None
    assert sum(isinstance(s, For) for s in low.func.body) == 2


def test_nests_of_plain_movements() -> None:
    whole = codes_of(1, (4, 6))
    assert find_nests(whole) == [Nest(1, 0, 0, (Axis(24, 1, 1),))]
    assert find_nests(whole[:, 2:5]) == [Nest(1, 0, 2, (Axis(4, 3, 6), Axis(3, 1, 1)))]
    assert find_nests(whole.T) == [Nest(1, 0, 0, (Axis(6, 4, 1), Axis(4, 1, 6)))]
    assert find_nests(codes_of(1, (200,))[np.random.default_rng(1).permutation(200)]) is None


@pytest.mark.parametrize("seed", range(60))
def test_nests_cover_every_element_once(seed: int) -> None:
    """Random cuts, permutations and repetitions: what the nests say is what the codes say."""
    rng = np.random.default_rng(seed)
    codes = codes_of(1, tuple(rng.integers(1, 5, 3)))
    for _ in range(3):
        axis = int(rng.integers(3))
        match rng.integers(4):
            case 0:
                codes = np.concatenate([codes, codes_of(2, codes.shape)], axis=axis)
            case 1:
                codes = np.repeat(codes, 2, axis=axis)
            case 2:
                codes = codes.transpose(tuple(rng.permutation(3)))
            case _:
                codes = np.pad(codes, [(1, 0) if i == axis else (0, 1) for i in range(3)], constant_values=-3)
    nests = find_nests(codes)
    if nests is None:
        return
    out = np.full(codes.size, -99, np.int64)
    for nest in nests:
        for index in np.ndindex(*(a.count for a in nest.axes)):
            place = nest.out + sum(i * a.out for i, a in zip(index, nest.axes, strict=True))
            element = nest.start + sum(i * a.source for i, a in zip(index, nest.axes, strict=True))
            assert out[place] == -99
            out[place] = nest.fill if nest.source == 0 else int(codes_of(nest.source, (1,))[0]) + element
    np.testing.assert_array_equal(out, codes.reshape(-1))


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("board", ["mps2-an386", "microbit"])
@pytest.mark.parametrize("name", ["concatenate channels", "concatenate words", "pad int16", "enlarge", "transpose"])
def test_movement_on_the_board(tmp_path: Path, name: str, board: str) -> None:
    params, body = CASES[name]
    low = lowered("generic.copy", params, body)
    assert low is not None
    data = [data_of(v, i) for i, v in enumerate(params)]
    buffers = {b.name: d.reshape(-1) for b, d in zip(low.func.inputs, data, strict=True)}
    outputs, _ = run_on(low.func, buffers, board=board, folder=tmp_path)
    (expected,) = evaluate(Function(params, body), data)
    np.testing.assert_array_equal(outputs["out"], expected.reshape(-1))


def draw_movement(_kind: str, rng: np.random.Generator) -> Case:
    """A chain of one to four random movements and tables over one or two tensors, of at most 4,000 elements."""
    while True:
        params, body = random_movement(rng)
        if isinstance(body, Call) and tensor_type(body).size < 4000:
            return params, body


def random_movement(rng: np.random.Generator) -> Case:
    """A chain of one to four random movements and tables over one or two tensors."""
    shape = tuple(int(n) for n in (1, *rng.integers(1, 5, 2), rng.integers(1, 9)))
    params = [var(*shape), var(*shape, name="y")]
    body: Expr = params[0]
    for _ in range(int(rng.integers(1, 5))):
        now = tensor_type(body).shape
        match rng.integers(5):
            case 0:
                body = call("concatenate", [body, body], ConcatenateAttrs(int(rng.integers(4))))
            case 1:
                width = tuple((int(rng.integers(3)), int(rng.integers(3))) for _ in now)
                body = call("nn.pad", [body], PadAttrs(width, int(rng.integers(-128, 128))))
            case 2:
                body = call("transpose", [body], TransposeAttrs(tuple(int(a) for a in rng.permutation(4))))
            case 3:
                taken = [tuple(i * n // m for i in range(m)) for n, m in zip(now[1:3], rng.integers(1, 9, 2), strict=True)]
                body = call("image.resize_nearest", [body], ResizeNearestAttrs(*taken))
            case _:
                body = call("qnn.lut", [body], TABLE)
    if tensor_type(body).shape == shape and rng.random() < 0.5:
        return tuple(params), call("qnn.add", [body, params[1]], ADD)
    if tensor_type(body).shape[:3] == shape[:3]:
        return tuple(params), call("concatenate", [body, params[1]], ConcatenateAttrs(3))
    return (params[0],), body


@pytest.mark.slow
def test_most_random_movements_are_taken() -> None:
    """What becomes of them: tests/topi/test_drawn.py."""
    rng = np.random.default_rng(700)
    taken = [lowered("generic.copy", *draw_movement("", rng)) is not None for _ in range(scaled(2000))]
    assert sum(taken) > len(taken) / 4
