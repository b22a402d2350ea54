#!/usr/bin/env python3
"""Do the options of `aot compile` compose?  A covering array: every pair of their values, compiled, run and compared.

    python scripts/pairs.py                          small networks of ../shared/models, or of tests/models without that folder
    python scripts/pairs.py MODEL... --seed 2        these models, other rows
    python scripts/pairs.py --minutes 5              with a time limit; --json prints one object at the end
    python scripts/pairs.py --resume FILE            go on from FILE, which is written after each row (same options, same aot)

The options and their choices are read from the command line itself: a new option takes part automatically, and one whose values
cannot be derived ends the script until VALUES has some.  A row is a model with a dozen options.  It is compiled; `aot verify`
runs what the options allow on an emulated board and compares every byte; with a budget or a pool in the row, a larger one must
not be worse.  If a row is refused (exit codes 2, 3, 4 and 6, with a code), options are removed until only those remain that the
refusal is about: one option that has no meaning for this model, or a pair that aot cannot combine, which is listed.  Failures: an
internal error, an uncoded one, a time-out, a byte that differs, a worse plan for a larger budget or pool. Exit code 1 if there
was one, or if a pair was neither run nor refused by itself."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import shlex
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "models"
SMALL = (
    "nets/mlperf_kws_dscnn_int8", "nets/mlperf_ad01_int8", "nets/mlperf_sww_int8", "nets/hello_world_float",
    "nets/micro_speech_quantized", "nets/mnist_lstm_int8", "nets/microwakeword_vad_int8", "nets/rnnoise_int8",
    "nets/mnist_conv_fc_f16_weights", "derived/gen_if_float", "derived/gen_tcn_int8",
)  # fmt: skip
"""Networks of few multiply-accumulates."""
OWN = ("net_kws_dscnn", "net_sww", "graph_residual", "graph_signature", "graph_two_inputs_two_outputs")
MODELS = ROOT / "tests" / "models"
LONGEST_ROW = 12
TIMEOUT = 300

LEFT_OUT = {"output": "given in every row", "watch": "does not end by itself", "help": "compiles nothing"}
"""Options that take no part, and why."""

BOARD_OF = {
    "cortex-m0plus": "mps2-an385-v6m", "cortex-m3": "mps2-an385", "cortex-m4": "mps2-an386", "cortex-m7": "mps2-an500",
    "cortex-m33": "mps2-an505", "cortex-m55": "mps3-an547",
}  # fmt: skip
"""The emulated board that runs code for a core."""

FACTOR_OF = {"board": "target"}
"""Options that express the same thing in two ways: a row has one of them."""

NEEDS = {"pin": ("pool", "two"), "byoc": ("byoc_path", "stand-in"), "fast_float": ("target", "cortex-m55")}
"""Options that another option depends on, added to a row that has no other value for them."""

Option = tuple[str, str]
"""An option's name and one of its values, by label: ("opt", "ram")."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What values depend on: a model's inputs, its first layer's output, signatures, and the figures of its plainest build."""

    path: Path
    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    layer: str
    signature: str | None
    workspace: int
    least: int
    flash: int
    macs: int


MOST_INTERPRETED = 400_000
"""Multiply-accumulates of a model for which --verify-passes runs every pass's module in Python: about a minute."""


Words = Callable[[Facts], Sequence[str] | None]
"""An option's value as command-line words for a model; None if it has no such value."""


def _slide(facts: Facts) -> list[str] | None:
    windows = [(name, shape) for name, shape in facts.inputs if len(shape) > 2 and shape[1] > 3]
    return [f"{name}=1" for name, _ in windows[:1]] or None


VALUES: dict[str, dict[str, Words]] = {
    "target": {core: lambda f, core=core: [core] for core in BOARD_OF},  # type: ignore[misc]
    "board": {board: lambda f, board=board: [board] for board in (*BOARD_OF.values(), "nucleo-f446re", "stm32f746g-disco")},  # type: ignore[misc]
    "name": {"own": lambda f: ["own_name"]},
    "flash_budget": {"large": lambda f: ["64MiB"], "close": lambda f: [str(f.flash + 4096)]},
    "ram_budget": {"large": lambda f: ["64MiB"], "same": lambda f: [str(f.workspace)], "least": lambda f: [str(f.least)]},
    "shape": {"its own": lambda f: [f"{f.inputs[0][0]}={','.join(map(str, f.inputs[0][1]))}"] if f.inputs[0][1] else None},
    "batch": {"1": lambda f: ["1"]},
    "signature": {"first": lambda f: [f.signature] if f.signature else None},
    "subgraph": {"0": lambda f: ["0"]},
    "pool": {
        "one": lambda f: ["SLOW=4MiB"],
        "two": lambda f: [f"FAST={max(f.workspace // 2, 64)}:9", "SLOW=4MiB:1"],
    },
    "pin": {"input": lambda f: [f"{f.inputs[0][0]}=SLOW"], "layer": lambda f: [f"{f.layer}=SLOW"]},
    "const_pool": {"two": lambda f: ["HOT=1KiB:9", "COLD=64MiB:1"]},
    "plugin": {"a pass": lambda f: [str(ROOT / "examples" / "plugin" / "local_plugin.py")]},
    "byoc": {"cmsis-nn": lambda f: ["cmsis-nn"]},
    "byoc_path": {"stand-in": lambda f: [str(ROOT / "tests" / "byoc" / "stub")]},
    "max_iterations": {"0": lambda f: ["0"], "1000": lambda f: ["1000"]},
    "slide": {"by 1": _slide},
    "slide_axis": {"1": lambda f: ["1"]},
    "tuning": {"tophub": lambda f: ["tophub"]},
    "plan": {"json": lambda f: ["plan.json"], "svg": lambda f: ["plan.svg"]},
    "budget": {"file": lambda f: ["budget.toml"]},
}
"""Values of options that are neither flags nor choices; `tests/scripts` checks that all options are covered."""

BUDGET_FILE = 'workspace = "64MiB"\nconstants = "64MiB"\n'


@cache
def parameters(verb: str) -> dict[str, Any]:
    """The options of a verb, as the command line parses them."""
    import typer

    from aot.cli.app import make_app

    application: Any = typer.main.get_command(make_app((verb, "ops")))
    return {p.name: p for p in application.commands[verb].params if p.param_type_name == "option"}


def flag_of(name: str, verb: str) -> str:
    """`--ram-budget`."""
    return str(next(o for o in parameters(verb)[name].opts if o.startswith("--")))


def words_of(option: Option, facts: Facts, verb: str) -> list[str] | None:
    """The option with its value as words; None if the model has no such value."""
    name, label = option
    if name == "verify_passes" and facts.macs > MOST_INTERPRETED:
        return None
    flag = flag_of(name, verb)
    if name not in VALUES:
        return [flag] if label == "on" else [flag, label]
    values = VALUES[name][label](facts)
    return None if values is None else [word for value in values for word in (flag, value)]


def all_options() -> dict[str, list[Option]]:
    """Every value of every option of `compile` that is not the default (SystemExit if none is known)."""
    values: dict[str, list[Option]] = {}
    for name, option in parameters("compile").items():
        if name in LEFT_OUT:
            continue
        if name in VALUES:
            labels = list(VALUES[name])
        elif option.is_flag:
            labels = ["on"]
        elif option.metavar and re.fullmatch(r"[a-z0-9-]+(\|[a-z0-9-]+)+", option.metavar):
            labels = [choice for choice in option.metavar.split("|") if choice != option.default]
        else:
            raise SystemExit(f"no values are known for --{name.replace('_', '-')}: give VALUES some")
        values.setdefault(FACTOR_OF.get(name, name), []).extend((name, label) for label in labels)
    return values


def factors(row: frozenset[Option]) -> set[str]:
    return {FACTOR_OF.get(name, name) for name, _ in row}


def completed(row: frozenset[Option]) -> frozenset[Option]:
    """The row with the options that its options depend on."""
    present = factors(row)
    return row | {
        needed for name, needed in NEEDS.items() if name in present and FACTOR_OF.get(needed[0], needed[0]) not in present
    }


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: well, refused with a code, or neither; `words` runs it again."""

    ok: bool
    code: str
    text: str
    words: str
    result: Mapping[str, Any] = field(default_factory=dict)
    stage: int = 0

    @property
    def failed(self) -> bool:
        return not self.ok and not self.code


def _child(arguments: Sequence[str], folder: Path, streams: Sequence[Path]) -> None:
    """The work of a separate process: `aot` in `folder`, with its output and errors in files."""
    os.setsid()  # its child processes end with it
    os.chdir(folder)
    for number, path in enumerate(streams, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.argv = ["aot", *arguments]
    from aot.cli.__main__ import main as program

    program()


@cache
def _processes() -> Any:
    """Processes forked from one that has imported the compiler: imports are a third of a small compilation."""
    sys.path.insert(0, str(ROOT))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["aot.cli.__main__", "aot.driver.build", "aot.cli.app", "aot.report.measure"])
    return context


def aot(arguments: Sequence[str], folder: Path) -> Outcome:
    """Run `aot` in a separate process, in `folder`."""
    shown = "aot " + shlex.join(arguments)
    with tempfile.TemporaryDirectory() as place:
        streams = [Path(place) / "stdout", Path(place) / "stderr"]
        process = _processes().Process(target=_child, args=(list(arguments), folder, streams))
        process.start()
        process.join(TIMEOUT)
        if process.exitcode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
            return Outcome(False, "", f"not done after {TIMEOUT} s", shown)
        output, errors = (path.read_text(encoding="utf-8", errors="replace") for path in streams)
    if process.exitcode == 0:
        try:
            return Outcome(True, "", "", shown, json.loads(output))
        except ValueError:
            quiet = "--json" not in arguments
            return Outcome(quiet, "", "" if quiet else f"not JSON: {output[:200]}", shown)
    text = (errors + output).strip()
    code = re.search(r"\bE(?!9)[0-9]{4}\b", text) if process.exitcode in (2, 3, 4, 6) else None
    return Outcome(False, code[0] if code else "", f"exit {process.exitcode}: {text[-400:]}", shown)


def facts_of(path: Path, folder: Path) -> Facts | None:
    """The facts about a model for the values of options; None if it does not compile without options."""
    plain, least = (
        aot(["compile", str(path), "-o", f"{folder}/{path.stem}-{opt}", "--opt", opt, "--json"], folder)
        for opt in ("balanced", "ram")
    )
    if not plain.ok or not least.ok:
        print(f"{path.name} is left out: {(plain.text or least.text)[:200]}", file=sys.stderr)
        return None
    from aot.frontend.problems import Problems
    from aot.frontend.tflite.view import parse

    meta = plain.result["metadata"]
    view = parse(path.read_bytes(), Problems())
    keys = [s.key for s in view.signatures if s.subgraph == 0] if view is not None else []
    flash = meta["constants"]["size"] + sum(c["code"] for x in meta["layers"] for c in x["candidates"][:1])
    return Facts(
        path, tuple((i["name"], tuple(i["shape"])) for i in meta["inputs"]), meta["layers"][0]["name"], keys[0] if keys else None,
        meta["workspace"]["size"], least.result["metadata"]["workspace"]["size"], flash, meta["macs"],
    )  # fmt: skip


def run_row(row: frozenset[Option], facts: Facts, folder: Path, *, last: int = 2) -> Outcome:
    """Compile the row; verify what `aot verify` supports on a board; try larger budgets and pools (stages 0 to `last`)."""
    row = completed(row)
    outcome = Outcome(True, "", "", "")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        (Path(place) / "budget.toml").write_text(BUDGET_FILE, encoding="utf-8")
        for number, stage in enumerate((compile_row, verify_row, larger)[: last + 1]):
            outcome = replace(stage(row, facts, Path(place)), stage=number)
            if not outcome.ok:
                break
    return outcome


def words_for(row: Iterable[Option], facts: Facts, verb: str) -> list[str]:
    return [word for option in sorted(row) for word in words_of(option, facts, verb) or []]


def compile_row(row: frozenset[Option], facts: Facts, folder: Path) -> Outcome:
    """The whole row, as it was drawn."""
    output = "out.tar" if ("form", "mlf") in row else "out"
    return aot(["compile", str(facts.path), "-o", output, *words_for(row, facts, "compile")], folder)


def verify_row(row: frozenset[Option], facts: Facts, folder: Path) -> Outcome:
    """The bytes of the row, on an emulated board (with a stand-in for a library: on this machine)."""
    from aot.micro.board import load_board

    values = dict(row)
    board = values.get("board") or BOARD_OF[values.get("target", "cortex-m4")]
    place = load_board("host" if "byoc" in values else board)
    board = place.name
    if place.kind == "gdb":  # the machine of its map, or one with its core
        board = f"qemu:{board}" if place.like is not None else BOARD_OF[place.cpu]
    shared = [o for o in row if o[0] in parameters("verify") and o[0] not in ("board", "json", "quiet", "verbose")]
    words = ["--board", board, "--random", "2", "--no-profile", *words_for(shared, facts, "verify"), "--json"]
    return aot(["verify", str(facts.path), *words], folder)


def larger(row: frozenset[Option], facts: Facts, folder: Path) -> Outcome:
    """A budget or a pool with more room must not give more instructions, a pool not more memory."""
    others = ("json", "quiet", "verbose", "plan", "form", "sbom", "profiler", "share", "verify_passes", "stack_bound")
    words = words_for([o for o in row if o[0] not in others], facts, "compile")
    changed: dict[str, list[str]] = {}
    for i, word in enumerate(words[:-1]):
        size = re.fullmatch(r"(?:([A-Z]+)=)?([0-9]+)(:[0-9]+)?", words[i + 1])
        if word in ("--ram-budget", "--flash-budget", "--pool") and size is not None:
            prefix = f"{size[1]}=" if size[1] else ""
            changed[word] = [*words[: i + 1], f"{prefix}{int(size[2]) * 5 // 4}{size[3] or ''}", *words[i + 2 :]]
    last = Outcome(True, "", "", "")
    if not changed:
        return last
    now = aot(["compile", str(facts.path), "-o", "law", *words, "--json"], folder)
    for number, (option, more) in enumerate(changed.items()):
        then = aot(["compile", str(facts.path), "-o", f"law{number}", *more, "--json"], folder)
        if not now.ok or not then.ok:
            return then if now.ok else now
        complaint = worse(now.result["metadata"], then.result["metadata"], pool=option == "--pool", pinned="--pin" in words)
        if complaint:
            return Outcome(False, "", f"a larger {option} {complaint}", f"{now.words}   # against {then.words}")
    return last


def worse(less: Mapping[str, Any], more: Mapping[str, Any], *, pool: bool, pinned: bool) -> str:
    """What is worse with more room; empty if nothing is.

    Besides a tensor that is pinned to a slow pool, the others may move from that pool to a faster one as soon as they fit there:
    such a plan may need more bytes if its accesses are faster."""
    was, became = less["selection"], more["selection"]
    if was["minimised"] == became["minimised"] and became["total"] > was["total"]:
        return f"gives {became['total']:,} {was['minimised']} instead of {was['total']:,}"
    sizes = [m["workspace"]["size"] for m in (less, more)]
    times = [m["workspace"].get("pool_choice", {}).get("total", 0.0) for m in (less, more)]
    if pool and sizes[1] > sizes[0] and not (pinned and times[1] < times[0]):
        return f"takes {sizes[1]:,} B of workspace instead of {sizes[0]:,}"
    return ""


@dataclass
class Campaign:
    """The remaining pairs, and what was learnt so far."""

    options: dict[str, list[Option]]
    models: list[Facts]
    rng: random.Random
    pending: set[frozenset[Option]] = field(default_factory=set)
    pairs: int = 0
    barred: dict[Path, set[frozenset[Option]]] = field(default_factory=dict)
    refused: dict[frozenset[Option], str] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    rows: int = 0

    def __post_init__(self) -> None:
        for a, b in combinations(self.options.values(), 2):
            self.pending |= {frozenset((x, y)) for x in a for y in b}
        self.pairs = len(self.pending)
        for facts in self.models:
            missing = {frozenset((o,)) for os_ in self.options.values() for o in os_ if words_of(o, facts, "compile") is None}
            self.barred[facts.path] = missing

    def allowed(self, row: frozenset[Option], facts: Facts) -> bool:
        return not any(bar <= row for bar in self.barred[facts.path])

    def draw(self, facts: Facts, running: Iterable[frozenset[Option]] = ()) -> frozenset[Option] | None:
        """A row for the model with many pending pairs; None if it has no pending pair left."""
        pending = self.pending - {frozenset(p) for row in running for p in combinations(row, 2)}
        open_pairs = [p for p in sorted(pending, key=sorted) if self.allowed(p, facts)]
        if not open_pairs:
            return None
        best: frozenset[Option] = frozenset()
        most = 0
        for _ in range(8):
            row = self.rng.choice(open_pairs)
            names = [n for n in self.options if n not in factors(row)]
            self.rng.shuffle(names)
            for name in names:
                if len(row) == LONGEST_ROW:
                    break
                gains = [
                    (sum(frozenset((o, other)) in pending for other in row), self.rng.random(), o) for o in self.options[name]
                ]
                gain, _, option = max(gains)
                if gain and self.allowed(row | {option}, facts):
                    row |= {option}
            count = sum(frozenset(p) in pending for p in combinations(row, 2))
            if count > most:
                best, most = row, count
        return best

    def explore(self, row: frozenset[Option], facts: Facts, folder: Path) -> list[tuple[frozenset[Option], Outcome]]:
        """The refused or failing parts of the row, reduced as far as possible, and last the part of the row that runs well."""
        parts: list[tuple[frozenset[Option], Outcome]] = []
        while len(row) > 1:
            outcome = run_row(row, facts, folder)
            if outcome.ok:
                return [*parts, (row, outcome)]
            least, outcome = self.reduce(row, facts, outcome, folder)
            parts.append((least, outcome))
            row -= {max(least)}  # the rest of the row is still useful
        return parts

    def learn(self, facts: Facts, found: Sequence[tuple[frozenset[Option], Outcome]]) -> None:
        """Remove the pairs that the row covers; bar what was refused."""
        self.rows += 1
        for part, outcome in found:
            if outcome.ok:
                self.pending -= {frozenset(p) for p in combinations(part, 2)}
                continue
            self.barred[facts.path].add(part)  # reported once; other models continue
            if outcome.failed:
                self.failures.append(
                    {"model": facts.path.name, "options": sorted(part), "what": outcome.text, "command": outcome.words}
                )
                print(f"FAILED {facts.path.name} {sorted(part)}: {outcome.text}\n   {outcome.words}", flush=True)
                continue
            if outcome.code == "E5017":  # what aot never combines
                for barred in self.barred.values():
                    barred.add(part)
            if len(part) == 2:
                self.refused.setdefault(part, f"{outcome.code} ({facts.path.name})")
            print(f"refused {outcome.code} {facts.path.name} {sorted(part)}", flush=True)

    def reduce(self, row: frozenset[Option], facts: Facts, outcome: Outcome, folder: Path) -> tuple[frozenset[Option], Outcome]:
        """The smallest part of the row with the same outcome, using the options that the refusal names, or any."""

        def same(part: frozenset[Option]) -> Outcome | None:
            again = run_row(part, facts, folder, last=outcome.stage)
            return again if not again.ok and (again.code, again.stage) == (outcome.code, outcome.stage) else None

        named = [o for o in sorted(row) if re.search(rf"{flag_of(o[0], 'compile')}\b(?!-)", outcome.text)]
        for part in (frozenset(p) for size in (1, 2) for p in combinations(named, size)):
            if part < row and (again := same(part)) is not None:
                row, outcome = part, again
                break
        for option in sorted(row, key=lambda o: (o[0] != "verify_passes", o)):  # the slow one first
            if len(row) == 1:
                break
            if (again := same(row - {option})) is not None:
                row, outcome = row - {option}, again
        return row, outcome

    def save(self, path: Path) -> None:
        """Keep what is known, for `load`."""
        listed = {
            name: [sorted(part) for part in parts] for name, parts in (("pending", self.pending), ("refused", self.refused))
        }
        barred = [[str(path), [sorted(part) for part in parts]] for path, parts in self.barred.items()]
        kept = {**listed, "codes": list(self.refused.values()), "barred": barred, "failures": self.failures, "rows": self.rows}
        path.with_suffix(".new").write_text(json.dumps(kept), encoding="utf-8")
        path.with_suffix(".new").replace(path)

    def load(self, path: Path) -> None:
        """Go on from what `save` kept of a campaign with the same options and models."""

        def parts(listed: list[list[list[str]]]) -> list[frozenset[Option]]:
            return [frozenset((name, label) for name, label in part) for part in listed]

        kept = json.loads(path.read_text(encoding="utf-8"))
        self.pending = set(parts(kept["pending"]))
        self.refused = dict(zip(parts(kept["refused"]), kept["codes"], strict=True))
        self.failures, self.rows = kept["failures"], kept["rows"]
        for model, barred in kept["barred"]:
            self.barred.setdefault(Path(model), set()).update(parts(barred))

    def settle(self) -> set[frozenset[Option]]:
        """Pairs that no model can have, as each model refuses the pair or one option of it."""
        done = {p for p in self.pending if not any(self.allowed(p, facts) for facts in self.models)}
        self.pending -= done
        return done


def campaign(models: Sequence[Facts], seed: int, minutes: float, workers: int, resume: Path | None = None) -> Campaign:
    """Draw and run rows until no pair is pending or the time is over; what is known is kept in `resume`, and taken from there."""
    state = Campaign(all_options(), list(models), random.Random(seed))
    if resume is not None and resume.exists():
        state.load(resume)
        state.rng.seed(f"{seed} {state.rows}")
    end = time.monotonic() + minutes * 60
    running: dict[Future[list[tuple[frozenset[Option], Outcome]]], tuple[frozenset[Option], Facts]] = {}
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(workers) as threads:

        def start() -> bool:
            """Begin a row of a model that no other row runs; whether there was one."""
            busy = {facts.path for _, facts in running.values()}
            idle = [facts for facts in state.models if facts.path not in busy]
            for facts in state.rng.sample(idle, k=len(idle)):
                row = state.draw(facts, [drawn for drawn, _ in running.values()])
                if row is not None:
                    running[threads.submit(state.explore, row, facts, Path(place))] = row, facts
                    return True
            return False

        while True:
            while time.monotonic() < end and len(running) < workers and start():
                pass
            if not running:
                break
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                state.learn(running.pop(done)[1], done.result())
            state.settle()
            if resume is not None:
                state.save(resume)
            print(f"{state.rows} rows, {state.pairs - len(state.pending)} of {state.pairs} pairs", file=sys.stderr, flush=True)
    state.settle()
    return state


def default_models() -> Iterator[Path]:
    names = (
        [SHARED / f"{n}.tflite" for n in SMALL] + [MODELS / "graph_signature.tflite"]
        if SHARED.is_dir()
        else [MODELS / f"{n}.tflite" for n in OWN]
    )
    return (path for path in names if path.exists())


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("-j", "--workers", type=int, default=2)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        models = [f for m in (options.models or default_models()) if (f := facts_of(m.resolve(), Path(place))) is not None]
    if not models:
        parser.error("no model compiles")
    state = campaign(models, options.seed, options.minutes, options.workers, options.resume)
    kinds = Counter(code.split()[0] for code in state.refused.values())
    if options.json:
        pairs = [
            {"options": sorted(pair), "code": code} for pair, code in sorted(state.refused.items(), key=lambda x: sorted(x[0]))
        ]
        print(
            json.dumps(
                {
                    "trials": state.rows,
                    "pairs": state.pairs,
                    "pending": len(state.pending),
                    "refused": pairs,
                    "failures": state.failures,
                }
            )
        )
    else:
        for pair, code in sorted(state.refused.items(), key=lambda item: sorted(item[0])):
            print(f"cannot be combined: {' and '.join(f'{n}={v}' for n, v in sorted(pair))}: {code}")
        print(
            f"{state.rows} rows, {state.pairs - len(state.pending)} of {state.pairs} pairs covered, "
            f"{len(state.refused)} refused {dict(kinds)}, {len(state.failures)} failures; seed {options.seed}"
        )
    return 1 if state.failures or state.pending else 0


if __name__ == "__main__":
    sys.exit(main())
