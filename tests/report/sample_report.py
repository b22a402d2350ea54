"""A small report made by hand, for tests that need no compiler."""

from __future__ import annotations

import copy
from typing import Any


def layer(index: int, *, op: str = "CONV_2D", instructions: int | None = 100, code: int | None = 40) -> dict[str, Any]:
    """A layer of 50 MAC with 60 bytes of weights."""
    sized = code is not None
    return {
        "index": index, "op": op, "does": op, "ops": [index], "name": f"t{index}", "function": f"net_{index}",
        "kernel": "generic.conv2d", "macs": 50, "instructions": instructions,
        "estimated_cycles": None if instructions is None else 140,
        "instructions_per_mac": None if instructions is None else instructions / 50,
        "code": code, "weights": 60 if sized else None, "tables": 0 if sized else None, "shared": 0 if sized else None,
        "scratch": 8, "output": {"shape": [1, 4], "dtype": "int8"}, "next_faster": None,
    }  # fmt: skip


def fingerprint(board: str) -> dict[str, Any]:
    return {
        "tool": "aot 0.1.0", "model": {"sha256": "ab" * 32, "file": "net.tflite"}, "board": board,
        "options": {"oracle": "litert", "opt": "balanced", "io": "arena"}, "compiler": "gcc 12.2.1",
        "flags": {"kernels": ["-O2"], "main": ["-Os"]}, "emulator": "QEMU 7.2",
        "inputs": {"origin": "2 sets by rule", "sets": 2, "crc32": "00000001"}, "outputs": {"crc32": "00000002"},
    }  # fmt: skip


def sample(name: str = "net", board: str = "mps2-an386") -> dict[str, Any]:
    """Two layers; flash 240 = 80 kernels + 120 weights + 30 main + 10 runtime; RAM 96 = 64 + 32."""
    groups = {"kernels": 80, "weights": 120, "tables": 0, "main": 30, "runtime": 10}
    symbols = [
        {"name": "net_params_0", "group": "weights", "bytes": 60, "file": "net_params.c", "layers": [0]},
        {"name": "net_params_1", "group": "weights", "bytes": 60, "file": "net_params.c", "layers": [1]},
        {"name": "net_0", "group": "kernels", "bytes": 40, "file": "net_kernels.c", "layers": [0]},
        {"name": "net_1", "group": "kernels", "bytes": 40, "file": "net_kernels.c", "layers": [1]},
        {"name": "net_run", "group": "main", "bytes": 30, "file": "net.c", "layers": []},
        {"name": "memmove", "group": "runtime", "bytes": 10, "file": "crt/src/memory.c", "layers": []},
    ]
    rows = [{"layer": i, "code": 40, "weights": 60, "tables": 0, "shared": 0} for i in (0, 1)]
    size = {"text": 240, "data": 0, "bss": 64}
    buffers = [
        {"name": "x", "size": 16, "offset": 0, "first": -1, "last": 0, "kind": "input"},
        {"name": "t0", "size": 32, "offset": 16, "first": 0, "last": 1, "kind": "tensor"},
        {"name": "t1", "size": 16, "offset": 48, "first": 1, "last": 2, "kind": "output"},
    ]
    return copy.deepcopy({
        "name": name, "board": board, "cpu": "cortex-m4",
        "verdict": {"exact": True, "accepted": True, "reference": "the reference", "sets": 2, "sets_exact": 2,
                    "max_abs_diff": 0.0, "first_divergence": None, "divergence": None, "known_fault": None},
        "fingerprint": fingerprint(board),
        "totals": {"instructions": 1000, "macs": 100, "macs_nominal": 100, "flash": 240, "code": 120,
                   "constants": 120, "ram": 96, "workspace": 64,
                   "stack": 30, "stack_bound": 32, "heap": 0, "estimated_cycles": 1400},
        "flash": {"bytes": 240, "groups": groups | {"other": 0}, "layers": rows, "symbols": symbols, "size": size},
        "firmware": {"bytes": 340, "groups": groups | {"startup": 100, "other": 0}, "size": {**size, "text": 340}},
        "ram": {"bytes": 96, "state": 0, "runtime": 0, "heap": 0,
                "workspace": {"region": "RAM", "bytes": 64, "liveness_bound": 64, "touched": 64, "extent": 64},
                "stack": {"measured": 30, "bound": 32, "path": ["net_run", "net_0"]}},
        "memory": [{"region": "FLASH", "size": 1000, "used": 240, "sections": [".text", ".rodata"]},
                   {"region": "RAM", "size": 640, "used": 96, "sections": [".stack", ".workspace"]}],
        "layers": [layer(0), layer(1)],
        "plan": {"layers": 2, "size": 64, "liveness_bound": 64, "streaming_bound": 40, "fed_bound": 30, "plan_lower_bound": 64,
                 "optimal": True, "overlaps": [], "buffers": buffers,
                 "peak": {"bytes": 64, "steps": [{"step": 1, "what": "ADD b", "live": ["t0", "t1"]}]}},
    })  # fmt: skip


def host_sample() -> dict[str, Any]:
    """The same on a host, which counts and links nothing."""
    report = sample(board="host")
    for total in ("instructions", "estimated_cycles", "flash", "code", "ram", "stack", "stack_bound", "heap"):
        report["totals"][total] = None
    report |= {"flash": None, "memory": [], "firmware": None, "layers": [layer(i, instructions=None, code=None) for i in (0, 1)]}
    report["ram"] |= {"bytes": None, "heap": None, "stack": {"measured": None, "bound": None, "path": []}}
    report["fingerprint"]["emulator"] = None
    return report


FAULT = {
    "operator": "SUM", "what": "reads int8 as uint8", "example": "eight times -128 are -1", "versions": "2.1", "layer": 1,
    "compared_with": None,
}  # fmt: skip

FAILURE = {
    "model": "bad.tflite", "board": "mps2-an386", "exit_code": 3,
    "problems": [{"code": "E1001", "where": "", "message": "no <model> & more"}],
}  # fmt: skip
