"""Errors for users: one class per kind of cause, one code per problem.

Codes: E10xx malformed file, E11xx inconsistent model, E12xx not supported, E2xxx target and fit, E3xxx tool chain,
E4xxx verification, E5xxx usage and files, E9xxx bugs in aot.  `aot explain CODE` prints the page of the code
(aot/errors/codes).
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from aot.support.dataclass import dataclass
from aot.support.text import escaped_lines

EXIT_OK = 0
EXIT_INTERNAL = 1
EXIT_USAGE = 2
EXIT_MODEL = 3
EXIT_DOES_NOT_FIT = 4
EXIT_VERIFICATION = 5
EXIT_TOOLCHAIN = 6


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem, with its place in the model.

    `where` is a phrase such as `op 14 CONV_2D "sep2/conv"` or `tensor 3 "input"`; empty for the whole file.
    """

    code: str
    message: str
    where: str = ""

    def __str__(self) -> str:
        """The message in one line, or in several with all but the first indented; control characters are escaped."""
        place = f" {self.where}:" if self.where else ""
        return escaped_lines(f"{self.code}{place} {self.message} (aot explain {self.code})")


class AotError(Exception):
    """Base class of all deliberate errors; carries all problems, not only the first."""

    exit_code = EXIT_INTERNAL

    def __init__(self, *problems: Problem) -> None:
        if not problems:
            raise ValueError("an AotError needs at least one Problem")
        super().__init__("\n".join(str(p) for p in problems))
        self.problems = problems


class UsageError(AotError):
    """The command line or one of its input files is wrong (E5xxx)."""

    exit_code = EXIT_USAGE


class ModelError(AotError):
    """The model file is malformed or contradicts itself (E10xx, E11xx)."""

    exit_code = EXIT_MODEL


class UnsupportedError(AotError):
    """The model is valid, but contains something that this version cannot compile (E12xx)."""

    exit_code = EXIT_MODEL


class TargetError(AotError):
    """The model does not fit the target, the board or a budget (E2xxx)."""

    exit_code = EXIT_DOES_NOT_FIT


class VerificationError(AotError):
    """A result differs from the reference (E4xxx)."""

    exit_code = EXIT_VERIFICATION


class ToolchainError(AotError):
    """A compiler or an emulator is missing or failed (E3xxx)."""

    exit_code = EXIT_TOOLCHAIN


class InternalError(AotError):
    """A verifier or a self-check found a bug in aot (E9xxx)."""

    exit_code = EXIT_INTERNAL


def internal(message: str, *, where: str = "") -> InternalError:
    """An E9001 for a violated internal invariant."""
    return InternalError(Problem("E9001", message, where))


def call_place() -> str:
    """`script.py:12`: the innermost frame outside of this package; empty if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in ("aot", "importlib", "functools", "contextlib"):
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
