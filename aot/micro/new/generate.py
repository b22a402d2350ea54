"""Generation of complete projects around compiled models, of every kind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from aot.errors import Problem, UsageError
from aot.executor.artifact import check_names
from aot.micro.new import bare, library  # noqa: F401 - they register their kinds
from aot.micro.new.registry import DEFAULT_BOARDS, KINDS, ProjectFiles, Spec, Text, common_values, render
from aot.support.text import did_you_mean
from aot.system.files import digest
from aot.version import __version__

MANIFEST = "aot-project.json"

PROJECT_SCHEMA = "aot-project/1"


def project_kinds() -> list[str]:
    """The values of `--kind`, sorted."""
    return sorted(KINDS)


def default_board(kind: str) -> str | None:
    """The default board for a kind of project; None: the default of all verbs."""
    return DEFAULT_BOARDS.get(kind)


def generate(spec: Spec) -> ProjectFiles:
    """All files of the project, the manifest included.

    Raises UsageError E5042 (unknown kind), E5043 (no model, or names that clash); TargetError E2010 or E2011 if the models
    together do not fit the board.
    """
    if spec.kind not in project_kinds():
        hint = did_you_mean(spec.kind, KINDS)
        raise UsageError(Problem("E5042", f"unknown kind of project {spec.kind!r}{hint}; kinds: {', '.join(project_kinds())}"))
    if not spec.parts:
        raise UsageError(Problem("E5043", "a project needs a model"))
    check_names([p.name for p in spec.parts])
    project = KINDS[spec.kind](spec)
    generated = {**project.generated, **{f"models/{p.file}": p.model for p in spec.parts}}
    if spec.board_file:
        generated[f"board/{spec.board.emulates or spec.board.name}/board.toml"] = spec.board_file
    generated["regenerate.sh"] = render("regenerate.sh.j2", **common_values(spec))
    generated[MANIFEST] = _manifest(spec, generated)
    return ProjectFiles(dict(sorted(generated.items())), dict(sorted(project.once.items())))


def _manifest(spec: Spec, generated: Mapping[str, Text]) -> str:
    document = {
        "schema": PROJECT_SCHEMA,
        "tool": {"name": "aot", "version": __version__},
        "kind": spec.kind,
        "board": spec.board.name,
        "oracle": spec.oracle,
        "opt": spec.opt,
        "workspace": "shared" if spec.workspace else "separate",
        "models": [{"name": p.name, "sha256": hashlib.sha256(p.model).hexdigest()} for p in spec.parts],
        "generated": {name: digest(generated[name]) for name in sorted(generated)},
    }
    return json.dumps(document, indent=2) + "\n"
