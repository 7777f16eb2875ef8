"""Histories that once differed, each against its right rows; and what readers still do to some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.differential.columns import line
from tests.differential.history import CASES, Case, History, Row, Step, cases
from tests.differential.kind import MODES, Kind, readers_toml
from tests.differential.model import Model
from tests.differential.readers import read
from tests.differential.trial import LAB, Trial
from tests.differential.writers import ByHudi, FailedError, InProcess, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEPT = cases()
STRATEGIES = ("pickle", "avro", "internal_row", "arrow")


def named(name: str) -> dict[str, Any]:
    """The exception of that name, in `tests/readers.toml`."""
    return next(one for one in readers_toml()["exception"] if one["name"] == name)


def lines(rows: Iterable[Row]) -> Counter[str]:
    return Counter(line(dict(sorted(row.items()))) for row in rows)


def make(case: Case, path: str, writer: Writer) -> None:
    """The table of a case; its last step may be one that is refused."""
    steps = case.history.steps[:-1] if case.refused else case.history.steps
    for step in steps:
        writer.do(path, case.history.kind, step)
    if case.refused:
        with pytest.raises(FailedError, match=case.refused):
            writer.do(path, case.history.kind, case.history.steps[-1])


def by_strategy(case: Case, strategy: str) -> Case:
    steps = tuple(replace(step, strategy=strategy, execution="") for step in case.history.steps)
    return replace(case, history=replace(case.history, steps=steps))


@pytest.mark.slow
@pytest.mark.parametrize("case", KEPT, ids=lambda case: case.name)
def test_the_right_rows_by_every_strategy(case: Case, tmp_path: Path) -> None:
    schema = case.history.schema(len(case.history.steps) - bool(case.refused))
    for strategy in STRATEGIES:
        path = str(tmp_path / strategy)
        make(by_strategy(case, strategy), path, InProcess())
        for reader in case.history.judges:
            if reader != "apache-hudi":
                seen = read(reader, path, schema, None)
                assert lines(seen) == lines(case.rows), f"written by {strategy}, read by {reader}"


@pytest.mark.slow
@pytest.mark.parametrize("case", [one for one in KEPT if not one.refused], ids=lambda one: one.name)
def test_every_view_is_right_after_every_step(case: Case, tmp_path: Path) -> None:
    assert Trial(case.history, tmp_path).differences() == []


@pytest.mark.parametrize("case", KEPT, ids=lambda case: case.name)
def test_the_model_has_the_right_rows(case: Case) -> None:
    model = Model(case.history.kind)
    for step in case.history.steps[: len(case.history.steps) - bool(case.refused)]:
        model.apply(step)
    assert list(model.differences(case.rows)) == []


@pytest.mark.parametrize(
    "case",
    [one for one in KEPT if one.exception and named(one.exception)["who"] == "hudi-rs"],
    ids=lambda case: case.name,
)
def test_what_is_excepted_is_so_still(case: Case, tmp_path: Path) -> None:
    make(case, str(tmp_path), InProcess())
    assert "hudi-rs" not in case.history.judges
    if case.failure:
        with pytest.raises(FailedError, match=case.failure):
            read("hudi-rs", str(tmp_path), case.history.schema(), None)
    else:
        seen = read("hudi-rs", str(tmp_path), case.history.schema(), None)
        assert lines(seen) == lines(case.wrong) != lines(case.rows)


@pytest.mark.spark
@pytest.mark.hudi
@pytest.mark.parametrize("case", KEPT, ids=lambda case: case.name)
def test_what_is_excepted_is_so_still_in_apache_hudi(
    case: Case, hudi_session: SparkSession, tmp_path: Path
) -> None:
    """Apache Hudi reads its own table where it has the steps, else the lab's."""
    own = case.history.hudi_can_write
    excepted = bool(case.exception) and named(case.exception)["who"] == "apache-hudi"
    if not (excepted or "apache-hudi" in case.history.judges):
        assert case.exception
        return
    writer = ByHudi(hudi_session) if own else InProcess()
    if excepted and case.failure:
        with pytest.raises(FailedError, match=case.failure):
            made_and_read(case, str(tmp_path), writer, hudi_session)
        return
    seen = made_and_read(case, str(tmp_path), writer, hudi_session)
    assert lines(seen) == lines(case.wrong if excepted else case.rows)


def made_and_read(case: Case, path: str, writer: Writer, session: SparkSession) -> list[Row]:
    """What Apache Hudi sees in the table that `writer` makes."""
    make(case, path, writer)
    schema = case.history.schema(len(case.history.steps) - bool(case.refused))
    return read("apache-hudi", path, schema, session)


@pytest.mark.spark
@pytest.mark.hudi
@pytest.mark.parametrize("record_type", ["AVRO", "SPARK"])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_texts_are_ordered_by_their_bytes_as_by_apache_hudi(
    table_type: str, record_type: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    # in Java's own order of UTF-16 units, the emoji is the lower one
    low, high = "\uff41", "\U0001f600"

    def upsert(*rows: tuple[str, str]) -> Step:
        found = tuple({"h": "A", "k": k, "o": o, "text": f"{k} {o}"} for k, o in rows)
        return Step("upsert", found, (("text", "text"),))

    within = (("a", low), ("a", high), ("b", high), ("b", low))
    steps = (upsert(*within, ("c", low), ("d", high)), upsert(("c", high), ("d", low)))
    kind = Kind("event time", table_type, record_type=record_type, ordering="text")
    history = History(kind, steps)
    assert set(history.judges) == {"apache-hudi", "hudi-rs", "serde_lab"}
    for writer in (ByHudi(hudi_session), InProcess()):
        path = str(tmp_path / type(writer).__name__)
        for step in steps:
            writer.do(path, kind, step)
        for reader in history.judges:
            seen = read(reader, path, history.schema(), hudi_session)
            assert {row["text"] for row in seen} == {f"{k} {high}" for k in "abcd"}, reader


@pytest.mark.spark
@pytest.mark.hudi
def test_apache_hudi_reads_all_columns_of_a_new_key_in_a_log(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    kind = Kind("non-defaults payload", "MERGE_ON_READ", ordering="long", version=8)
    rows = [{"h": "A", "k": key, "o": 5, "int": 1} for key in "ab"]
    steps = tuple(Step("upsert", (row,), (("int", "int"),)) for row in rows)
    for writer in (ByHudi(hudi_session), InProcess()):
        path = str(tmp_path / type(writer).__name__)
        for step in steps:
            writer.do(path, kind, step)
        seen = read("apache-hudi", path, History(kind, steps).schema(), hudi_session)
        assert sorted(row["k"] for row in seen) == ["a", "b"]
        frame = hudi_session.read.format("hudi").load(path)
        with pytest.raises(Py4JJavaError, match="ArrayIndexOutOfBounds"):
            frame.select("k", "int").collect()


def test_hudi_rs_does_not_fill_the_column_that_marks_deletes(tmp_path: Path) -> None:
    mark = "_hoodie_is_deleted"
    columns = ((mark, mark), ("int", "int"))
    kind = Kind("non-defaults payload", "MERGE_ON_READ")
    first = Step("upsert", ({"h": "A", "k": "a", mark: False, "int": 1},), columns)
    history = History(kind, (first, Step("upsert", ({"h": "A", "k": "a"},), columns)))
    filled, not_filled = seen_by_both(history, tmp_path)
    assert [(row["int"], row.get(mark)) for row in filled] == [(1, False)]
    assert [(row["int"], row.get(mark)) for row in not_filled] == [(1, None)]
    assert "hudi-rs" not in history.judges


def test_hudi_rs_does_not_fill_what_is_marked_as_unavailable(tmp_path: Path) -> None:
    marker, mark = MODES["debezium payload"].marker, "_change_operation_type"
    columns = ((mark, mark), ("text", "text"))
    kind = Kind("debezium payload", "MERGE_ON_READ", ordering="long")
    rows = [{"h": "A", "k": "a", "_event_lsn": n, "text": v} for n, v in enumerate(["b", marker])]
    history = History(kind, tuple(Step("upsert", (row,), columns) for row in rows))
    filled, not_filled = seen_by_both(history, tmp_path)
    assert [(row["_event_lsn"], row["text"]) for row in filled] == [(1, "b")]
    assert [(row["_event_lsn"], row["text"]) for row in not_filled] == [(1, marker)]
    assert "hudi-rs" not in history.judges


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("mode", ["non-defaults payload", "partial update payload"])
def test_hudi_rs_refuses_payload_classes_that_merge_themselves(
    mode: str, version: int, tmp_path: Path
) -> None:
    kind = Kind(mode, "MERGE_ON_READ", ordering="int", version=version)
    rows = [{"h": "A", "k": "a", "o": n, "int": n} for n in range(2)]
    history = History(kind, tuple(Step("upsert", (row,), (("int", "int"),)) for row in rows))
    trial = Trial(history, tmp_path)
    assert trial.differences() == []
    assert "hudi-rs" not in history.judges
    with pytest.raises(FailedError, match=r"merger of its own|CUSTOM"):
        read("hudi-rs", trial.path(LAB), history.schema(), None)


def seen_by_both(history: History, folder: Path) -> list[list[Row]]:
    """What the lab and hudi-rs see of a history; the lab is right."""
    trial = Trial(history, folder)
    assert trial.differences() == []
    return [read(one, trial.path(LAB), history.schema(), None) for one in ("serde_lab", "hudi-rs")]


@pytest.mark.parametrize("case", KEPT, ids=lambda case: case.name)
def test_a_case_says_why_it_is_kept(case: Case, tmp_path: Path) -> None:
    assert len(case.why) > 20
    assert bool(case.exception) == (case.wrong != () or case.failure != "")
    assert not case.exception or named(case.exception)
    # and is written as it would be written anew
    assert case.save(tmp_path).read_text() == (CASES / f"{case.name}.json").read_text()
