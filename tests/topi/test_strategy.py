"""The op strategy: kernels by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aot import topi
from aot.errors import UsageError
from aot.topi.strategy import implementations, register_impl


def test_a_kernel_is_registered_once() -> None:
    topi.load_all()
    known = implementations("nn.conv2d")
    with pytest.raises(UsageError, match=r"E5102.*registered twice"):
        register_impl(replace(known[0], plevel=known[0].plevel + 1))
    assert implementations("nn.conv2d") == known
    assert [i.plevel for i in known if i.anchor != "*"] == sorted((i.plevel for i in known if i.anchor != "*"), reverse=True)
