"""Files of our own forms may come from anywhere: chains as bytes, archives, reports, baselines, budgets, lists of files."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from aot.cli.__main__ import run
from aot.cli.files import check_replaceable, read_manifest
from aot.driver.build import build
from aot.errors import AotError, UsageError
from aot.frontend.chain import MARK, Chain, Stage, pack, unpack
from aot.micro.new import mlf
from aot.report.figures.schema import find_fault, load_schema
from aot.report.measure.gate import (
    FIELDS,
    baseline_text,
    check_reports,
    check_whole,
    diff_reports,
    load_budget,
    load_reports,
    parse_limit,
)
from aot.report.render.pages import compare_html, diff_markdown
from tests.models.golden import FOLDER
from tests.regression.untrusted.mutate import mutants, values

MODEL = (FOLDER / "add.tflite").read_bytes()
CHAIN = Chain((Stage("a", MODEL), Stage("b", MODEL, 1, 1, "y")), 16000.0)


def plain(error: AotError) -> bool:
    return not any(p.code.startswith("E9") for p in error.problems)


# ---- chains as bytes, which may be called a model


def header() -> tuple[dict[str, Any], bytes]:
    length, _, rest = pack(CHAIN)[len(MARK) :].partition(b"\n")
    return json.loads(rest[: int(length)]), rest[int(length) :]


def test_chains_as_bytes() -> None:
    head, body = header()
    assert unpack(pack(CHAIN)) == CHAIN
    texts = [json.dumps(changed).encode() for changed in values(head, count=300, seed=1)]
    texts += list(mutants(json.dumps(head).encode(), count=300, seed=2))
    for text in texts:
        found = unpack(MARK + b"%d\n" % len(text) + text + body)
        assert found is None or all(isinstance(s.name, str) and s.name.isidentifier() for s in found.stages)


@pytest.mark.parametrize("length", [b"-1", b"1_0", b"9" * 5000, b"", b" 4"])
def test_lengths_of_headers(length: bytes) -> None:
    assert unpack(MARK + length + b"\n{}") is None
    with pytest.raises(AotError) as caught:
        build(MARK + length + b"\n{}", name="m")
    assert plain(caught.value)


@pytest.mark.slow
def test_models_that_say_they_are_chains() -> None:
    head, body = header()
    for changed in values(head, count=60, seed=3):
        text = json.dumps(changed).encode()
        try:
            build(MARK + b"%d\n" % len(text) + text + body, name="m")
        except AotError as error:
            assert plain(error), error  # noqa: PT017


# ---- archives


def archive() -> bytes:
    return mlf.pack(build(MODEL, name="add"), relay="")


def examine_archive(data: bytes) -> None:
    try:
        mlf.artifact_of(mlf.unpack(data))
    except UsageError as error:
        assert error.problems[0].code == "E5045"  # noqa: PT017


def test_archives() -> None:
    data = archive()
    examine_archive(data)
    for changed in mutants(data, count=60, seed=4):
        examine_archive(changed)
    with tarfile.open(fileobj=io.BytesIO(data)) as old:
        files = {m.name: stream.read() for m in old if (stream := old.extractfile(m))}
    meta = json.loads(files["./metadata.json"])
    meta["modules"]["add"]["aot"] = {"name": "add"}
    for changed in values(meta, count=80, seed=5):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as new:
            for name, content in {**files, "./metadata.json": json.dumps(changed).encode()}.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                new.addfile(info, io.BytesIO(content))
        examine_archive(stream.getvalue())


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE])
def test_headers_without_end(kind: bytes) -> None:
    """Each one is read by the one before it; and a sparse file is as long as it says, of nothing."""
    info = tarfile.TarInfo("metadata.json")
    info.type = kind
    with pytest.raises(UsageError, match="E5045"):
        mlf.unpack(info.tobuf() * 3000)


def test_sparse_files_are_none() -> None:
    info = tarfile.TarInfo("metadata.json")
    info.type = tarfile.GNUTYPE_SPARSE
    raw = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    raw[483:495] = b"%011o\0" % (1 << 32)  # the real size
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    with pytest.raises(UsageError, match="E5045"):
        mlf.unpack(bytes(raw) + bytes(1024))


# ---- reports and baselines


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    options = ["--board", "host", "--no-require-reference", "--random", "1", "--quiet"]
    assert run(["report", str(FOLDER / "add.tflite"), *options, "-o", str(folder)]) == 0
    return folder


def test_reports_and_baselines(reports: Path, tmp_path: Path) -> None:
    good = load_reports(reports)
    raw = json.loads((reports / "report.json").read_bytes())
    kept = json.loads(baseline_text(raw["reports"]))
    schema = load_schema()
    assert find_fault(raw, schema) == ""
    assert "reports[0].name" in find_fault({**raw, "reports": [{**raw["reports"][0], "name": 3}]}, schema)
    assert "lacks name" in find_fault({**raw, "reports": [{}]}, schema)
    for changed in [*values(raw, count=150, seed=6), kept, *values(kept, count=100, seed=7)]:
        (tmp_path / "r.json").write_text(json.dumps(changed))
        try:
            other = load_reports(tmp_path / "r.json")
            for a, b in ((other, good), (good, other)):
                found = diff_reports(a, b, allow=frozenset(FIELDS))
                assert diff_markdown(found, top=5)
                check_whole(other, "r.json")
                assert compare_html(found, a, b)
            baseline_text(other.values()).encode()
        except UsageError as error:
            assert error.problems[0].code == "E5050"  # noqa: PT017


def test_a_page_of_a_baseline(reports: Path, tmp_path: Path) -> None:
    """It has no memory plan: the page has what differs alone."""
    (tmp_path / "b.json").write_text(baseline_text(load_reports(reports).values()))
    assert run(["diff", str(tmp_path / "b.json"), str(reports), "--html", str(tmp_path / "d.html"), "--quiet"]) == 0
    assert "<main>" in (tmp_path / "d.html").read_text()


# ---- budgets, lists of files


@pytest.mark.parametrize("limit", ["9" * 5000, "0." + "1" * 5000 + " KiB", "+" + "9" * 5000 + " %"])
def test_limits_of_thousands_of_digits(limit: str) -> None:
    with pytest.raises(UsageError, match="E5052"):
        parse_limit(limit, "here")


def test_budgets(reports: Path, tmp_path: Path) -> None:
    text = b'baseline = "b.json"\nflash = "90 KiB"\nram = 20000\ninstructions = "+1 %"\n["conv*"]\nworkspace = 100\n'
    good = list(load_reports(reports).values())
    for changed in mutants(text, count=300, seed=8):
        (tmp_path / "budget.toml").write_bytes(changed)
        try:
            check_reports(good, load_budget(tmp_path / "budget.toml", tmp_path), {})
        except UsageError as error:
            assert error.problems[0].code == "E5052"  # noqa: PT017


def test_a_list_of_files_that_waits(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    os.mkfifo(tmp_path / "aot-output.json")
    assert read_manifest(tmp_path / "aot-output.json", "aot-output/1") is None
    with pytest.raises(UsageError, match="E500[45]"):  # noqa: RUF043
        check_replaceable(tmp_path, force=True)


# ---- plug-ins, after they were loaded

PLUGIN = """
import sys
from aot.ir.transform import register_pass

class Stop(BaseException):
    pass

@register_pass(0, "UntrustedStop", on="relay", after="canonicalize")
def stop(func, context):
    if context is not None:
        {what}
    return func
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["sys.exit(0)", "raise Stop", "raise GeneratorExit", "raise SystemExit", "1 / 0"])
def test_a_pass_does_not_end_the_command(tmp_path: Path, what: str) -> None:

    (tmp_path / "mine.py").write_text(PLUGIN.format(what=what))
    command = [sys.executable, "-m", "aot", "compile", str(FOLDER / "add.tflite"), "--plugin", "mine.py", "-o", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("E5110 plug-in mine.py: fails at mine.py:")
    assert not (tmp_path / "out").exists()
