"""Histories that once differed, each against the rows that Apache Hudi gave, without Spark."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.differential.columns import line
from tests.differential.history import CASES, Case, History, cases
from tests.differential.kind import LETTERS, MODES, READERS_TOML, Kind
from tests.differential.readers import FailedError, read, read_by_hudi
from tests.differential.trial import HUDI, Trial
from tests.differential.writers import STRATEGIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@pytest.mark.spark
@pytest.mark.hudi
@pytest.mark.parametrize("case", KEPT, ids=lambda case: case.name)
def test_apache_hudi_says_so_still(case: Case, hudi_session: SparkSession, tmp_path: Path) -> None:
    trial = Trial(hudi_session, tmp_path, case.kind, {LETTERS[0]: case.history})
    try:
        trial.write(HUDI)
        seen = read_by_hudi(hudi_session, {HUDI: trial.path(HUDI)}, trial.schema)[HUDI]
    except FailedError as exc:
        seen = exc
    if case.failure or isinstance(seen, FailedError):
        assert case.failure
        assert case.failure in str(seen)
    else:
        rows = case.by_hudi if case.exception else case.rows
        assert seen.get(LETTERS[0], Counter()) == Counter(line(row) for row in rows)


def test_hudi_rs_does_not_fill_the_column_that_marks_deletes(tmp_path: Path) -> None:
    mark = "_hoodie_is_deleted"
    columns = (mark, "int")
    kind = Kind("non-defaults payload", "MERGE_ON_READ", "AVRO", columns=columns)
    history = History((({"k": "a", mark: False, "int": 1},), ({"k": "a"},)))
    trial = Trial(None, tmp_path, kind, {LETTERS[0]: history})
    trial.write("arrow")
    filled, not_filled = (
        [json.loads(row) for row in read(reader, trial.path("arrow"), trial.schema)[LETTERS[0]]]
        for reader in ("serde_lab", "hudi-rs")
    )
    assert [(row["int"], row[mark]) for row in filled] == [(1, False)]
    assert [(row["int"], row.get(mark)) for row in not_filled] == [(1, None)]
    assert "hudi-rs" not in kind.judges


def test_hudi_rs_does_not_fill_what_is_marked_as_unavailable(tmp_path: Path) -> None:
    marker, mark = MODES["debezium payload"].marker, "_change_operation_type"
    kind = Kind(
        "debezium payload", "MERGE_ON_READ", "AVRO", ordering="long", columns=(mark, "text")
    )
    rows = ({"k": "a", "_event_lsn": 0, "text": "b"}, {"k": "a", "_event_lsn": 1, "text": marker})
    history = History(((rows[0],), (rows[1],)))
    trial = Trial(None, tmp_path, kind, {LETTERS[0]: history})
    trial.write("arrow")
    filled, not_filled = (
        [json.loads(row) for row in read(reader, trial.path("arrow"), trial.schema)[LETTERS[0]]]
        for reader in ("serde_lab", "hudi-rs")
    )
    assert [(row["_event_lsn"], row["text"]) for row in filled] == [(1, "b")]
    assert [(row["_event_lsn"], row["text"]) for row in not_filled] == [(1, marker)]
    assert "hudi-rs" not in kind.judges


@pytest.mark.parametrize("case", KEPT, ids=lambda case: case.name)
def test_a_case_says_why_it_is_kept(case: Case, tmp_path: Path) -> None:
    named = tomllib.loads(READERS_TOML.read_text(encoding="utf-8"))["exception"]
    assert len(case.why) > 20
    assert bool(case.exception) == (case.by_hudi != () or case.failure != "")
    assert not case.exception or case.exception in {one["name"] for one in named}
    # and is written as it would be written anew
    assert case.save(tmp_path).read_text() == (CASES / f"{case.name}.json").read_text()
