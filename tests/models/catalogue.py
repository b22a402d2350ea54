"""The one-operator models: name -> what it covers and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aot.testing import (
    Quant,
    add_model,
    concat_model,
    conv2d_model,
    dense_model,
    depthwise_model,
    dequantize_model,
    logistic_model,
    mean_model,
    pad_model,
    pool_model,
    quantize_model,
    requantize_model,
    reshape_model,
    resize_nearest_model,
    softmax_model,
    transpose_model,
)
from aot.testing.builder import float32

LOW = Quant(float32(0.04), -128)
HIGH = Quant(float32(0.04), 127)


@dataclass(frozen=True, slots=True)
class Case:
    """A model: its name, what it is there for, and the function that writes it."""

    name: str
    covers: str
    make: Callable[[], bytes]
    sets: int = 4


def _conv2d() -> list[Case]:
    return [
        Case("conv2d_same", "odd sizes, 3 channels", lambda: conv2d_model(seed=1)),
        Case(
            "conv2d_valid_relu",
            "VALID, 5x3 kernel, RELU",
            lambda: conv2d_model(input_shape=(1, 9, 7, 5), kernel=(5, 3), padding="VALID", activation="RELU"),
        ),
        Case(
            "conv2d_stride2_asymmetric",
            "stride 2 on even sizes: SAME pads only behind",
            lambda: conv2d_model(input_shape=(1, 8, 10, 4), filters=7, strides=(2, 2), seed=2),
        ),
        Case(
            "conv2d_stride3",
            "strides 3 and 2, even kernel",
            lambda: conv2d_model(input_shape=(1, 11, 10, 2), kernel=(4, 2), strides=(3, 2), seed=3),
        ),
        Case(
            "conv2d_dilation",
            "dilation 2x3, SAME",
            lambda: conv2d_model(input_shape=(1, 9, 11, 3), dilation=(2, 3), seed=4),
        ),
        Case(
            "conv2d_dilation_valid",
            "dilation 2, VALID",
            lambda: conv2d_model(input_shape=(1, 9, 8, 2), dilation=(2, 2), padding="VALID", seed=5),
        ),
        Case(
            "conv2d_1x1_relu6",
            "pointwise, RELU6 inside the output range",
            lambda: conv2d_model(
                input_shape=(1, 5, 5, 16),
                filters=9,
                kernel=(1, 1),
                activation="RELU6",
                y=Quant(float32(0.04), -100),
            ),
        ),
        Case(
            "conv2d_relu_n1_to_1",
            "RELU_N1_TO_1",
            lambda: conv2d_model(activation="RELU_N1_TO_1", y=Quant(float32(0.02), 3), seed=6),
        ),
        Case(
            "conv2d_row",
            "one-dimensional: 1x20 input, 1x5 kernel",
            lambda: conv2d_model(input_shape=(1, 1, 20, 3), kernel=(1, 5), filters=6, strides=(1, 2), seed=12),
        ),
        Case(
            "conv2d_kernel_over_input",
            "kernel larger than the input",
            lambda: conv2d_model(input_shape=(1, 3, 2, 4), kernel=(5, 5), seed=13),
        ),
        Case(
            "conv2d_batch2",
            "batch of two",
            lambda: conv2d_model(input_shape=(2, 5, 4, 3), strides=(2, 1), seed=14),
        ),
    ]


def _conv2d_quantisation() -> list[Case]:
    return [
        Case("conv2d_per_tensor", "one scale for all weights", lambda: conv2d_model(per_channel=False, seed=7)),
        Case(
            "conv2d_zero_point_low",
            "zero points -128 in and out",
            lambda: conv2d_model(x=LOW, y=Quant(float32(0.3), -128), seed=9),
        ),
        Case(
            "conv2d_zero_point_high",
            "zero points 127 in and out",
            lambda: conv2d_model(x=HIGH, y=Quant(float32(0.4), 127), seed=10),
        ),
        Case(
            "conv2d_dead_channels",
            "weight scales so small that the multiplier's shift underflows",
            lambda: conv2d_model(filters=4, weight_scale=[1e-2, 2.3e-9, 6e-11, 5e-3], seed=11),
        ),
        Case(
            "conv2d_large_multiplier",
            "multipliers above 1 (left shift)",
            lambda: conv2d_model(
                input_shape=(1, 7, 6, 1),
                kernel=(1, 1),
                x=Quant(2.0, 1),
                y=Quant(float32(0.7), -9),
                weight_scale=[0.4, 0.36, 0.8, 0.1],
                weight_peak=2,
                seed=15,
            ),
        ),
    ]


def _depthwise() -> list[Case]:
    return [
        Case("depthwise_same", "odd sizes, 5 channels", lambda: depthwise_model(input_shape=(1, 7, 6, 5))),
        Case(
            "depthwise_multiplier2",
            "multiplier 2, stride 2, asymmetric pads",
            lambda: depthwise_model(input_shape=(1, 8, 6, 3), multiplier=2, strides=(2, 2), seed=1),
        ),
        Case(
            "depthwise_multiplier8",
            "one channel to eight, 10x8 kernel, stride 2, RELU",
            lambda: depthwise_model(input_shape=(1, 25, 20, 1), multiplier=8, kernel=(10, 8), strides=(2, 2), activation="RELU"),
        ),
        Case(
            "depthwise_dilation",
            "dilation 2, SAME",
            lambda: depthwise_model(input_shape=(1, 9, 8, 4), dilation=(2, 2), seed=2),
        ),
        Case(
            "depthwise_valid_relu6",
            "VALID, RELU6 inside the output range",
            lambda: depthwise_model(input_shape=(1, 6, 9, 8), padding="VALID", activation="RELU6", y=Quant(float32(0.05), -120)),
        ),
        Case("depthwise_stride3", "stride 3", lambda: depthwise_model(input_shape=(1, 10, 11, 4), strides=(3, 3))),
        Case(
            "depthwise_per_tensor",
            "one scale for all weights, no bias, RELU_N1_TO_1",
            lambda: depthwise_model(per_channel=False, bias=False, activation="RELU_N1_TO_1", y=Quant(float32(0.02), -7)),
        ),
        Case(
            "depthwise_zero_point_low",
            "zero point -128",
            lambda: depthwise_model(x=LOW, y=Quant(float32(0.2), -128), seed=3),
        ),
        Case(
            "depthwise_zero_point_high",
            "zero point 127",
            lambda: depthwise_model(x=HIGH, y=Quant(float32(0.1), 127), seed=6),
        ),
        Case(
            "depthwise_column",
            "one-dimensional: 12x1 kernel over time, VALID",
            lambda: depthwise_model(input_shape=(1, 14, 1, 6), kernel=(12, 1), padding="VALID", activation="RELU", seed=5),
        ),
    ]


def _dense() -> list[Case]:
    return [
        Case("dense", "odd depth", lambda: dense_model(seed=1)),
        Case("dense_relu", "RELU, even depth", lambda: dense_model(input_shape=(1, 32), activation="RELU")),
        Case(
            "dense_relu6",
            "RELU6 inside the range",
            lambda: dense_model(activation="RELU6", y=Quant(float32(0.05), -90), units=8, seed=2),
        ),
        Case("dense_per_channel", "per-channel weights", lambda: dense_model(per_channel=True, units=7, seed=3)),
        Case("dense_no_bias", "bias left out", lambda: dense_model(bias=False, seed=4)),
        Case("dense_batch3", "three rows", lambda: dense_model(input_shape=(3, 11), units=4, seed=5)),
        Case(
            "dense_image",
            "four-dimensional input, flattened",
            lambda: dense_model(input_shape=(1, 3, 4, 5), depth=60, units=3, seed=6),
        ),
        Case(
            "dense_keep_dims",
            "three-dimensional in and out",
            lambda: dense_model(input_shape=(1, 4, 9), units=6, keep_num_dims=True, seed=7),
        ),
        Case(
            "dense_zero_points",
            "zero points 127 in, -128 out",
            lambda: dense_model(x=HIGH, y=Quant(float32(0.5), -128), units=6, seed=8),
        ),
    ]


def _add() -> list[Case]:
    shape = (1, 5, 4, 3)
    return [
        Case("add", "different scales and zero points", lambda: add_model(shape_a=shape)),
        Case("add_relu", "RELU", lambda: add_model(shape_a=shape, activation="RELU", y=LOW)),
        Case(
            "add_relu6",
            "RELU6",
            lambda: add_model(shape_a=shape, activation="RELU6", y=Quant(float32(0.03), -110)),
        ),
        Case(
            "add_relu_n1_to_1",
            "RELU_N1_TO_1",
            lambda: add_model(shape_a=shape, activation="RELU_N1_TO_1", y=Quant(float32(0.01), 0)),
        ),
        Case(
            "add_broadcast_channel",
            "second operand one number per channel, constant, lower rank",
            lambda: add_model(shape_a=shape, shape_b=(3,), constant_b=True),
        ),
        Case(
            "add_broadcast_scalar",
            "second operand a single constant",
            lambda: add_model(shape_a=shape, shape_b=(1,), constant_b=True),
        ),
        Case(
            "add_broadcast_both",
            "both operands are repeated",
            lambda: add_model(shape_a=(1, 4, 1, 3), shape_b=(1, 1, 5, 3)),
        ),
        Case(
            "add_extreme_scales",
            "scales 1:300, zero points -128 and 127",
            lambda: add_model(shape_a=shape, a=Quant(float32(3.0), -128), b=Quant(float32(0.01), 127)),
        ),
    ]


def _pool() -> list[Case]:
    cases = []
    for kind, short in (("AVERAGE_POOL_2D", "average_pool"), ("MAX_POOL_2D", "max_pool")):
        cases += [
            Case(short, "2x2, odd rest dropped", lambda k=kind: pool_model(kind=k)),  # type: ignore[misc]
            Case(
                f"{short}_same",
                "3x3 over the border",
                lambda k=kind: pool_model(kind=k, kernel=(3, 3), padding="SAME"),  # type: ignore[misc]
            ),
            Case(
                f"{short}_global",
                "whole image, zero point -128",
                lambda k=kind: pool_model(  # type: ignore[misc]
                    kind=k, input_shape=(1, 7, 5, 9), kernel=(7, 5), strides=(1, 1), x=LOW
                ),
            ),
            Case(
                f"{short}_stride3_relu6",
                "3x2 kernel, strides 3 and 1, RELU6, zero point 127",
                lambda k=kind: pool_model(  # type: ignore[misc]
                    kind=k,
                    input_shape=(1, 10, 7, 4),
                    kernel=(3, 2),
                    strides=(3, 1),
                    padding="SAME",
                    activation="RELU6",
                    x=Quant(float32(0.06), -11),
                ),
            ),
        ]
    return cases


def _reduce_and_tables() -> list[Case]:
    return [
        Case("mean_image", "height and width", lambda: mean_model(input_shape=(1, 7, 6, 5))),
        Case("mean_keep_dims", "height and width kept as 1", lambda: mean_model(keep_dims=True)),
        Case("mean_channel", "the last axis", lambda: mean_model(axes=(3,))),
        Case("mean_negative_axes", "axes counted from the end", lambda: mean_model(axes=(-2, -3))),
        Case(
            "mean_rescale",
            "another scale for the output, one axis",
            lambda: mean_model(axes=(1,), keep_dims=True, y=Quant(float32(0.02), 31)),
        ),
        Case("mean_all", "every axis", lambda: mean_model(axes=(0, 1, 2, 3), y=Quant(float32(0.008), -3))),
        Case("softmax", "beta 1", softmax_model),
        Case("softmax_beta", "beta 0.35", lambda: softmax_model(beta=0.35)),
        Case(
            "softmax_image",
            "four dimensions, steep input",
            lambda: softmax_model(input_shape=(1, 3, 4, 5), x=Quant(float32(0.7), -128)),
        ),
        Case(
            "softmax_wide",
            "97 classes, flat input",
            lambda: softmax_model(input_shape=(2, 97), x=Quant(float32(0.02), 127)),
        ),
        Case("logistic", "middle of the curve", lambda: logistic_model(x=Quant(float32(0.04), 5))),
        Case("logistic_steep", "saturates at both ends", lambda: logistic_model(x=Quant(float32(0.3), -20))),
        Case("quantize", "float32 to int8", quantize_model),
        Case("quantize_up", "int8 to a finer scale", requantize_model),
        Case("quantize_down", "int8 to a coarser scale", lambda: requantize_model(y=Quant(0.25, -128))),
        Case("quantize_shift", "same scale, other zero point", lambda: requantize_model(y=Quant(float32(0.05), 40))),
        Case("dequantize", "int8 to float32", lambda: dequantize_model(x=LOW)),
    ]


def _move() -> list[Case]:
    return [
        Case("pad", "before and after, height and width", pad_model),
        Case(
            "pad_channels",
            "three dimensions, the last one too, zero point -128",
            lambda: pad_model(input_shape=(1, 5, 3), paddings=((0, 0), (2, 1), (1, 4)), x=LOW),
        ),
        Case("pad_int64", "amounts as int64", lambda: pad_model(wide_paddings=True, x=HIGH)),
        Case("reshape", "one extent left open", lambda: reshape_model(shape=(1, -1))),
        Case("reshape_option", "shape only in the options", lambda: reshape_model(shape_tensor=False)),
        Case("reshape_up", "to more dimensions", lambda: reshape_model(input_shape=(1, 24), shape=(1, 2, 3, 4))),
        Case("concat_channels", "last axis", concat_model),
        Case(
            "concat_rows",
            "three inputs along axis 1",
            lambda: concat_model(shapes=((1, 2, 3, 2), (1, 1, 3, 2), (1, 4, 3, 2)), axis=1),
        ),
        Case("transpose_nchw", "channels first", transpose_model),
        Case("transpose_2d", "two dimensions", lambda: transpose_model(input_shape=(7, 5), perm=(1, 0))),
        Case("transpose_3d", "rotation", lambda: transpose_model(input_shape=(2, 3, 5), perm=(2, 0, 1))),
        Case("resize_nearest", "up, odd ratio", resize_nearest_model),
        Case("resize_nearest_down", "down", lambda: resize_nearest_model(input_shape=(1, 9, 8, 3), size=(4, 3))),
        Case("resize_nearest_corners", "align_corners", lambda: resize_nearest_model(align_corners=True)),
        Case(
            "resize_nearest_half_pixel",
            "half_pixel_centers",
            lambda: resize_nearest_model(half_pixel_centers=True),
        ),
    ]


def operators() -> list[Case]:
    """All one-operator models."""
    return [*_conv2d(), *_conv2d_quantisation(), *_depthwise(), *_dense(), *_add(), *_pool(), *_reduce_and_tables(), *_move()]
