"""Global functions by name."""

from __future__ import annotations

import pytest

import aot
from aot.errors import UsageError


def test_register_find_and_forget() -> None:
    @aot.register_func("test.add_one")
    def add_one(v: int) -> int:
        return v + 1

    try:
        assert add_one(1) == 2
        assert aot.get_global_func("test.add_one")(1) == 2
        assert "test.add_one" in aot.list_global_func_names()
        with pytest.raises(UsageError, match="E5077"):
            aot.register_func("test.add_one", len)
        aot.register_func("test.add_one", len, override=True)
        assert aot.get_global_func("test.add_one") is len
    finally:
        aot.remove_global_func("test.add_one")
    for call in (lambda: aot.get_global_func("test.add_one"), lambda: aot.remove_global_func("test.add_one")):
        with pytest.raises(UsageError, match="E5076"):
            call()


@pytest.mark.parametrize(("name", "func"), [("", len), (3, len), ("a\nb", len), ("test.x", 3)])
def test_what_cannot_be_registered(name: object, func: object) -> None:
    with pytest.raises(UsageError, match="E5077"):
        aot.register_func(name, func)  # type: ignore[call-overload]


def test_code_generators_are_there() -> None:
    import aot.runtime

    assert aot.runtime
    assert "target.build.c" in aot.list_global_func_names()
