"""Random courses of streams, beside a plain dict: batches, deaths, repetitions, services, other queries."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.errors import LabError, OptionError, TableError
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from tests.faults.killed_driver import StepStorage
from tests.faults.small_table import (
    COW,
    MOR,
    Row,
    Seen,
    check_file_groups,
    check_readers,
    compact_all,
    seen_by_us,
)
from tests.streams.small_stream import SHORT_TIMELINE, SmallStream

pytestmark = pytest.mark.slow

KEYS = "abcdef"
NEVER = 10_000
OPERATIONS = {"upserts": "upsert", "inserts": "insert", "deletes": "delete"}
"""By identifier: three queries into one table."""
SERVICES = {
    **SHORT_TIMELINE,
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "3",
}


class Died(BaseException):
    """The end of a driver, which nothing in it outlives."""


class Mortal(StepStorage):
    """Dies after so many steps, in the write or in a service after it."""

    steps_left = NEVER

    def made(self, step: str) -> None:
        self.steps_left -= 1
        if self.steps_left <= 0:
            raise Died


class Course:
    """A table and the dict that it must equal."""

    def __init__(self, folder: Path, table_type: str) -> None:
        self.folder, self.table_type = folder, table_type
        self.model: Seen = {}
        self.next = dict.fromkeys(OPERATIONS, 0)
        self.sent: dict[str, list[Row]] = {}
        self.at = 0
        self.step("upserts", list(KEYS[:3]), [])

    def stream(self, name: str, storage: Storage | None = None, query: str = "") -> SmallStream:
        services = dict(SERVICES)
        if self.table_type == COW:
            services = dict(SHORT_TIMELINE)
        return SmallStream(
            storage or Storage.open(self.folder),
            query=query or name,
            identifier=name,
            operation=OPERATIONS[name],
            options=services,
            table_type=self.table_type,
        )

    def step(self, name: str, keys: list[str], deaths: list[int]) -> None:
        """The query's next batch; Spark sends it again after each death, and to be sure once more."""
        self.at += 1
        # an insert skips the lookup, so only a key that was never there shows a doubled row
        rows = [
            ("p", f"{key}{self.at}" if name == "inserts" else key, self.at, name) for key in keys
        ]
        after = dict(self.model)
        for p, k, ts, v in rows:
            after[p, k] = (ts, v)
            if name == "deletes":
                del after[p, k]
        number, data = self.next[name], self.sent_rows(name, rows)
        for steps in deaths:
            storage = Mortal.open(self.folder)
            storage.steps_left = steps
            try:
                self.stream(name, storage).send(number, data)
            except Died:
                assert seen_by_us(Storage.open(self.folder)) in (self.model, after)
        self.stream(name).send(number, data)
        assert self.stream(name).send(number, data) is None
        self.model, self.next[name] = after, number + 1
        self.sent[name] = rows

    def sent_rows(self, name: str, rows: list[Row]) -> pa.Table | list[Row]:
        if name != "deletes" or not rows:
            return rows
        return pa.table({"p": [row[0] for row in rows], "k": [row[1] for row in rows]})

    def strangers(self, name: str) -> None:
        """What no batch of this query can be."""
        number, rows = self.next[name], [("p", "a", NEVER, "stranger")]
        before = HoodieTable.open(Storage.open(self.folder)).timeline().completed()
        data = self.sent_rows(name, rows)
        with pytest.raises(TableError, match=r"missing|comes first"):
            self.stream(name).send(number + 1, data)
        if number:
            for other in (0, number):
                with pytest.raises(OptionError, match=f"belongs to query {name}"):
                    self.stream(name, query="stranger").send(other, data)
        assert HoodieTable.open(Storage.open(self.folder)).timeline().completed() == before

    def check(self) -> None:
        storage = Storage.open(self.folder)
        for name, number in self.next.items():
            last = self.stream(name).last
            assert (-1 if last is None else last.batch) == number - 1
        if self.model:
            check_readers(storage, self.model)
        check_file_groups(storage)


names = st.sampled_from(sorted(OPERATIONS))
keys = st.lists(st.sampled_from(KEYS), max_size=4, unique=True)
deaths = st.lists(st.integers(1, 14), max_size=2)
steps = st.one_of(
    st.tuples(st.just("batch"), names, keys, deaths),
    st.tuples(st.just("batch"), names, keys, deaths),
    st.tuples(st.just("strangers"), names, st.just([]), st.just([])),
    st.tuples(st.just("compact"), names, st.just([]), st.just([])),
)


@pytest.mark.parametrize("table_type", [COW, MOR])
@settings(max_examples=30)
@given(data=st.lists(steps, min_size=3, max_size=10))
def test_streams_do_what_a_dict_does(
    table_type: str, data: list[tuple[str, str, list[str], list[int]]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        course = Course(Path(folder), table_type)
        for kind, name, chosen, dies in data:
            if kind == "batch":
                course.step(name, chosen, dies)
            elif kind == "strangers":
                course.strangers(name)
            elif table_type == MOR:
                compact_all(Storage.open(Path(folder)))
            course.check()


def test_a_writer_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the model is for: batches that are written again are rows twice."""
    from serde_lab.streams import stream_writer

    monkeypatch.setattr(stream_writer, "is_stored", lambda *_: False)
    with pytest.raises((AssertionError, LabError)):
        Course(tmp_path, COW)
