"""The example report of the repository is what its run and the code of today give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from serde_lab.report.render import run_text

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "reports" / "example.html"
RUN = max((ROOT / "results" / "reference" / "upsert_lineitem").iterdir())


@pytest.mark.slow
def test_the_example_is_fresh() -> None:
    fresh = EXAMPLE.read_text(encoding="utf-8") == run_text(RUN)
    assert fresh, "reports/example.html is out of date: run `make example`"


def test_the_example_is_small_and_needs_no_network() -> None:
    page = EXAMPLE.read_text(encoding="utf-8")
    assert len(page) < 1_500_000
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//|url\(["']?https?:""", page)


def test_the_example_is_the_run_that_the_readme_quotes() -> None:
    quoted = f"<!-- serde_lab: {RUN.relative_to(ROOT)} arms "
    assert quoted in (ROOT / "README.md").read_text(encoding="utf-8")
