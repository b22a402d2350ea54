"""The texts of `aot explain` for programs that we start (E3xxx) and for usage and files (E5xxx)."""

from __future__ import annotations

USAGE: dict[str, tuple[str, str]] = {
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
    "E3004": (
        "program cannot be started",
        "A compiler or the emulator is there, but the system does not start it: it is not executable, or built for another\n"
        "machine. Look at AOT_<NAME> if one is set; aot doctor shows which programs are found.",
    ),
    "E3005": (
        "program took too long",
        "A compiler, a binutil, git or the like did not end in time and was killed. (E3010 is a model that runs too long.)\n"
        "The program waits for something, or the machine is overloaded: start it by hand to see.",
    ),
    "E3006": (
        "program wrote nothing",
        "A compiler or linker reported success, but its output file is missing, empty or no ELF file. AOT_<NAME> may point to\n"
        "a wrapper that does not pass its arguments on, or to another program altogether.",
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
        "The output folder exists and is not empty. --force replaces the files that aot wrote there; -o names another\nfolder.",
    ),
    "E5005": (
        "output is not ours",
        "--force replaces and removes only files that an earlier run of aot wrote: aot-output.json lists them with their\n"
        "checksums. Your own files in such a folder stay. A folder without that list, or with a file of yours where a\n"
        "generated one would go, is left alone. Remove it yourself or choose another one.",
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
        "The name given to --disable-pass, --after, or PassContext(disabled_pass=...) is not a pass of this compiler,\n"
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
        "A primitive of a schedule only does what it can show to keep the meaning of the loop nest: the order of a float\n"
        "reduction stays, partial sums must not overflow, what is computed inside of a loop is read there only, an intrinsic\n"
        "must do just what the loop does. The message shows the loops and the condition that does not hold.",
    ),
    "E5041": (
        "a generated file was changed by hand",
        "--force replaces generated files only where they are as aot wrote them. Move the file away, let it be written\n"
        "anew, and put your change into a file of your own; aot-project.json (aot new) or aot-output.json (aot compile,\n"
        "aot build) lists the generated ones.",
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
        "both reports with the same tools, or say with --allow which difference does not matter (aot diff compares different\n"
        "models in any case).",
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
    "E5060": (
        "standard output cannot be written",
        "What the verb prints was lost in part or as a whole: standard output is closed, or the disk that it leads to is\n"
        "full. The work itself was done and its exit code stands; this one (2) is given where all else was well. A reader\n"
        "that goes away, as in aot ops | head, is no error.",
    ),
    "E5061": (
        "cache folder cannot be used",
        "AOT_CACHE names the folder that keeps objects, programs and libraries between runs. It cannot be made or written,\n"
        "belongs to another user, or others may write to it, though what lies in it is executed. Name a folder of your own,\n"
        "or unset AOT_CACHE: then ~/.cache/aot is used, and a private temporary folder where that cannot be.",
    ),
}
