"""The TensorFlow Lite schema as plain tables: the slot, name, type and default of each field.

Facts of the public schema (version 3 files, up to the external buffers and the StableHLO options of 2025); nothing here
reads a file.  A table's text is `Name field:type[=default] ...` in slot order, `-` for an unused slot.
Types: `i8 u8 ... f32 bool str`, `[t]` a vector, `bytes` a small vector of bytes, an enum's name, `union:Enum`
(the member's table, chosen by the preceding field), else the name of another table.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from aot.support.dataclass import dataclass

FILE_IDENTIFIER = b"TFL3"
SCHEMA_VERSION = 3

_TABLES = """
CustomQuantization custom:bytes
BlockwiseQuantization scales:i32 zero_points:i32 block_size:i32 block_shape:[i32]
MultiAxisQuantization scales:i32 zero_points:i32 block_size:i32 quantized_dimensions:[i32]
QuantizationParameters min:[f32] max:[f32] scale:[f32] zero_point:[i64] details_type:u8 details:union:QuantizationDetails
    quantized_dimension:i32
Int32Vector values:[i32]
Uint16Vector values:[u16]
Uint8Vector values:[u8]
DimensionMetadata format:DimensionType dense_size:i32 array_segments_type:u8 array_segments:union:SparseIndexVector
    array_indices_type:u8 array_indices:union:SparseIndexVector
SparsityParameters traversal_order:[i32] block_map:[i32] dim_metadata:[DimensionMetadata]
VariantSubType shape:[i32] type:TensorType has_rank:bool
Tensor shape:[i32] type:TensorType buffer:u32 name:str quantization:QuantizationParameters is_variable:bool
    sparsity:SparsityParameters shape_signature:[i32] has_rank:bool variant_tensors:[VariantSubType] external_buffer:u32
StablehloGatherOptions offset_dims:[i64] collapsed_slice_dims:[i64] start_index_map:[i64] index_vector_dim:i64 slice_sizes:[i64]
    indices_are_sorted:bool
StablehloTransposeOptions permutation:[i64]
StablehloDotGeneralOptions lhs_batching_dimensions:[i64] rhs_batching_dimensions:[i64] lhs_contracting_dimensions:[i64]
    rhs_contracting_dimensions:[i64] precision_config:[u32]
StablehloReduceWindowOptions window_dimensions:[i64] window_strides:[i64] base_dilations:[i64] window_dilations:[i64]
    padding:[i64] body_subgraph_index:i32
StablehloWhileOptions cond_subgraph_index:i32 body_subgraph_index:i32
StablehloSortOptions dimension:i64 is_stable:bool comparator_subgraph_index:i32
StablehloConcatenateOptions dimension:i64
StablehloBroadcastInDimOptions broadcast_dimensions:[i64]
StablehloCompareOptions comparison_direction:u32 compare_type:u32
StablehloDynamicSliceOptions slice_sizes:[i64]
StablehloPadOptions edge_padding_low:[i64] edge_padding_high:[i64] interior_padding:[i64]
StablehloIotaOptions iota_dimension:i64
StablehloCustomCallOptions call_target_name:str has_side_effect:bool backend_config:str api_version:i32 called_computations:[i32]
    custom_attributes:bytes
StablehloReduceOptions dimensions:[i64] body_subgraph_index:i32
StablehloSliceOptions start_indices:[i64] limit_indices:[i64] strides:[i64]
StablehloConvolutionOptions window_strides:[i64] padding:[i64] lhs_dilation:[i64] rhs_dilation:[i64] window_reversal:[bool]
    input_batch_dimension:i64 input_feature_dimension:i64 input_spatial_dimensions:[i64] kernel_input_feature_dimension:i64
    kernel_output_feature_dimension:i64 kernel_spatial_dimensions:[i64] output_batch_dimension:i64 output_feature_dimension:i64
    output_spatial_dimensions:[i64] feature_group_count:i64 batch_group_count:i64 precision_config:[u32]
StablehloScatterOptions indices_are_sorted:bool update_window_dims:[i64] inserted_window_dims:[i64]
    scatter_dims_to_operand_dims:[i64] index_vector_dim:i64 unique_indices:bool update_computation_subgraph_index:i32
StablehloCaseOptions branch_subgraph_indices:[i32]
StablehloRngBitGeneratorOptions algorithm:RngAlgorithm
Conv2DOptions padding:Padding stride_w:i32 stride_h:i32 fused_activation_function:ActivationFunctionType dilation_w_factor:i32=1
    dilation_h_factor:i32=1 quantized_bias_type:TensorType
Conv3DOptions padding:Padding stride_d:i32 stride_w:i32 stride_h:i32 fused_activation_function:ActivationFunctionType
    dilation_d_factor:i32=1 dilation_w_factor:i32=1 dilation_h_factor:i32=1
Pool2DOptions padding:Padding stride_w:i32 stride_h:i32 filter_width:i32 filter_height:i32
    fused_activation_function:ActivationFunctionType
DepthwiseConv2DOptions padding:Padding stride_w:i32 stride_h:i32 depth_multiplier:i32
    fused_activation_function:ActivationFunctionType dilation_w_factor:i32=1 dilation_h_factor:i32=1
ConcatEmbeddingsOptions num_channels:i32 num_columns_per_channel:[i32] embedding_dim_per_channel:[i32]
LSHProjectionOptions type:LSHProjectionType
SVDFOptions rank:i32 fused_activation_function:ActivationFunctionType asymmetric_quantize_inputs:bool
RNNOptions fused_activation_function:ActivationFunctionType asymmetric_quantize_inputs:bool
SequenceRNNOptions time_major:bool fused_activation_function:ActivationFunctionType asymmetric_quantize_inputs:bool
BidirectionalSequenceRNNOptions time_major:bool fused_activation_function:ActivationFunctionType merge_outputs:bool
    asymmetric_quantize_inputs:bool
FullyConnectedOptions fused_activation_function:ActivationFunctionType weights_format:FullyConnectedOptionsWeightsFormat
    keep_num_dims:bool asymmetric_quantize_inputs:bool quantized_bias_type:TensorType quant_spec:bytes
SoftmaxOptions beta:f32
ConcatenationOptions axis:i32 fused_activation_function:ActivationFunctionType
AddOptions fused_activation_function:ActivationFunctionType pot_scale_int16:bool=True
MulOptions fused_activation_function:ActivationFunctionType
L2NormOptions fused_activation_function:ActivationFunctionType
LocalResponseNormalizationOptions radius:i32 bias:f32 alpha:f32 beta:f32
LSTMOptions fused_activation_function:ActivationFunctionType cell_clip:f32 proj_clip:f32 kernel_type:LSTMKernelType
    asymmetric_quantize_inputs:bool
UnidirectionalSequenceLSTMOptions fused_activation_function:ActivationFunctionType cell_clip:f32 proj_clip:f32 time_major:bool
    asymmetric_quantize_inputs:bool diagonal_recurrent_tensors:bool
BidirectionalSequenceLSTMOptions fused_activation_function:ActivationFunctionType cell_clip:f32 proj_clip:f32 merge_outputs:bool
    time_major:bool=True asymmetric_quantize_inputs:bool
ResizeBilinearOptions - - align_corners:bool half_pixel_centers:bool
ResizeNearestNeighborOptions align_corners:bool half_pixel_centers:bool
CallOptions subgraph:u32
ReshapeOptions new_shape:[i32]
SkipGramOptions ngram_size:i32 max_skip_size:i32 include_all_ngrams:bool
SpaceToDepthOptions block_size:i32
DepthToSpaceOptions block_size:i32
SubOptions fused_activation_function:ActivationFunctionType pot_scale_int16:bool=True
DivOptions fused_activation_function:ActivationFunctionType
EmbeddingLookupSparseOptions combiner:CombinerType
GatherOptions axis:i32 batch_dims:i32
ReducerOptions keep_dims:bool
SqueezeOptions squeeze_dims:[i32]
SplitOptions num_splits:i32
SplitVOptions num_splits:i32
StridedSliceOptions begin_mask:i32 end_mask:i32 ellipsis_mask:i32 new_axis_mask:i32 shrink_axis_mask:i32 offset:bool
CastOptions in_data_type:TensorType out_data_type:TensorType
ArgMaxOptions output_type:TensorType
ArgMinOptions output_type:TensorType
TransposeConvOptions padding:Padding stride_w:i32 stride_h:i32 fused_activation_function:ActivationFunctionType
    quantized_bias_type:TensorType
SparseToDenseOptions validate_indices:bool
ShapeOptions out_type:TensorType
FakeQuantOptions min:f32 max:f32 num_bits:i32 narrow_range:bool
PackOptions values_count:i32 axis:i32
OneHotOptions axis:i32
UnpackOptions num:i32 axis:i32
LeakyReluOptions alpha:f32
MirrorPadOptions mode:MirrorPadMode
UniqueOptions idx_out_type:TensorType=INT32
ReverseSequenceOptions seq_dim:i32 batch_dim:i32
IfOptions then_subgraph_index:i32 else_subgraph_index:i32
CallOnceOptions init_subgraph_index:i32
WhileOptions cond_subgraph_index:i32 body_subgraph_index:i32
BatchMatMulOptions adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool
CumsumOptions exclusive:bool reverse:bool
HashtableOptions table_id:i32 key_dtype:TensorType value_dtype:TensorType
VarHandleOptions container:str shared_name:str
RandomOptions seed:i64 seed2:i64
BucketizeOptions boundaries:[f32]
GeluOptions approximate:bool
ReduceWindowOptions reduce_function:ReduceWindowFunction
OperatorCode deprecated_builtin_code:i8 custom_code:str version:i32=1 builtin_code:i32
StableHLOCompositeOptions name:str decomposition_subgraph_index:i32 composite_attributes:bytes composite_attributes_format:i8
    version:i32
Operator opcode_index:u32 inputs:[i32] outputs:[i32] builtin_options_type:u8 builtin_options:union:BuiltinOptions
    custom_options:bytes custom_options_format:i8 mutating_variable_inputs:[bool] intermediates:[i32]
    large_custom_options_offset:u64 large_custom_options_size:u64 builtin_options2_type:u8 builtin_options2:union:BuiltinOptions2
    debug_metadata_index:i32=-1
SubGraph tensors:[Tensor] inputs:[i32] outputs:[i32] operators:[Operator] name:str debug_metadata_index:i32=-1
Buffer data:[u8] offset:u64 size:u64
ExternalBufferGroup name:str
ExternalBuffer id:u32 group:u32 offset:u64 length:u64 packing:str
Metadata name:str buffer:u32
TensorMap name:str tensor_index:u32
SignatureDef inputs:[TensorMap] outputs:[TensorMap] signature_key:str - subgraph_index:u32
Model version:u32 operator_codes:[OperatorCode] subgraphs:[SubGraph] description:str buffers:[Buffer] metadata_buffer:[i32]
    metadata:[Metadata] signature_defs:[SignatureDef] external_buffer_groups:[ExternalBufferGroup]
    external_buffers:[ExternalBuffer]
"""
_ENUMS = """
TensorType FLOAT32 FLOAT16 INT32 UINT8 INT64 STRING BOOL INT16 COMPLEX64 INT8 FLOAT64 COMPLEX128 UINT64 RESOURCE VARIANT UINT32
    UINT16 INT4 BFLOAT16 INT2 UINT4 FLOAT8_E4M3FN FLOAT8_E5M2
QuantizationDetails NONE CustomQuantization BlockwiseQuantization MultiAxisQuantization
DimensionType DENSE SPARSE_CSR
SparseIndexVector NONE Int32Vector Uint16Vector Uint8Vector
BuiltinOperator ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
    FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM
    MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS
    SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND
    TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT
    LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL
    LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW
    ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV
    REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V
    UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND
    HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL
    PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND
    HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS
    RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD
    UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC
    STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
    STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS
    STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE
    STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH
    STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD
    STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER
    STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT
    STABLEHLO_CASE
BuiltinOptions NONE Conv2DOptions DepthwiseConv2DOptions ConcatEmbeddingsOptions LSHProjectionOptions Pool2DOptions SVDFOptions
    RNNOptions FullyConnectedOptions SoftmaxOptions ConcatenationOptions AddOptions L2NormOptions
    LocalResponseNormalizationOptions LSTMOptions ResizeBilinearOptions CallOptions ReshapeOptions SkipGramOptions
    SpaceToDepthOptions EmbeddingLookupSparseOptions MulOptions PadOptions GatherOptions BatchToSpaceNDOptions
    SpaceToBatchNDOptions TransposeOptions ReducerOptions SubOptions DivOptions SqueezeOptions SequenceRNNOptions
    StridedSliceOptions ExpOptions TopKV2Options SplitOptions LogSoftmaxOptions CastOptions DequantizeOptions
    MaximumMinimumOptions ArgMaxOptions LessOptions NegOptions PadV2Options GreaterOptions GreaterEqualOptions LessEqualOptions
    SelectOptions SliceOptions TransposeConvOptions SparseToDenseOptions TileOptions ExpandDimsOptions EqualOptions
    NotEqualOptions ShapeOptions PowOptions ArgMinOptions FakeQuantOptions PackOptions LogicalOrOptions OneHotOptions
    LogicalAndOptions LogicalNotOptions UnpackOptions FloorDivOptions SquareOptions ZerosLikeOptions FillOptions
    BidirectionalSequenceLSTMOptions BidirectionalSequenceRNNOptions UnidirectionalSequenceLSTMOptions FloorModOptions
    RangeOptions ResizeNearestNeighborOptions LeakyReluOptions SquaredDifferenceOptions MirrorPadOptions AbsOptions SplitVOptions
    UniqueOptions ReverseV2Options AddNOptions GatherNdOptions CosOptions WhereOptions RankOptions ReverseSequenceOptions
    MatrixDiagOptions QuantizeOptions MatrixSetDiagOptions HardSwishOptions IfOptions WhileOptions DepthToSpaceOptions
    NonMaxSuppressionV4Options NonMaxSuppressionV5Options ScatterNdOptions SelectV2Options DensifyOptions SegmentSumOptions
    BatchMatMulOptions CumsumOptions CallOnceOptions BroadcastToOptions Rfft2dOptions Conv3DOptions HashtableOptions
    HashtableFindOptions HashtableImportOptions HashtableSizeOptions VarHandleOptions ReadVariableOptions AssignVariableOptions
    RandomOptions BucketizeOptions GeluOptions DynamicUpdateSliceOptions UnsortedSegmentProdOptions UnsortedSegmentMaxOptions
    UnsortedSegmentMinOptions UnsortedSegmentSumOptions ATan2Options SignOptions BitcastOptions BitwiseXorOptions
    RightShiftOptions
BuiltinOptions2 NONE StablehloConcatenateOptions StablehloBroadcastInDimOptions StablehloSliceOptions StablehloConvolutionOptions
    StablehloCustomCallOptions StablehloReduceOptions StablehloScatterOptions StablehloCompareOptions StablehloDynamicSliceOptions
    StablehloPadOptions StablehloIotaOptions StablehloDotGeneralOptions StablehloReduceWindowOptions StablehloSortOptions
    StablehloWhileOptions StablehloGatherOptions StablehloTransposeOptions DilateOptions StablehloRngBitGeneratorOptions
    ReduceWindowOptions StableHLOCompositeOptions StablehloShiftLeftOptions StablehloCaseOptions
RngAlgorithm DEFAULT PHILOX THREEFRY
Padding SAME VALID
ActivationFunctionType NONE RELU RELU_N1_TO_1 RELU6 TANH SIGN_BIT
LSHProjectionType UNKNOWN SPARSE DENSE
FullyConnectedOptionsWeightsFormat DEFAULT SHUFFLED4x16INT8
LSTMKernelType FULL BASIC
CombinerType SUM MEAN SQRTN
MirrorPadMode REFLECT SYMMETRIC
ReduceWindowFunction UNSUPPORTED ADD MUL MINIMUM MAXIMUM ALL ANY
"""

_OTHER_OPTIONS = """
Conv3DOptions CONV_3D_TRANSPOSE
Pool2DOptions AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D
SequenceRNNOptions UNIDIRECTIONAL_SEQUENCE_RNN
L2NormOptions L2_NORMALIZATION
ReducerOptions MEAN SUM REDUCE_PROD REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL
RandomOptions RANDOM_STANDARD_NORMAL RANDOM_UNIFORM MULTINOMIAL
"""
"""Tables of options that do not have the name of their operator."""

SCALARS = {
    "i8": ("<b", 1),
    "u8": ("<B", 1),
    "bool": ("<B", 1),
    "u16": ("<H", 2),
    "i32": ("<i", 4),
    "u32": ("<I", 4),
    "i64": ("<q", 8),
    "u64": ("<Q", 8),
    "f32": ("<f", 4),
}
"""scalar type -> (struct format, bytes)"""

_WIDE_ENUMS = {"ReduceWindowFunction": "i32"}  # all others are stored in one byte


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its slot in the vtable, its encoding, and its value when absent.

    `kind` is "scalar", "vector" (of scalars), "bytes", "string", "table", "tables" or "union";
    `type` the scalar type, the table's name, or the union's enum; `enum` the enum's name or "".
    """

    name: str
    slot: int
    kind: str
    type: str
    enum: str = ""
    default: object = None


@cache
def enums() -> dict[str, tuple[str, ...]]:
    """Enum name -> its members' names in numeric order (all start at 0, without gaps)."""
    return {words[0]: tuple(words[1:]) for words in _entries(_ENUMS)}


@cache
def tables() -> dict[str, tuple[Field, ...]]:
    """Table name -> its used fields, in slot order."""
    entries = {name: columns for name, *columns in _entries(_TABLES)}
    options = (*enums()["BuiltinOptions"][1:], *enums()["BuiltinOptions2"][1:])  # those without fields are not in `_TABLES`
    return {
        name: tuple(_field(text, slot, entries) for slot, text in enumerate(entries.get(name, ())) if text != "-")
        for name in dict.fromkeys((*options, *entries))
    }


@cache
def options_tables() -> dict[str, str]:
    """Operator -> its options table; operators whose options have no fields are left out."""
    by_name = {name.removesuffix("Options").lower(): name for name, fields in tables().items() if fields}
    of_same_name = {op: by_name.get(op.replace("_", "").lower(), "") for op in enums()["BuiltinOperator"]}
    others = {op: name for name, *ops in _entries(_OTHER_OPTIONS) for op in ops}
    return {op: name for op, name in (of_same_name | others).items() if name}


def _entries(text: str) -> list[list[str]]:
    """Words of each entry; an indented line continues the previous one."""
    result: list[list[str]] = []
    for line in text.strip().splitlines():
        if line.startswith(" "):
            result[-1] += line.split()
        else:
            result.append(line.split())
    return result


def _field(text: str, slot: int, names: Collection[str]) -> Field:
    name, _, type_ = text.partition(":")
    type_, _, default = type_.partition("=")
    if type_.startswith("["):
        inner = type_[1:-1]
        return Field(name, slot, "tables" if inner in names else "vector", inner)
    if type_.startswith("union:"):
        return Field(name, slot, "union", type_.removeprefix("union:"))
    if type_ in enums():
        members = enums()[type_]
        return Field(name, slot, "scalar", _WIDE_ENUMS.get(type_, "i8"), type_, default or members[0])
    if type_ in SCALARS:
        return Field(name, slot, "scalar", type_, default=_default(type_, default))
    kind = {"str": "string", "bytes": "bytes"}.get(type_, "table")
    return Field(name, slot, kind, type_)


def _default(type_: str, text: str) -> object:
    match type_:
        case "bool":
            return text == "True"
        case "f32":
            return float(text or 0)
        case _:
            return int(text or 0)


# Why operators are not supported, and what to do about it; `aot explain OPERATOR` prints it.


@dataclass(frozen=True, slots=True)
class Reason:
    """A class in a few words, and sentences of advice."""

    kind: str
    text: str


NOT_RUN = "no interpreter runs it"
"""Neither LiteRT nor TFLM has a kernel, so there are no results to match."""
STRINGS = "strings"

_OBSOLETE = Reason(
    NOT_RUN,
    "Neither LiteRT nor TFLM has a kernel for it, so no interpreter runs such a file.  Convert the model again with a\n"
    "current converter.",
)
_STRINGS = Reason(
    STRINGS,
    "It works on strings, or on a table with strings, the only kind that the reference supports.  Firmware has no use for them;\n"
    "do this step outside the model. (HASHTABLE_LOOKUP, a table of numbers with int32 keys, is supported.)",
)
_STABLEHLO = Reason(
    NOT_RUN,
    "LiteRT has no kernel for it either: most StableHLO operators appear only in files for other runtimes.\n"
    "Convert the model again to TensorFlow Lite's builtin operators.",
)
_DELEGATE = Reason(NOT_RUN, "It stands for a part of the graph that a delegate took over; use the model from before that step.")
_REASONS = {
    _OBSOLETE: "CALL CONCAT_EMBEDDINGS",
    _STRINGS: "HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE SKIP_GRAM",
    _DELEGATE: "DELEGATE",
}

_NEEDS = {name: reason for reason, names in _REASONS.items() for name in names.split()}

_UNKNOWN = Reason(
    "custom",
    "A custom operator without a public definition. Replace it by builtin operators, or cut the model there: the parts before\n"
    "and after it compile as two models, with your own C code for the operator in between.",
)


def needs_of(opcode: str) -> Reason | None:
    """Why an operator is not supported; None if the name is not TensorFlow Lite's."""
    if opcode.startswith("CUSTOM"):
        return _UNKNOWN
    return _NEEDS.get(opcode) or (_STABLEHLO if opcode.startswith("STABLEHLO_") else None)
