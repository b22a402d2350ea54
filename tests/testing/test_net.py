"""Net and the quantisation helpers: the int8 model follows the floating-point network."""

from __future__ import annotations

import numpy as np
import pytest

from aot.testing import Quant, quant_of_range, quantize_bias, quantize_weights, reference_sets
from aot.testing.net import Net, same_padding, stable


def test_range_includes_zero_and_covers_both_ends() -> None:
    q = quant_of_range(2.0, 6.0)
    assert q.zero_point == -128
    assert q.quantize(np.array([0.0, 6.0])).tolist() == [-128, 127]
    q = quant_of_range(-1.0, 3.0)
    np.testing.assert_allclose(q.dequantize(q.quantize(np.array([-1.0, 0.0, 3.0]))), [-1, 0, 3], atol=q.scale)
    assert q.dequantize(np.array([q.zero_point], np.int8))[0] == 0


def test_range_of_zeros_has_a_usable_scale() -> None:
    assert quant_of_range(0.0, 0.0) == Quant(1.0, -128)


def test_weights_are_symmetric_per_channel() -> None:
    w = np.array([[1.0, -2.0], [0.0, 0.0], [0.3, 0.1]])
    q, scale = quantize_weights(w, 0)
    assert q.tolist() == [[64, -127], [0, 0], [127, 42]]
    np.testing.assert_allclose(scale, [2 / 127, 1 / 127, 0.3 / 127], rtol=1e-6)
    _, one = quantize_weights(w, None)
    assert one.shape == (1,)


def test_bias_has_the_scale_of_the_products() -> None:
    bias, scale = quantize_bias(np.array([1.0, -1.0]), 0.5, np.array([0.25, 0.125], np.float32))
    assert bias.tolist() == [8, -16]
    assert scale.tolist() == [0.125, 0.0625]


def test_stable_keeps_six_digits() -> None:
    assert stable(np.array([1.23456789, -98765.4321, 0.0])).tolist() == [1.23457, -98765.4, 0.0]


@pytest.mark.parametrize(
    ("n", "k", "stride", "dilation", "pads"),
    [(5, 3, 1, 1, (1, 1)), (8, 3, 2, 1, (0, 1)), (7, 3, 1, 2, (2, 2)), (6, 1, 3, 1, (0, 0))],
)
def test_same_padding(n: int, k: int, stride: int, dilation: int, pads: tuple[int, int]) -> None:
    assert same_padding(n, k, stride=stride, dilation=dilation) == pads


def _network(calibration: np.ndarray) -> tuple[Net, bytes]:
    net = Net(calibration, seed=9)
    x = net.random("conv2d", net.input, (6, 3, 3, 2), strides=(2, 2), activation="RELU")
    y = net.random("depthwise", x, (1, 3, 3, 12))
    y = net.random("conv2d", y, (6, 1, 1, 12), activation="RELU6")
    x = net.add(x, y, activation="RELU")
    x = net.pool("MAX_POOL_2D", x, kernel=(3, 3), strides=(2, 2), padding="SAME")
    x = net.pool("AVERAGE_POOL_2D", x, kernel=(3, 2), strides=(1, 1))
    net.random("dense", net.flatten(x), (5, 6))
    return net, net.build()


def test_quantised_network_follows_the_float_network() -> None:
    calibration = np.random.default_rng(8).uniform(-1, 1, (12, 9, 8, 2))
    net, model = _network(calibration)
    sets = [[net.input_quant.quantize(x)[None]] for x in calibration]
    last = net.layers[-1]
    codes = np.concatenate([outputs[0] for outputs in reference_sets(model, sets)])
    error = last.range().dequantize(codes) - last.values
    assert np.abs(error).max() < 0.1 * np.abs(last.values).max()
    assert np.sqrt((error**2).mean()) < 0.05 * last.values.std()


def test_random_layers_keep_their_spread() -> None:
    net, _ = _network(np.random.default_rng(8).uniform(-1, 1, (12, 9, 8, 2)))
    spread = net.layers[2].values.std(axis=(0, 1, 2))
    assert np.all((spread > 0.55) & (spread < 1.65))


def test_float_interface_gives_the_same_numbers() -> None:
    calibration = np.random.default_rng(8).uniform(-1, 1, (4, 9, 8, 2))
    net, model = _network(calibration)
    both = [model, net.build(float_io=True)]
    code = reference_sets(both[0], [[net.input_quant.quantize(calibration[0])[None]]])[0][0]
    real = reference_sets(both[1], [[calibration[:1].astype(np.float32)]])[0][0]
    np.testing.assert_allclose(real, net.layers[-1].range().dequantize(code), rtol=1e-6, atol=1e-7)


def test_padded_average_pooling_is_refused() -> None:
    net = Net(np.zeros((1, 4, 4, 1)))
    with pytest.raises(ValueError, match="without padding"):
        net.pool("AVERAGE_POOL_2D", net.input, kernel=(3, 3), strides=(1, 1), padding="SAME")
