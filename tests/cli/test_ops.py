"""`aot ops` and `aot explain OPERATOR`: what is said of operators is what the converters do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aot.cli.verbs.about import aot_explain, missing_rows, operator_rows
from aot.errors import UsageError
from aot.frontend.tflite import check_model, from_tflite, schema
from aot.frontend.tflite.convert import CONVERTERS, SUPPORT
from aot.frontend.tflite.schema import NOT_RUN, STRINGS, needs_of
from aot.relay.expr import Call, post_order
from aot.testing import HAVE_LITERT
from tests.op._forms import COMPLEX, DTYPES, FORMS, LAYERS, OTHER_FORMS
from tests.op._one_op import Spec, one_op

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
HELPERS = {"reshape", "clip", "relu", "nn.bias_add", "qnn.requantize", "qnn.requantize8"}
"""Relay operators that may come with any other."""


@pytest.mark.slow
def test_page_is_up_to_date() -> None:
    # a process of its own: other tests register operators
    command = [sys.executable, "-m", "aot", "ops", "--markdown"]
    page = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    assert PAGE.read_text(encoding="utf-8") == page, "run: aot ops --markdown > docs/operators.md"
    rows = operator_rows()
    assert sum(not r["operator"].startswith("CUSTOM:") for r in rows) >= 100


def test_kernels_of_several_operators_are_no_kernels_of_each() -> None:
    """A slice or a limit within a group of sums and products is computed by a kernel of arm_dsp, but alone by none."""
    kernels = {r["operator"]: r["kernels"] for r in operator_rows()}
    assert {name: "arm_dsp" in kernels[name] for name in ("ADD", "TANH", "TRANSPOSE", "RELU6", "SLICE", "SPLIT")} == {
        "ADD": True, "TANH": True, "TRANSPOSE": True, "RELU6": False, "SLICE": False, "SPLIT": False,
    }  # fmt: skip


def test_every_other_operator_says_what_it_would_take() -> None:
    operator_rows()
    known = {n for n in schema.enums()["BuiltinOperator"] if n not in ("CUSTOM", "PLACEHOLDER_FOR_GREATER_OP_CODES")}
    assert [n for n in sorted(known - set(CONVERTERS)) if needs_of(n) is None] == []


@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
def test_the_reference_does_not_run_what_is_not_supported() -> None:
    """Of one class no resolver has a kernel; of the other, none takes numbers."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    for row in missing_rows():
        assert row["class"] in (NOT_RUN, STRINGS)
        model = one_op(row["operator"], [Spec((2, 3), "float32")], [Spec((2, 3), "float32")])
        for resolver in (OpResolverType.BUILTIN_REF, OpResolverType.BUILTIN):
            why = "Didn't find op for builtin opcode" if row["class"] == NOT_RUN else None
            with pytest.raises((RuntimeError, ValueError), match=why):
                Interpreter(model_content=model, experimental_op_resolver_type=resolver).allocate_tensors()


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("skip_gram", "CUSTOM:SignalPCAN", "Mul"):
        aot_explain(name)
    text = capsys.readouterr().out
    assert "SKIP_GRAM: an operator that is not supported" in text
    assert "MUL: an operator that is supported\n\nTypes: int8, uint8, int16, int32" in text
    with pytest.raises(UsageError, match="E5008"):
        aot_explain("MULL")


def relay_operators(model: bytes) -> set[str]:
    """Names of the operators that a model of one operator becomes."""
    function = from_tflite(model)["main"]
    return {str(e.op) for e in post_order(function.body) if isinstance(e, Call)}  # type: ignore[attr-defined]


@pytest.mark.slow
def test_types_are_those_that_are_accepted() -> None:
    operator_rows()
    without = {"STABLEHLO_COMPOSITE", "STABLEHLO_CASE", "IF", "WHILE", "CUSTOM:TFLite_Detection_PostProcess"}
    assert set(CONVERTERS) - set(FORMS) - set(LAYERS) == without
    pairs = ("int8*int4", "int8*int8", "uint8*uint8", "int16*int4", "int16*int8")
    pairs = (*pairs, "float32*int4", "float32*int8", "float32*float32")
    of_weights = ("int4", *DTYPES[:-1], "float16", DTYPES[-1])  # int4: of constants alone
    for name in (*FORMS, *LAYERS):
        halves = name in ("CAST", "DENSIFY", "DEQUANTIZE", "GATHER", "GATHER_ND")
        types = pairs if name in LAYERS else of_weights if halves else DTYPES
        wide = name in FORMS and (name.startswith("CUSTOM:") or name == "STABLEHLO_RNG_BIT_GENERATOR")
        types = (*types[:-1], "uint64", types[-1]) if wide else types
        types = (*types, "complex64") if name in COMPLEX else types
        models = {t: FORMS[name](t) if name in FORMS else LAYERS[name](*t.split("*")) for t in types}
        accepted = [t for t, model in models.items() if not check_model(model)]
        assert tuple(accepted) == SUPPORT[name].types, name
        found = set().union(*(relay_operators(models[t]) for t in accepted))
        found |= set().union(*(relay_operators(OTHER_FORMS[name](t)) for t in accepted if name in OTHER_FORMS))
        assert found - HELPERS == set(SUPPORT[name].through) - HELPERS, name
