"""The generated headers and the wrapper in C++17."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import build
from tests.micro.projects import DIGITS, ROOT, need, sh

MAIN = """\
#include <cmath>
#include <cstdio>
#include <limits>

#include "aot/model.hpp"
#include "digits.h"

int main() {
  const auto in = AOT_INPUT(digits, DIGITS, 0);
  constexpr auto q = AOT_INPUT_QUANTIZATION(DIGITS, 0);
  static_assert(q.quantize<std::int8_t>(0.0f) == -128, "zero");
  static_assert(q.quantize<std::int8_t>(2.5f) == -125, "halves go away from zero");
  static_assert(q.quantize<std::int8_t>(1e30f) == 127 && q.quantize<std::int8_t>(-1e30f) == -128, "ends");
  static_assert(q.quantize<std::int8_t>(254.6f) == 127 && q.quantize<std::int8_t>(254.4f) == 126, "near the end");
  static_assert(aot::quantization{0.5f, 0}.quantize<std::int16_t>(-1.25f) == -3, "negative halves");
  static_assert(q.dequantize(std::int8_t{-100}) == 28.0f, "back");
  if (q.quantize<std::int8_t>(std::nanf("")) != -128) return 2;
  static const unsigned char image[] = {%s};
  if (in.size() != sizeof image || in.size_bytes() != DIGITS_INPUT_0_SIZE) return 3;
  for (std::size_t i = 0; i < in.size(); i++) in[i] = q.quantize<std::int8_t>(image[i]);
  if (AOT_RUN(digits) != AOT_OK) return 4;
  const aot::span<const std::int8_t> out = AOT_OUTPUT(digits, DIGITS, 0);
  float sum = 0;
  for (const auto v : out) sum += AOT_OUTPUT_QUANTIZATION(DIGITS, 0).dequantize(v);
  std::printf("%%zu %%d\\n", aot::argmax(out), std::fabs(sum - 1.0f) < 0.05f);
  return 0;
}
"""

WARNINGS = "-Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Wdouble-promotion -pedantic -Werror"


@pytest.mark.parametrize("compiler", ["g++", pytest.param("clang++", marks=pytest.mark.slow)])
def test_wrapper_runs_a_model(tmp_path: Path, compiler: str) -> None:
    need(compiler, "gcc")
    data = np.load(ROOT / "examples" / "digits" / "test_images.npz")
    build(DIGITS, target="host").export(tmp_path)
    (tmp_path / "main.cpp").write_text(MAIN % ", ".join(map(str, data["x"][0].reshape(-1).tolist())))
    include = f"-I. -I{ROOT / 'crt' / 'include'}"
    sh(f"gcc -std=c99 {include} -c digits.c digits_kernels.c digits_params.c", cwd=tmp_path)
    flags = f"-std=c++17 -fno-exceptions -fno-rtti {WARNINGS}"
    text = sh(f"{compiler} {flags} {include} main.cpp *.o -o demo && ./demo", cwd=tmp_path)
    assert text == f"{data['y'][0]} 1\n"
