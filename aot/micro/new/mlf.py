"""Model Library Format: one tar with everything that was generated, laid out as microTVM's exporter does (version 7).

    metadata.json                        memory, inputs and outputs, target; our metadata under the key "aot"
    codegen/host/src/<name>_lib0.c ...   main function, kernels, parameters
    codegen/host/include/<name>.h        the interface, and tvmgen_<name>.h, the same by microTVM's names
    codegen/host/src/byoc/, include/     sources and headers of a library that layers were given to (--byoc)
    parameters/<name>.params             empty: parameters are linked in
    src/<name>.relay                     the graph as text
    runtime/                             what the sources need of the runtime

The archive depends on nothing but its content: entries are sorted, and all times are SOURCE_DATE_EPOCH (0 where it is not set).
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
"""device type of a CPU"""
_SOURCE = re.compile(r"^codegen/host/(?:src|include)/[A-Za-z0-9_]+\.[ch]$")
_FOREIGN = {"byoc/Include/": "codegen/host/include/", "byoc/": "codegen/host/src/byoc/"}
"""Where the files of a library are in an artifact, and in an archive."""
_FOREIGN_SOURCE = re.compile(r"(?:\w+/)*\w+\.[ch]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Library:
    """An archive as it was read: its metadata.json and all files by their path."""

    metadata: Mapping[str, Any]
    files: Mapping[str, bytes]


def pack(artifact: Artifact, *, relay: str, epoch: int | None = None) -> bytes:
    """The tar of a compiled model; `relay` is the text of its graph, `epoch` the time in seconds (default SOURCE_DATE_EPOCH).

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
    """The time that goes into the archive: SOURCE_DATE_EPOCH (reproducible-builds.org), else 0."""
    text = os.environ.get("SOURCE_DATE_EPOCH", "0")
    if not re.fullmatch(r"[0-9]{1,11}", text):
        raise UsageError(Problem("E5044", f"SOURCE_DATE_EPOCH is {text!r}, not a number of seconds"))
    return int(text)


def library_metadata(artifact: Artifact, when: int) -> dict[str, Any]:
    """metadata.json: the keys of version 7, with shape and quantisation added to inputs and outputs, and ours under "aot"."""
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
    """Function -> most scratch memory that any of its calls needs."""
    found: dict[str, int] = {}
    for layer in layers:
        found[layer["function"]] = max(found.get(layer["function"], 0), int(layer["scratch"]))
    return found


def _library_names(name: str) -> dict[str, str]:
    """File of an artifact -> its path in the archive."""
    sources = (f"{name}.c", f"{name}_kernels.c", f"{name}_params.c")
    paths = {source: f"codegen/host/src/{name}_lib{i}.c" for i, source in enumerate(sources)}
    return {**paths, **{h: f"codegen/host/include/{h}" for h in (f"{name}.h", f"{name}_internal.h")}}


def _moved(path: str, folders: Mapping[str, str]) -> str:
    """The path in the folder that its own becomes; "" if it is in none."""
    return next((new + path.removeprefix(old) for old, new in folders.items() if path.startswith(old)), "")


def _foreign_names(name: str, paths: Iterable[str]) -> dict[str, str]:
    """File of an artifact -> its path in the archive, of a library's files that are there."""
    own = {*_library_names(name).values(), f"codegen/host/include/tvmgen_{name}.h"}
    folders = {new: old for old, new in _FOREIGN.items()}
    found = {_moved(path, folders): path for path in paths if path not in own}
    return {file: path for file, path in found.items() if file and _FOREIGN_SOURCE.fullmatch(file)}


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
    """Read an archive; nothing is written.  Raises UsageError E5045 if it is no archive of this format."""
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
    """The plain files of a tar; ValueError where it is none, or its files have more bytes than itself."""
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
                    raise ValueError("its files are longer than it is")
    except ValueError:
        raise
    except Exception as error:  # tarfile lets nearly everything through that broken headers lead to, such as RecursionError
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
        raise UsageError(Problem("E5045", "the archive was not written by aot: its sources are no text")) from None
    return Artifact(name, texts, module["aot"])
