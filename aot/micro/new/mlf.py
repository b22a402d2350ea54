"""Model Library Format: one tar with everything that was generated, in the layout of microTVM's exporter (version 7).

    metadata.json                        memory, inputs and outputs, target; our metadata under the key "aot"
    codegen/host/src/<name>_lib0.c ...   main function, kernels, parameters
    codegen/host/include/<name>.h        the interface, and tvmgen_<name>.h, the same with microTVM's names
    codegen/host/src/byoc/, include/     sources and headers of an external library (--byoc)
    parameters/<name>.params             empty: parameters are linked in
    src/<name>.relay                     the graph as text
    runtime/                             the parts of the runtime that the sources need

The archive depends only on its content: entries are sorted, and all times are SOURCE_DATE_EPOCH (0 if it is not set).
"""

from __future__ import annotations

import io
import json
import os
import re
import struct
import tarfile
import time
from collections.abc import Iterable, Mapping
from typing import Any

from aot.errors import Problem, UsageError
from aot.executor.artifact import Artifact
from aot.micro.new.registry import model_values, render, runtime_headers, runtime_source
from aot.support.dataclass import dataclass
from aot.support.text import printable
from aot.support.untrusted import parse_json

VERSION = 7
_PARAMS_MAGIC = 0xF7E58D4F05049CB7
_DEVICE = 1
"""Device type of a CPU."""
_SOURCE = re.compile(r"^codegen/host/(?:src|include)/[A-Za-z0-9_]+\.[ch]$")
_FOREIGN = {"byoc/Include/": "codegen/host/include/", "byoc/": "codegen/host/src/byoc/"}
"""Folder of a library's files in an artifact -> folder in an archive."""
_FOREIGN_SOURCE = re.compile(r"(?:\w+/)*\w+\.[ch]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Library:
    """The content of an archive: its metadata.json and all files by path."""

    metadata: Mapping[str, Any]
    files: Mapping[str, bytes]


def pack(artifact: Artifact, *, relay: str, epoch: int | None = None) -> bytes:
    """The tar of a compiled model; `relay` is the text of its graph, `epoch` the timestamp (default SOURCE_DATE_EPOCH).

    Raises UsageError E5044 if SOURCE_DATE_EPOCH is not a number.
    """
    when = source_date() if epoch is None else epoch
    name = artifact.name
    files: dict[str, bytes] = {
        "metadata.json": (json.dumps(library_metadata(artifact, when), indent=2, sort_keys=True) + "\n").encode(),
        f"parameters/{name}.params": struct.pack("<QQQQ", _PARAMS_MAGIC, 0, 0, 0),  # no names, no arrays
        f"src/{name}.relay": relay.encode(),
        "runtime/src/memory.c": runtime_source("memory.c").encode(),
    }
    files.update({path: text.encode() for path, text in _sources(artifact).items()})
    files.update({f"runtime/include/{h}": str(text).encode() for h, text in runtime_headers(artifact.files).items()})
    return _tar(files, when)


def source_date() -> int:
    """The timestamp for the archive: SOURCE_DATE_EPOCH (reproducible-builds.org), else 0."""
    text = os.environ.get("SOURCE_DATE_EPOCH", "0")
    if not re.fullmatch(r"[0-9]{1,11}", text):
        raise UsageError(Problem("E5044", f"SOURCE_DATE_EPOCH is {text!r}, not a number of seconds"))
    return int(text)


def library_metadata(artifact: Artifact, when: int) -> dict[str, Any]:
    """metadata.json with the keys of version 7, shape and quantisation of inputs and outputs, and our metadata under "aot"."""
    meta = artifact.metadata
    tensors = [*meta["inputs"], *meta["outputs"]]
    main = {
        "device": _DEVICE,
        "workspace_size_bytes": meta["workspace"]["size"],
        "constants_size_bytes": meta["constants"]["size"],
        "io_size_bytes": sum(t["size"] for t in tensors),
        "inputs": {t["c_name"]: _tensor(t) for t in meta["inputs"]},
        "outputs": {t["c_name"]: _tensor(t) for t in meta["outputs"]},
    }
    operators = [
        {"function_name": f, "workspace": [{"device": _DEVICE, "workspace_size_bytes": size}]}
        for f, size in sorted(_scratch(meta["layers"]).items())
    ]
    module = {
        "model_name": artifact.name,
        "export_datetime": time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(when)),
        "memory": {"functions": {"main": [main], "operator_functions": operators}},
        "target": [f"c -keys=arm_cpu,cpu -mcpu={meta['target']['cpu']}"],
        "executors": ["aot"],
        "style": "full-model",
        "aot": dict(meta),
    }
    return {"version": VERSION, "modules": {artifact.name: module}}


def _tensor(info: Mapping[str, Any]) -> dict[str, Any]:
    return {key: info[key] for key in ("size", "dtype", "shape", "scale", "zero_point")}


def _scratch(layers: list[Mapping[str, Any]]) -> dict[str, int]:
    """Function -> the most scratch memory of any of its calls."""
    scratch: dict[str, int] = {}
    for layer in layers:
        scratch[layer["function"]] = max(scratch.get(layer["function"], 0), int(layer["scratch"]))
    return scratch


def _library_names(name: str) -> dict[str, str]:
    """File of an artifact -> its path in the archive."""
    sources = (f"{name}.c", f"{name}_kernels.c", f"{name}_params.c")
    paths = {source: f"codegen/host/src/{name}_lib{i}.c" for i, source in enumerate(sources)}
    return {**paths, **{h: f"codegen/host/include/{h}" for h in (f"{name}.h", f"{name}_internal.h")}}


def _moved(path: str, folders: Mapping[str, str]) -> str:
    """The path after moving it from its old folder to the new one; "" if it is in none of `folders`."""
    return next((new + path.removeprefix(old) for old, new in folders.items() if path.startswith(old)), "")


def _foreign_names(name: str, paths: Iterable[str]) -> dict[str, str]:
    """File of an artifact -> its path in the archive, for the files of an external library."""
    own = {*_library_names(name).values(), f"codegen/host/include/tvmgen_{name}.h"}
    folders = {new: old for old, new in _FOREIGN.items()}
    files = {_moved(path, folders): path for path in paths if path not in own}
    return {file: path for file, path in files.items() if file and _FOREIGN_SOURCE.fullmatch(file)}


def _sources(artifact: Artifact) -> dict[str, str]:
    names = _library_names(artifact.name)
    names |= {file: _moved(file, _FOREIGN) for file in artifact.files if file.startswith("byoc/")}
    files = {names[file]: text for file, text in artifact.files.items()}
    own_state = artifact.metadata["io"] == "user" and bool(artifact.metadata.get("stateful"))
    files[f"codegen/host/include/tvmgen_{artifact.name}.h"] = render(
        "tvmgen.h.j2", **model_values(artifact), state_field=own_state
    )
    return files


def _tar(files: Mapping[str, bytes], when: int) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(files):
            info = tarfile.TarInfo(f"./{path}")
            info.size, info.mtime, info.mode = len(files[path]), when, 0o644
            info.uname = info.gname = "root"
            archive.addfile(info, io.BytesIO(files[path]))
    return stream.getvalue()


def unpack(data: bytes) -> Library:
    """Read an archive, without writing anything.  Raises UsageError E5045 if it is not an archive of this format."""
    try:
        files = _members(data)
        metadata = parse_json(files["metadata.json"])
        modules = metadata["modules"]
        if metadata["version"] != VERSION or not isinstance(modules, dict) or len(modules) != 1:
            raise ValueError(f"version {metadata['version']} with {len(modules)} modules")
    except (KeyError, ValueError, TypeError) as error:
        message = f"not a Model Library Format archive of version {VERSION}: {printable(str(error), limit=200)}"
        raise UsageError(Problem("E5045", message)) from None
    return Library(metadata, files)


def _members(data: bytes) -> dict[str, bytes]:
    """The regular files of a tar; ValueError if it is not a tar, or its files are larger than itself."""
    files: dict[str, bytes] = {}
    left = len(data)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() and not member.issparse() else None
                if stream is not None:
                    files[member.name.removeprefix("./")] = stream.read(left + 1)
                    left -= len(files[member.name.removeprefix("./")])
                if left < 0:
                    raise ValueError("its files are larger than the archive")
    except ValueError:
        raise
    except Exception as error:  # with broken headers, tarfile raises almost anything, such as RecursionError
        raise ValueError(f"the archive is broken ({type(error).__name__})") from None
    return files


def artifact_of(library: Library) -> Artifact:
    """The artifact in an archive that aot wrote (E5045 for other archives)."""
    name, module = next(iter(library.metadata["modules"].items()))
    paths = _library_names(name)
    missing = [printable(p) for p in paths.values() if p not in library.files or not _SOURCE.fullmatch(p)]
    if missing or not isinstance(module, dict) or not isinstance(module.get("aot"), dict):
        raise UsageError(Problem("E5045", f"the archive was not written by aot: {', '.join(missing) or 'no metadata of ours'}"))
    try:
        paths |= _foreign_names(name, library.files)
        texts = {file: library.files[path].decode() for file, path in paths.items()}
    except UnicodeDecodeError:
        raise UsageError(Problem("E5045", "the archive was not written by aot: its sources are not text")) from None
    return Artifact(name, texts, module["aot"])
