"""`aot new --kind rust`: a `no_std` crate around the models; its build script compiles their C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aot.micro.new.library import source_tree
from aot.micro.new.registry import (
    ProjectFiles,
    Spec,
    Text,
    common_values,
    integer_only,
    project_kind,
    project_name,
    render,
)
from aot.support.dtype import itemsize
from aot.target.cpu import architecture_of

_TYPES = {
    "bool": "bool", "int8_t": "i8", "uint8_t": "u8", "int16_t": "i16", "uint16_t": "u16", "int32_t": "i32", "uint32_t": "u32",
    "int64_t": "i64", "uint64_t": "u64", "float": "f32", "double": "f64",
}  # fmt: skip
"""C type of an element -> Rust type."""

_KEYWORDS = {
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn", "else", "enum", "extern",
    "false", "final", "fn", "for", "if", "impl", "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override",
    "priv", "pub", "ref", "return", "static", "struct", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use",
    "virtual", "where", "while", "yield",
}  # fmt: skip
_NEVER = {"self", "super", "crate", "Self", "_"}
"""Names that Rust does not accept even as r#name."""
_CRATES = {"core", "std", "alloc", "test", "proc_macro"}


@project_kind("rust")
def rust_project(spec: Spec) -> ProjectFiles:
    """Cargo.toml, src/lib.rs and examples/run.rs are the user's; aot/ has the models, their interface and the build script."""
    tree = source_tree(spec)
    common = common_values(spec)
    flags = [f for f in spec.board.flags if not f.startswith("-mfloat-abi")]
    metas = [p.artifact.metadata for p in spec.parts]
    values = {
        **common, "crate": crate_name(spec.title), "cpu": metas[0]["target"]["cpu"], "fast": tree.fast, "small": tree.small,
        "models": [_model(m, meta) for m, meta in zip(common["models"], metas, strict=True)], "flags": flags,
        "fpu": any(f.startswith("-mfpu") for f in flags), "libm": not integer_only(spec),
        "rust_target": rust_target(spec.board.flags),
    }  # fmt: skip
    files = dict(tree.files)
    files["aot/build.rs"] = render("rust/build.rs.j2", **values)
    files["aot/models.rs"] = render("rust/models.rs.j2", **values)
    files["tests/vectors.rs"] = render("rust/vectors.rs.j2", **values)
    files["README.md"] = render("rust/README.md.j2", **values)
    once: dict[str, Text] = {
        "Cargo.toml": render("rust/Cargo.toml.j2", **values), "src/lib.rs": render("rust/lib.rs.j2", **values),
        "examples/run.rs": render("rust/run.rs.j2", **values),
    }  # fmt: skip
    return ProjectFiles(files, once)


def crate_name(title: str) -> str:
    """A crate name that Cargo accepts, derived from the project's title."""
    name = project_name(title).lower()
    return f"{name}_models" if name in _KEYWORDS | _NEVER | _CRATES else name


def rust_target(flags: tuple[str, ...]) -> str:
    """rustc's target for a core, from the compiler's flags for it; "" (the host) if they name no core."""
    cpu = next((f.partition("=")[2].partition("+")[0] for f in flags if f.startswith("-mcpu=")), "")
    hard = "hf" if "-mfloat-abi=hard" in flags else ""
    if not cpu:
        return ""
    names = {"Armv6-M": "v6m", "Armv7-M": "v7m", "Armv7E-M": "v7em", "Armv8-M Baseline": "v8m.base"}
    name = names.get(architecture_of(cpu), "v8m.main")
    return f"thumb{name}-none-eabi" + (hard if name in ("v7em", "v8m.main") else "")


def _model(model: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The values of one model for the templates; `module` is its name as a Rust identifier."""
    name = model["name"]
    module = f"{name}_" if name in _NEVER else f"r#{name}" if name in _KEYWORDS else name
    tensors = {k: [_tensor(t) for t in model[k]] for k in ("inputs", "outputs")}
    feed = metadata.get("feed")
    row = {"rows": feed["rows"], "row_elements": tensors["inputs"][0]["elements"] // feed["rows"]} if feed else None
    return {**model, **tensors, "module": module, "feed": row}


def _tensor(info: Mapping[str, Any]) -> dict[str, Any]:
    width = 4 if info["ctype"] == "float" else itemsize(info["dtype"])
    return {**info, "rust": _TYPES[info["ctype"]], "elements": info["size"] // width}
