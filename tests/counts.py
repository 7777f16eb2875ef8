"""Counts the tests, hypothesis examples and rows of pairwise covers, which may grow and not fall.

`python -m tests.counts` counts the whole suite and writes the numbers of now to `counts.toml`.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings

TESTS = Path(__file__).parent
COUNTS = TESTS / "counts.toml"
COLLECTED = pytest.StashKey[list[pytest.Item]]()
"""What was collected, before markers deselect some of it."""

Counts = dict[str, int]

_HEAD = """# Written by `python -m tests.counts`; a test holds the suite to the numbers of [now].
# [before] is commit d35c6a2, whose suite took 24 minutes. Examples are those of tests that hypothesis drives.
"""


def counts(items: Iterable[pytest.Item]) -> Counts:
    """The totals that may not fall."""
    from tests.peers.interop import cells
    from tests.pipeline import write_paths

    listed = list(items)
    return {
        "tests": len(listed),
        "hypothesis_examples": sum(_examples(getattr(item, "obj", None)) for item in listed),
        "pairwise_rows": len(cells.pairwise_cells()) + len(write_paths.pairwise_cells()),
    }


def by_room(items: Iterable[pytest.Item]) -> Counts:
    """Tests of each folder below `tests`."""
    parts = [item.path.relative_to(TESTS).parts for item in items]
    found = Counter(part[0] if len(part) > 1 else "." for part in parts)
    return dict(sorted(found.items()))


def is_whole(items: Iterable[pytest.Item]) -> bool:
    """Whether every file with tests was collected."""
    return {item.path for item in items} == set(TESTS.rglob("test_*.py"))


def _examples(test: object) -> int:
    if not is_hypothesis_test(test):
        return 0
    own = getattr(test, "_hypothesis_internal_use_settings", None)
    return int((own or settings.default).max_examples)


def read() -> Mapping[str, Counts]:
    """The committed numbers: of the tests `before`, and of `now`."""
    found: Mapping[str, Counts] = tomllib.loads(COUNTS.read_text(encoding="utf-8"))
    return found


def write(tables: Mapping[str, Counts]) -> None:
    """Write `counts.toml`."""
    lines = [_HEAD]
    for name, table in tables.items():
        lines += [f"\n[{name}]\n", *(f'"{key}" = {value}\n' for key, value in table.items())]
    COUNTS.write_text("".join(lines), encoding="utf-8")


class _Keeps:
    """Keeps what pytest collected."""

    items: tuple[pytest.Item, ...] = ()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = tuple(session.items)


def main() -> int:
    """Count the whole suite; returns pytest's exit status."""
    kept = _Keeps()
    options = ["--collect-only", "--quiet", "--no-summary"]
    # imported here, before pytest could rewrite its asserts
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    listing = StringIO()
    with redirect_stdout(listing):
        status = pytest.main([*options, str(TESTS)], [kept])
    if status:
        sys.stdout.write(listing.getvalue())
        return int(status)
    now = counts(kept.items)
    before = {name: table for name, table in read().items() if name.startswith("before")}
    write({**before, "now": now, "now_by_room": by_room(kept.items)})
    totals = (f"{number:,} {name.replace('_', ' ')}" for name, number in now.items())
    sys.stdout.write(f"{', '.join(totals)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
