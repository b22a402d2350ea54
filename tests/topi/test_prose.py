"""kernels.toml beside the registered kernels, docs/kernels.md and generated C."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import aot
from aot import topi
from aot.topi.prose import comment_of, rows, table
from aot.topi.strategy import _IMPLS as REGISTERED

ROOT = Path(__file__).resolve().parents[2]

topi.load_all()
NAMES = sorted({impl.name for impls in REGISTERED.values() for impl in impls})


def test_every_kernel_of_an_instruction_set_is_explained() -> None:
    assert [name for name in NAMES if not name.startswith("generic.") and not comment_of(name)] == []


def test_every_pattern_fits_a_kernel() -> None:
    # the names of lowered kernels
    made_up = [
        "generic.copy_x",
        "generic.max_pool",
        "generic.max_pool_float",
        "generic.avg_pool_float",
    ]
    patterns = [pattern for row in rows() for pattern in row.kernels]
    assert [p for p in patterns if not any(fnmatchcase(name, p) for name in [*NAMES, *made_up])] == []


def test_an_idea_is_one_sentence_of_plain_text() -> None:
    for row in rows():
        words = row.idea
        assert "`" not in words, row.idea
        assert not row.idea.endswith("."), row.idea


def test_the_page_has_the_table() -> None:
    assert "\n".join(table()) in (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")


def test_the_idea_is_above_the_kernel() -> None:
    files = aot.build(ROOT / "tests" / "models" / "net_kws_dscnn.tflite").files
    kernels = next(text for name, text in files.items() if name.endswith("_kernels.c"))
    assert "Keeps two 8-bit values in each word, 21 bits apart, so that one SMLAL adds three products" in " ".join(
        kernels.split()
    )
    assert "(docs/kernels.md)." in kernels
