"""Draws batches of histories with hypothesis: batch n is the same on every machine.

What two writers may rightly answer differently is not drawn: rows of one key with equal ordering values
in one commit are identical, and so are all rows of one key in a commit where ordering decides nothing,
since a shuffle brings them in any order. Nor are kinds that `tests/readers.toml` excepts.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.differential.columns import CATALOGUE, KEYS, PARTITIONS, PLAIN, line
from tests.differential.history import History, Row
from tests.differential.kind import LETTERS, MARKS, MODES, Kind

Drawn = TypeVar("Drawn")

_TYPES = (
    ("COPY_ON_WRITE", "avro"),
    ("MERGE_ON_READ", "avro"),
    ("MERGE_ON_READ", "parquet"),
)
_FREQUENT = tuple(itertools.product(_TYPES, ("AVRO", "SPARK"), ("event time", "commit time")))
_COW, _AVRO_LOGS, _PARQUET_LOGS = _TYPES
_GROWN = {"long": "int", "double": "single"}
"""Types that columns have before they grow wider; others are added."""
_DELETED = "_hoodie_is_deleted"
_TWO = "two ordering columns"
_SHAPES = (
    # 5 is prime to their number: neighbours differ in all
    *((*_FREQUENT[number * 5 % len(_FREQUENT)], "") for number in range(len(_FREQUENT))),
    (_AVRO_LOGS, "AVRO", "event time", _DELETED),
    (_COW, "AVRO", "partial update payload", ""),
    (_PARQUET_LOGS, "SPARK", "marked deletes", "mark"),
    (_COW, "SPARK", "non-defaults payload", ""),
    (_AVRO_LOGS, "AVRO", "partial update payload", ""),
    (_COW, "AVRO", "marked deletes", "mark"),
    (_AVRO_LOGS, "SPARK", "non-defaults payload", _DELETED),
    (_COW, "SPARK", "default payload", _DELETED),
    (_AVRO_LOGS, "AVRO", "debezium payload", "_change_operation_type"),
    (_COW, "SPARK", "event time", _TWO),
    (_COW, "AVRO", "debezium payload", "_change_operation_type"),
    (_PARQUET_LOGS, "AVRO", "event time", _TWO),
)
"""Table type with log blocks, record type, merge mode, and a column that marks deletes, or _TWO."""

_PARTITIONINGS = (
    ("none", "text"),
    ("escaped", "escaped"),
    ("plain", "text"),
    ("hive", "text"),
    ("plain", "int"),
    ("hive", "day"),
)
_ORDERINGS = ("long", "int", "double", "single", "text", "moment", "day", "price", "flag")


@dataclass(frozen=True)
class Batch:
    """Histories of one kind, each by its letter. `number` counts from 0."""

    number: int
    kind: Kind
    histories: Mapping[str, History]

    @property
    def digest(self) -> str:
        """Of everything that was drawn: a batch that is drawn otherwise is another batch."""
        kind = asdict(self.kind)
        if not self.kind.second:
            # which batches had been tried without before there was one
            del kind["second"]
        drawn = [kind, [history.lines() for history in self.histories.values()]]
        return hashlib.sha256(json.dumps(drawn).encode()).hexdigest()[:16]


def batch(number: int, size: int = len(LETTERS)) -> Batch:
    """Batch `number` of `size` histories at most."""
    # hypothesis draws the simplest kinds first
    kind = [kind for kind in _draw(kinds(number), number, 20) if not kind.exception][-1]
    kind = replace(kind, buckets=size)
    found: dict[tuple[tuple[str, ...], ...], History] = {}
    for attempt in itertools.count():
        for history in _draw(histories(kind), 1000 * (number + 1) + attempt, 2 * size):
            if history.commits[0] and history.rows > 1:
                found.setdefault(history.lines(), history)
        if len(found) >= size:
            break
    chosen = list(found.values())
    # hypothesis draws from small to large: take of all sizes
    spread = [chosen[at * len(chosen) // size] for at in range(size)]
    return Batch(number, kind, dict(zip(LETTERS, spread, strict=False)))


def kinds(number: int) -> st.SearchStrategy[Kind]:
    """Kinds of the shape that is the turn of batch `number`."""
    (table_type, blocks), record_type, mode, more_columns = _SHAPES[number % len(_SHAPES)]
    marks = [more_columns] if more_columns in MARKS else []
    partitionings = st.sampled_from(_PARTITIONINGS)
    columns = st.lists(st.sampled_from(PLAIN), unique=True, min_size=1, max_size=4)
    growing = 2 if number % 5 in (1, 3) else 0
    if MODES[mode].marker:
        columns = columns.map(lambda drawn: ["text", *(name for name in drawn if name != "text")])
    if growing:
        wider = ("long", "double")[number // 5 % 2]
        columns = columns.map(lambda drawn: [wider, *(name for name in drawn if name != wider)])
    more = ["delete"] if table_type == "COPY_ON_WRITE" else ["upsert, compact"]
    later = st.permutations(["upsert", "upsert", "delete", *more])
    return st.builds(
        lambda key, ordering, partition, null_keys, columns, rest, since: Kind(
            mode=mode,
            table_type=table_type,
            record_type=record_type,
            blocks=blocks,
            key=key,
            ordering=ordering,
            partitioning=partition[0],
            partition_type=partition[1],
            null_keys=null_keys,
            columns=(*marks, *columns),
            second=("int", "double")[number // 2 % 2] if more_columns == _TWO else "",
            program=("upsert", *rest),
            grown=tuple((name, since, _GROWN.get(name, "")) for name in columns[:growing]),
        ),
        st.sampled_from(sorted(KEYS)),
        st.sampled_from(_ORDERINGS if MODES[mode].by_value else ("", "long")),
        partitionings,
        st.booleans(),
        columns,
        st.tuples(later, st.integers(3, 4)).map(lambda drawn: drawn[0][: drawn[1]]),
        st.integers(1, 2),
    )


@st.composite
def histories(draw: st.DrawFn, kind: Kind) -> History:
    """A history of a table of `kind`."""
    commits = []
    for number in range(len(kind.program)):
        one = _rows(kind, number)
        once = kind.once(number)
        identity = functools.partial(_identity, ("k", "p") if once else kind.told_by)
        rows = draw(st.lists(one, max_size=6, unique_by=identity))
        if rows and not once:
            # the same record more than once, word for word
            rows += draw(st.lists(st.sampled_from(rows), max_size=2))
        commits.append(tuple(rows))
    return History(tuple(commits))


def _rows(kind: Kind, number: int) -> st.SearchStrategy[Row]:
    keys: list[Any] = list(KEYS[kind.key]) + [None] * kind.null_keys
    columns: dict[str, st.SearchStrategy[Any]] = {"k": st.sampled_from(keys)}
    if kind.partitioning != "none":
        paths = PARTITIONS[kind.partition_type]
        # mostly one partition, so that keys meet; some change it
        columns["p"] = st.sampled_from([paths[0]] * 4 + [*paths, None])
    for name, of in kind.orderings.items():
        columns[name] = st.sampled_from(CATALOGUE[of].values)
    before = kind.before(number)
    for name in kind.columns:
        if was := before.get(name, name):
            columns[name] = st.sampled_from([*_values(kind, was), None])
    return st.fixed_dictionaries(columns).map(
        lambda row: {name: value for name, value in row.items() if value is not None}
    )


def _values(kind: Kind, name: str) -> list[Any]:
    """Those of the catalogue, and the marker of the merge mode where its type can hold it."""
    marker = MODES[kind.mode].marker
    more = {"text": marker, "blob": marker.encode().hex()}.get(name)
    return [*CATALOGUE[name].values, *([more] * 3 if more else [])]


def _identity(names: Sequence[str], row: Row) -> str:
    return line({name: row.get(name) for name in names})


def _draw(strategy: st.SearchStrategy[Drawn], number: int, count: int) -> list[Drawn]:
    found: list[Drawn] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(drawn: Drawn) -> None:
        found.append(drawn)

    collect()
    return found
