"""PosenetDecoderOp: persons. No interpreter here has a kernel of it, so `_poses.py` has the algorithm in other words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aot.errors import AotError
from aot.frontend.tflite import from_tflite
from aot.op.vision import KEYPOINTS, steps
from tests.op._differential import FEW, SLOW, check_drawn
from tests.op.vision._poses import QUANTS, Poses, check_maps, check_poses, drawn

DTYPES = ("uint8", "float32")


def run(poses: Poses, seed: int) -> None:
    check_poses(poses, seed)


@pytest.mark.parametrize("dtype", DTYPES)
def test_random(dtype: str) -> None:
    check_drawn(drawn(dtype=dtype, largest=3), FEW, run)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_often(dtype: str) -> None:
    check_drawn(drawn(dtype=dtype), SLOW, run)


@pytest.mark.parametrize("dtype", DTYPES)
def test_on_host(dtype: str) -> None:
    found = check_poses(Poses((9, 8), dtype, count=6), 3, host=True)
    assert found[3][0] > 1


def test_equal_scores() -> None:
    """A map without any difference and no offsets: every element is a root, in the heap's order."""
    poses = Poses((3, 2), count=6, radius=1.0)
    codes = (190, *(zero for _, zero in QUANTS[1:3]))
    given = [np.full(shape, code, np.uint8) for shape, code in zip(poses.shapes, codes, strict=True)]
    assert check_maps(poses, given)[3][0] == 6


def test_nobody() -> None:
    found = check_poses(Poses(threshold=0.999), 1)
    assert not any(f.any() for f in found)


def test_steps_reach_all() -> None:
    """Each walk goes from keypoints that it has reached to new ones; the way back uses the other channels."""
    for root, walk in enumerate(steps().tolist()):
        reached = [root]
        for source, target, channel in walk:
            assert source in reached
            assert target not in reached
            assert (source < target) == (channel < 16)
            reached.append(target)
        assert sorted(reached) == list(range(KEYPOINTS))


@pytest.mark.parametrize(
    ("poses", "options", "code"),
    [
        (Poses(), {"max_detections": 0}, "E1122"),
        (Poses(), {"stride": 0}, "E1122"),
        (Poses(dtype="int32"), {}, "E1202"),
    ],
)
def test_refused(poses: Poses, options: dict[str, Any], code: str) -> None:
    with pytest.raises(AotError) as error:
        from_tflite(poses.model(**options))
    assert {p.code for p in error.value.problems} == {code}
