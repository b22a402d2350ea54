"""The files of aot report: well-formed, complete, and safe against what a model's names may hold."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from aot.report.measure.gate import check_report, diff_reports
from aot.report.measure.report import key_of
from aot.report.render.blocks import cell
from aot.report.render.drawings import Box, fitting, squarify
from aot.report.render.formats import badge, benchmark, junit, kib, short
from aot.report.render.pages import COMMENT_LIMIT, report_html, report_markdown
from tests.report.sample_report import FAILURE, host_sample, layer, sample

VOID = {"meta", "link", "br"}
HOSTILE = '<script>alert(1)</script> "|`[x](http://evil.example)` & @everyone \\'


class Page(HTMLParser):
    """Checks that tags nest; keeps all tags, their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def hostile() -> dict[str, Any]:
    report = sample()
    report["layers"][0] |= {"name": HOSTILE, "op": HOSTILE, "kernel": HOSTILE}
    report["plan"]["buffers"][1]["name"] = HOSTILE
    report["flash"]["symbols"][0]["name"] = HOSTILE
    report["fingerprint"]["model"]["file"] = HOSTILE
    return report


def pages() -> list[str]:
    worse = hostile()
    worse["totals"]["instructions"] += 1
    worse["layers"][0]["instructions"] += 1
    changes = diff_reports({key_of(sample()): sample()}, {key_of(worse): worse})
    findings = check_report(worse, None, sample())
    return [report_html([worse, host_sample()], [FAILURE], findings, changes), report_html([sample()], [], [])]


def test_html_nests_and_asks_for_nothing() -> None:
    for text in pages():
        page = Page(text)
        tags = [t for t, _ in page.tags]
        assert not {"iframe", "object", "img", "form"} & set(tags)
        assert tags.count("script") == 1  # ours, which the policy allows by its hash
        for tag, attributes in page.tags:
            assert not {k for k in attributes if k.startswith("on") or k == "src"}, tag
            assert (attributes.get("href") or "data:").startswith(("data:", "#m"))
        assert "url(" not in text
        policy = [a["content"] for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
        assert policy
        assert "default-src 'none'" in str(policy[0])
        script = text[text.index("<script>") + 8 : text.index("</script>")]
        assert f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" in str(policy[0])


def test_html_draws_every_buffer_layer_and_symbol() -> None:
    report = sample()
    text = report_html([report], [], [])
    titles = re.findall(r"<title>([^<]*)</title></rect>", text)
    assert sum(t.startswith(("x\n", "t0\n", "t1\n")) for t in titles) == 3
    assert text.count('data-v="2.0" title="median of CONV_2D on this page: 2.00">2.00</td>') == 2
    for symbol in report["flash"]["symbols"]:
        assert any(t.startswith(f"{symbol['name']}\n{symbol['group']}, {symbol['bytes']} B") for t in titles)
    assert "all 2 sets bit-exact" in text


def test_html_of_a_host_and_of_nothing() -> None:
    Page(report_html([host_sample()], [], []))
    Page(report_html([], [FAILURE], []))


def test_the_memory_plan_is_true_to_scale() -> None:
    text = report_html([sample()], [], [])
    found = re.search(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" class="c1"><title>t0\n', text)
    ground = re.search(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" class="ground"', text)
    assert found is not None
    assert ground is not None
    x, y, w, h = (float(g) for g in found.groups())
    gx, gy, gw, gh = (float(g) for g in ground.groups())
    assert (y - gy, h) == (gh * 16 / 64, gh * 32 / 64)
    assert (x - gx, w) == (pytest.approx(gw / 4, abs=0.02), pytest.approx(gw / 2, abs=0.02))


@pytest.mark.parametrize("sizes", [[6, 6, 4, 3, 2, 2, 1], [1], [1000, 1, 1], [5] * 40])
def test_the_tree_map_fills_its_box_in_proportion(sizes: list[float]) -> None:
    box = Box(10, 20, 600, 400)
    boxes = squarify(sizes, box)
    for size, b in zip(sizes, boxes, strict=True):
        assert b.w * b.h == pytest.approx(size / sum(sizes) * box.w * box.h)
        assert b.x >= 10 - 1e-6
        assert b.x + b.w <= 610 + 1e-6
        assert b.y >= 20 - 1e-6
        assert b.y + b.h <= 420 + 1e-6
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            assert a.x + a.w <= b.x + 1e-6 or b.x + b.w <= a.x + 1e-6 or a.y + a.h <= b.y + 1e-6 or b.y + b.h <= a.y + 1e-6


def test_labels_are_cut_to_their_box() -> None:
    assert fitting("conv", 100) == "conv"
    assert fitting("a_very_long_name", 60) == "a_v…ame"
    assert fitting("a_very_long_name", 20) == ""


def test_markdown_holds_the_figures_and_no_markup_of_the_model() -> None:
    text = report_markdown([hostile()], [FAILURE], [])
    assert "| net | mps2-an386 | exact | 1,000 | 240 | 96 | 64 | 30 |" in text
    assert "<script" not in text
    assert "](http" not in text.replace("\\]", "")
    assert not re.search(r"(?<!\w)@every", text)
    assert "no &lt;model> &amp; more" in text
    assert cell("a|b\nc") == "a\\|b c"
    rows = [line for line in text.splitlines() if line.startswith("| 0 ")]
    assert len(re.findall(r"(?<!\\)\|", rows[0])) == 8


def test_markdown_tells_changes_and_limits() -> None:
    worse = sample()
    worse["totals"] |= {"instructions": 1001, "workspace": 60}
    worse["layers"][1]["instructions"] = 101
    changes = diff_reports({key_of(sample()): sample()}, {key_of(worse): worse})
    text = report_markdown([worse], [], check_report(worse, None, sample()), changes)
    assert text.startswith("## aot: 1/1 bit-exact, 1 limit exceeded, 1 figure improved\n")
    assert "1,001 +1 (+0.10 %)" in text
    assert "- **net@mps2-an386**: instructions 1,001 is more than 1,000 (no growth, +1 from the baseline)" in text
    assert "- net@mps2-an386: workspace 64 → 60 (-4)" in text
    assert "| 1 CONV_2D t1 | +1 (+1.00 %) | = | generic.conv2d |" in text


def test_markdown_fits_a_comment() -> None:
    reports = [sample(f"net{i}") | {"layers": [layer(k) for k in range(60)]} for i in range(60)]
    text = report_markdown(reports, [], [])
    assert len(text) <= COMMENT_LIMIT
    assert all(f"| net{i} |" in text for i in range(60))
    assert text.endswith("The rest is left out; report.html has everything.\n")


def test_junit() -> None:
    wrong = host_sample()
    wrong["verdict"] |= {"exact": False, "accepted": False, "sets_exact": 1}
    worse = sample()
    worse["totals"]["stack"] += 1
    root = ElementTree.fromstring(junit([wrong, worse], [FAILURE], check_report(worse, None, sample())))
    suites = {s.attrib["name"]: s for s in root}
    assert {n: (s.attrib["tests"], s.attrib["failures"], s.attrib["errors"]) for n, s in suites.items()} == {
        "host": ("1", "1", "0"),
        "mps2-an386": ("8", "1", "1"),
    }
    assert {n: len(s) for n, s in suites.items()} == {"host": 1, "mps2-an386": 8}
    assert "E1001 no <model> & more" in [e.attrib["message"] for e in root.iter("error")]
    control = dict(FAILURE, model="a\x00b.tflite")
    ElementTree.fromstring(junit([], [control], []))


def test_badge() -> None:
    assert badge([sample()], [], []) == {
        "schemaVersion": 1, "label": "net", "message": "bit-exact · 240 B flash · 96 B RAM · 1.0 k instr", "color": "brightgreen",
    }  # fmt: skip
    assert badge([host_sample()], [], [])["message"] == "bit-exact"
    both = badge([sample(), host_sample()], [FAILURE], [])
    assert (both["message"], both["color"]) == ("2/3 bit-exact", "red")
    worse = sample()
    worse["totals"]["code"] += 1
    assert badge([worse], [], check_report(worse, None, sample()))["message"].endswith("over budget")


def test_benchmark() -> None:
    rows = benchmark([sample(), host_sample()])
    assert {"name": "net@mps2-an386 instructions", "unit": "instructions", "value": 1000} in rows
    assert [r["name"] for r in rows if "host" in r["name"]] == ["net@host workspace"]
    json.dumps(rows)


def test_short_figures() -> None:
    assert [kib(None), kib(1023), kib(1024), kib(49050)] == ["-", "1023 B", "1.0 KiB", "47.9 KiB"]
    assert [short(None), short(999), short(66918), short(2333810)] == ["-", "999", "66.9 k", "2.33 M"]


def browse(page: str, folder: Path) -> tuple[str, str, set[str]]:
    """(document, what the browser logged, addresses asked for over the network) of a page opened from disk."""
    path, log = folder / "page.html", folder / "net.json"
    path.write_text(page, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    places = ["--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}"]
    command = ["chromium", *options, *places, "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    return done.stdout, done.stderr, set(re.findall(r'"url":"(https?:[^"]+)"', log.read_text()))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_chromium_shows_the_page_without_requests_and_errors(tmp_path: Path) -> None:
    blank, _, own = browse("<!doctype html><title>x</title>", tmp_path)
    assert "<svg" not in blank
    for page in pages():
        document, log, urls = browse(page, tmp_path)
        assert "<svg" in document
        assert "CONSOLE" not in log
        assert not {u for u in urls - own if not re.match(r"https?://[\w.-]*(google|gvt1)", u)}  # what a browser asks by itself
    _, log, _ = browse(pages()[1].replace("</body>", "<script>alert(1)</script></body>"), tmp_path)
    assert "CONSOLE" in log  # the page's policy refused it
