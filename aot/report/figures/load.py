"""What a chain costs over time: instructions for each second of input, and the share of a core that its worst push takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from aot.errors import Problem, UsageError

_HZ = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(Hz|kHz|MHz|GHz)?\s*", re.IGNORECASE)
_FACTOR = {"": 1, "hz": 1, "khz": 1_000, "mhz": 1_000_000, "ghz": 1_000_000_000}


def parse_clock(text: str | int | None) -> int | None:
    """`64MHz` or `64000000` as hertz (E5018)."""
    if text is None:
        return None
    match = _HZ.fullmatch(str(text))
    hertz = 0 if match is None else round(float(match[1]) * _FACTOR[(match[2] or "").lower()])
    if hertz < 1:
        raise UsageError(Problem("E5018", f"clock {text}: give a frequency such as 64MHz"))
    return hertz


def check_clock(metadata: Mapping[str, Any], clock: int | None) -> None:
    """E1306 for a clock where nothing says how much input there is in a second."""
    if clock is not None and metadata.get("chain", {}).get("rate") is None:
        message = "--clock: the load follows from rate, the elements of the input in a second, in the file of a chain"
        raise UsageError(Problem("E1306", message))


def load_of(metadata: Mapping[str, Any], every: tuple[int, int] | None, clock: int | None) -> dict[str, Any] | None:
    """`pushes_per_second`, `instructions_per_second`, `clock_hz` and `highest`, the share of the time between two pushes that
    the worst of them takes at that clock with an instruction a cycle (None: no clock).

    `every`: instructions of a push on average and at most.  None where the rate of the input or the instructions are not known.
    """
    chain = metadata.get("chain", {})
    if chain.get("rate") is None or every is None:
        return None
    pushes = chain["rate"] / chain["hop"]
    return {
        "pushes_per_second": pushes,
        "instructions_per_second": round(every[0] * pushes),
        "clock_hz": clock,
        "highest": None if clock is None else every[1] * pushes / clock,
    }


def pushes_text(every: tuple[int, int], count: int) -> str:
    """`85,134 instructions on average, 87,095 at most, over 60`."""
    return f"{every[0]:,} instructions on average, {every[1]:,} at most, over {count:,}"


def load_text(load: Mapping[str, Any]) -> str:
    """`4,256,700 instructions a second of input (50 pushes); at 64 MHz the worst push takes 6.8 % of its time …`."""
    text = f"{load['instructions_per_second']:,} instructions for a second of input ({load['pushes_per_second']:g} pushes)"
    if load["highest"] is None:
        return text
    clock = f"{load['clock_hz'] / 1e6:g} MHz"
    return f"{text}; at {clock} and an instruction a cycle the longest push takes {100 * load['highest']:.1f} % of its time"


def over_time(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """`pushes` and `load` of a report in words, those that it has."""
    found = []
    if "pushes" in report:
        every = report["pushes"]["average"], report["pushes"]["most"]
        found.append(("pushes", pushes_text(every, report["verdict"]["sets"])))
    return [*found, ("load", load_text(report["load"]))] if "load" in report else found
