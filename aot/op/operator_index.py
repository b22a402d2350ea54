"""The file of aot.op that registers an operator, with all that is entered under its name.

Written by scripts/operator_index.py, which imports all of them.
"""

from __future__ import annotations

OPERATORS = {
    name: file
    for file, *names in map(
        str.split,
        """
lookup.binary_search binary_search
lookup.embedding_lookup_sparse embedding_lookup_sparse
lookup.lsh_projection lsh_projection
math.arithmetic add atan2 bitwise_and bitwise_xor divide floor_divide floor_mod left_shift logical_and logical_or maximum minimum
math.arithmetic multiply power right_shift squared_difference subtract
math.bucketize bucketize
math.cast cast
math.clip clip
math.compare equal greater greater_equal less less_equal not_equal
math.complex complex_abs imag real
math.fake_quant fake_quant
math.select select
math.unary abs ceil cos elu exp floor gelu gelu_half gelu_half_tanh gelu_tanh hard_swish leaky_relu log logical_not negative relu
math.unary rint rsqrt sigmoid sign sin sqrt square tanh
mediapipe.max_pool_argmax mediapipe.argmax
mediapipe.max_unpooling mediapipe.unpool
nn.avg_of_sums nn.avg_of_sums
nn.avg_pool2d nn.avg_pool2d
nn.batch_matmul nn.batch_matmul
nn.bias_add nn.bias_add
nn.conv2d nn.conv2d
nn.conv2d_float nn.conv2d_float
nn.conv2d_transpose nn.conv2d_transpose
nn.conv2d_transpose_float nn.conv2d_transpose_float
nn.conv2d_transpose_hybrid qnn.conv2d_transpose_hybrid
nn.conv3d nn.conv3d nn.conv3d_transpose
nn.dense nn.dense
nn.dense_blockwise qnn.dense_blockwise
nn.dense_float nn.dense_float
nn.depthwise_conv2d nn.depthwise_conv2d
nn.depthwise_conv2d_float nn.depthwise_conv2d_float
nn.gelu gelu_uneven
nn.local_response_norm nn.lrn
nn.max_pool2d nn.max_pool2d
nn.pad nn.pad
qnn.add qnn.add
qnn.add_n qnn.add_n
qnn.cast_sums qnn.cast_sums
qnn.dequantize qnn.dequantize
qnn.divide qnn.divide
qnn.dynamic_quantize qnn.dynamic_params qnn.dynamic_quantize qnn.dynamic_range
qnn.hybrid qnn.hybrid_output
qnn.l2_normalization qnn.l2_normalize
qnn.log_softmax qnn.log_softmax
qnn.lut qnn.lut
qnn.lut16 qnn.lut16 qnn.sigmoid16
qnn.lut_float qnn.lut_float
qnn.multiply qnn.multiply
qnn.prelu qnn.prelu
qnn.quantize qnn.quantize qnn.requantize8
qnn.requantize qnn.requantize
qnn.softmax qnn.softmax
qnn.softmax16 qnn.softmax16
qnn.sqrt16 qnn.sqrt16
qnn.squared_difference qnn.squared_difference
qnn.steps qnn.steps
random.bits random.advance random.bits
random.distributions random.multinomial random.normal random.uniform
recurrent.dense_lanes nn.dense_lanes
recurrent.lstm_basic nn.lstm_basic
recurrent.lstm_float nn.lstm
recurrent.lstm_integer qnn.lstm
recurrent.rnn nn.rnn
recurrent.svdf_filter nn.svdf_memory nn.svdf_time
reduce.arg_reduce argmax argmin
reduce.cumsum cumsum qnn.cumsum
reduce.mean mean qnn.sum
reduce.prod qnn.prod
reduce.reduce all any average prod reduce_max reduce_min sum
reduce.reduce_window reduce_window
reduce.topk topk
signal.energy signal.energy
signal.fft_auto_scale signal.scale_bits signal.scale_up
signal.filter_bank signal.filter_bank
signal.filter_bank_log signal.log
signal.mfcc signal.mfcc
signal.overlap_add signal.overlap_add
signal.pcan signal.pcan
signal.rfft signal.irfft signal.rfft
signal.rfft2d signal.rfft2d
signal.spectral_subtraction signal.noise_estimate signal.subtract_noise
signal.spectrogram signal.spectrogram
signal.square_root signal.square_root
signal.window signal.window
stablehlo.gather stablehlo.gather
stablehlo.scatter stablehlo.scatter
tensor.bitcast bitcast
tensor.broadcast_to broadcast_to tile
tensor.concatenate concatenate
tensor.dynamic_update_slice dynamic_update_slice
tensor.full full
tensor.mirror_pad mirror_pad
tensor.one_hot one_hot
tensor.reshape reshape
tensor.reverse reverse reverse_sequence
tensor.scatter_nd scatter_nd
tensor.segment unsorted_segment
tensor.sparse_to_dense sparse_to_dense
tensor.strided_slice strided_slice
tensor.take gather_nd take
tensor.transpose transpose
vision.decode_poses vision.decode_poses
vision.detection vision.decode_boxes vision.nms
vision.non_max_suppression vision.soft_nms
vision.pose_masks vision.pose_masks
vision.resize_bilinear image.resize_bilinear
vision.resize_nearest image.resize_nearest
""".strip().splitlines(),
    )
    for name in names
}
"""Name -> file."""
