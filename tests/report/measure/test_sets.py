"""Sets of inputs: the corpus' rule, golden files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.errors import UsageError
from aot.report.measure.inputs import golden_sets, is_golden, open_npz, rule_set, rule_sets

IN = [{"name": "x", "shape": [1, 3, 2], "dtype": "int8"}]
OUT = [{"name": "y", "shape": [1, 4], "dtype": "int8"}]


def info(dtype: str, count: int) -> list[dict[str, object]]:
    return [{"name": "x", "shape": [count], "dtype": dtype}]


def test_set_0_is_the_byte_ramp() -> None:
    expected = []
    for i in range(600):
        byte = (((i * 1103515245 + 12345) & 0xFFFFFFFF) >> 16) & 255
        expected.append(byte - 256 if byte > 127 else byte)
    (ramp,) = rule_set(info("int8", 600), 0)
    assert ramp.dtype == np.int8
    assert ramp.tolist() == expected
    assert rule_set(info("int16", 600), 0)[0].tolist() == [256 * v for v in expected]
    assert rule_set(info("float32", 600), 0)[0].tolist() == [v / 128 for v in expected]
    assert rule_set(info("uint8", 600), 0)[0].tolist() == [v & 255 for v in expected]
    assert rule_set(info("bool", 600), 0)[0].tolist() == [bool(v & 1) for v in expected]
    assert rule_set(info("int32", 600), 0)[0].tolist() == expected


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_random_sets_cover_the_whole_range_by_their_seed(dtype: str) -> None:
    two = [*info(dtype, 5000), *info(dtype, 5000)]
    first, second = rule_set(two, 3)
    limits = np.iinfo(dtype)
    expected = np.random.default_rng(3001).integers(limits.min, limits.max, 5000, dtype=dtype, endpoint=True)
    assert (second == expected).all()
    assert not (first == second).all()
    if dtype != "int16":
        assert (first.min(), first.max()) == (limits.min, limits.max)


def test_random_floats_and_words() -> None:
    assert (rule_set(info("float32", 9), 1)[0] == np.random.default_rng(1000).standard_normal(9).astype(np.float32)).all()
    words = rule_set(info("int32", 5000), 2)[0]
    assert (words.min(), words.max()) == (-128, 127)
    natural = rule_set(info("uint32", 5000), 2)[0]
    assert (natural.dtype, natural.min(), natural.max()) == (np.uint32, 0, 127)


def test_corpus_goldens_were_made_by_the_same_rule(tests_models: Path) -> None:
    path = tests_models / "add.golden.npz"
    arrays = open_npz(path)
    infos = [{"name": "", "shape": list(arrays[f"in{i}_0"].shape), "dtype": str(arrays[f"in{i}_0"].dtype)} for i in range(2)]
    for number, made in enumerate(rule_sets(infos, 4).inputs):
        for i, array in enumerate(made):
            assert (array == arrays[f"in{i}_{number}"]).all()


def write(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)
    return path


def test_golden_file_with_and_without_inputs(tmp_path: Path) -> None:
    x, y = np.arange(6, dtype=np.int8).reshape(1, 3, 2), np.arange(4, dtype=np.int8).reshape(1, 4)
    path = write(tmp_path / "g.npz", in0_0=x, out0_0=y, out0_1=y + 1, tflm0_0=y + 2, tflm0_1=y + 3)
    arrays = open_npz(path)
    assert is_golden(arrays)
    found = golden_sets(arrays, path, inputs=IN, outputs=OUT, oracle="litert")
    assert (found.inputs[0][0] == x).all()
    assert (found.inputs[1][0] == rule_set(IN, 1)[0]).all()
    assert found.expected is not None
    assert found.expected[1][0].tolist() == [[1, 2, 3, 4]]
    by_tflm = golden_sets(arrays, path, inputs=IN, outputs=OUT, oracle="tflm")
    assert by_tflm.expected is not None
    assert by_tflm.expected[0][0].tolist() == [[2, 3, 4, 5]]


def test_tflm_falls_back_to_out_where_both_agree(tmp_path: Path) -> None:
    path = write(tmp_path / "g.npz", out0_0=np.zeros((1, 4), np.int8))
    found = golden_sets(open_npz(path), path, inputs=IN, outputs=OUT, oracle="tflm")
    assert found.expected is not None
    assert found.expected[0][0].tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize(
    "arrays",
    [
        {"out0_0": np.zeros((1, 5), np.int8)},
        {"out0_0": np.zeros((1, 4), np.int16)},
        {"in0_0": np.zeros(7, np.int8), "out0_0": np.zeros((1, 4), np.int8)},
    ],
)
def test_golden_file_of_another_model_is_refused(tmp_path: Path, arrays: dict[str, object]) -> None:
    path = write(tmp_path / "g.npz", **arrays)
    with pytest.raises(UsageError, match="E5012"):
        golden_sets(open_npz(path), path, inputs=IN, outputs=OUT, oracle="litert")


def test_files_that_are_no_archives(tmp_path: Path) -> None:
    bad = tmp_path / "bad.npz"
    bad.write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(UsageError, match="E5011"):
        open_npz(bad)
    with pytest.raises(UsageError, match="E5001"):
        open_npz(tmp_path / "absent.npz")
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    with pytest.raises(UsageError, match="E5011"):
        open_npz(tmp_path / "objects.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(UsageError, match="E5011"):
        open_npz(tmp_path / "one.npy")
