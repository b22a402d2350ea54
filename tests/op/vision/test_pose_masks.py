"""PosenetDecoderOp with long offsets: the masks of persons, as BodyPix networks have them."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import AotError
from aot.frontend.tflite import from_tflite
from tests.op.vision._poses import Poses, check_poses


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 3))
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_random(dtype: str, seed: int) -> None:
    check_poses(Poses(dtype=dtype, masks=True, count=3, threshold=0.2, radius=24.0), seed, host=True)


@pytest.mark.slow
def test_nobody() -> None:
    """All cells are the first person's where there is none."""
    found = check_poses(Poses(masks=True, threshold=0.999), 1)
    assert found[3][0] == 0
    np.testing.assert_array_equal(found[4][0].sum(axis=(1, 2)), [33 * 33, 0, 0, 0])


def test_refused() -> None:
    poses = Poses(masks=True)
    poses_small = type("Small", (Poses,), {"shapes": [(1, *n, c) for n, c in zip([(9, 9)] * 4, (17, 34, 64, 34), strict=True)]})
    with pytest.raises(AotError) as error:
        from_tflite(poses_small(masks=True).model())
    assert {p.code for p in error.value.problems} == {"E1122"}
    from_tflite(poses.model())
