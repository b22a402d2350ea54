"""Names for C: keywords, types of the headers, and what belongs to the runtime."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from aot.support.names import NameSupply, c_identifier, model_identifier, shortened
from tests.c_tools import command

WORDS = ["class", "compl", "explicit", "int8_t", "uint32_t", "mutable", "wchar_t", "linux", "static_assert", "size_t", "co_await"]


@pytest.mark.parametrize(("text", "name"), [("Ab-c d", "ab_c_d"), ("ä", "x"), ("for", "for_"), ("9a", "x_9a")])
def test_identifiers(text: str, name: str) -> None:
    assert c_identifier(text) == name


@pytest.mark.parametrize(
    ("text", "name"), [("aot", "model_aot"), ("AOT x", "model_aot_x"), ("aotx", "aotx"), ("my_aot", "my_aot"), ("", "model")]
)
def test_a_model_does_not_take_names_of_the_runtime(text: str, name: str) -> None:
    assert model_identifier(text) == name


def test_members_are_valid_c_and_cpp(tmp_path: Path) -> None:
    compiler = command("gcc")
    members = "".join(f"  const int8_t *{c_identifier(w)};\n" for w in WORDS)
    text = f"#include <stddef.h>\n#include <stdint.h>\nstruct inputs {{\n{members}}};\nint32_t run(const struct inputs *in);\n"
    for end, flag in (("c", "-std=gnu11"), ("cpp", "-std=gnu++20")):
        path = tmp_path / f"x.{end}"
        path.write_text(text)
        subprocess.run([*compiler, flag, "-Wall", "-Werror", "-fsyntax-only", path], check=True)


CHAIN = "strided_slice_sigmoid_strided_slice_tanh_multiply_add"


@pytest.mark.parametrize(
    ("name", "room", "short"),
    [
        (CHAIN, 53, CHAIN),
        (CHAIN, 52, "strided_slice_sigmoid_etc_slice_tanh_multiply_add"),
        (CHAIN, 40, "strided_slice_etc_tanh_multiply_add"),
        ("concatenate_dynamic_update_slice", 18, "concaten_etc_slice"),
        ("conv2d", 1, "conv2d"),
        ("a" * 99, 0, "aaaa_etc_aaa"),
    ],
)
def test_the_middle_of_a_long_name_is_left_out(name: str, room: int, short: str) -> None:
    assert shortened(name, room) == short


def test_shortened_names_fit() -> None:
    for room in range(80):
        for name in (CHAIN, "abcdefg_" * 20 + "h", "x_" + "y" * 70, "z" * 70):
            assert len(short := shortened(name, room)) <= max(12, room)
            assert c_identifier(short) == short
            assert short[0] == name[0]
            assert short == name or "_etc_" in short


def test_the_first_name_that_is_not_taken() -> None:
    supply = NameSupply(["a", "b"])
    assert supply.first(["a", "b", "c", "d"]) == "c"
    assert supply.first("abcd") == "d"
    assert supply.fresh("c") == "c_1"


def test_fresh_names_are_the_first_that_are_free() -> None:
    supply = NameSupply(["c_2", "c_4"])
    assert [supply.fresh("c") for _ in range(3)] == ["c", "c_1", "c_3"]
    assert supply.first(["c_5"]) == "c_5"
    assert [supply.fresh("c"), supply.fresh("c_1"), supply.fresh("c_1")] == ["c_6", "c_1_1", "c_1_2"]
