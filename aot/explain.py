"""The long text behind each error code: what it means and what to do (`aot explain CODE`)."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str]] = {
    "E9001": (
        "internal error",
        "A check inside the compiler failed: this is our fault, not yours. Please report it with the model, or with the\n"
        "smallest part of it that shows the fault (aot dump --all writes the intermediate forms).",
    ),
    "E9002": (
        "a kernel broke a rule of the loop-nest IR",
        "The interpreter ran a generated kernel and found an access out of bounds, a signed overflow or the like in it.  This is our\n"
        "fault, not yours: please report it with the model and the message, which names the function and the statement.",
    ),
}
"""code -> (title, explanation)"""
