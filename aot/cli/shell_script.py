"""`--show-completion` and `--install-completion` for the shell that is named, or the one that runs them.

typer's own options take no name and fail where no shell is a parent of the process, as under cron.
"""

from __future__ import annotations

from collections.abc import Sequence

import typer
from typer.completion import get_completion_script, install  # type: ignore[attr-defined]

SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")


def shell_script(option: str, names: Sequence[str]) -> int:
    """Print or install the script; `names`: what follows the option.  A usage error for a shell that there is none for."""
    if len(names) > 1 or not set(names) <= set(SHELLS):
        raise typer.BadParameter(f"{option} {' '.join(names)}: one of {', '.join(SHELLS)} may follow")
    shell = names[0] if names else _running(option)
    if option == "--show-completion":
        print(get_completion_script(prog_name="aot", complete_var="_AOT_COMPLETE", shell=shell))
        return 0
    _, path = install(shell, prog_name="aot", complete_var="_AOT_COMPLETE")
    print(f"{shell} completion installed in {path}; it takes effect in the next terminal")
    return 0


def _running(option: str) -> str:
    """The shell among the parents of this process."""
    import shellingham

    try:
        found = str(shellingham.detect_shell()[0])
    except shellingham.ShellDetectionFailure:
        found = ""
    if found not in SHELLS:
        what = f"there is no script for {found}" if found else "no shell runs this"
        raise typer.BadParameter(f"{option}: {what}; name one of {', '.join(SHELLS)}, as in aot {option} bash")
    return found
