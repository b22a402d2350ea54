"""A compiled model as a shared library of this machine, called through ctypes."""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aot.errors import Problem, ToolchainError, UsageError, internal
from aot.executor.artifact import Artifact
from aot.ir.op import Array
from aot.support.dtype import numpy_dtype
from aot.support.notebook import section, table
from aot.system.disk_cache import cache_folder
from aot.system.files import data_folder, write_error
from aot.system.process import require_output, run_program, version_of

FLAGS = ("-std=c99", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-DAOT_HOOKS=1")


def build_library(name: str, files: Mapping[str, str], *, cache: Path | None = None) -> Path:
    """The library built from the C files among `files` (by name; headers are allowed), `<name>-<digest>.so` in a cache.

    The library is kept in `cache`, by default in a folder that nobody else can write to (aot.system.cache).
    Raises ToolchainError E3001 without gcc, E3002 to E3006 if it fails; UsageError E5007, E5061 if the library cannot be kept.
    """
    gcc = os.environ.get("AOT_GCC") or shutil.which("gcc")
    if gcc is None:
        raise ToolchainError(Problem("E3001", "gcc is not on PATH; on Debian: apt-get install gcc"))
    folder = cache if cache is not None else cache_folder("host")
    library = folder / f"{name}-{_digest(files, gcc)}.so"
    try:
        if not library.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            _compile(name, files, gcc, library)
    except OSError as error:
        raise write_error(folder, error) from None
    return library


def _digest(files: Mapping[str, str], gcc: str) -> str:
    state = hashlib.sha256()
    headers = {p.name: p.read_text(encoding="utf-8") for p in sorted((data_folder("crt") / "include" / "aot").glob("*.h"))}
    for part in (*FLAGS, version_of(gcc), *(t for item in sorted({**headers, **files}.items()) for t in item)):
        data = part.encode()
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()[:24]


def _compile(name: str, files: Mapping[str, str], gcc: str, library: Path) -> None:
    """Compile in a temporary folder and move the result into place, so that concurrent builds do not interfere."""
    with tempfile.TemporaryDirectory(dir=library.parent) as temporary:
        folder = Path(temporary)
        for file, text in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8", newline="\n")
        sources = [f for f in sorted(files) if f.endswith(".c")]
        command = [
            gcc,
            *FLAGS,
            "-I.",
            "-isystem",
            "byoc/Include",
            f"-I{data_folder('crt') / 'include'}",
            *sources,
            "-lm",
            "-o",
            "library.so",
        ]
        done = run_program(command, cwd=folder)
        if done.code != 0:
            message = f"gcc refuses the generated sources of {name}:\n{done.err[-4000:]}"
            raise ToolchainError(Problem("E3002", message))
        require_output(folder / "library.so", gcc)
        (folder / "library.so").replace(library)


OnLayer = Callable[[int, bytes], None]
"""(layer, bytes of its first output)"""

# The library has its own probe, which calls the caller's function if there is one.
_PROBE = """#include <stdint.h>
#include <stddef.h>
#include "aot/hooks.h"
void (*aot_layer_callback)(int32_t layer, const void *out, uint32_t bytes);
void aot_layer_hook(int32_t layer, const void *out, uint32_t bytes) {
  if (aot_layer_callback != NULL) {
    aot_layer_callback(layer, out, bytes);
  }
}
"""

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32)


class HostModel:
    """A loaded model; not thread-safe, as it has one workspace.

    `inputs` and `outputs` describe the tensors: name, shape, dtype, scale and zero point of each
    (real = scale * (q - zero_point)).
    """

    def __init__(self, library: Path, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        self.library = library
        self._lib = ctypes.CDLL(str(library))
        name = metadata["name"]
        self._run = getattr(self._lib, f"{name}_run")
        self._run.restype = ctypes.c_int32
        self._reset = getattr(self._lib, f"{name}_reset", None)
        self._state = self.new_state() if metadata["io"] == "user" and self._reset is not None else None

    @property
    def inputs(self) -> tuple[Mapping[str, Any], ...]:
        """The rows of the inputs, in their order."""
        return tuple(self.metadata["inputs"])

    @property
    def outputs(self) -> tuple[Mapping[str, Any], ...]:
        """The rows of the outputs, in their order."""
        return tuple(self.metadata["outputs"])

    def __repr__(self) -> str:
        ends = (", ".join(f"{t['name']}: {t['dtype']}{list(t['shape'])}" for t in rows) for rows in (self.inputs, self.outputs))
        return f"HostModel({self.metadata['name']}: ({') -> ('.join(ends)}))"

    def _repr_html_(self) -> str:
        """A notebook's view: inputs and outputs with their quantisation."""
        rows = [
            (what, t["name"], t["dtype"], "×".join(map(str, t["shape"])), t.get("scale"), t.get("zero_point"))
            for what, tensors in (("input", self.inputs), ("output", self.outputs))
            for t in tensors
        ]
        return section(self.metadata["name"], table(("", "name", "dtype", "shape", "scale", "zero point"), rows, left=4))

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """One inference: arrays in the order of the inputs, then by name.  Returns the output, or a list if there are several.

        Arrays must have the inputs' shapes and dtypes (E5022 otherwise, and for a name that is unknown or given twice).
        """
        rows = self.metadata["inputs"]
        arrays = dict(zip((row["index"] for row in rows), inputs, strict=False))
        names = {key: row["index"] for row in rows for key in (row["name"], row["c_name"])}
        for name, array in named.items():
            if name not in names or names[name] in arrays:
                text = f"'{name}' is not an input, or was given already; inputs: {', '.join(row['name'] for row in rows)}"
                raise UsageError(Problem("E5022", text))
            arrays[names[name]] = array
        if len(arrays) != len(rows) or len(inputs) > len(rows):
            count = max(len(arrays), len(inputs))
            raise UsageError(Problem("E5022", f"{count} inputs given, {self.metadata['name']} has {len(rows)}"))
        results = self.run([np.asarray(arrays[row["index"]]) for row in rows])
        return results[0] if len(results) == 1 else results

    def run(self, inputs: Sequence[Array], *, state: Array | None = None, on_layer: OnLayer | None = None) -> list[Array]:
        """One inference with one array per input, of its shape and dtype (E5022 otherwise); returns one array per output.

        `state` is another stream's state (`new_state`) instead of the model's own (E5022 if the model has none).

        `inputs`: the arrays in the order of the model's inputs; `on_layer` is called with each layer's number and result.
        """
        if state is not None and (self._state is None or state.nbytes != self._state.nbytes):
            raise UsageError(Problem("E5022", f"{self.metadata['name']} does not accept a state; compile with io='user'"))
        kept = self._state if state is None else state
        rows = self.metadata["inputs"]
        if len(inputs) != len(rows):
            raise UsageError(Problem("E5022", f"{len(inputs)} inputs given, {self.metadata['name']} has {len(rows)}"))
        arrays = [_checked(row, array) for row, array in zip(rows, inputs, strict=True)]
        results = [_aligned(row) for row in self.metadata["outputs"]]
        with_probe = self._probe(on_layer)
        status = int(self._run(_pointers(arrays), _pointers(results if kept is None else [*results, kept])))
        del with_probe
        if status != 0:
            raise internal(f"{self.metadata['name']}_run returned {status}")
        return results

    def reset(self) -> None:
        """Return to the initial state, for models that keep one."""
        if self._reset is not None:
            self._reset(*(() if self._state is None else (ctypes.c_void_p(self._state.ctypes.data),)))

    def new_state(self) -> Array:
        """Memory for the state of one stream, initialised; for models with `--io user` that keep a state."""
        state = _aligned({"shape": [self.metadata["state"]["size"]], "dtype": "uint8"})
        if self._reset is not None:
            self._reset(ctypes.c_void_p(state.ctypes.data))
        return state

    def _probe(self, on_layer: OnLayer | None) -> object:
        """Set the probe; keep the result alive while it is set."""
        slot = ctypes.c_void_p.in_dll(self._lib, "aot_layer_callback")
        if on_layer is None:
            slot.value = None
            return None
        call = on_layer

        def probe(layer: int, out: int, size: int) -> None:
            call(layer, ctypes.string_at(out, size))

        function = _CALLBACK(probe)
        slot.value = ctypes.cast(function, ctypes.c_void_p).value
        return function


def load(artifact: Artifact, *, cache: Path | None = None) -> HostModel:
    """Build the sources of `artifact` for this machine (once per content) and load the library.

    The library is kept in `cache`, by default in a folder that nobody else can write to (aot.system.disk_cache).
    Raises ToolchainError E3001 without gcc, E3002 to E3006 if it fails; UsageError E5007, E5061 if the library cannot be kept.
    """
    files = {**artifact.files, "aot_probe.c": _PROBE}
    return HostModel(build_library(artifact.name, files, cache=cache), artifact.metadata)


def _checked(row: Mapping[str, Any], array: Array) -> Array:
    shape, dtype = tuple(row["shape"]), numpy_dtype(row["dtype"])
    if tuple(array.shape) != shape or array.dtype != dtype:
        want, got = f"{row['dtype']}{list(shape)}", f"{array.dtype}{list(array.shape)}"
        raise UsageError(Problem("E5022", f'input {row["index"]} "{row["name"]}" is {want}, not {got}'))
    copy = _aligned(row)
    copy[...] = array
    return copy


def _aligned(row: Mapping[str, Any]) -> Array:
    """A new array for a tensor, aligned to 16 bytes."""
    dtype, shape = numpy_dtype(row["dtype"]), tuple(int(n) for n in row["shape"])
    size = math.prod(shape) * dtype.itemsize
    raw = np.zeros(size + 16, np.uint8)
    start = -raw.ctypes.data % 16
    result: Array = raw[start : start + size].view(dtype).reshape(shape)
    return result


def _pointers(arrays: Sequence[Array]) -> ctypes.Array[ctypes.c_void_p]:
    """A struct of pointers, as the interface expects it."""
    return (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
