"""PyTorch networks, tiny in width and whole in structure.  Needs torch; see make_pytorch.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Tensor = torch.Tensor
Built = tuple[nn.Module, tuple[Tensor, ...]]
NETWORKS: dict[str, Callable[[], Built]] = {}


def network(build: Callable[[], Built]) -> Callable[[], Built]:
    NETWORKS[build.__name__] = build
    return build


def image(size: int = 12, channels: int = 3) -> tuple[Tensor, ...]:
    return (torch.randn(1, channels, size, size),)


def sound(steps: int = 16, channels: int = 4) -> tuple[Tensor, ...]:
    return (torch.randn(1, channels, steps),)


def sequence(steps: int = 6, channels: int = 8) -> tuple[Tensor, ...]:
    return (torch.randn(1, steps, channels),)


def classifier(channels: int, classes: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def conv(i: int, o: int, kernel: int = 3, stride: int = 1, act: nn.Module | None = None, **options: Any) -> nn.Sequential:
    """Convolution, batch normalisation, activation (default: ReLU)."""
    layer = nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False, **options)
    return nn.Sequential(layer, nn.BatchNorm2d(o), act or nn.ReLU())


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, *f: nn.Module) -> None:
        super().__init__()
        self.f = nn.Sequential(*f)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.f(x)


class Do(nn.Module):
    """A function as a layer."""

    def __init__(self, f: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x)


@network
def cnn() -> Built:
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(96, 5), nn.Softmax(-1)), image()


class Causal(nn.Module):
    def __init__(self, i: int, o: int, dilation: int) -> None:
        super().__init__()
        self.pad, self.conv = 2 * dilation, nn.Conv1d(i, o, 3, dilation=dilation)
        self.skip = nn.Conv1d(i, o, 1)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.conv(functional.pad(x, (self.pad, 0)))) + self.skip(x)


@network
def tcn() -> Built:
    return nn.Sequential(Causal(4, 5, 1), Causal(5, 5, 2), Causal(5, 5, 4), Do(lambda x: x[:, :, -1]), nn.Linear(5, 3)), sound()


class Attention(nn.Module):
    """Self-attention, batch first."""

    def __init__(self, width: int, heads: int = 2, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, n, c))


class ConformerConvolution(nn.Module):
    def __init__(self, width: int, kernel: int = 5) -> None:
        super().__init__()
        self.norm, self.grow = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.mix, self.batch = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width), nn.BatchNorm1d(width)
        self.out = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.glu(self.grow(self.norm(x).transpose(1, 2)), 1)
        return self.out(functional.silu(self.batch(self.mix(y)))).transpose(1, 2)


def feed_forward(width: int, act: nn.Module | None = None, ratio: int = 2) -> nn.Sequential:
    wide = ratio * width
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, wide), act or nn.GELU(), nn.Linear(wide, width))


@network
def conformer() -> Built:
    half = Do(lambda x: 0.5 * x)
    attention = Residual(nn.LayerNorm(8), Attention(8))
    parts = Residual(feed_forward(8, nn.SiLU()), half), attention, Residual(ConformerConvolution(8))
    return nn.Sequential(*parts, Residual(feed_forward(8, nn.SiLU()), half), nn.LayerNorm(8)), sequence()


def shuffle(x: Tensor, groups: int = 2) -> Tensor:
    b, c, h, w = x.shape
    return x.view(b, groups, c // groups, h, w).transpose(1, 2).reshape(b, c, h, w)


class ShuffleUnit(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        depthwise = nn.Conv2d(half, half, 3, 1, 1, groups=half, bias=False)
        self.f = nn.Sequential(conv(half, half, 1), depthwise, nn.BatchNorm2d(half), conv(half, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, 1)
        return shuffle(torch.cat([a, self.f(b)], 1))


@network
def shufflenet() -> Built:
    return nn.Sequential(conv(3, 8, stride=2), ShuffleUnit(8), ShuffleUnit(8), classifier(8)), image()


@network
def pixel_shuffle() -> Built:
    return nn.Sequential(conv(1, 6, 5), nn.Conv2d(6, 4, 3, padding=1), nn.PixelShuffle(2), nn.Sigmoid()), image(8, 1)


@network
def group_norm_mish() -> Built:
    layers = nn.Conv2d(3, 6, 3, 1, 1), nn.GroupNorm(3, 6), nn.Mish(), nn.Conv2d(6, 6, 3, 2, 1), nn.GroupNorm(2, 6), nn.Mish()
    return nn.Sequential(*layers, classifier(6)), image()


class Excite(nn.Module):
    def __init__(self, width: int, gate: nn.Module | None = None) -> None:
        super().__init__()
        down, up = nn.Conv2d(width, width // 2, 1), nn.Conv2d(width // 2, width, 1)
        self.f = nn.Sequential(nn.AdaptiveAvgPool2d(1), down, nn.ReLU(), up, gate or nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.f(x)


def mbconv(width: int, act: type[nn.Module], gate: nn.Module | None = None) -> nn.Module:
    wide = 2 * width
    last = nn.Conv2d(wide, width, 1, bias=False), nn.BatchNorm2d(width)
    return Residual(conv(width, wide, 1, act=act()), conv(wide, wide, 5, act=act(), groups=wide), Excite(wide, gate), *last)


@network
def efficientnet() -> Built:
    return nn.Sequential(conv(3, 4, 3, 2, nn.SiLU()), mbconv(4, nn.SiLU), mbconv(4, nn.SiLU), classifier(4)), image()


@network
def mobilenet_v3() -> Built:
    block = mbconv(4, nn.Hardswish, nn.Hardsigmoid())
    return nn.Sequential(conv(3, 4, 3, 2, nn.Hardswish()), block, classifier(4)), image()


@network
def mobilenet_v2() -> Built:
    middle = conv(8, 8, act=nn.ReLU6(), groups=8)
    block = Residual(conv(4, 8, 1, act=nn.ReLU6()), middle, nn.Conv2d(8, 4, 1), nn.BatchNorm2d(4))
    return nn.Sequential(conv(3, 4, 3, 2, nn.ReLU6()), block, classifier(4)), image()


@network
def resnet() -> Built:
    block = Residual(conv(4, 4), nn.Conv2d(4, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4))
    stem = conv(3, 4, 7, 2), nn.MaxPool2d(3, 2, 1)
    return nn.Sequential(*stem, block, nn.ReLU(), conv(4, 6, 1, 2), classifier(6)), image(16)


class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.out = layer, nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(x)[0][:, -1])


@network
def lstm() -> Built:
    return Recurrent(nn.LSTM(4, 5, batch_first=True).eval(), 5), sequence(4, 4)


@network
def gru() -> Built:
    return Recurrent(nn.GRU(4, 5, 2, batch_first=True), 5), sequence(4, 4)


@network
def rnn() -> Built:
    return Recurrent(nn.RNN(4, 5, batch_first=True, nonlinearity="relu"), 5), sequence(4, 4)


@network
def bilstm() -> Built:
    return Recurrent(nn.LSTM(4, 3, batch_first=True, bidirectional=True), 6), sequence(4, 4)


class Step(nn.Module):
    """A cell whose states go in and out: streaming without variables."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTMCell(4, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h, c = self.cell(x, (h, c))
        return self.out(h), h, c


@network
def lstm_step() -> Built:
    return Step(), (torch.randn(1, 4), torch.randn(1, 5), torch.randn(1, 5))


@network
def transformer_encoder() -> Built:
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, activation="gelu", norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return nn.Sequential(nn.Linear(5, 8), encoder, nn.Linear(8, 3)), sequence(5, 5)


@network
def transformer_after() -> Built:
    return nn.Sequential(
        nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), Do(lambda x: x.mean(1)), nn.Linear(8, 3)
    ), sequence()


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Parameter(torch.randn(1, 6, 8))
        self.f = nn.Sequential(Residual(nn.LayerNorm(8), Attention(8, causal=True)), Residual(feed_forward(8)), nn.Linear(8, 11))

    def forward(self, x: Tensor) -> Tensor:
        return self.f(self.words(x) + self.places)


@network
def gpt() -> Built:
    return Words(), (torch.randint(0, 11, (1, 6)),)


@network
def depthwise_separable() -> Built:
    layers = conv(1, 6, 3, 2), conv(6, 6, groups=6), conv(6, 8, 1), nn.AvgPool2d(2), nn.Flatten()
    return nn.Sequential(*layers, nn.Dropout(), nn.Linear(72, 4)), image(12, 1)


class UNet(nn.Module):
    def __init__(self, up: nn.Module) -> None:
        super().__init__()
        self.a, self.b, self.c = conv(3, 4), conv(4, 6), conv(10, 4)
        self.up, self.out = up, nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        return self.out(self.c(torch.cat([a, self.up(self.b(functional.max_pool2d(a, 2)))], 1)))


@network
def unet_bilinear() -> Built:
    return UNet(nn.Upsample(scale_factor=2, mode="bilinear")), image(8)


@network
def unet_transposed() -> Built:
    return UNet(nn.ConvTranspose2d(6, 6, 2, 2)), image(8)


@network
def unet_nearest() -> Built:
    return UNet(nn.Upsample(scale_factor=2)), image(8)


@network
def layer_norm_mlp() -> Built:
    layers = nn.Linear(10, 12), nn.LayerNorm(12), nn.ELU(), nn.Linear(12, 8), nn.LeakyReLU(), nn.Linear(8, 3), nn.LogSoftmax(-1)
    return nn.Sequential(*layers), (torch.randn(1, 10),)


@network
def generator() -> Built:
    """ConvTranspose with padding, and instance normalisation."""
    grow = nn.ConvTranspose2d(4, 6, 4, 2, 1), nn.InstanceNorm2d(6, affine=True), nn.PReLU(6)
    return nn.Sequential(*grow, nn.ConvTranspose2d(6, 1, 3, 1, 1), nn.Tanh()), image(4, 4)


class Eca(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = x.mean((2, 3))
        return x * torch.sigmoid(self.conv(y[:, None])).transpose(1, 2).unsqueeze(-1)


@network
def eca_attention() -> Built:
    return nn.Sequential(conv(3, 6), Eca(), conv(6, 6, stride=2), Eca(), classifier(6)), image()


class Cbam(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 1, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.conv(torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)))


@network
def spatial_attention() -> Built:
    return nn.Sequential(conv(3, 6), Excite(6), Cbam(), classifier(6)), image(8)


class Patches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.token = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(1, 1, 8))
        self.places = nn.Parameter(torch.randn(1, 10, 8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.token, self.conv(x).flatten(2).transpose(1, 2)], 1) + self.places


@network
def vision_transformer() -> Built:
    block = Residual(nn.LayerNorm(8), Attention(8)), Residual(feed_forward(8))
    return nn.Sequential(Patches(), *block, nn.LayerNorm(8), Do(lambda x: x[:, 0]), nn.Linear(8, 4)), image()


@network
def mlp_mixer() -> Built:
    swap = Do(lambda x: x.transpose(1, 2))
    tokens = Residual(nn.LayerNorm(6), swap, nn.Linear(9, 12), nn.GELU(), nn.Linear(12, 9), swap)
    patches = nn.Sequential(nn.Conv2d(3, 6, 4, 4), nn.Flatten(2), swap)
    return nn.Sequential(patches, tokens, Residual(feed_forward(6)), Do(lambda x: x.mean(1)), nn.Linear(6, 4)), image()


@network
def convnext() -> Built:
    first, last = Do(lambda x: x.permute(0, 2, 3, 1)), Do(lambda x: x.permute(0, 3, 1, 2))
    depthwise = nn.Conv2d(6, 6, 7, padding=3, groups=6)
    return nn.Sequential(nn.Conv2d(3, 6, 2, 2), Residual(depthwise, first, feed_forward(6), last), classifier(6)), image()


@network
def gelu_cnn() -> Built:
    layers = nn.Conv2d(3, 4, 3), nn.GELU(approximate="tanh"), nn.Conv2d(4, 6, 3, 2), nn.GELU()
    return nn.Sequential(*layers, classifier(6)), image()


@network
def audio_cnn() -> Built:
    layers = nn.Conv1d(1, 4, 9, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(4, 6, 3), nn.ReLU()
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(6, 3)), sound(64, 1)


@network
def grouped_convolution() -> Built:
    return nn.Sequential(conv(4, 8, groups=2), conv(8, 8, 3, 2, groups=4), classifier(8)), image(8, 4)


@network
def dilated_pyramid() -> Built:
    """Dilated convolutions side by side, as segmentation has them."""

    class Aspp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Conv2d(4, 3, 3, padding=d, dilation=d) for d in (1, 2, 3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([functional.relu(p(x)) for p in self.parts], 1)

    return nn.Sequential(conv(3, 4), Aspp(), nn.Conv2d(9, 2, 1), nn.UpsamplingNearest2d(scale_factor=2)), image(8)


@network
def autoencoder() -> Built:
    layers = nn.Linear(16, 8), nn.Softplus(), nn.Linear(8, 3), nn.Softsign(), nn.Linear(3, 8), nn.SELU(), nn.Linear(8, 16)
    return nn.Sequential(*layers), (torch.randn(1, 16),)


class Detector(nn.Module):
    """A head of boxes and scores, decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = conv(3, 6, 3, 2, nn.SiLU()), nn.Conv2d(6, 6, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.head(self.body(x)).flatten(2).transpose(1, 2)
        centre, size = y[..., :2].sigmoid() * 2 - 0.5, y[..., 2:4].clamp(-2, 2).exp()
        return torch.cat([centre - size / 2, centre + size / 2], -1), y[..., 4:].softmax(-1)


@network
def detector() -> Built:
    return Detector(), image(8)
