"""The page of an exploration."""

from __future__ import annotations

import json
import re

from aot.report.explore import explore_page


def test_the_page_holds_its_data_and_asks_for_nothing() -> None:
    row = {"options": "--opt </script>", "flash_bytes": 1, "ram_bytes": 2, "instructions": 3, "pareto": True, "command": "aot"}
    text = explore_page("a < b", [row], {"host": None})
    assert text.count("</script>") == 1
    assert "<title>a &lt; b</title>" in text
    assert "default-src 'none'" in text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@[A-Z]+@", text)
    found = re.search(r"const data = (.*);", text)
    assert found is not None
    assert json.loads(found[1]) == {"rows": [row], "boards": {"host": None}}
