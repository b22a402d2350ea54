"""The long text behind each error code: what it means and what to do (`aot explain CODE`)."""

from __future__ import annotations

from aot.explain_python import PYTHON
from aot.explain_usage import USAGE

_MODEL: dict[str, tuple[str, str]] = {
    "E1001": (
        "the file is too short",
        "A .tflite file begins with an offset and the identifier TFL3; this one ends before that. The usual\n"
        "cause is an interrupted download or an empty file: compare its size with the original's.",
    ),
    "E1002": (
        "not a TensorFlow Lite model",
        "Bytes 4 to 7 of a .tflite file are TFL3. If the file is a SavedModel, a .keras, .h5, .onnx or .pb\n"
        "file, convert it first (tf.lite.TFLiteConverter); if it is a Git LFS pointer, run git lfs pull; if\n"
        "it is compressed, unpack it.",
    ),
    "E1003": (
        "a reference leaves the file",
        "An offset inside the file points behind its end. The file is truncated or damaged: fetch it again.",
    ),
    "E1004": (
        "a vector is longer than the file",
        "The length of a vector or a string exceeds what is left of the file. The file is truncated or\ndamaged: fetch it again.",
    ),
    "E1005": (
        "a damaged table",
        "The description of a table (its vtable) contradicts itself. The file is damaged, or was written by a\nfaulty program.",
    ),
    "E1006": (
        "too many references",
        "The parts of the file refer to each other so often that reading them would take far more work than a\n"
        "file of this size can need. No converter writes such a file; it is damaged or made to harm.",
    ),
    "E1007": (
        "unknown schema version",
        "This program reads version 3 of the TensorFlow Lite schema, which every converter has written since\n"
        "2017. Convert the model again with a current converter.",
    ),
    "E1008": (
        "further problems",
        "Only the first problems are listed. Correct these first, then look again.",
    ),
    "E1009": (
        "data outside the file",
        "A buffer, or an operator's options, is stored at an offset behind the file's tables (as in files\n"
        "above 2 GB), and that range is not in the file. The file is truncated.",
    ),
    "E1010": (
        "unknown value of an enumeration",
        "A number stands where one of a few named values is expected, such as a tensor's type or a padding.\n"
        "The file is damaged, or newer than this program.",
    ),
    "E1101": (
        "a model without a subgraph",
        "The file has the right form, but describes no network.",
    ),
    "E1102": (
        "an empty subgraph",
        "The network has no outputs, so that nothing is to be computed.",
    ),
    "E1103": (
        "an index out of range",
        "Something refers by number to a tensor, buffer, operator code or subgraph that the model does not\nhave.",
    ),
    "E1104": (
        "a tensor is written twice",
        "Each tensor has one source: an operator, a graph input, or constant data. This one has two.",
    ),
    "E1105": (
        "a tensor is used before it is computed",
        "Operators are stored in the order of execution. This one reads what a later one (or itself) writes:\n"
        "the order is wrong, or the graph has a cycle.",
    ),
    "E1106": (
        "an operand without a value",
        "An operand has no data in the file, is no graph input, and no operator writes it. Often a weights\n"
        "buffer was lost when the model was edited or stripped.",
    ),
    "E1107": (
        "an output that nothing computes",
        "A graph output is neither computed, nor an input, nor a constant.",
    ),
    "E1108": (
        "constant data of the wrong size",
        "The bytes stored for a constant are not as many as its shape and type need.",
    ),
    "E1109": (
        "a negative dimension",
        "Shapes are positive; only -1 has a meaning (unknown).",
    ),
    "E1110": (
        "quantisation vectors of the wrong length",
        "A tensor has either one scale and one zero point, or one pair for each slice of its quantised\ndimension.",
    ),
    "E1111": (
        "an impossible scale",
        "Scales are finite and positive. (Per-channel scales of weights may be negative, and that of a\n"
        "constant of nothing but zeros may be 0; the reference computes with them.) Zero, infinite or\n"
        "NaN scales come from a converter that saw no data in a range: check the representative dataset.",
    ),
    "E1112": (
        "a zero point out of range",
        "The zero point is a value of the tensor's own type: -128 to 127 for int8.",
    ),
    "E1113": (
        "the quantised dimension does not exist",
        "Per-channel scales belong to a dimension that the tensor does not have.",
    ),
    "E1114": (
        "a state of the wrong size",
        "SVDF and LSTM keep their state in a tensor whose shape follows from the weights; here the two\n"
        "differ. The reference interpreter refuses the model too.",
    ),
    "E1115": (
        "SQUEEZE of a dimension that is not 1",
        "SQUEEZE removes dimensions of extent 1. The reference interpreter refuses the model too.",
    ),
    "E1116": (
        "options of another operator",
        "The options stored with the operator are those of a different kind of operator.",
    ),
    "E1117": (
        "wrong number of operands",
        "The operator has too few or too many inputs or outputs, or lacks one that is not optional.",
    ),
    "E1118": (
        "a subgraph that runs itself",
        "A WHILE, IF or CALL leads back to the subgraph it is in; that would be recursion, which has no\nbound.",
    ),
    "E1119": (
        "an input listed twice",
        "The same tensor is listed as more than one input of the graph.",
    ),
    "E1120": (
        "declared and computed type differ",
        "The shape or element type that the file gives for a result is not what the operator yields for its\n"
        "operands. If the model has a variable batch or image size, fix it at conversion (concrete function\n"
        "with a static input signature).",
    ),
    "E1121": (
        "operands do not fit together",
        "Shapes or types of the operands contradict the operator's rule, such as a different number of\n"
        "channels in data and weights.",
    ),
    "E1122": (
        "senseless parameters",
        "The operator's parameters (axes, strides, sizes, paddings ...) do not fit its operands.",
    ),
    "E1123": (
        "an option out of range",
        "Strides, dilations and windows are positive, and not larger than any image could be. A stride of 0\n"
        "often means that the operator's options were lost when the model was edited.",
    ),
    "E1124": (
        "operator not understood",
        "The operator holds values that its converter did not expect. If the reference interpreter runs the\n"
        "model, please report it: then the fault is ours.",
    ),
    "E1125": (
        "contradictory sparse constant",
        "A constant is stored sparsely (DENSIFY), but the description of its layout contradicts itself, the tensor's shape\n"
        "or the number of stored values. The file is damaged, or its converter is at fault.",
    ),
    "E1201": (
        "operator not supported yet",
        "No converter is registered for this operator. `aot ops` and docs/operators.md list those that are;\n"
        "`aot explain OPERATOR`, with its name, tells what it would take and what to do until then.",
    ),
    "E1202": (
        "element types not supported",
        "The operator is supported, but not for this combination of element types.",
    ),
    "E1203": (
        "form of an operator not supported",
        "The operator is supported, but not with these types or options. For weights and data of types that do not\n"
        "go together, convert with a representative dataset, so that both are int8:\n"
        "    converter.optimizations = [tf.lite.Optimize.DEFAULT]\n"
        "    converter.representative_dataset = samples\n"
        "    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]",
    ),
    "E1204": (
        "operand must be a constant",
        "Code is generated ahead of time, so weights, axes, paddings and shapes must be in the file, or\n"
        "follow from what is in it.",
    ),
    "E1205": (
        "operand missing",
        "The operator lacks an operand that our implementation needs.",
    ),
    "E1206": (
        "quantisation missing or unsuitable",
        "The operator needs scales and zero points (one pair, or one per output channel), and the file lacks\n"
        "them or has them in a form that the operator does not take. Convert the model with full integer\n"
        "quantisation.",
    ),
    "E1207": (
        "shapes do not fit the operator",
        "The shapes of data, weights or bias do not go together: channels that are no whole number of groups,\n"
        "fewer dimensions than the operator works on, a bias of another length. The message names them; no\n"
        "converter writes such shapes on purpose, so look at the step before.",
    ),
    "E1208": (
        "state not supported here",
        "The operator reads a variable tensor, one that keeps its value between two runs, and does not\nsupport that.",
    ),
    "E1209": (
        "no kernel for an operator",
        "The operator can be evaluated at compile time, but nothing can turn it into C for this target yet.\n"
        "aot ops lists what can be compiled.",
    ),
    "E1210": (
        "unknown custom operator",
        "Custom operators are defined by the program that wrote the model, not by TensorFlow Lite; their\n"
        "meaning is not in the file. If the model was compiled for an NPU (Ethos-U, Edge TPU), use the model\n"
        "from before that step.",
    ),
    "E1211": (
        "TensorFlow (Flex) operator",
        "The converter kept an operator of TensorFlow itself (tf.lite.OpsSet.SELECT_TF_OPS). Convert without\n"
        "that option and replace what the converter then names.",
    ),
    "E1212": (
        "string tensors",
        "Texts have no fixed size and need a heap; they are not supported. Do the text processing before the\nnetwork.",
    ),
    "E1213": (
        "shape known only at run time",
        "The shape of a result depends on a value that is computed or given at run time, so memory cannot be\n"
        "planned. Make the operand a constant, or fix the shapes at conversion.",
    ),
    "E1214": (
        "input of open size",
        "The model takes inputs of any size: a dimension other than the batch is -1, and the file has no more than a 1 in its\n"
        "place. All shapes are fixed at compile time, so choose one: --shape image=1,96,96,3, once for each input that the\n"
        "message names. All other shapes follow. A 1 may be what you want, and then has to be said, too.",
    ),
    "E1215": (
        "sparse tensor",
        "A sparse constant is supported as the operand of DENSIFY only.",
    ),
    "E1216": (
        "tensor too large",
        "One tensor is larger than 256 MiB, more than any device of this class could address.",
    ),
    "E1217": (
        "tensors too large together",
        "The tensors of one subgraph are larger than 1 GiB together.",
    ),
    "E1218": (
        "element type not supported",
        "Tensors of this element type (complex, bfloat16, float8, variant ...) are not supported.",
    ),
    "E1219": (
        "data in another file",
        "The weights lie in a separate file (external buffers). Convert the model into a single file.",
    ),
    "E1220": (
        "kind of quantisation not supported",
        "The tensor has a custom, a blockwise or a multi-axis quantisation. Convert with per-tensor or per-\n"
        "channel quantisation.",
    ),
    "E1221": (
        "too many dimensions",
        "A tensor has more than 8 dimensions.",
    ),
    "E1222": (
        "too many operators",
        "The model runs subgraphs (composites) that run others in turn, and all of them put in their places are\n"
        "more operators than any model for such a device has. Inline them in the model before conversion.",
    ),
    "E2010": (
        "workspace too large",
        "No memory region of the board has room for the workspace beside the stack and, with --io user, the I/O\n"
        "buffers. The message has the largest tensors of the busiest layer and the bounds that --opt ram and\n"
        "--feed-rows work towards (docs/memory.md). Try these, --pool to spread the workspace over several memories,\n"
        "a board with more memory, or a smaller model; `aot boards` lists the regions.",
    ),
    "E2011": (
        "constants too large",
        "The weights and tables do not fit into any region that the board offers for constants. The message has the\n"
        "layers with the most of them, and what the smallest kernels would take: --opt size works towards it.\n"
        "--const-pool gives some of them to another flash. Otherwise take a board with more memory or a smaller\n"
        "model; `aot boards` lists the regions.",
    ),
    "E2012": (
        "the image does not fit",
        "Code, constants and data together exceed a memory region; the linker's figures are in the message. Try\n"
        "--opt size, or a board with more memory.",
    ),
    "E2013": (
        "pools too small",
        "A buffer of the workspace fits into none of the memories given by --pool or [[pool]] in board.toml, beside those\n"
        "that are alive with it; or the constants do not fit into those given by --const-pool. The message has the sizes,\n"
        "what each pool has in use, and the layer at the peak. A larger pool, --opt ram (constants: --opt size), or a\n"
        "--pin less would help; aot compile MODEL --plan plan.svg draws the plan without pools.",
    ),
    "E2014": (
        "no memory at a pool's address",
        "A pool of the workspace has an address (--pool NAME=SIZE@ADDRESS) that lies in no writable memory region of the\n"
        "board, or reaches over its end; `aot boards` lists the regions.",
    ),
    "E2015": (
        "a pool over something else",
        "A pool with an address (--pool or --const-pool NAME=SIZE@ADDRESS, or [[pool]] in board.toml) shares bytes with the\n"
        "stack, the vector table, code, data, another pool or the rest of the workspace: either would destroy the other. The\n"
        "message names both. Choose an address that nothing else uses; the stack begins where the region of `data` does.",
    ),
    "E2020": (
        "over budget",
        "A figure of the report is above its limit in budget.toml or [tool.aot.budget], or above the baseline. The\n"
        "message holds both; aot diff BASELINE report.json names the layers that moved. If the growth is wanted,\n"
        "raise the limit, or write a new baseline with aot report --accept.",
    ),
    "E2021": (
        "over --ram-budget",
        "The workspace is larger than --ram-budget, and nothing smaller was found in any mode, so nothing was written. The\n"
        "message has the layer at the peak. --feed-rows keeps the input out of the workspace, --pool spreads it over several\n"
        "memories (docs/memory.md); --force-over-budget writes the files all the same.",
    ),
    "E2022": (
        "over --flash-budget",
        "Constants and code take more flash than --flash-budget, so nothing was written. `aot compile` knows the constants\n"
        "only, `aot build` the code as well. --opt size has the smallest kernels; --force-over-budget writes the files all\n"
        "the same.",
    ),
    "E4001": (
        "outputs differ from the reference",
        "The model ran, but not every output byte is the reference's. The message names the first layer whose\n"
        "output differs. Where only fully connected layers differ by 1 or 2, the reference rounds in another way:\n"
        "TensorFlow Lite once, TFLM twice; --oracle says which one is meant. Everything else is our fault: please\n"
        "report it with the model.",
    ),
    "E4010": (
        "the reference refuses the inputs",
        "TensorFlow Lite or TFLM took the model, but one of its kernels stops at these inputs: a division by zero, the\n"
        "square root of a negative number, an index outside of the tensor. Give inputs of your own with --inputs. Firmware\n"
        "has nobody to report such an error to: there every such operator has a result, which its file in aot/op says.",
    ),
    "E4020": (
        "fault on the board",
        "The processor took a fault: the message gives the instruction's function and its caller. A stack\n"
        "overflow says so: raise `stack` in the board's board.toml. Everything else is our fault: please report\n"
        "it with the model.",
    ),
    "E4021": (
        "the program was stopped",
        "The emulated core locked up, the host killed the program, or a sanitizer found a forbidden access. This\n"
        "is our fault: please report it with the model and the message.",
    ),
    "E4022": (
        "the model returned an error",
        "<name>_run returned a negative status instead of 0; aot/status.h names them.",
    ),
    "E4030": (
        "the image holds what it must not",
        "The linked image of the model holds a heap, recursion, an unbounded stack or, for an integer model,\n"
        "parts of the C library. This is our fault: please report it with the model and the message.",
    ),
    "E4040": (
        "a result depends on dead memory",
        "With --poison, every byte of the workspace that holds nothing by the memory plan is overwritten after\n"
        "each layer. The outputs of that run differ from those of the plain one, so a layer reads memory that\n"
        "the plan gave away. This is our fault: please report it with the model.",
    ),
    "E9001": (
        "internal error",
        "A check inside the compiler failed: this is our fault, not yours. Please report it with the model, or with the\n"
        "smallest part of it that shows the fault (aot dump --all writes the intermediate forms).",
    ),
    "E9002": (
        "a kernel broke a rule of the loop-nest IR",
        "The interpreter ran a generated kernel and found an access out of bounds, a signed overflow or the like in it.\n"
        "This is our fault, not yours: please report it with the model and the message, which names the function and the\n"
        "statement.",
    ),
    "E9003": (
        "a graph that is not well-formed",
        "The verifier found a fault in the intermediate form after a step of the compiler. This is our fault, not yours:\n"
        "please report it with the model.",
    ),
    "E9004": (
        "a pass changed the result",
        "Running the graph before and after a step of the compiler gave different values. This is our fault, not yours:\n"
        "please report it with the model and the name of the pass.",
    ),
    "E9005": (
        "a memory plan that destroys a value",
        "The independent check of the workspace found two values over each other at a time when both are needed. This is our\n"
        "fault, not yours: please report it with the model and the message, which names the values.",
    ),
}
"""Models, fit, verification, and our own faults."""

EXPLANATIONS: dict[str, tuple[str, str]] = dict(sorted({**_MODEL, **USAGE, **PYTHON}.items()))
"""code -> (title, explanation)"""
