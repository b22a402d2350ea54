"""The long text behind each error code: what it means and what to do (`aot explain CODE`)."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str]] = {
    "E9001": (
        "internal error",
        "A check inside the compiler failed: this is our fault, not yours. Please report it with the model, or with the\n"
        "smallest part of it that shows the fault (aot dump --all writes the intermediate forms).",
    ),
}
"""code -> (title, explanation)"""
