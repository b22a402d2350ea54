"""Convert the PyTorch networks with litert-torch, in float and quantised by PT2E (static, and the weights alone).

    python -m venv /some/where && /some/where/bin/pip install torch litert-torch
    /some/where/bin/python -m tests.converter.make_pytorch [--set full_size] [--kinds int8 ...] [--only NAME ...] [-o FOLDER]

PyTorch is no dependency of the project nor needed in CI: the models are committed.  Weights and samples are seeded by the
network's name.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import litert_torch
import torch
from litert_torch.quantize.pt2e_quantizer import PT2EQuantizer, get_symmetric_quantization_config
from litert_torch.quantize.quant_config import QuantConfig
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from tests.converter.archive import archive
from tests.converter.full_size_pytorch import FULL_SIZE
from tests.converter.models import ARCHIVE_FULL_SIZE, ARCHIVE_PYTORCH, KINDS_FULL_SIZE, KINDS_PYTORCH
from tests.converter.pytorch import NETWORKS, Built

SAMPLES = 8


SETS = {"tiny": (NETWORKS, KINDS_PYTORCH, ARCHIVE_PYTORCH), "full_size": (FULL_SIZE, KINDS_FULL_SIZE, ARCHIVE_FULL_SIZE)}


def build(name: str, network: Callable[[], Built]) -> Built:
    """The network with random weights, statistics drawn, and its inputs."""
    torch.manual_seed(zlib.crc32(name.encode()))
    module, inputs = network()
    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            torch.nn.init.normal_(part.running_mean, 0, 0.2)
            torch.nn.init.uniform_(part.running_var, 0.5, 1.5)
    return module.eval(), inputs


def convert(name: str, network: Callable[[], Built], kind: str) -> bytes:
    module, inputs = build(name, network)
    options: dict[str, Any] = {}
    if kind != "float32":
        config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=kind == "dynamic")
        quantizer = PT2EQuantizer().set_global(config)
        prepared = prepare_pt2e(torch.export.export(module, inputs).module(), quantizer)
        for _ in range(SAMPLES):
            prepared(*(torch.randn_like(x) if x.is_floating_point() else x for x in inputs))
        module = convert_pt2e(prepared, fold_quantize=False)
        options = {"quant_config": QuantConfig(pt2e_quantizer=quantizer)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.tflite"
        litert_torch.convert(module, inputs, **options).export(str(path))
        return path.read_bytes()


def made(networks: Mapping[str, Callable[[], Built]], kinds: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for name, network in networks.items():
        for kind in kinds:
            try:
                yield f"{name}.{kind}.tflite", convert(name, network, kind)
            except Exception as error:
                last = str(error).strip().splitlines()[-1:] or [""]
                print(f"FAILED {name}.{kind}: {type(error).__name__}: {last[0][:200]}", file=sys.stderr)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=SETS, default="tiny")
    parser.add_argument("--kinds", nargs="*", choices=KINDS_PYTORCH, default=None)
    parser.add_argument("--only", nargs="*", default=None, metavar="NAME")
    parser.add_argument("-o", "--output", type=Path, default=None, metavar="FOLDER")
    given = parser.parse_args(words)
    networks, kinds, path = SETS[given.set]
    models = made({name: networks[name] for name in given.only or networks}, given.kinds or kinds)
    if given.output is None:
        archive(models, path)
        return
    given.output.mkdir(parents=True, exist_ok=True)
    for name, data in models:
        (given.output / name).write_bytes(data)


if __name__ == "__main__":
    main()
