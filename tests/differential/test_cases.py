"""Histories that once differed, each against the rows that Apache Hudi gave, without Spark."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.differential.columns import line
from tests.differential.history import CASES, Case, cases
from tests.differential.kind import LETTERS, READERS_TOML
from tests.differential.readers import read
from tests.differential.trial import Trial
from tests.differential.writers import STRATEGIES

KEPT = cases()


@pytest.mark.parametrize("case", KEPT, ids=lambda case: case.name)
def test_the_right_rows_by_every_strategy(case: Case, tmp_path: Path) -> None:
    trial = Trial(None, tmp_path, case.kind, {LETTERS[0]: case.history})
    right = Counter(line(row) for row in case.rows)
    for strategy in STRATEGIES:
        trial.write(strategy)
        for reader in case.kind.judges:
            if reader != "apache-hudi":
                seen = read(reader, trial.path(strategy), trial.schema)
                assert seen.get(LETTERS[0], Counter()) == right, (
                    f"written by {strategy}, read by {reader}"
                )


@pytest.mark.parametrize("case", KEPT, ids=lambda case: case.name)
def test_a_case_says_why_it_is_kept(case: Case, tmp_path: Path) -> None:
    named = tomllib.loads(READERS_TOML.read_text(encoding="utf-8"))["exception"]
    assert len(case.why) > 20
    assert bool(case.exception) == bool(case.by_hudi)
    assert not case.exception or case.exception in {one["name"] for one in named}
    # and is written as it would be written anew
    assert case.save(tmp_path).read_text() == (CASES / f"{case.name}.json").read_text()
