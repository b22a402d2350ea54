"""One message for each cause: not one a weight or a time step, nor what only follows from another."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors.explanations import explanation
from aot.frontend.problems import MAX_PROBLEMS, Problems
from aot.frontend.tflite import check_model
from aot.testing import ModelBuilder
from tests.op._one_op import Spec, const, one_op


def steps(opcode: str, count: int = 7) -> bytes:
    """The same operator at every time step."""
    b = ModelBuilder()
    at = first = b.tensor("x", (1, 4), "float32")
    for i in range(count):
        result = b.tensor(f"h{i}", (1, 4), "float32")
        if opcode.startswith("CUSTOM:"):
            b.custom_op(opcode[7:], [at], [result])
        else:
            b.op(opcode, [at], [result])
        at = result
    return b.build([first], [at])


@pytest.mark.parametrize(("opcode", "code"), [("CUSTOM:Bsign", "E1210"), ("STABLEHLO_CBRT", "E1201")])
def test_an_operator_of_every_step(opcode: str, code: str) -> None:
    (problem,) = check_model(steps(opcode))
    assert problem.code == code
    assert problem.where.startswith("op 0 ")
    assert problem.message.endswith("; the same at 6 more: op 1, op 2, op 3, op 4 …")


def test_one_message_for_all_of_flex() -> None:
    b = ModelBuilder()
    x, y, z = (b.tensor(n, (1, 4), "float32") for n in "xyz")
    for name, operands, result in (("FlexErf", [x], y), ("FlexSub", [x, y], z), ("FlexSub", [y, x], b.tensor("w", (1, 4)))):
        b.custom_op(name, operands, [result])
    (problem,) = check_model(b.build([x], [z]))
    assert (problem.code, problem.where.split()[:2]) == ("E1211", ["op", "0"])
    assert problem.message == "FlexErf, FlexSub (2 times) are TensorFlow (Flex) operators, which need TensorFlow itself to run"


def test_texts() -> None:
    """Of strings, nothing is said of the operators that they go through."""
    model = one_op("RESHAPE", [Spec((6,), "string"), const([2, 3])], [Spec((2, 3), "string")])
    (problem,) = check_model(model)
    assert (problem.code, problem.message) == ("E1212", "string tensors are not supported; the same at 1 more: tensor 2")


@pytest.mark.parametrize(("opcode", "operands"), [("TILE", [Spec((2,), "int32")]), ("WHERE", [])])
def test_shapes_at_run_time(opcode: str, operands: list[Spec]) -> None:
    """Neither that the operand must be a constant nor that the operator is not supported: E1213 says more."""
    data = Spec((2, 4), "bool" if opcode == "WHERE" else "float32")
    (problem,) = check_model(one_op(opcode, [data, *operands], [Spec((2, 4), "int64" if opcode == "WHERE" else "float32")]))
    assert problem.code == "E1213"


def test_weights_of_one_fault() -> None:
    b = ModelBuilder()
    at = first = b.tensor("x", (1, 4), "int8", scale=0.1, zero_point=0)
    for i in range(3):
        w = b.tensor(f"w{i}", (4, 4), "int8", scale=0.0, zero_point=0, data=np.ones((4, 4), np.int8))
        result = b.tensor(f"h{i}", (1, 4), "int8", scale=0.1, zero_point=0)
        b.op("FULLY_CONNECTED", [at, w, -1], [result], version=4)
        at = result
    (problem,) = check_model(b.build([first], [at]))
    assert (problem.code, problem.where) == ("E1111", 'tensor 1 "w0"')
    assert problem.message.endswith("; the same at 2 more: tensor 3, tensor 5")


def test_different_faults_stay_apart() -> None:
    problems = Problems()
    problems.add("E1202", "int4 is not supported", 'op 1 ADD "a"')
    problems.add("E1202", "int4 is not supported", 'op 2 MUL "b"')
    problems.add("E1202", "int16 is not supported", 'op 3 ADD "c"')
    problems.add("E1202", "int4 is not supported", 'op 1 ADD "a"')
    assert [p.message for p in problems.report()] == ["int4 is not supported"] * 2 + ["int16 is not supported"]
    problems.add("E1111", "scale 0", 'tensor 4 "t" of subgraph 1 "body"')
    problems.add("E1111", "scale 0", 'tensor 5 "t" of subgraph 2 "cond"')
    assert problems.report()[-1].message == "scale 0; the same at 1 more: tensor 5 of subgraph 2"


def test_the_limit_counts_causes() -> None:
    problems = Problems()
    for i in range(3 * MAX_PROBLEMS):
        problems.add("E1210", "not known", f"op {i} CUSTOM:a")
        problems.add("E1108", f"holds {i} bytes", f"tensor {i}")
    assert len(problems.found) == MAX_PROBLEMS
    assert problems.report()[-1].code == "E1008"
    assert problems.report()[0].message == f"not known; the same at {3 * MAX_PROBLEMS - 1} more: op 1, op 2, op 3, op 4 …"


@pytest.mark.parametrize(
    "code", ["E1111", "E1201", "E1202", "E1206", "E1210", "E1211", "E1212", "E1213", "E1214", "E1226", "E1240"]
)
def test_pages_show_the_converter_call(code: str) -> None:
    """Some lines of Python that change what is converted, all of which compile."""
    page = explanation(code)
    assert page is not None
    lines = [line[4:] for line in page.text.splitlines() if line.startswith("    ")]
    assert len(lines) >= 3
    compile("\n".join(lines), code, "exec")
    known = ("batch_size=1", "batch_size=2", "unroll=True", "supported_ops", "supported_types", "representative_dataset")
    assert any(word in page.text for word in known)
