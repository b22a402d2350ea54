"""PyTorch networks of the width and size that firmware has, to measure kernels with (`scripts/per_mac.py`).  Needs torch.

`make_pytorch.py --set full_size` writes them to full_size_pytorch.zip, which the tests read.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from tests.converter.pytorch import (
    Attention,
    Built,
    Causal,
    ConformerConvolution,
    Do,
    Residual,
    ShuffleUnit,
    classifier,
    conv,
    feed_forward,
    image,
    sequence,
    shuffle,
    sound,
)

FULL_SIZE: dict[str, Callable[[], Built]] = {}


def full_size(build: Callable[[], Built]) -> Callable[[], Built]:
    FULL_SIZE[build.__name__] = build
    return build


@full_size
def tcn() -> Built:
    """Keywords: a second of sound in forty bands, four dilated blocks."""
    blocks = [Causal(32, 32, d) for d in (1, 2, 4, 8)]
    for block in blocks:
        block.skip = (
            nn.Identity()
        )  # PT2E gives a tensor that a border and a convolution read two scales, which the converter refuses
    return nn.Sequential(nn.Conv1d(40, 32, 1), *blocks, Do(lambda x: x[:, :, -1]), nn.Linear(32, 12)), sound(98, 40)


@full_size
def conformer() -> Built:
    """One block of 64 channels, four heads, a window of fifteen steps."""
    half = Do(lambda x: 0.5 * x)
    attention = Residual(nn.LayerNorm(64), Attention(64, 4))
    forward = [Residual(feed_forward(64, nn.SiLU(), 4), half) for _ in range(2)]
    block = nn.Sequential(forward[0], attention, Residual(ConformerConvolution(64, 15)), forward[1], nn.LayerNorm(64))
    return nn.Sequential(nn.Linear(40, 64), block, nn.Linear(64, 12)), sequence(32, 40)


class Downsample(nn.Module):
    """The unit of ShuffleNet V2 that halves the picture: two branches, both convolved."""

    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        half = o // 2
        self.a = nn.Sequential(*self.depthwise(i), conv(i, half, 1))
        self.b = nn.Sequential(conv(i, half, 1), *self.depthwise(half), conv(half, half, 1))

    def depthwise(self, width: int) -> tuple[nn.Module, nn.Module]:
        return nn.Conv2d(width, width, 3, 2, 1, groups=width, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return shuffle(torch.cat([self.a(x), self.b(x)], 1))


@full_size
def shufflenet() -> Built:
    """ShuffleNet V2 at half its width, two of its stages."""
    stages = Downsample(24, 48), ShuffleUnit(48), ShuffleUnit(48), Downsample(48, 96), ShuffleUnit(96), ShuffleUnit(96)
    return nn.Sequential(conv(3, 24, stride=2), nn.MaxPool2d(3, 2, 1), *stages, conv(96, 128, 1), classifier(128, 10)), image(96)


@full_size
def pixel_shuffle() -> Built:
    """ESPCN, twice the size."""
    layers = conv(1, 32, 5), conv(32, 16), nn.Conv2d(16, 4, 3, padding=1), nn.PixelShuffle(2), nn.Sigmoid()
    return nn.Sequential(*layers), image(32, 1)


@full_size
def group_norm_mish() -> Built:
    layers: list[nn.Module] = []
    for i, o, stride in ((3, 16, 2), (16, 32, 2), (32, 32, 1), (32, 64, 2)):
        layers += nn.Conv2d(i, o, 3, stride, 1), nn.GroupNorm(4, o), nn.Mish()
    return nn.Sequential(*layers, classifier(64, 10)), image(48)


def inverted(i: int, o: int, kernel: int, stride: int) -> nn.Module:
    """Expansion, depthwise, projection; a sum where shapes agree."""
    wide = 4 * i
    grow, mix = conv(i, wide, 1, act=nn.SiLU()), conv(wide, wide, kernel, stride, nn.SiLU(), groups=wide)
    layers = grow, mix, nn.Conv2d(wide, o, 1, bias=False), nn.BatchNorm2d(o)
    return Residual(*layers) if stride == 1 and i == o else nn.Sequential(*layers)


@full_size
def mbconv_silu() -> Built:
    """The network of that name in full_size.py, of which Keras's converter makes the form with integers throughout."""
    sizes = ((16, 16, 3, 1), (16, 24, 3, 2), (24, 24, 3, 1), (24, 40, 5, 2), (40, 40, 5, 1))
    blocks = [inverted(i, o, kernel, stride) for i, o, kernel, stride in sizes]
    last = conv(40, 96, 1, act=nn.SiLU()), classifier(96, 10), nn.Softmax(-1)
    return nn.Sequential(conv(3, 16, 3, 2, nn.SiLU()), *blocks, *last), image(64)
