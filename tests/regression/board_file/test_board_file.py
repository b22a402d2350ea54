"""Hostile board.toml files, and the one rule for names: every mistake is a coded error."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.errors import UsageError
from aot.memory.memory_pools import Pooling, check_pooling, parse_pool
from aot.micro.board import MAX_TEXT, load_board, parse_board
from aot.support.memory_pool import Pool
from aot.support.names import MAX_NAME, model_identifier, name_fault
from aot.system.files import data_folder

M4 = (data_folder("boards") / "mps2-an386" / "board.toml").read_text(encoding="utf-8")
POOL = '[[pool]]\nname = "P"\nsize = 1024\n\n[placement]'


def problems(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse_board(text, "b/board.toml")
    assert {p.code for p in caught.value.problems} == {"E5021"}
    return str(caught.value)


def codes_of(text: str) -> set[str]:
    """The codes of what is wrong with a file; none for a board."""
    try:
        parse_board(text, "b/board.toml")
    except UsageError as error:
        return {p.code for p in error.problems}
    return set()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("timeout_seconds = 120", "timeout_seconds = inf", "timeout_seconds must be positive, and at most"),
        ("timeout_seconds = 120", "timeout_seconds = nan", "timeout_seconds must be positive, and at most"),
        ("timeout_seconds = 120", "timeout_seconds = 1e300", "timeout_seconds must be positive, and at most"),
        ("timeout_seconds = 120", f"timeout_seconds = 1{'0' * 400}", "timeout_seconds must be positive, and at most"),
        ("timeout_seconds = 120", f"timeout_seconds = 1{'0' * 5000}", "not TOML"),
        ("stack = 32768", f"stack = {1 << 40}", "stack must be"),
        ("[placement]", f"x = {'[' * 5000}{']' * 5000}\n[placement]", "nested too deeply"),
        ('name = "mps2-an386"', 'name = "a\0b"', "not TOML"),
        ('name = "mps2-an386"', 'name = "a\\u0000b"', "name .* must be ASCII"),
        ('name = "mps2-an386"', 'name = "b$(touch X)"', "name .* must be ASCII"),
        ('name = "mps2-an386"', 'name = "../x"', "name .* must be ASCII"),
        ('name = "mps2-an386"', f'name = "{"x" * 129}"', "longer than 128"),
        ('name = "mps2-an386"', 'name = ""', "name '' must be ASCII"),
        ('title = "', 'title = "*/ int x; /*', "title .* at most 120"),
        ('title = "', 'title = "$(shell touch X)', "title .* at most 120"),
        ('title = "', 'title = "a\\n', "title .* at most 120"),
        ('title = "', 'title = "a\\u001b[31m', "title .* at most 120"),
        ('title = "', f'title = "{"x" * 120}', "title .* at most 120"),
        ('"-mthumb"', '"-mthumb; touch X"', "flags: .* must begin with -"),
        ('"-mthumb"', '"$(touch X)"', "flags: .* must begin with -"),
        ('"-mthumb"', '"@options"', "flags: .* must begin with -"),
        ('"-mthumb"', '"-D\\u0000"', "flags: .* must begin with -"),
        ('machine = "mps2-an386"', 'machine = "-kernel x"', "machine .* that QEMU accepts"),
        ('machine = "mps2-an386"', 'machine = "a;b"', "machine .* that QEMU accepts"),
        ("base = 0x40004000", "base = -1", "base must be 0x0 to 0xffffffff, a multiple of 4"),
        ("base = 0x40004000", "base = 0x40004001", "base must be 0x0 to 0xffffffff, a multiple of 4"),
        ("base = 0x40010000", "base = -1", "base must be 0x0 to 0xffffffff, a multiple of 4"),
        ("clock = 25000000", "clock = 0", "clock must be 0x1"),
        ("pin = 0", "pin = -1", "pin must be 0 to 7"),
        ("pin = 0", "pin = 8", "pin must be 0 to 7"),
        ('name = "SSRAM23"', 'name = "SSRAM23 (rwx)"', "name .* ASCII letters, digits and _, a letter first"),
        ('name = "SSRAM23"', 'name = "SSRÄM"', "name .* ASCII letters, digits and _, a letter first"),
        ("[40, 1]", f"[40, {1 << 70}]", "two positive integers below 65536"),
        ("[placement]", POOL.replace('"P"', '"P\\"; X"'), "the name must be ASCII"),
        ("[placement]", POOL.replace("1024", "1024\nspeed = inf"), "size and speed must be positive"),
        ("[placement]", POOL.replace("1024", "1024\nspeed = nan"), "size and speed must be positive"),
        ("[placement]", POOL.replace("1024", str(1 << 70)), "fit in 32 bits"),
    ],
)
def test_hostile_values(old: str, new: str, message: str) -> None:
    assert old in M4
    assert re.search(message, problems(M4.replace(old, new, 1)))


def test_a_folder_with_another_name(tmp_path: Path) -> None:
    for name in ("b$(touch X)", "a" * 100 + "\x1b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "board.toml").write_text(M4, encoding="utf-8")
        with pytest.raises(UsageError, match="E5021") as caught:
            load_board(str(tmp_path / name))
        assert str(caught.value).isprintable()


def test_files_that_are_none(tmp_path: Path) -> None:
    for name in ("x" * 5000, "a/" * 3000, "a\0b", "./" + "x" * 300, "\udce9"):
        with pytest.raises(UsageError, match="E5020"):
            load_board(name)
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "board.toml").write_text("#" * (MAX_TEXT + 1))
    with pytest.raises(UsageError, match=r"E5021 .* more than"):
        load_board(str(tmp_path / "large"))


@given(text=st.text(max_size=40), symbol=st.booleans())
def test_a_name_that_passes_is_safe_everywhere(*, text: str, symbol: bool) -> None:
    if not name_fault(text, symbol=symbol):
        assert text.isascii()
        assert 0 < len(text) <= MAX_NAME
        assert not set(text) & set(" \t\n$`\"'\\;&|<>(){}[]*?!#%~^/@=,:")
        assert not text.startswith(("-", "."))


@given(st.text(max_size=300))
def test_a_prefix_made_of_a_file_name_keeps_the_rule(text: str) -> None:
    assert name_fault(model_identifier(text), symbol=True) == ""
    assert model_identifier(model_identifier(text)) == model_identifier(text)


@pytest.mark.parametrize(
    "text",
    [
        "Pä=16",
        "P=" + "9" * 5000,
        "P=16@" + "9" * 5000,
        "P=16:" + "9" * 500,
        "P=16:0." + "0" * 20,
        "P\n=16",
        "P;x=16",
        "٣=16",
        "P=٣",
    ],
)
def test_hostile_pools(text: str) -> None:
    with pytest.raises(UsageError, match="E5018"):
        check_pooling(Pooling((parse_pool(text),)))
    assert Pool("P", 1 << 40, 0).fault


KEYS = st.sampled_from(["name", "title", "kind", "cpu", "flags", "qemu", "systick", "memory", "placement", "run", "pool", "uart"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=80)
@given(path=st.lists(st.integers(0, 40), min_size=1, max_size=4), value=VALUES, drop=st.booleans())
def test_any_change_of_the_file_is_a_board_or_a_coded_error(path: list[int], value: Any, *, drop: bool) -> None:
    """One value somewhere in a good file is replaced by another one, or left out."""
    document = tomllib.loads(M4)
    place: Any = document
    for step in path[:-1]:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        inner = place[keys[step % len(keys)]]
        if not isinstance(inner, dict | list) or not inner:
            break
        place = inner
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    key = keys[path[-1] % len(keys)]
    if drop:
        del place[key]
    else:
        place[key] = value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aot.micro.board.tomllib.loads", lambda _text: document)
        assert codes_of("") <= {"E5021"}


@settings(max_examples=100)
@given(st.text(max_size=60) | st.text(alphabet='[]{}="\\.\n#ab1', max_size=60))
def test_any_text_is_a_board_or_a_coded_error(text: str) -> None:
    for whole in (text, M4 + text):
        assert codes_of(whole) <= {"E5021"}
