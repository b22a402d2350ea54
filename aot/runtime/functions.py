"""runtime.Module: compiled functions, their C source, and the library that runs them on this machine."""

from __future__ import annotations

import ctypes
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from aot.errors import Problem, UsageError
from aot.executor.artifact import Artifact
from aot.executor.emit import compile_lowered
from aot.executor.lowered import KernelCall, LoweredModule, TensorRef
from aot.ir.module import IRModule
from aot.ir.op import Array, register_func
from aot.ir.type import TensorType
from aot.runtime.module import build_library
from aot.support.dtype import numpy_dtype
from aot.support.names import model_identifier
from aot.system.files import data_folder
from aot.target.source_module import Parameter, Signature, function_files, signature_of
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.function import PrimFunc
from aot.tir.transform import optimize


class PackedFunc:
    """A compiled function; calling it fills the arrays of its outputs in place.

    Every parameter is one C-contiguous array with the parameter's shape and element type; outputs must be writable and must not
    overlap other arrays.  Anything else is UsageError E5075.
    """

    def __init__(self, signature: Signature, entry: Callable[[], Any]) -> None:
        self._signature = signature
        self._entry = entry

    @property
    def name(self) -> str:
        """The function's name in its module."""
        return self._signature.name

    @property
    def params(self) -> tuple[Parameter, ...]:
        """Name, shape, element type and alignment of each parameter."""
        return self._signature.params

    def __call__(self, *args: Any) -> None:
        """Run on one array per parameter."""
        params = self._signature.params
        if len(args) != len(params):
            names = ", ".join(p.name for p in params)
            raise self._wrong(f"{len(args)} arguments given, expected {len(params)}: {names}")
        arrays = [self._array(p, a) for p, a in zip(params, args, strict=True)]
        for i, written in enumerate(params):
            for j, other in enumerate(arrays):
                if written.is_output and i != j and np.may_share_memory(arrays[i], other):
                    raise self._wrong(f"{written.name} and {params[j].name} overlap in memory")
        placed = [_aligned(p, a) for p, a in zip(params, arrays, strict=True)]
        self._entry()(*(ctypes.c_void_p(a.ctypes.data) for a in placed))
        for param, array, used in zip(params, arrays, placed, strict=True):
            if param.is_output and used is not array:
                array[...] = used

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {p.dtype}{list(p.shape)}" for p in self.params)
        return f"PackedFunc({self.name}({params}))"

    def _wrong(self, message: str) -> UsageError:
        return UsageError(Problem("E5075", message, f"function {self.name}"))

    def _array(self, param: Parameter, value: Any) -> Array:
        array = value
        if not isinstance(value, np.ndarray):
            if not hasattr(value, "__dlpack__"):
                raise self._wrong(f"{param.name} is {type(value).__name__}, neither a numpy array nor one that supports DLPack")
            try:
                array = np.from_dlpack(value)
            except Exception as error:
                raise self._wrong(f"{param.name} cannot be imported with DLPack: {error}") from error
        dtype = numpy_dtype(param.dtype)
        if array.shape != param.shape or array.dtype != dtype:
            got = f"{array.dtype}{list(array.shape)}"
            raise self._wrong(f"{param.name} is {param.dtype}{list(param.shape)}, not {got}")
        if param.is_output and not array.flags.writeable:
            raise self._wrong(f"{param.name} is written, and the array is read-only")
        if not array.flags.c_contiguous:
            raise self._wrong(f"{param.name} is not C-contiguous; pass np.ascontiguousarray of it")
        result: Array = array
        return result


def _aligned(param: Parameter, array: Array) -> Array:
    """The array itself if it is aligned as the function requires, else an aligned copy."""
    if array.ctypes.data % param.align == 0:
        return array
    raw = np.zeros(array.nbytes + param.align, np.uint8)
    start = -raw.ctypes.data % param.align
    copy: Array = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


# ---- a single function as a model of one layer, so that boards can do everything with it that they can do with a model


def function_artifact(func: PrimFunc, name: str, target: Target) -> Artifact:
    """The Artifact with the inputs and outputs of `func`, and one layer that calls it."""
    inputs, outputs = (tuple(map(_tensor, buffers)) for buffers in (func.inputs, func.outputs))
    calls = (KernelCall(func.name, inputs, outputs),)
    lowered = LoweredModule({func.name: func}, name, inputs=inputs, outputs=outputs, calls=calls)
    return compile_lowered(lowered, target=target).artifact


def _tensor(buffer: Buffer) -> TensorRef:
    return TensorRef(buffer.name, TensorType(buffer.shape, buffer.dtype))


FORMATS = (".so", ".tar", ".c")
_SYMBOL = "aot_module_metadata"


class Module:
    """Functions by name.

    `module["f"]` is a PackedFunc, found in the module itself or in its imports.  `type_key` is the kind of the module:
    "c" for generated sources, "library" for one loaded from a file, or the name of an external code generator.
    """

    type_key = "module"

    def __init__(self, name: str) -> None:
        self.name = name
        self._imports: list[Module] = []

    @property
    def imports(self) -> tuple[Module, ...]:
        """The imported modules."""
        return tuple(self._imports)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the module's own functions."""
        return ()

    def import_module(self, module: Module) -> None:
        """Make the functions of another module available in this one (E5074 for itself and for anything but a module)."""
        if not isinstance(module, Module) or self in (module, *_all_imports(module)):
            raise UsageError(Problem("E5074", "a module can only import another runtime.Module", f"module {self.name}"))
        self._imports.append(module)

    def get_function(self, name: str, *, query_imports: bool = False) -> PackedFunc:
        """The function of that name (E5076 if there is none); with `query_imports` also from imported modules."""
        if isinstance(name, str) and name in self.functions:
            return self._function(name)
        if query_imports:
            for module in self._imports:
                if name in module.functions:
                    return module.get_function(name)
                for inner in _all_imports(module):
                    if name in inner.functions:
                        return inner.get_function(name)
        names = ", ".join(self.functions) or "none"
        raise UsageError(Problem("E5076", f"there is no function {name!r}; functions: {names}", f"module {self.name}"))

    def implements_function(self, name: str, *, query_imports: bool = False) -> bool:
        """Whether `get_function` would find the function.

        `name`: of the function; `query_imports`: also look in imported modules.
        """
        implemented = name in self.functions
        return implemented or (query_imports and any(name in m.functions for m in _all_imports(self)))

    def __getitem__(self, name: str) -> PackedFunc:
        return self.get_function(name, query_imports=True)

    def __call__(self, *args: Any) -> None:
        """Call the only function of the module."""
        if len(self.functions) != 1:
            message = f"it has {len(self.functions)} functions; choose one: module['name'](…)"
            raise UsageError(Problem("E5076", message, f"module {self.name}"))
        self._function(self.functions[0])(*args)

    def __repr__(self) -> str:
        return f"Module({self.name}, type_key={self.type_key}, functions={list(self.functions)})"

    def get_source(self, fmt: str = "c") -> str:
        """The source of the module, from a file with suffix `fmt` (E5078 if there is none)."""
        raise UsageError(Problem("E5078", f"there is no source of format {fmt!r}", f"module {self.name}"))

    def save(self, path: str | Path, fmt: str = "") -> None:
        """Write the module to a file in the format of its suffix, or in `fmt` (E5078 if it does not have that format).

        `path`: the file to write.
        """
        raise UsageError(Problem("E5078", f"a module of kind {self.type_key} cannot be saved as {fmt!r}", str(path)))

    def _function(self, name: str) -> PackedFunc:
        raise UsageError(Problem("E5076", f"function {name} cannot be called here", f"module {self.name}"))


def _all_imports(module: Module) -> list[Module]:
    found: list[Module] = []
    for m in module.imports:
        found += [m, *_all_imports(m)]
    return found


class CModule(Module):
    """Functions as generated C: readable with `get_source`, run on this machine when called.

    Exports include the functions of imported modules (E5078 if one has no C source, or names collide).
    """

    type_key = "c"

    def __init__(self, name: str, funcs: Mapping[str, PrimFunc], target: Target) -> None:
        super().__init__(name)
        self.target = target
        self._funcs = dict(funcs)
        self._signatures = {key: signature_of(f, key) for key, f in funcs.items()}
        self._files = function_files(name, funcs, target)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions."""
        return tuple(self._funcs)

    @property
    def files(self) -> dict[str, str]:
        """The C sources by file name."""
        return dict(self._files)

    def prim_func(self, name: str) -> PrimFunc:
        """A function as the TIR that was printed."""
        self.get_function(name)
        return self._funcs[name]

    def get_source(self, fmt: str = "c") -> str:
        """The C source ("c") or the header ("h")."""
        for file, text in self._files.items():
            if file.endswith(f".{fmt}"):
                return text
        return super().get_source(fmt)

    def metadata(self) -> dict[str, Any]:
        """Plain JSON values: the target, and for each function its symbol, its parameters and its workspace in bytes.

        `imports`, if there are any: the same for each imported module.  E5078 if one has no C source.
        """
        imports = [_with_source(self, m).metadata() for m in self.imports]
        return {**self._own_metadata(), "imports": imports} if imports else self._own_metadata()

    def _own_metadata(self) -> dict[str, Any]:
        functions = [
            {"name": s.name, "symbol": s.symbol, "workspace": s.workspace, "params": [p.as_json() for p in s.params]}
            for s in self._signatures.values()
        ]
        return {"schema": "aot-functions/1", "name": self.name, "target": str(self.target), "functions": functions}

    def export_library(self, path: str | Path) -> Path:
        """Write the module and all its imports: a shared library (.so), sources with headers (.tar), or C (.c with .h).

        UsageError E5078 for another suffix, for an import without C source, and for colliding names.

        `path`: the file to write; C files of imports are written next to it.
        """
        self.save(path)
        return Path(path)

    def save(self, path: str | Path, fmt: str = "") -> None:
        """As `export_library`; `fmt` ("so", "tar", "c") overrides the suffix of the path (E5078 for another)."""
        file = _path(path)
        ending = f".{fmt.lstrip('.')}" if fmt else file.suffix
        try:
            match ending:
                case ".so":
                    file.write_bytes(self._library(self._all_files(), self.metadata()).read_bytes())
                case ".tar":
                    file.write_bytes(self._tar())
                case ".c":
                    for name, text in self._all_files(own=file.name).items():
                        file.with_name(name).write_text(text, encoding="utf-8", newline="\n")
                case _:
                    message = f"unknown format {ending!r}; choose one of {', '.join(FORMATS)}"
                    raise UsageError(Problem("E5078", message, str(path)))
        except OSError as error:
            raise UsageError(Problem("E5005", f"cannot be written: {error.strerror}", str(path))) from error

    def artifact(self, name: str | None = None) -> Artifact:
        """A function as a model of one layer, which aot.micro builds and runs on boards."""
        if name is None and len(self._funcs) != 1:
            raise UsageError(Problem("E5076", f"choose one of the functions {', '.join(self._funcs)}", f"module {self.name}"))
        key = next(iter(self._funcs)) if name is None else name
        self.get_function(key)
        return function_artifact(self._funcs[key], self._signatures[key].symbol, self.target)

    def _library(self, files: Mapping[str, str], metadata: Mapping[str, Any]) -> Path:
        text = json.dumps(metadata, sort_keys=True)
        literal = "\n".join(json.dumps(text[i : i + 100]) for i in range(0, len(text), 100))
        source = f"extern const char {_SYMBOL}[];\nconst char {_SYMBOL}[] =\n{literal};\n"
        return build_library(model_identifier(self.name), {**files, "aot_module_metadata.c": source})

    @cached_property
    def _loaded(self) -> ctypes.CDLL:
        """The module's own functions; functions of imports are called in their modules."""
        return ctypes.CDLL(str(self._library(self._files, self._own_metadata())))

    def _all_files(self, own: str = "") -> dict[str, str]:
        """The C sources of the module and of all its imports; `own`: another name for the module's own C file."""
        files: dict[str, str] = {}
        owners: dict[str, Module] = {}

        def claim(name: str, module: Module) -> None:
            if owners.setdefault(name, module) is not module:
                message = f"{owners[name].name}, exported with it, also has {name}; build one of them under another name"
                raise UsageError(Problem("E5078", message, f"module {module.name}"))

        for module in dict.fromkeys([self, *(_with_source(self, m) for m in _all_imports(self))]):
            for name, text in module._files.items():
                file = own if own and module is self and name.endswith(".c") else name
                claim(file, module)
                files[file] = text
            for signature in module._signatures.values():
                claim(f"function {signature.symbol}", module)
        return files

    def _function(self, name: str) -> PackedFunc:
        signature = self._signatures[name]
        return PackedFunc(signature, lambda: _entry(self._loaded, signature))

    def _tar(self) -> bytes:
        files = {**self._all_files(), "metadata.json": json.dumps(self.metadata(), indent=1, sort_keys=True) + "\n"}
        for header in sorted((data_folder("crt") / "include" / "aot").glob("*.h")):
            files[f"include/aot/{header.name}"] = header.read_text(encoding="utf-8")
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, text in sorted(files.items()):
                data = text.encode()
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return out.getvalue()


def _with_source(importing: Module, imported: Module) -> CModule:
    """An imported module that can be exported together with its importer (E5078)."""
    if not isinstance(imported, CModule):
        message = f"imports {imported.name} of kind {imported.type_key}, which has no C source to export; remove the import"
        raise UsageError(Problem("E5078", message, f"module {importing.name}"))
    return imported


class LibraryModule(Module):
    """Functions of a shared library written by `export_library`; created by `load_module`.

    `library`: the loaded library; `metadata`: its description of the module and its imports.
    """

    type_key = "library"

    def __init__(self, library: ctypes.CDLL, metadata: Mapping[str, Any]) -> None:
        super().__init__(metadata["name"])
        self._loaded = library
        self._signatures = {f["name"]: _signature(f) for f in metadata["functions"]}
        for inner in metadata.get("imports", ()):
            self.import_module(LibraryModule(library, inner))

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions."""
        return tuple(self._signatures)

    def _function(self, name: str) -> PackedFunc:
        signature = self._signatures[name]
        return PackedFunc(signature, lambda: _entry(self._loaded, signature))


def load_module(path: str | Path) -> Module:
    """A library written by `export_library("….so")` (E5078 if it is not one).

    `path`: the library's file.
    """
    file = _path(path)
    if not file.is_file():
        raise UsageError(Problem("E5001", "there is no such file", str(path)))
    try:
        library = ctypes.CDLL(str(file.resolve()))
        text = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, _SYMBOL)))
    except (OSError, ValueError) as error:
        raise UsageError(Problem("E5078", f"not an aot library: {error}", str(path))) from error
    return LibraryModule(library, json.loads(text))


def _path(path: Any) -> Path:
    if not isinstance(path, (str, Path)) or not str(path) or "\0" in str(path):
        raise UsageError(Problem("E5078", f"{path!r} is not a path"))
    return Path(path)


def _entry(library: ctypes.CDLL, signature: Signature) -> Any:
    entry = getattr(library, signature.symbol)
    entry.restype = None
    return entry


def _signature(data: Mapping[str, Any]) -> Signature:
    params = tuple(
        Parameter(p["name"], p["name"], tuple(p["shape"]), p["dtype"], p["align"], p["output"]) for p in data["params"]
    )  # fmt: skip
    return Signature(data["name"], data["symbol"], params, data["workspace"])


@register_func("target.build.c")
def build_c(module: IRModule, target: Target) -> Module:
    """The C of a module's PrimFuncs, each after the tir passes and the verifier."""
    funcs: dict[str, PrimFunc] = {}
    for key, func in module.functions.items():
        if not isinstance(func, PrimFunc):
            raise UsageError(Problem("E5074", f"{type(func).__name__} is not a PrimFunc", f"function {key}"))
        signature_of(func, key)
        funcs[key] = optimize(func)
    return CModule(module.name, funcs, target)
