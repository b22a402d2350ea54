"""`aot.build` and `aot.lower`, the compiler as a library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DIGITS = Path(__file__).resolve().parent.parent.parent / "examples" / "digits" / "digits.tflite"


def test_build_is_a_function_before_and_after_its_module_is_imported() -> None:
    import aot

    artifact = aot.build(DIGITS, target="cortex-m4")
    from aot.driver.build import build
    from aot.driver.options import Options

    assert aot.build(DIGITS, options=Options()).files == artifact.files == build(DIGITS).files
    assert artifact.name == "digits"
    assert callable(aot.lower)


def test_fast_float_is_for_cores_with_vectors_and_told() -> None:
    import aot
    from aot.errors import UsageError

    plain = aot.build(DIGITS, target="cortex-m55").metadata
    fast = aot.build(DIGITS, target="cortex-m55", fast_float=True).metadata
    assert (plain["options"].get("fast_float"), fast["options"]["fast_float"]) == (None, True)
    assert set(fast["target"]["features"]) - set(plain["target"]["features"]) == {"ftz"}
    for given in ({"target": "cortex-m4"}, {"target": "cortex-m55+nomve"}, {"target": "cortex-m55", "kernels": "generic"}):
        with pytest.raises(UsageError, match="--fast-float") as refused:
            aot.build(DIGITS, fast_float=True, **given)
        assert refused.value.problems[0].code == "E5017"


def test_import_of_the_package_does_not_load_the_compiler() -> None:
    code = "import sys, aot; sys.exit('numpy' in sys.modules or 'aot.build' in sys.modules); aot.build"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_name_that_is_not_there() -> None:
    import aot

    with pytest.raises(AttributeError, match="assemble"):
        _ = aot.assemble
