"""Cores and memories of devicetrees, whole and as sources."""

from __future__ import annotations

import pytest

from aot.errors import UsageError
from aot.micro.board import Memory
from aot.micro.draft import parse, read_devicetree

ZEPHYR = """
/dts-v1/;
/ {
  #address-cells = < 0x1 >;
  chosen {
    zephyr,flash = &flash0;
    zephyr,sram = &sram0;
    zephyr,code-partition = &slot0_partition;
  };
  cpus { cpu@0 { device_type = "cpu"; compatible = "arm,cortex-m4f"; reg = < 0x0 >; }; };
  soc {
    sram0: memory@20000000 { compatible = "mmio-sram"; reg = < 0x20000000 0x40000 >; };
    uart0: uart@40002000 { compatible = "nordic,nrf-uarte"; reg = < 0x40002000 0x1000 >; };
    flash-controller@4001e000 {
      flash0: flash@0 {
        compatible = "soc-nv-flash"; reg = < 0x0 0x100000 >;
        partitions { compatible = "fixed-partitions";
          boot_partition: partition@0 { label = "mcuboot"; reg = < 0x0 0x10000 >; };
          slot0_partition: partition@10000 { label = "image-0"; reg = < 0x10000 0xe8000 >; };
        };
      };
    };
  };
};
"""
SOURCE = """
#include <arm/armv7-m.dtsi>
/ {
  cpus { cpu0: cpu@0 { compatible = "arm,cortex-m7"; }; };
  dtcm: memory@20000000 { compatible = "zephyr,memory-region", "arm,dtcm"; reg = <0x20000000 DT_SIZE_K(64)>; // fast
    zephyr,memory-region = "DTCM"; };
  sram0: memory@20010000 { compatible = "mmio-sram"; };
  off: memory@30000000 { compatible = "mmio-sram"; reg = <0x30000000 0x1000>; status = "disabled"; };
};
&sram0 { reg = <0x20010000 (256 * 1024)>; };
&unknown { status = "okay"; };
"""


def test_a_whole_tree() -> None:
    found = read_devicetree(ZEPHYR)
    assert found.cpu == "cortex-m4"
    assert (found.code, found.data) == ("FLASH0", "SRAM0")
    assert found.memory == (Memory("SRAM0", "rw", 0x20000000, 0x40000), Memory("FLASH0", "rx", 0x10000, 0xE8000))


def test_a_source() -> None:
    found = read_devicetree(SOURCE)
    assert found.cpu == "cortex-m7"
    assert found.memory == (Memory("DTCM", "rw", 0x20000000, 65536), Memory("SRAM0", "rw", 0x20010000, 262144))


@pytest.mark.parametrize(
    ("kind", "cpu"),
    [
        ("arm,cortex-m0+", "cortex-m0plus"),
        ("arm,cortex-m4", "cortex-m4+nofpu"),
        ("arm,cortex-m33f", "cortex-m33"),
        ("arm,cortex-a53", ""),
        ("arm,cortex-m55f", "cortex-m55"),
    ],
)
def test_cores(kind: str, cpu: str) -> None:
    assert read_devicetree(f'/ {{ cpus {{ cpu@0 {{ compatible = "{kind}"; }}; }}; }};').cpu == cpu


@pytest.mark.parametrize("text", ["/ {", "}", "/ { a { }; ", "{" * 100 + "}" * 100])
def test_brackets(text: str) -> None:
    with pytest.raises(UsageError, match="E5385"):
        parse(text)


def test_nothing() -> None:
    assert read_devicetree("").memory == ()
    assert read_devicetree("/ { a = <1 2>; };").memory == ()
