"""aot: TensorFlow Lite models compiled ahead of time to plain C for Arm Cortex-M.

`aot.build(model, target="cortex-m4")` yields an Artifact (C sources and metadata); the command line is `aot.cli`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aot.version import __version__

if TYPE_CHECKING:
    from aot.driver.build import build, lower
    from aot.driver.options import Options
    from aot.executor.artifact import Artifact

__all__ = ["Artifact", "Options", "__version__", "build", "lower"]


def __getattr__(name: str) -> Any:
    """Load the compiler only when it is asked for, so that `import aot` and `aot --help` stay quick."""
    if name in ("build", "lower"):
        from aot.driver import build as driver

        return getattr(driver, name)
    if name == "Options":
        from aot.driver.options import Options

        return Options
    if name == "Artifact":
        from aot.executor.artifact import Artifact

        return Artifact
    raise AttributeError(f"module 'aot' has no attribute '{name}'")
