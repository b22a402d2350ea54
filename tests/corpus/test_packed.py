"""What 4-bit weights save in flash: layers of 4-bit models in `size` against those of the same networks with 8 bits."""

from __future__ import annotations

import pytest

from aot.driver.build import build
from aot.driver.options import Options
from tests.corpus.test_corpus import SHARED, entries

NETWORKS = ["mlperf_ad01", "mlperf_ic_resnet", "mlperf_kws_dscnn"]


def weight_bytes(name: str) -> int:
    """Constants of all layers with multiplications but depthwise ones, which the 4-bit models compute with floats."""
    (file,) = (e["file"] for e in entries() if e["name"] == name)
    layers = build(SHARED / file, options=Options(opt="size")).metadata["layers"]
    return sum(layer["constants"] for layer in layers if layer["macs"] and "depthwise" not in layer["kernel"])


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared models")
@pytest.mark.parametrize("network", NETWORKS)
def test_four_bits_take_about_half(network: str) -> None:
    assert weight_bytes(f"{network}_w4a8") <= 0.55 * weight_bytes(f"{network}_int8")
