"""The file of aot.op that registers an operator and everything under its name.

Written by scripts/operator_index.py, which imports all of them.
"""

from __future__ import annotations

OPERATORS = {
    name: file
    for file, *names in map(
        str.split,
        """
gather binary_search dynamic_update_slice embedding_lookup_sparse gather_nd lsh_projection one_hot scatter_nd sparse_to_dense
gather stablehlo.gather stablehlo.scatter take unsorted_segment
math.arithmetic add atan2 bitwise_and bitwise_xor divide equal floor_divide floor_mod greater greater_equal left_shift less
math.arithmetic less_equal logical_and logical_or maximum minimum multiply not_equal power right_shift select squared_difference
math.arithmetic subtract
math.unary abs bitcast bucketize cast ceil complex_abs cos elu exp fake_quant floor gelu gelu_half gelu_half_tanh gelu_tanh
math.unary gelu_uneven hard_swish imag leaky_relu log logical_not negative real relu rint rsqrt sigmoid sign sin sqrt square tanh
nn.conv nn.bias_add nn.conv2d nn.conv2d_float nn.conv2d_transpose nn.conv2d_transpose_float nn.conv3d nn.conv3d_transpose
nn.conv nn.depthwise_conv2d nn.depthwise_conv2d_float qnn.conv2d_transpose_hybrid
nn.dense nn.batch_matmul nn.dense nn.dense_float qnn.dense_blockwise
nn.pool mediapipe.argmax mediapipe.unpool nn.avg_of_sums nn.avg_pool2d nn.max_pool2d
qnn.arithmetic qnn.add qnn.add_n qnn.divide qnn.multiply qnn.squared_difference
qnn.lut qnn.lut qnn.lut16 qnn.lut_float qnn.prelu qnn.sigmoid16 qnn.sqrt16 qnn.steps
qnn.quantize clip qnn.cast_sums qnn.dequantize qnn.dynamic_params qnn.dynamic_quantize qnn.dynamic_range qnn.hybrid_output
qnn.quantize qnn.quantize qnn.requantize qnn.requantize8
qnn.softmax nn.lrn qnn.l2_normalize qnn.log_softmax qnn.softmax qnn.softmax16
random random.advance random.bits random.multinomial random.normal random.uniform
recurrent nn.dense_lanes nn.lstm nn.lstm_basic nn.rnn nn.svdf_memory nn.svdf_time qnn.lstm
reduce all any argmax argmin average cumsum mean prod qnn.cumsum qnn.prod qnn.sum reduce_max reduce_min reduce_window sum topk
signal signal.energy signal.filter_bank signal.irfft signal.log signal.mfcc signal.noise_estimate signal.overlap_add signal.pcan
signal signal.rfft signal.rfft2d signal.scale_bits signal.scale_up signal.spectrogram signal.square_root signal.subtract_noise
signal signal.window
tensor broadcast_to concatenate full mirror_pad nn.pad reshape reverse reverse_sequence strided_slice tile transpose
vision image.resize_bilinear image.resize_nearest vision.decode_boxes vision.decode_poses vision.nms vision.pose_masks
vision vision.soft_nms
""".strip().splitlines(),
    )
    for name in names
}
"""Name -> file."""
