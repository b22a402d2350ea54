"""What changed between reports, and which reports are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aot.errors import UsageError
from aot.report.measure.gate import (
    FIELDS,
    change_text,
    changed_fields,
    compare,
    diff_reports,
    load_reports,
    match_layers,
    moved,
    same_layers,
    total_rows,
)
from aot.report.measure.report import bundle, key_of, to_text
from aot.report.render.pages import diff_markdown
from tests.report.sample_report import host_sample, layer, sample


def keyed(*reports: dict[str, Any]) -> dict[str, Any]:
    return {key_of(r): r for r in reports}


def test_no_change() -> None:
    found = compare(sample(), sample())
    assert found["layers"] == found["symbols"] == found["fingerprint"] == []
    assert all(e["change"] in (0, None) for e in found["totals"].values())
    assert not found["outputs_changed"]


def test_a_byte_and_an_instruction_are_found_where_they_are() -> None:
    b = sample()
    b["totals"]["instructions"] += 1
    b["layers"][1]["instructions"] += 1
    b["layers"][0]["code"] += 1
    b["flash"]["symbols"][2]["bytes"] += 1
    found = compare(sample(), b)
    assert found["totals"]["instructions"] == {"before": 1000, "after": 1001, "change": 1, "percent": 0.1}
    assert [(m["layer"], m["instructions"]["change"], m["bytes"]["change"]) for m in found["layers"]] == [(1, 1, 0), (0, 0, 1)]
    assert [(s["name"], s["change"]) for s in found["symbols"]] == [("net_0", 1)]
    assert ("instructions", 1000, 1001, "+1 (+0.10 %)") in total_rows(found)
    text = diff_markdown(diff_reports(keyed(sample()), keyed(b)), top=5)
    assert "| instructions | 1,000 | 1,001 | +1 (+0.10 %) |" in text
    assert "| net_0 | net_kernels.c | +1 (+2.50 %) |" in text


def test_an_inserted_layer_does_not_shift_the_others() -> None:
    b = sample()
    b["layers"].insert(0, layer(0, op="PAD") | {"name": "padded"})
    for i, x in enumerate(b["layers"]):
        x["index"] = i
    (only,) = compare(sample(), b)["layers"]
    assert (only["op"], only["status"], only["instructions"]["change"], only["bytes"]["change"]) == ("PAD", "added", 100, 100)
    (gone,) = compare(b, sample())["layers"]
    assert (gone["status"], gone["instructions"]["change"], gone["scratch"]["change"]) == ("removed", -100, -8)


def test_another_kernel_is_a_change_even_at_the_same_cost() -> None:
    b = sample()
    b["layers"][0]["kernel"] = "generic.other"
    (row,) = compare(sample(), b)["layers"]
    assert row["kernel"] == {"before": "generic.conv2d", "after": "generic.other"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tool", "aot 9"),
        ("model", {"sha256": "cd" * 32, "file": "net.tflite"}),
        ("compiler", "gcc 13"),
        ("flags", {"kernels": ["-O3"], "main": ["-Os"]}),
        ("emulator", "QEMU 9"),
        ("options", {"oracle": "tflm", "opt": "balanced", "io": "arena"}),
        ("inputs", {"origin": "2 sets by rule", "sets": 2, "crc32": "00000009"}),
    ],
)
def test_other_fingerprints_are_refused_unless_allowed(field: str, value: object) -> None:
    b = sample()
    b["fingerprint"][field] = value
    with pytest.raises(UsageError) as caught:
        diff_reports(keyed(sample()), keyed(b))
    (problem,) = caught.value.problems
    assert (problem.code, problem.where) == ("E5051", "net@mps2-an386")
    assert f"--allow {field}" in problem.message
    found = diff_reports(keyed(sample()), keyed(b), allow=[field])
    assert [c["field"] for c in found["pairs"][0]["fingerprint"]] == [field]
    assert field in FIELDS


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("options", {"oracle": "tflm", "opt": "balanced", "io": "arena"}, "options differs: oracle litert before, oracle tflm"),
        ("flags", {"kernels": ["-O2", "-g"], "main": ["-Os"]}, "flags differs: kernels nothing before, kernels -g now"),
        ("compiler", "gcc 13", "compiler differs: gcc 12.2.1 before, gcc 13 now"),
    ],
)
def test_the_message_names_what_differs(field: str, value: object, text: str) -> None:
    b = sample()
    b["fingerprint"][field] = value
    with pytest.raises(UsageError) as caught:
        diff_reports(keyed(sample()), keyed(b))
    assert caught.value.problems[0].message.startswith(text)


def test_an_option_that_is_not_given_counts_like_one_that_did_not_exist() -> None:
    b = sample()
    b["fingerprint"]["options"] |= {"pooling": {"pools": [], "pins": []}, "flash_budget": None, "feed_rows": False}
    assert changed_fields(sample(), b) == changed_fields(b, sample()) == []
    b["fingerprint"]["options"]["pooling"]["pools"] = [["fast", 1024]]
    assert [c["field"] for c in changed_fields(sample(), b)] == ["options"]
    b = sample()
    b["fingerprint"]["options"]["flash_budget"] = 0
    assert [c["field"] for c in changed_fields(sample(), b)] == ["options"]


def test_inputs_of_another_model_may_have_another_checksum() -> None:
    b = sample()
    b["fingerprint"]["model"]["sha256"] = "cd" * 32
    b["fingerprint"]["inputs"]["crc32"] = "00000009"
    assert [c["field"] for c in changed_fields(sample(), b)] == ["model"]
    b["fingerprint"]["inputs"]["sets"] = 3
    assert [c["field"] for c in changed_fields(sample(), b)] == ["model", "inputs"]


def test_the_model_file_may_be_renamed() -> None:
    b = sample()
    b["fingerprint"]["model"]["file"] = "other.tflite"
    assert changed_fields(sample(), b) == []


def test_outputs_that_change_for_the_same_work_are_told() -> None:
    b = sample()
    b["fingerprint"]["outputs"]["crc32"] = "00000003"
    assert compare(sample(), b)["outputs_changed"]
    b["fingerprint"]["model"]["sha256"] = "cd" * 32
    assert not compare(sample(), b)["outputs_changed"]


def test_figures_that_one_side_lacks_have_no_change() -> None:
    found = compare(host_sample(), sample())
    assert found["totals"]["instructions"]["change"] is None
    assert found["symbols"] == []
    assert change_text(moved(None, 5)) == "-"
    assert change_text(moved(0, 5)) == "+5"
    assert change_text(moved(5, 5)) == "="


def test_added_and_removed_models() -> None:
    found = diff_reports(keyed(sample("a"), sample("c")), keyed(sample("b"), sample("c")))
    assert (found["added"], found["removed"]) == (["b@mps2-an386"], ["a@mps2-an386"])
    assert [p["name"] for p in found["pairs"]] == ["c"]


def retrained(name: str) -> dict[str, Any]:
    """The same layers with other weights, scales and names of tensors."""
    report = sample(name)
    report["fingerprint"]["model"]["sha256"] = "cd" * 32
    for x in report["layers"]:
        x["name"] = f"sequential_1/{x['name']}_2"
    for s in report["flash"]["symbols"]:
        s["name"], s["file"] = (f"{name}{text[3:]}" if text.startswith("net") else text for text in (s["name"], s["file"]))
    return report


@pytest.mark.parametrize("name", ["net", "other"])
def test_a_retrained_model_has_the_same_layers(name: str) -> None:
    """Under its old name or another one."""
    (pair,) = diff_reports(keyed(sample()), keyed(retrained(name)), allow=["model"])["pairs"]
    assert pair["same_layers"]
    assert pair["layers"] == pair["symbols"] == []
    assert (pair["previous_name"], pair["name"]) == ("net", name)
    text = diff_markdown(diff_reports(keyed(sample()), keyed(retrained(name)), allow=["model"]), top=5)
    assert "- the same layers" in text


def test_layers_match_by_structure_then_by_name() -> None:
    def layers(text: str) -> list[dict[str, Any]]:
        """`C4:a` is a CONV_2D with 4 channels called a; P: PAD, D: FULLY_CONNECTED."""
        found = []
        for word in text.split():
            kind, _, name = word.partition(":")
            op = {"C": "CONV_2D", "P": "PAD", "D": "FULLY_CONNECTED"}[kind[0]]
            found.append({"op": op, "name": name, "output": {"shape": [1, int(kind[1:])], "dtype": "int8"}})
        return found

    def pairs(before: str, after: str) -> list[tuple[int | None, int | None]]:
        return match_layers(layers(before), layers(after))

    assert pairs("C4:a C4:b D2:c", "C4:x C4:y D2:z") == [(0, 0), (1, 1), (2, 2)]
    assert pairs("C4:a C8:b D2:c", "C4:x P8:p C8:y D2:z") == [(0, 0), (None, 1), (1, 2), (2, 3)]
    assert pairs("C4:a C4:b", "C4:a C4:new C4:b") == [(0, 0), (None, 1), (1, 2)]  # equal structure: the names decide
    assert pairs("C4:a C8:b D2:c", "C4:a C9:b D2:c") == [(0, 0), (1, 1), (2, 2)]  # a wider layer is a change
    assert pairs("P4:p C4:a C4:b C4:c", "C4:a C4:b C4:c P9:p") == [(1, 0), (2, 1), (3, 2), (0, 3)]  # moved, found by name
    assert pairs("C4:a D2:c", "C4:a") == [(0, 0), (1, None)]
    assert same_layers(layers("C4:a D2:c"), layers("C4:x D2:y"))
    assert not same_layers(layers("C4:a D2:c"), layers("C4:x D3:y"))


def test_many_layers_are_matched_quickly() -> None:
    before = [layer(i, op=f"OP{i % 7}") for i in range(600)]
    after = [layer(i, op=f"OP{i % 7}") | {"name": f"n{i}"} for i in range(1, 600)]
    assert match_layers(before, after) == [(i + 1, i) for i in range(599)] + [(0, None)]


def test_load_from_file_and_folder(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(to_text(bundle([sample(), host_sample()])))
    assert list(load_reports(tmp_path)) == ["net@host", "net@mps2-an386"]
    assert load_reports(tmp_path) == load_reports(tmp_path / "report.json")


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        '{"schema": "aot-report/1", "name": "kws"}',
        '{"schema": "aot-report/3"}',
        '{"schema": "aot-report/3", "reports": [{}]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_reports(path)
    assert caught.value.problems[0].code == "E5050"


@pytest.mark.parametrize("part", ["totals", "flash", "layers", "verdict", "fingerprint"])
def test_a_damaged_report_is_refused(tmp_path: Path, part: str) -> None:
    report = sample()
    report[part] = "damaged" if part != "totals" else {"instructions": "many"}
    (tmp_path / "report.json").write_text(json.dumps({"schema": "aot-report/3", "reports": [report], "failures": []}))
    with pytest.raises(UsageError) as caught:
        load_reports(tmp_path)
    assert caught.value.problems[0].code == "E5050"


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_reports(tmp_path / "none.json")
    assert caught.value.problems[0].code == "E5001"
