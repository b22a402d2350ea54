"""The long text behind each error code: what it means and what to do (`aot explain CODE`)."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str]] = {
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
        "Scales are finite and positive. (Per-channel scales of weights may be negative; the reference\n"
        "computes with them.) Zero, infinite or NaN scales come from a converter that saw no data in a range:\n"
        "check the representative dataset.",
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
        "The operator is supported, but not with these types or options. The most frequent case is a hybrid\n"
        "model (float32 data, int8 weights): convert with a representative dataset, so that data are int8\n"
        "too:\n"
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
        "unknown dimension",
        "A dimension other than the batch is -1, and all shapes are fixed at compile time. Give the input's:\n"
        "--shape image=1,96,96,3 (aot check MODEL names the inputs), or fix it at conversion.",
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
    "E2020": (
        "over budget",
        "A figure of the report is above its limit in budget.toml or [tool.aot.budget], or above the baseline. The\n"
        "message holds both; aot diff BASELINE report.json names the layers that moved. If the growth is wanted,\n"
        "raise the limit, or write a new baseline with aot report --accept.",
    ),
    "E3001": (
        "program missing",
        "A compiler or the emulator is neither on PATH nor where AOT_<NAME> (AOT_ARM_NONE_EABI_GCC, ...) points.\n"
        "aot doctor lists what is there and the command that installs the rest.",
    ),
    "E3002": (
        "compiler error",
        "The C compiler refused a generated file or a file of the runtime. With an unusual compiler look at its\n"
        "version first (aot doctor); with GCC 12 or newer this is our fault: please report it with the model and\n"
        "the message.",
    ),
    "E3003": (
        "linker error",
        "The objects could not be linked. A missing libgcc or libm of the cross compiler is the usual reason: on\n"
        "Debian install libnewlib-arm-none-eabi beside gcc-arm-none-eabi.",
    ),
    "E3010": (
        "run took too long",
        "The program did not finish in time. An emulated core executes some hundred million instructions a\n"
        "second: a large model with many input sets needs a larger --timeout. A small one that hangs is our\n"
        "fault: please report it.",
    ),
    "E3011": (
        "no result from the run",
        "The emulator or the program ended without its line of results, or with results of a wrong length. The\n"
        "message holds the last lines that it printed. A full disk and an emulator without semihosting are the\n"
        "usual reasons.",
    ),
    "E3020": (
        "no Zephyr",
        "--board zephyr:BOARD builds with Zephyr: set ZEPHYR_BASE to its tree (and ZEPHYR_TOOLCHAIN_VARIANT and so on, as for\n"
        "any application of Zephyr's); cmake and ninja must be there. Without west, ZEPHYR_MODULES lists the modules.",
    ),
    "E3021": (
        "Zephyr does not build the application",
        "Zephyr's CMake or compiler refused. The message holds the last lines: an unknown board, a Python package or a\n"
        "tool chain that Zephyr misses, or a model with float operators and a C library without libm are the usual reasons.",
    ),
    "E3022": (
        "not a board that can be used here",
        "Zephyr does not run this board in an emulator, or its core is none that aot compiles for (aot targets).",
    ),
    "E3030": (
        "a Python package that this needs is missing",
        "An extra of the package is not installed. Images as inputs need Pillow: pip install 'aot[images]'.",
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
    "E5000": (
        "wrong command line",
        "A verb or an option does not exist, lacks its value or has one too many. aot VERB --help shows them with\nexamples.",
    ),
    "E5001": (
        "file cannot be read",
        "The file does not exist, is a folder, or may not be read.",
    ),
    "E5002": (
        "file too large",
        "Models of more than 1 GiB are refused: no device of this class could hold them.",
    ),
    "E5003": (
        "no valid name",
        "The name given with -n becomes the prefix of all C symbols, so it must be a lower-case C identifier that\n"
        "is no key word, and neither aot nor anything that begins with aot_: these names are the runtime's.",
    ),
    "E5004": (
        "output exists",
        "The output folder exists and is not empty. --force replaces a folder that aot wrote; -o names another\none.",
    ),
    "E5005": (
        "output is not ours",
        "--force replaces only folders that an earlier run of aot wrote (they hold a metadata.json of ours), so\n"
        "that a slip in -o cannot delete anything else. Remove the folder yourself or choose another one.",
    ),
    "E5006": (
        "disk full",
        "There is no room for the output (or a quota forbids it). Nothing was left in the output folder.",
    ),
    "E5007": (
        "output cannot be written",
        "The folder cannot be made or written; the message has the system's reason. Nothing was left in the\noutput folder.",
    ),
    "E5008": (
        "unknown error code",
        "aot explain without a code lists all of them.",
    ),
    "E5009": (
        "option with a wrong value",
        "The value is none of those that the option takes, or two options contradict each other. The message\nnames the choices.",
    ),
    "E5010": (
        "unknown target",
        "aot targets lists the processor cores. A core without its floating point unit, DSP or vector extension is written\n"
        "cortex-m4+nofpu, cortex-m33+nodsp, cortex-m55+nomve.",
    ),
    "E5011": (
        "not a numpy file",
        "The file is no .npz or .npy file of plain arrays (pickled objects are refused, as they could run code),\n"
        "or a golden file has no outputs. Write it with numpy.savez or numpy.save.",
    ),
    "E5012": (
        "input data do not match the model",
        "An array is missing, or its size or its type is not that of the model's tensor. Arrays are found by the\n"
        "input's name, or as x (x0, x1 ... with several inputs), and hold one sample or a stack of samples along\n"
        "the first axis; labels are called y. A file of raw bytes holds a whole number of samples.",
    ),
    "E5013": (
        "no scale",
        "Real values were given for an integer input that has no scale, so they cannot be quantised. Give\nintegers.",
    ),
    "E5014": (
        "values out of range",
        "Values do not fit the input's type. Are they real ones? Then --quantize always converts them with the\n"
        "model's scale and zero point, after (value - mean) * scale where --mean and --scale are given.",
    ),
    "E5015": (
        "not a usable image",
        "The file is no image that Pillow reads, or the model's input is not one (height, width and 1 or 3\nchannels).",
    ),
    "E5016": (
        "labels cannot be read",
        "--labels takes a text file with the name of one class on each line.",
    ),
    "E5020": (
        "unknown board",
        "aot boards lists the boards; a path to a folder with a board.toml works as well.",
    ),
    "E5021": (
        "malformed board.toml",
        "Every problem of the file is listed; docs/boards.md describes the keys.",
    ),
    "E5022": (
        "inputs of the wrong form",
        "An array's type or size is not that of the model's input, or their number differs.",
    ),
    "E5030": (
        "no such pass",
        "The name given to --disable-pass, --after, or PassContext(disabled=...) is not a pass of this compiler,\n"
        "or not one of the pipeline at hand. The message lists the names.",
    ),
    "E5031": (
        "a required pass cannot be disabled",
        "The steps after this pass rely on what it does. Lower its effect with options or with a lower\noptimisation level.",
    ),
    "E5032": (
        "no such pass option",
        "The key given as a pass option is not known. The message lists the keys.",
    ),
    "E5033": (
        "a pass option of the wrong type",
        "Each pass option takes a value of one type: true or false, or a whole number. See the message.",
    ),
    "E5040": (
        "a schedule primitive was refused",
        "split, fuse, reorder and unroll of a Schedule only do what they can show to keep the meaning of the loop nest.\n"
        "The message names the loop and the condition that does not hold.",
    ),
    "E5041": (
        "a generated file was changed by hand",
        "aot new --force replaces generated files only where they are as aot wrote them. Move the file away, let it\n"
        "be written anew, and put your change into a file of your own; aot-project.json lists the generated ones.",
    ),
    "E5042": (
        "no such kind of project",
        "--kind names what a project is built with. The message lists the kinds; docs/projects.md describes them.",
    ),
    "E5043": (
        "models that go together need different names",
        "Every C symbol and file of a model begins with its name, by default the file's. Two models must not have\n"
        "one name, nor one the name of another's files, such as kws_params beside kws. `aot new` takes --name once\n"
        "per model, in their order; for `aot compile` rename a file.",
    ),
    "E5044": (
        "SOURCE_DATE_EPOCH is no number",
        "The environment variable SOURCE_DATE_EPOCH, which gives the time that archives carry, must be a number of\n"
        "seconds since 1970. Unset it to have archives carry the time 0.",
    ),
    "E5045": (
        "no Model Library Format archive",
        "The file is not a tar in Model Library Format of the version that this program writes (7), or, where that is\n"
        "needed, not one that aot wrote. aot compile --format mlf makes them.",
    ),
    "E5046": (
        "not a project of this kind",
        "Some kinds of projects take certain models or boards only: mlperf-tiny needs models with one input and one\n"
        "output, and a board whose board.toml has a [uart]. The message says what is in the way; docs/projects.md has more.",
    ),
    "E5050": (
        "not a report",
        "The file is not what aot report wrote (schema aot-report/3 or aot-baseline/1), or it is damaged. The report.json of\n"
        "aot compile is a summary without figures of a run; it cannot be compared.",
    ),
    "E5051": (
        "reports that cannot be compared",
        "The figures come from other tools, options or inputs, so their difference would not be the change's. Make\n"
        "both reports with the same tools, or say with --allow which difference does not matter.",
    ),
    "E5052": (
        "wrong budget",
        "A rule of budget.toml or [tool.aot.budget] has an unknown name or a limit that cannot be read, or the\n"
        "baseline that it compares with does not exist. docs/report.md describes the file.",
    ),
    "E5053": (
        "no such revision",
        "With --model, aot diff takes two revisions (a commit, a branch, a tag, or . for the files on disk) of the git\n"
        "repository of the current folder. In a shallow clone the history must be fetched first.",
    ),
    "E5054": (
        "an input that cannot be fed by rows",
        "With --feed-rows the input comes row by row, so it must be the only one, and the layers that read it must run row by\n"
        "row: convolutions, pooling, element-wise operators and the like on images of one batch, none of which needs the\n"
        "whole input at once.",
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
"""code -> (title, explanation)"""
