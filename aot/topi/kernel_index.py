"""For each file of aot/topi the operators whose groups its kernels may run; "*": any group.

Written by scripts/kernel_index.py, which imports all of them.
"""

from __future__ import annotations

OPERATORS = {
    "arm_dsp.depthwise.common": "nn.depthwise_conv2d",
    "arm_dsp.depthwise.planes": "nn.depthwise_conv2d",
    "arm_dsp.depthwise.thumb2": "nn.depthwise_conv2d",
    "arm_dsp.elementwise": "qnn.add qnn.dequantize qnn.dynamic_quantize qnn.dynamic_range qnn.lut qnn.multiply qnn.quantize",
    "arm_dsp.elementwise_group": "clip qnn.add qnn.lut qnn.multiply qnn.requantize8 strided_slice",
    "arm_dsp.few_channels": "nn.conv2d nn.conv2d_transpose",
    "arm_dsp.halfwords": "nn.conv2d nn.dense nn.depthwise_conv2d",
    "arm_dsp.lstm": "qnn.lstm",
    "arm_dsp.smlal": "nn.conv2d nn.dense",
    "arm_dsp.smlal_transpose": "nn.conv2d_transpose",
    "arm_dsp.tile": "nn.conv2d nn.dense",
    "arm_dsp.transpose": "reshape strided_slice transpose",
    "arm_dsp.winograd": "nn.conv2d",
    "arm_fpu.conv2d": "nn.conv2d_float nn.conv2d_transpose_float nn.dense_float nn.depthwise_conv2d_float",
    "arm_fpu.dense": "nn.batch_matmul nn.dense_float",
    "arm_fpu.strip": "nn.depthwise_conv2d_float",
    "arm_mve.depthwise": "nn.conv2d nn.depthwise_conv2d",
    "arm_mve.elementwise": "qnn.add qnn.dequantize qnn.lut qnn.multiply qnn.quantize qnn.requantize8",
    "arm_mve.float32": "add multiply nn.conv2d_float nn.dense_float nn.depthwise_conv2d_float relu subtract",
    "arm_mve.matmul": "nn.conv2d nn.dense",
    "arm_mve.pool": "mean nn.avg_pool2d nn.max_pool2d",
    "arm_mve.softmax": "qnn.softmax",
    "arm_v6m.elementwise": "qnn.add qnn.multiply",
    "arm_v6m.lanes": "nn.conv2d nn.dense nn.depthwise_conv2d",
    "generic.copy": (
        "clip concatenate image.resize_nearest nn.pad qnn.add qnn.dequantize qnn.lut qnn.quantize qnn.requantize8 reshape "
        "strided_slice transpose"
    ),
    "generic.data_dependent": (
        "cumsum embedding_lookup_sparse lsh_projection qnn.cumsum random.advance random.bits random.multinomial scatter_nd "
        "sparse_to_dense stablehlo.scatter topk unsorted_segment"
    ),
    "generic.elementwise": "clip gelu_uneven qnn.add qnn.dequantize qnn.lut qnn.quantize qnn.requantize8",
    "generic.layers": "nn.conv2d nn.dense nn.depthwise_conv2d qnn.dense_blockwise",
    "generic.pool": "mean nn.avg_pool2d nn.max_pool2d",
    "generic.recurrent": "nn.lstm nn.lstm_basic nn.rnn nn.svdf_memory qnn.lstm",
    "generic.reduce": "reduce_max reduce_min",
    "generic.signal": (
        "complex_abs imag real reshape signal.filter_bank signal.irfft signal.log signal.mfcc signal.overlap_add signal.pcan "
        "signal.rfft signal.rfft2d signal.scale_bits signal.spectrogram signal.square_root"
    ),
    "generic.softmax": "qnn.l2_normalize qnn.log_softmax qnn.softmax qnn.softmax16",
    "generic.te_group": "*",
    "generic.vision": "vision.decode_boxes vision.decode_poses vision.nms vision.pose_masks vision.soft_nms",
}

FILES: dict[str, tuple[str, ...]] = {}
"""For each operator the files whose kernels may run groups anchored at it."""
for _file, _operators in OPERATORS.items():
    for _operator in _operators.split():
        FILES[_operator] = (*FILES.get(_operator, ()), _file)
