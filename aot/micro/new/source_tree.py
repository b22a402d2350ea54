"""Models below aot/models and the headers of the runtime below aot/include: what build systems with folders of their own get."""

from __future__ import annotations

from aot.micro.new.registry import Spec, Text, model_files, runtime_headers
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SourceTree:
    """`files` by their path in the project; `fast` and `small`: the sources relative to aot/, compiled for speed and for size."""

    files: dict[str, Text]
    fast: list[str]
    small: list[str]


def source_tree(spec: Spec) -> SourceTree:
    """The C of all models with a test vector each, and no start-up code: the build system has its own."""
    texts = model_files(spec, sources="models/", headers="models/")
    files = {f"aot/{name}": text for name, text in texts.items()}
    files.update({f"aot/include/{name}": text for name, text in runtime_headers(texts).items()})
    sources = sorted(n for n in texts if n.endswith(".c"))
    fast = [n for n in sources if n.endswith("_kernels.c")]
    return SourceTree(files, fast, [n for n in sources if n not in fast])
