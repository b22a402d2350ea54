"""The bill of materials of a generated folder, as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).

It lists the models with their hashes, the compiler and the other tools, the options, and every file with its hash and stated
licence.  It depends on neither time nor machine: the same build gives the same bytes, including the serial number (an RFC 4122
UUID, version 5).
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from aot.system.files import data_folder
from aot.version import DISTRIBUTION, __version__

FILE = "sbom.cdx.json"
"""File name in the folder, by which tools recognise the format."""

_STATED = re.compile(rb"SPDX-License-Identifier:\s*([^\n]*?)\s*(?:\*/)?\s*$", re.MULTILINE)
_OURS = ("0BSD", "Apache-2.0")
_HEAD = 2048
_LIBRARY = "byoc/"


def sbom(
    name: str, models: Sequence[Mapping[str, Any]], files: Mapping[str, str | bytes], *, board: str = "", compiler: str = ""
) -> str:
    """The document as text: `models` are metadata.json contents, `files` the generated files (path in the folder -> content).

    `board` and `compiler` (name and version, such as `arm-none-eabi-gcc 12.2.1`) belong to a linked build.
    """
    content = {path: text.encode("utf-8") if isinstance(text, str) else text for path, text in sorted(files.items())}
    shipped = {p.read_bytes() for p in data_folder("crt").rglob("*") if p.is_file()}  # the bytes by which crt is recognised
    crt = [_file(path, data) for path, data in content.items() if data in shipped]
    foreign = [_file(path, data) for path, data in content.items() if path.startswith(_LIBRARY)]  # of an external generator
    libraries = [_library("aot-crt", "crt", crt, version=__version__, licence="Apache-2.0")] if crt else []
    libraries += [_library("external library", "byoc", foreign)] if foreign else []
    library_files = {part["name"] for x in libraries for part in x["components"]}
    own = [_file(path, data) for path, data in content.items() if path not in library_files]
    components = [*map(_model, models), *libraries, *own]
    root = f"build:{name}"
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": "",
        "version": 1,
        "metadata": {
            "tools": {"components": _tools(compiler)},
            "component": {
                "type": "firmware" if compiler else "library", "bom-ref": root, "name": name,
                "properties": _properties(models, board),
            },
        },
        "components": components,
        "dependencies": [{"ref": root, "dependsOn": [c["bom-ref"] for c in components]}],
    }  # fmt: skip
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document)).urn
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _model(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A compiled model; one that was not read from a file has no file name and no hash."""
    component: dict[str, Any] = {
        "type": "machine-learning-model", "bom-ref": f"model:{metadata['name']}",
        "name": metadata["model"]["file"] or metadata["name"],
    }  # fmt: skip
    if metadata["model"]["sha256"]:
        component["hashes"] = [{"alg": "SHA-256", "content": metadata["model"]["sha256"]}]
    return component


def _file(path: str, data: bytes) -> dict[str, Any]:
    stated = _STATED.search(data[:_HEAD])
    licences = {"licenses": _licences(stated[1].decode("ascii", "replace"))} if stated else {}
    return {
        "type": "file",
        "bom-ref": f"file:{path}",
        "name": path,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}],
        **licences,
    }


def _licences(stated: str) -> list[dict[str, Any]]:
    """Licences in CycloneDX form: an SPDX identifier, a name that is in no list, or an expression."""
    if stated in _OURS:
        return [{"license": {"id": stated}}]
    if stated.startswith("LicenseRef-"):
        return [{"license": {"name": stated}}]
    return [{"expression": stated}]


def _library(name: str, ref: str, parts: list[dict[str, Any]], *, version: str = "", licence: str = "") -> dict[str, Any]:
    stated = {"version": version, "licenses": _licences(licence) if licence else ""}
    library = {"type": "library", "bom-ref": f"library:{ref}", "name": name, **{k: v for k, v in stated.items() if v}}
    return {**library, "components": parts}


def _tools(compiler: str) -> list[dict[str, Any]]:
    aot = {"type": "application", "name": DISTRIBUTION, "version": __version__, "licenses": _licences("Apache-2.0")}
    if not compiler:
        return [aot]
    name, _, version = compiler.partition(" ")
    return [aot, {"type": "application", "name": PurePosixPath(name).name, **({"version": version} if version else {})}]


def _properties(models: Sequence[Mapping[str, Any]], board: str) -> list[dict[str, str]]:
    """The target, and every option that is set for each model, as `aot:option:MODEL:NAME`."""
    pairs = [("aot:target", cpu) for cpu in dict.fromkeys(m["target"]["cpu"] for m in models)]
    if board:
        pairs.append(("aot:board", board))
    for m in models:
        pairs += [(f"aot:option:{m['name']}:{key}", value) for key, value in _flat(m["options"])]
    return [{"name": key, "value": value} for key, value in pairs]


def _flat(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif value not in (None, [], ()):
            yield prefix + key, value if isinstance(value, str) else json.dumps(value)
