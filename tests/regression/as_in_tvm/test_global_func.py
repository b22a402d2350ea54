"""The compiler's own global functions are found in a process that has not built anything."""

from __future__ import annotations

import subprocess
import sys

import pytest

FRESH = {
    "get": "assert callable(aot.get_global_func('target.build.c'))",
    "list": "assert 'target.build.c' in aot.list_global_func_names()",
    "replace": "aot.register_func('target.build.c', print, override=True)\n"
    "import aot.runtime\nassert aot.get_global_func('target.build.c') is print",
    "remove": "aot.remove_global_func('target.build.c')\nassert 'target.build.c' not in aot.list_global_func_names()",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", FRESH.values(), ids=FRESH)
def test_in_a_fresh_process(text: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import aot\n{text}"], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
