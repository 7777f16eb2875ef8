"""Golden pages: compared after scrubbing what may change, rewritten on demand.

`SERDE_LAB_UPDATE_GOLDEN=1 pytest tests/report` writes them anew; look at the difference before you
commit it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_GOLD = Path(__file__).parent / "gold"

_SCRUBS = (
    # plots have tests of their own, and their paths change with matplotlib
    (
        r"<svg .*?<title id=\"([^\"]*)\">(.*?)</title><desc [^>]*>(.*?)</desc>.*?</svg>",
        r"<svg \1: \2: \3>",
    ),
    (r"<style>.*?</style>", "<style>"),
    (r"<script>.*?</script>", "<script>"),
    (r"sha256-[A-Za-z0-9+/=]+", "sha256-"),
)


def scrubbed(page: str) -> str:
    """The page without its plots' paths, style and script."""
    for pattern, replacement in _SCRUBS:
        page = re.sub(pattern, replacement, page, flags=re.DOTALL)
    return page


def assert_golden(text: str, name: str) -> None:
    """`text`, scrubbed, is the golden file `name`."""
    path = _GOLD / name
    found = scrubbed(text)
    if os.environ.get("SERDE_LAB_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8"), f"{path} differs; see tests/report/gold.py"
