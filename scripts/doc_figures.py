#!/usr/bin/env python3
"""Write the measured tables of docs/ (README.md has scripts/figures.py): each is between `figures: NAME` marks.

python scripts/doc_figures.py              measure all again (needs ../shared/models, QEMU; some minutes)
python scripts/doc_figures.py NAME...      only these
python scripts/doc_figures.py --check      change nothing; exit code 1 and the difference if a page is out of date
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NETS = ROOT.parent / "shared" / "models" / "nets"
BOARD = "mps2-an386"

SCRATCH = ("arm_kws_cnn_s_int8", "micro_speech_quantized", "tinymaix_cifar10_int8", "tinymaix_mnist_resnet_int8",
           "silabs_magic_wand_int8", "mlperf_ad01_int8")  # fmt: skip
"""Models whose fastest kernels need more than whole tensors."""
ROWS = ("mlperf_vww_mobilenet_int8", "person_detect", "mlperf_ic_resnet_int8", "mlperf_kws_dscnn_int8", "mlperf_sww_int8",
        "mlperf_ad01_int8", "silabs_image_example1_int8", "tinyengine_vww_int8", "mcunet_320kb_imagenet_int8")  # fmt: skip
CASCADES = ("mlperf_vww_mobilenet_int8", "person_detect", "mlperf_ic_resnet_int8", "mlperf_kws_dscnn_int8",
            "silabs_image_example1_int8", "mcunet_320kb_imagenet_int8")  # fmt: skip
RINGS = (
    "microwakeword_alexa_v1_int8",
    "microwakeword_okay_nabu_v2_int8",
    "microwakeword_vad_int8",
    "keyword_scrambled_8bit",
    "lyra_soundstream_encoder",
)
SLIDES = (
    ("mlperf_kws_dscnn_int8", ", SAME padding in 5 layers", 2),
    ("mlperf_kws_dscnn_int8", ", the same", 10),
    ("arm_kws_cnn_s_int8", ", strides 1 and 2, VALID", 2),
    ("micro_kws_m_int8", ", SAME", 2),
    ("micro_speech_quantized", ", one SAME layer, then fully connected", 2),
    ("mlperf_sww_int8", ", VALID", 1),
)


@dataclass(frozen=True, slots=True)
class Table:
    """A measured table: its page and its function; `quick` ones take seconds, `shared` ones need ../shared/models."""

    page: str
    make: Callable[[], list[str]]
    quick: bool = False
    shared: bool = True


def built(name: str, **options: Any) -> dict[str, Any]:
    """The metadata of a model for a Cortex-M4."""
    import aot

    return dict(aot.build(NETS / f"{name}.tflite", target="cortex-m4", **options).metadata)


def ran(name: str, **options: Any) -> Any:
    """The result of a run on the board; every byte must be right."""
    import aot

    verification = aot.verify(NETS / f"{name}.tflite", board=BOARD, random=options.pop("random", 1), **options)
    assert verification.exact, f"{name} is not exact"
    return verification


def lines(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table in Markdown; integers with separators, None as a dash."""

    def cell(value: object) -> str:
        if value is None:
            return "–"
        return f"{value:,}" if isinstance(value, int) else str(value)

    align = "|".join(["---"] + ["--:"] * (len(head) - 1))
    return [f"| {' | '.join(head)} |", f"|{align}|", *(f"| {' | '.join(map(cell, row))} |" for row in rows)]


def scratch() -> list[str]:
    rows = []
    for name in SCRATCH:
        usual, fast = ran(name), ran(name, opt="speed")
        ratio = f"{usual.instructions / fast.instructions:.2f}"
        bound = usual.workspace_liveness_bound
        rows.append((name, bound, fast.workspace_bytes, usual.workspace_bytes, ratio))
    head = (
        "model (Cortex-M4)",
        "whole tensors",
        "workspace, `speed`",
        "workspace, `balanced`",
        "instructions relative to `speed`",
    )
    return lines(head, rows)


def rows_of_bounds() -> list[str]:
    """No kernel is made for these bounds."""
    from aot.driver.front import front
    from aot.driver.options import Options
    from aot.driver.plugins import load_installed
    from aot.executor.plan_memory import memory_bounds
    from aot.frontend.tflite.view import nominal_shapes
    from aot.target.target import find_target

    load_installed()
    rows = []
    for name in ROWS:
        data = (NETS / f"{name}.tflite").read_bytes()
        main = front(data, find_target("cortex-m4"), name=name, options=Options()).main
        bounds = memory_bounds(main, nominal_shapes(data))
        rows.append((name, bounds.liveness, bounds.streaming.nbytes, bounds.fed.nbytes))
    return lines(("model", "whole tensors", "rows", "rows, fed by rows"), rows)


def cascades() -> list[str]:
    rows = []
    for name in CASCADES:
        usual, small = ran(name), ran(name, opt="ram")
        fed = built(name, opt="ram", feed_rows=True)["workspace"]["size"]
        ratio = f"{small.instructions / usual.instructions:.2f}"
        rows.append((name, small.workspace_liveness_bound, small.workspace_bytes, ratio, fed))
    head = (
        "model (Cortex-M4, `--opt ram`)",
        "whole tensors",
        "workspace",
        "instructions relative to `balanced`",
        "workspace, `--feed-rows`",
    )
    return lines(head, rows)


def rings() -> list[str]:
    rows = []
    for name in RINGS:
        copied, slid = (built(name, rings=kind)["state"] for kind in ("copy", "slide"))
        moved, size = (round(slid["bytes_moved"]), slid["size"]) if slid["rings"] else (None, None)
        rows.append((name, copied["bytes_new"], copied["bytes_moved"], moved, copied["size"], size))
    head = ("cortex-m4, balanced", "new per step", "moved per step, `copy`", "`slide`", "state, `copy`", "`slide`")
    return lines(head, rows)


def slides() -> list[str]:
    """The windows of SLIDES, and a TCN over a window and as it is rewritten by hand."""
    import aot
    from scripts.slide_figures import rows_of
    from tests.stateful import Tcn, tcn, tcn_by_hand

    rows = []
    for name, what, hop in SLIDES:
        key, step, window = rows_of(NETS / f"{name}.tflite", hop)
        meta = built(name, slide={key: step})
        new = ran(name, slide={key: step}, random=_pushes(meta))
        rows.append((f"{name}{what}", *_slid(f"{hop} of {window}", ran(name), new, meta["slide"]["rows_bytes"])))
    net = Tcn()
    tcn_meta = aot.build(tcn(net), name="tcn", target="cortex-m4", slide={"x": 1}).metadata
    turns = aot.build(tcn_by_hand(net), name="tcn", target="cortex-m4").metadata["state"]["rings"]["turns"]
    whole, new, hand = (
        aot.verify(data, name="tcn", board=BOARD, random=sets, slide=slide)
        for data, sets, slide in (
            (tcn(net), 1, {}),
            (tcn(net), _pushes(tcn_meta), {"x": 1}),
            (tcn_by_hand(net), turns, {}),
        )
    )
    what = f"TCN, VALID, dilations 1, 2, 4, 8, {net.channels} channels (`aot/testing/net.py`)"
    rows.append((what, *_slid(f"1 of {net.frames}", whole, new, tcn_meta["slide"]["rows_bytes"])))
    assert hand.instructions is not None
    assert hand.state is not None
    steps = round(hand.instructions)
    state = f"{hand.state['bytes']:,} B"
    rows.append(("the same TCN rewritten by hand with variables", "1", "", "", steps, "", "", "", state))
    head = (
        "network",
        "new rows",
        "MAC of a run",
        "instructions: whole window",
        "new rows only",
        "",
        "at most",
        "rows kept",
        "state",
    )
    return lines(head, rows)


def _pushes(meta: Mapping[str, Any]) -> int:
    """As many pushes as there are from one that moves the windows back to the next, or some."""
    rings = meta["state"]["rings"]
    return 4 if rings is None else int(rings["turns"])


def _slid(rows: str, whole: Any, new: Any, kept: int) -> tuple[object, ...]:
    """The cells of one window: MAC; instructions of a push, on average and at most, beside those of the whole; bytes."""
    pushed, most = new.pushes["average"], new.pushes["most"]
    ratio = f"{pushed / whole.instructions:.2{'g' if pushed < 0.01 * whole.instructions else 'f'}}"
    memory = (f"{kept:,} B", f"{new.state['bytes']:,} B")
    return rows, f"{new.macs / whole.macs:.2f}", whole.instructions, round(pushed), ratio, most, *memory


def slide_budgets() -> list[str]:
    """One window under smaller and smaller budgets of RAM; instructions by estimate."""
    rows = []
    for budget in (None, 30_000, 26_000, 20_000):
        meta = built("mlperf_kws_dscnn_int8", slide={"input_1": 2}, **({} if budget is None else {"ram_budget": budget}))
        estimate = sum(c["instructions"] for x in meta["layers"] for c in x["candidates"] if c["kernel"] == x["kernel"])
        memory = meta["workspace"]["size"] + meta["state"]["size"]
        rows.append((budget, f"{meta['slide']['rows_bytes']:,} B", f"{memory:,} B", estimate))
    head = ("mlperf_kws_dscnn_int8 by 2 rows, `--ram-budget`", "rows kept", "workspace + state", "instructions (estimate)")
    return lines(head, rows)


PUBLISHED = (
    ("mlperf_ic_resnet_int8", "image classification", "0.58 (ST), 0.71 (Plumerai)", "0.88 (ST), 0.83 (Plumerai)"),
    ("mlperf_kws_dscnn_int8", "keyword spotting", "0.61, 0.68", "0.90, 0.84"),
    ("mlperf_vww_mobilenet_int8", "visual wake words", "0.63, 0.63", "0.89, 0.80"),
    ("mlperf_ad01_int8", "anomaly detection", "0.60, 0.78", "0.89, 1.21"),
)
"""A model, its name, and quotients of published latencies, M7 to M4 and M33 to M4 (docs/cycles.md says where from)."""


def ratios() -> list[str]:
    """Quotients of the estimated cycles of three cores, beside the published ones."""
    from aot.report.calls import report

    rows = []
    for file, name, m7, m33 in PUBLISHED:
        m4, *others = (
            report(NETS / f"{file}.tflite", board=board, random=1).totals["estimated_cycles"] or 0
            for board in (BOARD, "mps2-an500", "mps2-an505")
        )
        quotients = [f"{cycles / m4:.2f}" for cycles in others]
        rows.append((name, m7, quotients[0], m33, quotients[1]))
    return lines(("model", "M7 / M4 published", "estimated", "M33 / M4 published", "estimated"), rows)


def wakeword() -> list[str]:
    """The example's models on the features of its audio, over time."""
    import aot

    rows = []
    folder = ROOT / "examples" / "wakeword"
    for name in ("spotter", "recurrent", "frontend"):
        file = folder / f"{name}.tflite"
        meta = aot.build(file, target="cortex-m4", oracle="tflm").metadata
        if name == "frontend":
            right, instructions = "", aot.verify(file, board=BOARD, random=1, oracle="tflm").instructions
        else:
            data = f"--inputs {folder}/features.npz --labels {folder}/labels.txt"
            command = [
                sys.executable,
                "-m",
                "aot",
                "run",
                str(file),
                "--oracle",
                "tflm",
                "--board",
                BOARD,
                "--json",
                *data.split(),
            ]
            done = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
            right, instructions = f"{done['accuracy']:.1%}".replace("%", " %"), done["instructions"]
        memory = f"{meta['workspace']['size']:,} + {meta['state']['size']:,} B"
        rows.append((f"`{name}.tflite`", right, instructions, memory, f"{file.stat().st_size / 1000:.1f} KB"))
    return lines(("network", "steps right", "instructions per step", "workspace + state", "file"), rows)


def steps() -> list[str]:
    """One network, in one go and in steps."""
    import aot

    rows = []
    for what, in_steps in (("in one go", False), ("in steps", True)):
        verification = aot.verify(ROOT / "tests" / "models" / "net_kws_dscnn.tflite", board=BOARD, random=1, in_steps=in_steps)
        assert verification.exact
        rows.append((what, verification.instructions, verification.code_bytes, verification.stack_bytes))
    return lines(("kws on a Cortex-M4", "instructions", "code", "stack"), rows)


def single_layers(name: str) -> list[str]:
    from scripts.layer_figures import layer_table

    return lines(*layer_table(name))


def slide_bounds() -> list[str]:
    from scripts.slide_figures import bounds

    return lines(("network", "new rows", "layers' bound", "a push", ""), bounds(NETS, BOARD))


def slide_phases() -> list[str]:
    from scripts.slide_figures import phases

    head = ("one new row per run", "whole, or as far as the strides allow", "in two phases", "workspace + states")
    return lines(head, phases(NETS))


def weights() -> list[str]:
    from scripts.weight_figures import TYPES, stored_weights

    return lines(("network", *TYPES), stored_weights(BOARD))


def kernels() -> list[str]:
    from aot.topi.prose import table

    return table()


TABLES = {
    "kernels": Table("docs/kernels.md", kernels, quick=True, shared=False),
    **{
        name: Table("docs/kernels.md", partial(single_layers, name), quick=name != "layers-m55", shared=False)
        for name in ("layers-m55", "layers-v6m", "layers-m3")
    },
    "weights": Table("docs/weights.md", weights, shared=False),
    "steps": Table("docs/rtos.md", steps, quick=True, shared=False),
    "wakeword": Table("examples/wakeword/README.md", wakeword, quick=True, shared=False),
    "scratch": Table("docs/memory.md", scratch),
    "rows": Table("docs/memory.md", rows_of_bounds, quick=True),
    "cascades": Table("docs/memory.md", cascades),
    "rings": Table("docs/state.md", rings, quick=True),
    "slides": Table("docs/streaming.md", slides),
    "slide-budgets": Table("docs/streaming.md", slide_budgets, quick=True),
    "slide-bounds": Table("docs/streaming.md", slide_bounds),
    "slide-phases": Table("docs/streaming.md", slide_phases),
    "ratios": Table("docs/cycles.md", ratios),
}


_MEASURED = re.compile(r"<!-- measured at [0-9a-f]+ -->\n+")


def commit() -> str:
    """The one that is measured."""
    done = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def rendered(name: str, text: str) -> str:
    """The page with this table measured again; one that tests do not measure says at which commit that was."""
    pattern = re.compile(rf"(<!-- figures: {name} -->\n).*?(<!-- /figures: {name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{TABLES[name].page} has no <!-- figures: {name} -->")
    content = "\n".join(["", *TABLES[name].make(), ""])
    stamp = "" if TABLES[name].quick else f"<!-- measured at {commit()} -->\n"
    return pattern.sub(lambda m: f"{m[1]}{stamp}{content}\n{m[2]}", text)


def _same(one: str, other: str) -> bool:
    """Whether pages differ only in the measured commits."""
    return _MEASURED.sub("", one) == _MEASURED.sub("", other)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TABLES))
    parser.add_argument("--check", action="store_true", help="only tell whether the pages are up to date")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    stale = 0
    for name in arguments.names or TABLES:
        page = ROOT / TABLES[name].page
        before = page.read_text(encoding="utf-8")
        after = rendered(name, before)
        if before == after or (arguments.check and _same(before, after)):
            continue
        stale = 1
        if arguments.check:
            sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), after.splitlines(True), TABLES[name].page, name))
        else:
            page.write_text(after, encoding="utf-8")
    return stale if arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
