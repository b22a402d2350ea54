"""aot_workspace.h.j2 as Python; written by scripts/c_templates.py."""
# ruff: noqa
# fmt: off

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def render(v: Mapping[str, Any]) -> Iterator[str]:
    """The pieces of the file; `v` are the values that the template names."""
    yield from ('/* SPDX-License-Identifier: 0BSD */\n/* The workspace of several models, which run one at a time. ', str(v['note']), '\n\n   A model claims it when its run starts and lets go of it when the run ends; a run that finds it claimed, because it comes from\n   an interrupt or from another thread while a run is under way, returns AOT_ERROR_BUSY and touches nothing. Inputs that lie in\n   the workspace are lost when another model runs before they are used, and so are outputs that were not fetched. */\n#ifndef AOT_WORKSPACE_H\n#define AOT_WORKSPACE_H\n\n#include <stdbool.h>\n#include <stdint.h>\n\n#define AOT_WORKSPACE_SIZE ', str(v['size']), 'u\n\nextern uint8_t aot_workspace[AOT_WORKSPACE_SIZE];\n\nbool aot_workspace_claim(void);   /* false: it is claimed already */\nvoid aot_workspace_release(void); /* by whoever claimed it */\n\n#endif\n',)
