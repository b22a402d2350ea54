"""External code generators: layers that the user's library implements, called from our main function.

`register_external_codegen(name, lower)` registers one for the functions that `relay.transform.partition_for(name)` makes;
`aot.byoc.cmsis_nn` is one.
"""

from __future__ import annotations

from aot.topi.strategy import external_codegens, register_external_codegen

__all__ = ["external_codegens", "load_all", "register_external_codegen"]


def load_all() -> None:
    """Register the code generators of this package."""
    import aot.byoc.cmsis_nn  # noqa: F401 - importing registers
