"""Calls into higher layers by name; `aot/__init__.py` maps names to modules, so that imports point one way."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

_PLACES: dict[str, tuple[str, ...]] = {}


def declare(places: Mapping[str, tuple[str, ...]]) -> None:
    """Map names to places: "module", which registers something when imported, or "module:function"."""
    _PLACES.update(places)


def declared(prefix: str = "") -> list[str]:
    """The declared names that begin with `prefix`, with the prefix removed, sorted."""
    return sorted(name.removeprefix(prefix) for name in _PLACES if name.startswith(prefix))


def reach(name: str, *args: Any) -> None:
    """Import the modules declared for a name, and call their functions with `args`; KeyError if there are none."""
    for place in _PLACES[name]:
        module, _, function = place.partition(":")
        above = import_module(module)
        if function:
            getattr(above, function)(*args)
