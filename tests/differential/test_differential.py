"""A fixed selection of what `make differential` runs by the thousand, and its bookkeeping."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from serde_lab.pipeline.read import open_table
from serde_lab.pipeline.source import schema
from tests.differential.history import SERVICES, Case, History, Row, Step
from tests.differential.kind import TOPOLOGIES, Kind
from tests.differential.made import history
from tests.differential.model import RETURNS, ZERO, Model
from tests.differential.report import write_report
from tests.differential.smaller import smallest
from tests.differential.state import State
from tests.differential.trial import LAB, NULL_DELETE, WIDER_THAN_DELETES, Difference, Trial

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IN_PROCESS = range(96)
ON_SPARK = (14, 28)
INT = (("int", "int"),)


def row(order: int, value: int = 0, key: str = "a") -> dict[str, object]:
    return {"h": "A", "k": key, "o": order, "int": value}


@pytest.mark.parametrize("first", range(0, len(IN_PROCESS), 16))
def test_no_history_differs(first: int, tmp_path: Path) -> None:
    for number in IN_PROCESS[first : first + 16]:
        drawn = history(number)
        trial = Trial(drawn, tmp_path / str(number))
        assert [str(one) for one in trial.differences()] == [], (number, str(drawn.kind))


@pytest.mark.spark
@pytest.mark.hudi
@pytest.mark.parametrize("number", ON_SPARK)
def test_no_history_differs_on_spark(
    number: int, hudi_session: SparkSession, tmp_path: Path
) -> None:
    trial = Trial(history(number), tmp_path, hudi_session)
    assert [str(one) for one in trial.differences()] == [], str(trial.history.kind)
    assert trial.looks["apache-hudi"]


def test_the_selection_has_every_kind_of_step_and_index() -> None:
    drawn = [history(number) for number in IN_PROCESS]
    steps = [step for one in drawn for step in one.steps]
    writes = {"upsert", "partial", "insert", "bulk_insert", "delete", "delete_partition"}
    writes |= {"insert_overwrite", "insert_overwrite_table"}
    assert {step.operation for step in steps} == writes | set(SERVICES)
    assert {one.kind.index for one in drawn} == set(TOPOLOGIES)
    assert any(step.killed_at >= 0 for step in steps)
    assert any(step.undone for step in steps)
    assert {one.kind.version for one in drawn} == {6, 8, 9}
    assert {one.kind.rules.fill for one in drawn if one.kind.by_class} == {"null"}
    assert any(not one.kind.orderings.keys().isdisjoint(one.columns()) for one in drawn)
    assert any(step.looks_back for step in steps)


def test_a_history_is_the_same_each_time() -> None:
    assert history(7).digest == history(7).digest != history(8).digest


def test_ties_within_a_commit_are_identical_rows() -> None:
    for number in range(60):
        drawn = history(number)
        model = Model(drawn.kind)
        names = drawn.kind.orderings if drawn.kind.ordered else ()
        for step in drawn.steps:
            told: dict[str, set[str]] = {}
            for one in step.rows:
                order = [one.get(name) for name in names] if step.operation != "delete" else []
                place = [one["h"], one.get("k"), model.path(one.get("p")), *order]
                told.setdefault(json.dumps(place), set()).add(json.dumps(one))
            assert all(len(rows) == 1 for rows in told.values()), number


def test_a_key_that_is_deleted_anyway_stands_once_in_a_commit() -> None:
    met = 0
    for number in range(200):
        drawn = history(number)
        for step in drawn.steps:
            keys: dict[str, list[Row]] = {}
            for one in step.rows:
                place = json.dumps([one["h"], one.get("k"), one.get("p") or ""])
                keys.setdefault(place, []).append(one)
            for rows in keys.values():
                orderings = drawn.kind.orderings
                orderings |= {n: of for n, of in step.columns if n in orderings}
                if any(drawn.kind.deletes_anyway(one, orderings) for one in rows):
                    met += 1
                    assert all(one == rows[0] for one in rows), number
    assert met


def test_a_history_goes_on_after_a_first_write_that_is_refused(tmp_path: Path) -> None:
    mark = "_hoodie_is_deleted"
    kind = Kind("event time", "COPY_ON_WRITE", ordering="int", nulls=True)
    refused = Step("upsert", ({"h": "A", "k": "a", mark: True},), ((mark, mark),))
    steps = (refused, Step("clean"), Step("upsert", (row(1),), INT))
    trial = Trial(History(kind, steps), tmp_path)
    assert trial.differences() == []
    assert trial.refused == {NULL_DELETE: 1}
    assert trial.looks["serde_lab"] == 1


WIDE = (("o", "long"), *INT)
DELETED = Step("delete", ({"h": "A", "k": "a"},))


def test_an_ordering_column_becomes_wider_but_beside_deletes_in_logs(tmp_path: Path) -> None:
    kind = Kind("event time", "MERGE_ON_READ", ordering="int")
    refused, taken = (Step("upsert", (row(n),), WIDE) for n in (2, 2**40))
    steps = (Step("upsert", (row(1),), INT), DELETED, refused, Step("compact"), taken)
    trial = Trial(History(kind, steps), tmp_path)
    assert trial.differences() == []
    assert trial.refused == {WIDER_THAN_DELETES: 1}
    assert trial.looks["serde_lab"] == 4
    # copy on write has no logs
    trial = Trial(History(replace(kind, table_type="COPY_ON_WRITE"), steps), tmp_path)
    assert trial.differences() == []
    assert trial.refused == {}


def test_what_has_to_be_refused_and_is_not_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_check_logs", lambda *_: None)
    kind = Kind("event time", "MERGE_ON_READ", ordering="int")
    steps = (Step("upsert", (row(1),), INT), DELETED, Step("upsert", (row(2),), WIDE))
    (difference,) = Trial(History(kind, steps), tmp_path).differences()
    assert difference.failed == f"written: {WIDER_THAN_DELETES}"


def test_a_restore_forgets_what_came_after_the_savepoint(tmp_path: Path) -> None:
    kind = Kind("event time", "MERGE_ON_READ", ordering="int")
    wide = Step("upsert", (row(9) | {"long": 1},), (*INT, ("long", "long")))
    steps = (
        *(Step("upsert", (row(1),), INT), Step("savepoint"), wide, Step("compact"), DELETED),
        *(Step("restore"), Step("upsert", (row(2, key="b"),), INT)),
    )
    for version in (6, 8, 9):
        drawn = History(replace(kind, version=version), steps)
        trial = Trial(drawn, tmp_path / str(version))
        assert trial.differences() == []
        assert trial.looks["serde_lab, planned before a service"] == 3
        model = Model.after(drawn)
        assert [(one["k"], one["int"]) for one in model.plain_rows()] == [("a", 0), ("b", 0)]
        assert "long" not in model.columns


def test_a_write_that_is_rolled_back_leaves_nothing(tmp_path: Path) -> None:
    steps = (Step("upsert", (row(1),), INT), Step("upsert", (row(2, 7),), INT, undone=True))
    for table_type in ("COPY_ON_WRITE", "MERGE_ON_READ"):
        kind = Kind("event time", table_type, ordering="int")
        trial = Trial(History(kind, steps), tmp_path / table_type)
        assert trial.differences() == []
        last = open_table(trial.path(LAB)).timeline().instants()[-1]
        assert (last.action, last.is_completed) == ("rollback", True)


def test_changes_are_of_the_steps_that_came_later() -> None:
    kind = Kind("event time", "MERGE_ON_READ", ordering="int")
    model = Model(kind)
    late = Step("upsert", (row(3, 2), row(9, 2, "b")), INT)
    steps = (Step("upsert", (row(5, 1), row(5, 1, "b")), INT), late, Step("compact"))
    seen = []
    for step in steps:
        model.apply(step)
        found = [max(lines) for lines in model.changed_since(1).values()]
        seen.append([json.loads(one)["k"] for one in found if one])
    # the late row is a change until compaction drops it
    assert seen == [[], ["a", "b"], ["b"]]


def test_a_read_that_looks_back_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = Kind("event time", "COPY_ON_WRITE", ordering="int")
    steps = tuple(Step("upsert", (row(n),), INT, looks_back=n) for n in range(3))
    trial = Trial(History(kind, steps), tmp_path)
    assert trial.differences() == []
    # one moment at the second step, two at the end
    assert trial.looks["serde_lab, time travel"] == 3
    assert trial.looks["serde_lab, incremental"] == 6
    monkeypatch.setattr(Model, "changed_since", lambda *_: {})
    first, *_ = Trial(History(kind, steps), tmp_path).differences()
    assert (first.step, first.reader) == (1, "serde_lab, incremental")


def test_payload_classes_of_older_versions_merge_by_their_own_rules() -> None:
    mark = "_hoodie_is_deleted"
    rows = Step("upsert", (row(5, 1), row(5, 1, "b")), INT)
    late = Step("upsert", ({**row(4), mark: True}, row(4, 2, "b")), (*INT, (mark, mark)))
    for mode, values in (("partial update payload", [1]), ("non-defaults payload", [2])):
        for table_type in ("COPY_ON_WRITE", "MERGE_ON_READ"):
            kind = Kind(mode, table_type, ordering="int", version=6)
            model = Model.after(History(kind, (rows, late)))
            assert [one["int"] for one in model.plain_rows()] == values


def test_the_model_names_where_hudi_is_odd() -> None:
    kind = Kind("event time", "MERGE_ON_READ", ordering="int")
    late = Step("upsert", (row(3, 2),), INT)
    steps = (
        Step("upsert", (row(5, 1),), INT),
        Step("delete", ({"h": "A", "k": "a"},)),
        late,
    )
    model = Model.after(History(kind, steps))
    assert [one["int"] for one in model.plain_rows()] == [1]
    assert model.oddities[RETURNS]
    mark = "_hoodie_is_deleted"
    marked = Step("upsert", ({**row(0), mark: True},), (*INT, (mark, mark)))
    model = Model.after(History(kind, (steps[0], marked)))
    # Hudi takes the value 0 for none, so that the delete wins
    assert model.oddities[ZERO]
    assert model.plain_rows() == ()


def test_a_lost_row_is_told_and_its_history_made_small(tmp_path: Path) -> None:
    rows = (row(1), row(1, 2, "b"))
    steps = (Step("upsert", rows, INT, strategy="avro", files=2), Step("clean"))
    drawn = History(Kind("event time", "COPY_ON_WRITE", ordering="int"), steps)
    model = Model.after(drawn)
    (found,) = model.differences(model.plain_rows()[1:])
    assert '"k": "a"' in found[0]
    assert found[1] == ""
    # a column that is no column of the catalogue's type: nothing can write it
    wrong = replace(steps[0], rows=(*rows, {"h": "A", "k": "c", "o": "text"}))
    drawn = replace(drawn, steps=(wrong, steps[1]))
    (difference,) = Trial(drawn, tmp_path / "all").differences()
    less, told = smallest(drawn, difference, tmp_path / "less", None)
    assert less.steps == (Step("upsert", (wrong.rows[-1],), INT),)
    assert told.reader == "nobody"


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    trials = [Trial(history(number), tmp_path) for number in range(3)]
    state = State.load(tmp_path / "state.jsonl")
    trials[0].looks["hudi-rs"] += 3
    state.add(0, trials[0], [])
    state.add(1, trials[1], [Difference(4, LAB, "hudi-rs", ("a row",), ("",))])
    with (tmp_path / "state.jsonl").open("a") as file:
        file.write('{"number": 2, "torn')
    again = State.load(tmp_path / "state.jsonl")
    assert [again.has(one.history, on_spark=False) for one in trials] == [True, False, False]
    assert not again.has(trials[0].history, on_spark=True)
    write_report(tmp_path / "report.md", again.of(one.history for one in trials))
    text = (tmp_path / "report.md").read_text()
    assert "Ran: 2 histories" in text
    assert "| hudi-rs | 3 |" in text
    assert "history 1: step 4, written by serde_lab, read by hudi-rs: not nothing but a row" in text


def test_a_case_reads_as_it_was_written(tmp_path: Path) -> None:
    step = Step("upsert", ({"h": "A", "k": "a", "o": -0.0, "text": 'x"ü'},), (("text", "text"),))
    killed = replace(step, killed_at=3, partitions=("x",), strategy="pickle")
    kind = Kind("event time", "MERGE_ON_READ", ordering="double", index="SIMPLE")
    drawn = History(kind, (step, killed, Step("compact")))
    case = Case("one", "why it is kept", drawn, ({"h": "A", "k": "a", "o": -0.0},))
    assert Case.load(case.save(tmp_path)) == case
