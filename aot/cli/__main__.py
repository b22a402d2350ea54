"""Entry point: runs a verb and turns every outcome into a clear message and an exit code."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence

import typer

from aot.cli.app import run_app
from aot.cli.options import ClickUsageError
from aot.cli.output import guarded, open_standard_files, print_problems
from aot.errors import EXIT_INTERNAL, EXIT_USAGE, AotError, Problem
from aot.system.gc_tuning import OBJECTS_BETWEEN

EXIT_INTERRUPTED = 130


def run(arguments: Sequence[str]) -> int:
    """Run `aot` with these arguments; return the exit code. Never raises. AOT_DEBUG=1 prints tracebacks."""
    with guarded(answer_only="--json" in arguments and "--help" not in arguments) as out:
        code = _run(arguments)
        out.flush()
        problem = out.problem()
        if problem is not None:
            print(problem, file=sys.stderr)
            return code or EXIT_USAGE
        return code


def _run(arguments: Sequence[str]) -> int:
    as_json = "--json" in arguments
    try:
        result = run_app(arguments)
    except AotError as error:
        return _fail(error.problems, error.exit_code, as_json=as_json, error=error)
    except ClickUsageError as error:
        return _usage(error, as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BaseException as error:  # also SystemExit: typer raises it for a broken pipe, and a plug-in may
        if isinstance(error, SystemExit) and not error.code and "_AOT_COMPLETE" in os.environ:  # typer exits after completion
            return 0
        plugins = sys.modules.get("aot.driver.plugins")  # None if no plug-in was loaded
        blamed = plugins.blame(error) if plugins is not None else None
        if blamed is not None:
            return _fail((blamed,), EXIT_USAGE, as_json=as_json, error=error)
        return _fail((_unexpected(error),), EXIT_INTERNAL, as_json=as_json, error=error)
    return result if isinstance(result, int) else 0


def _usage(error: Exception, *, as_json: bool) -> int:
    """Print a click error in click's words (`format_message`); an empty message means that help was already printed."""
    message = str(getattr(error, "format_message", lambda: str(error))())
    if not message or type(error).__name__ == "NoArgsIsHelpError":
        print(message, file=sys.stderr)
        return EXIT_USAGE
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "aot"
    return _fail((Problem("E5000", f"{message.rstrip('.')}; see {path} --help"),), EXIT_USAGE, as_json=as_json, error=error)


def _unexpected(error: BaseException) -> Problem:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return Problem("E9001", f"{type(error).__name__}: {error} at {place}; AOT_DEBUG=1 shows the traceback")


def _fail(problems: Sequence[Problem], code: int, *, as_json: bool, error: BaseException) -> int:
    if os.environ.get("AOT_DEBUG") == "1":
        traceback.print_exception(error)
    print_problems(problems, exit_code=code, as_json=as_json)
    return code


def main() -> None:
    """The program `aot`."""
    gc.set_threshold(OBJECTS_BETWEEN)
    open_standard_files()
    code = run(sys.argv[1:])
    gc.freeze()  # skip the collection at exit: it took a quarter of the time of a small compilation
    sys.exit(code)


if __name__ == "__main__":
    main()
