"""Draws histories: history n is the same on every machine.

What two writers may rightly answer differently is not drawn: rows of one key with equal ordering values
in one commit are identical, and so are all rows of one key in a commit where ordering decides nothing,
since a shuffle brings them in any order. Inserts, which look no key up, bring keys that never were.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.differential.columns import CATALOGUE, KEYS, PARTITIONS, PLAIN, TEXTS
from tests.differential.history import OF_HUDI, WIDER, History, Row, Step
from tests.differential.kind import GLOBAL, MODES, PARTITIONINGS, TOPOLOGIES, Kind
from tests.differential.model import Model

_ORDERINGS = ("long", "int", "double", "single", "text", "moment", "day", "price", "flag", "short")
_DELETED = "_hoodie_is_deleted"
_STRATEGIES = ("pickle", "pickle_columns", "avro", "internal_row", "arrow")
_OF_BOTH = ("avro", "internal_row")
"""The strategies with an execution by row and one by batch."""
_SAYS_NOTHING: dict[str, Sequence[Any]] = {
    _DELETED: (False, None),
    "mark": ("", "d", "I", None),
    "Op": ("", "d", "I", None),
    "_change_operation_type": ("", "D", "u", "c", None),
}
"""Values of the columns that mark deletes, in a row that is none."""


def history(number: int) -> History:
    """History `number`."""
    random = Random(f"history {number}")
    return _Draw(random, _kind(random)).history()


def histories(numbers: Sequence[int]) -> Iterator[tuple[int, History]]:
    """Those of `numbers`, with their numbers."""
    return ((number, history(number)) for number in numbers)


def _kind(random: Random) -> Kind:
    choose = random.choice
    version = choose([9, 9, 9, 6, 8])
    # older versions state no columns that mark deletes, and have payload classes that merge themselves
    modes = sorted(name for name in MODES if version == 9 or not MODES[name].deletes)
    classes = [name for name in modes if MODES[name].fill]
    often = ["event time"] * 5 + ["commit time"] * 3 if version == 9 else classes * 2
    mode = choose([*often, *modes])
    rules = MODES[mode]
    # the lab makes no tables of version 8: it writes to those that Apache Hudi makes
    indexes = OF_HUDI if version == 8 else sorted(TOPOLOGIES)
    bucketed = ["BUCKET"] * 5 + ["CONSISTENT_HASHING"] * 3
    index = choose([*(one for one in bucketed if one in indexes), *indexes])
    # the lab combines no rows that may change their partition
    fixed = rules.fill and index in GLOBAL
    partitioning = "none" if fixed else choose(["none", *PARTITIONINGS])
    typed = choose(["text", "blanks", "signs", "letters", "int", "day", "flag"])
    partition_type = choose(["escaped", "blanks", typed]) if "escaped" in partitioning else typed
    by_value = rules.by_value or (version < 9 and bool(rules.fill))
    ordering = choose(_ORDERINGS) if by_value else choose(["", "long"])
    # seldom: hudi-rs reads no table with two
    seconds = ("",) * 20 + _ORDERINGS
    second = choose(seconds) if rules.by_value and rules.ordering == "o" else ""
    return Kind(
        mode=mode,
        table_type=choose(["COPY_ON_WRITE", "MERGE_ON_READ", "MERGE_ON_READ"]),
        record_type=choose(["AVRO", "SPARK"]),
        key=choose(sorted(KEYS)),
        ordering=ordering,
        second=second,
        # of two values one may fill the other: then Hudi does not say which row stands
        nulls=by_value and not (rules.fill and second) and random.random() < 0.15,
        partitioning=partitioning,
        partition_type="text" if partitioning == "none" else partition_type,
        null_keys=random.random() < 0.3,
        index=index,
        buckets=choose([1, 2, 4]),
        version=version,
    )


@dataclass
class _Draw:
    """One history, step by step: what is drawn depends on what the steps before left behind."""

    random: Random
    kind: Kind
    columns: dict[str, str] = field(default_factory=dict)
    orderings: dict[str, str] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    restore_at: int = 0
    """The step that restores the table, 0 while there is no savepoint."""

    def history(self) -> History:
        kind, random = self.kind, self.random
        rules = kind.rules
        self.marks = tuple(rules.deletes or ())
        if not self.marks and random.random() < 0.25:
            self.marks = (_DELETED,)
        self.orderings = dict(kind.orderings)
        names = random.sample(PLAIN, random.randint(1, 4))
        if rules.marker and "text" not in names:
            names.insert(0, "text")
        self.columns = {name: name for name in (*self.marks, *names)}
        steps: list[Step] = []
        for number in range(random.randint(2, 9)):
            operation = "upsert" if number == 0 else random.choice(self._operations())
            if operation == "savepoint":
                self.restore_at = number + random.randint(2, 3)
            elif number and number == self.restore_at:
                operation = "restore"
            step = self._step(operation, number)
            if step is not None:
                steps.append(step)
                if operation == "delete" and random.random() < 0.5:
                    steps += self._back(step)
                if operation == "upsert" and self.marks and kind.ordered and random.random() < 0.4:
                    steps += self._late(step)
        if steps[-1].operation != "upsert":
            steps.append(self._step("upsert", 9) or steps[0])
        looks_back = (0, 0, 1, 2, 3, 5)
        return History(kind, tuple(replace(s, looks_back=random.choice(looks_back)) for s in steps))

    def _back(self, deleted: Step) -> list[Step]:
        """Two upserts of the keys that a delete has just named, each by a way of its own."""
        found = []
        for _ in range(2):
            columns = self.columns | self._wider_orderings
            rows = [
                {**self._row(row["h"], columns, "upsert"), **row}
                for row in deleted.rows
                if self.kind.partitioning == "none" or row.get("p") is not None
            ]
            alone = {self._identity(row, False): row for row in rows}
            if alone:
                written = tuple(self._alone(list(alone.values())))
                how = self._how("upsert")
                found.append(Step("upsert", written, tuple(columns.items()), **how))
        return found

    def _late(self, written: Step) -> list[Step]:
        """An upsert that deletes keys of `written`, by ordering values below and above the stored ones."""
        columns = self.columns | self._wider_orderings
        deleting = {_DELETED: (True,), **(self.kind.rules.deletes or {})}
        mark = self.random.choice(self.marks)
        alone: dict[str, Row] = {}
        for row in self.random.sample(written.rows, self.random.randint(1, len(written.rows))):
            late = {**self._row(row["h"], columns, "upsert"), mark: deleting[mark][0]}
            late |= {name: row[name] for name in ("k", "p") if name in row}
            alone[self._identity(late, False)] = late
        rows = tuple(self._alone(list(alone.values())))
        return [Step("upsert", rows, tuple(columns.items()), **self._how("upsert"))]

    def _operations(self) -> list[str]:
        """What such a table takes, often what it takes often."""
        kind = self.kind
        found = ["upsert"] * 6 + ["delete"] * 2
        found += ["insert", "clean", "archive", "rollback"] + ["savepoint"] * 2
        found += ["restore"] * bool(self.restore_at)
        if kind.index == "CONSISTENT_HASHING":
            found += ["split", "merge"] * 3
        else:
            found += ["insert_overwrite", "insert_overwrite_table"]
            if kind.index not in ("BUCKET",):
                found.append("bulk_insert")
            if kind.is_global:
                # the index decides which partition keeps a key that moves
                found.remove("insert_overwrite")
            elif kind.partitioning != "none":
                found += ["delete_partition"] * 2
        if kind.merge_on_read:
            found += ["compact"] * 2
            bucketed = kind.index in ("BUCKET", "CONSISTENT_HASHING")
            partly = bucketed and kind.version > 6 and not kind.rules.fill
            if partly and not self.marks and "payload" not in kind.mode:
                found += ["partial"] * 4
        return found

    def _step(self, operation: str, number: int) -> Step | None:
        random = self.random
        how: dict[str, Any] = {}
        step = Step(operation)
        if number and step.brings_columns:
            # before the way is chosen: not every way takes a table with marks of deletes
            self._evolve(operation)
        if step.writes:
            how = self._how(operation)
        if operation == "delete_partition":
            paths = sorted({self._path() for _ in range(random.randint(1, 2))})
            return Step(operation, partitions=tuple(paths), **how)
        if not step.writes:
            return step
        columns = dict(self.columns)
        if operation == "partial":
            kept = random.sample(list(columns), random.randint(0, len(columns) - 1) or 1)
            columns = {name: of for name, of in columns.items() if name in kept}
        elif number and step.brings_columns and random.random() < 0.1:
            # what is left out is null
            named = [name for name in columns if name not in self.marks]
            columns.pop(random.choice(named))
        columns = {} if operation == "delete" else columns | self._wider_orderings
        rows = self._rows(operation, columns, number)
        if not rows and number == 0:
            rows = [self._row("a", columns, operation)]
        if random.random() < 0.12 and number:
            how["killed_at"] = random.randint(0, 12)
        elif random.random() < 0.06 and number:
            how["undone"] = True
        return Step(operation, tuple(rows), tuple(columns.items()), **how) if rows else None

    @property
    def _wider_orderings(self) -> dict[str, str]:
        """The ordering columns that became wider, which each step brings from then on."""
        return {n: of for n, of in self.orderings.items() if of != self.kind.orderings[n]}

    def _how(self, operation: str) -> dict[str, Any]:
        """By which way the write goes."""
        random, kind = self.random, self.kind
        strategy = random.choice(_STRATEGIES)
        how: dict[str, Any] = {
            "strategy": strategy,
            "execution": random.choice(["", "row", "batch"]) if strategy in _OF_BOTH else "",
            "rows_per_frame": random.choice([-1, 1, 2]),
            "files": random.randint(1, 3),
        }
        if kind.merge_on_read and "text" not in kind.orderings.values():
            how["blocks"] = random.choice(["avro", "parquet"])
        ways = [one for one in TOPOLOGIES[kind.index] if self._goes(one)]
        bucketed = kind.index in ("BUCKET", "CONSISTENT_HASHING")
        if not bucketed and operation not in ("bulk_insert", "delete_partition"):
            how["topology"] = random.choice(ways)
        return how

    def _goes(self, topology: str) -> bool:
        """Whether the table's writes may take that way."""
        kind = self.kind
        leaves = kind.is_global and kind.partitioning != "none"
        if topology == "step3":
            return not self.marks and not kind.rules.fill
        if topology in ("legacy", "step1"):
            return not leaves
        return not (topology == "bloom" and leaves and kind.merge_on_read)

    def _evolve(self, operation: str) -> None:
        """Sometimes: a column more, one that is wider, or another order; seldom one that marks deletes."""
        random = self.random
        may_mark = operation != "partial" and not self.marks
        if may_mark and random.random() < 0.06:
            self.marks = (_DELETED,)
            self.columns[_DELETED] = _DELETED
        if random.random() < 0.2:
            new = [name for name in PLAIN if name not in self.columns]
            self.columns[random.choice(new)] = ""
            self.columns = {name: of or name for name, of in self.columns.items()}
        narrow = [name for name, of in self.columns.items() if of in WIDER]
        if narrow and random.random() < 0.3:
            name = random.choice(narrow)
            self.columns[name] = random.choice(WIDER[self.columns[name]])
        widens = [name for name, of in self.orderings.items() if of in WIDER]
        if widens and random.random() < 0.15:
            name = random.choice(widens)
            self.orderings[name] = random.choice(WIDER[self.orderings[name]])
        if random.random() < 0.2:
            names = list(self.columns)
            random.shuffle(names)
            self.columns = {name: self.columns[name] for name in names}

    def _rows(self, operation: str, columns: dict[str, str], number: int) -> list[Row]:
        random, kind = self.random, self.kind
        looks_up = operation in ("upsert", "partial", "delete")
        rows: list[Row] = []
        seen: set[str] = set()
        for _ in range(random.randint(0 if number else 1, 7)):
            h = random.choice("ABC") if looks_up else f"I{number}"
            row = self._row(h, columns, operation)
            if identity := self._identity(row, looks_up):
                if identity in seen:
                    continue
                seen.add(identity)
            rows.append(row)
        rows = self._alone(rows)
        combines = looks_up or operation.startswith("insert_overwrite")
        if combines and rows and not (kind.record_type == "SPARK" and self.marks):
            # the same record more than once, word for word
            rows += random.sample(rows, random.choice([0, 0, min(2, len(rows))]))
        return rows

    def _alone(self, rows: list[Row]) -> list[Row]:
        """`rows` without those of keys that a delete without ordering value deletes: the first one stays.

        Such a delete stands over all that came before it, so that the order of a commit's rows decides.
        """
        kind = self.kind
        keys = [json.dumps([row["h"], row.get("k"), row.get("p") or ""]) for row in rows]
        found = {
            key
            for key, row in zip(keys, rows, strict=True)
            if kind.deletes_anyway(row, self.orderings)
        }
        return [
            row for at, row in enumerate(rows) if keys[at] not in found or keys[at] not in keys[:at]
        ]

    def _identity(self, row: Row, looks_up: bool) -> str:
        """Two rows of a commit differ in it, or are the same row."""
        kind = self.kind
        names = ["h", "k"] if kind.is_global else ["h", "k", "p"]
        once = kind.record_type == "SPARK" and bool(self.marks)
        if looks_up and kind.ordered and not kind.is_global and not once:
            names += kind.orderings
        # a partition value that is null and one that is empty are one partition
        values = [row.get(name) if name != "p" else row.get(name) or "" for name in names]
        return json.dumps(values)

    def _row(self, h: str, columns: dict[str, str], operation: str) -> Row:
        random, kind = self.random, self.kind
        row: Row = {"h": h, "k": random.choice([*KEYS[kind.key], *[None] * kind.null_keys])}
        if kind.partitioning != "none":
            row["p"] = self._partition()
        if operation != "delete":
            for name, of in self.orderings.items():
                row[name] = random.choice([*CATALOGUE[of].values, *[None] * kind.nulls])
            says = operation in ("upsert", "partial")
            for name, of in columns.items():
                if name in self.orderings:
                    continue
                row[name] = random.choice(self._values(name, of, says))
        return {name: value for name, value in row.items() if value is not None}

    def _values(self, name: str, of: str, says: bool) -> list[Any]:
        """What a column may hold: values at the edges, null, and the marker of the merge mode."""
        if name in self.marks:
            return list(CATALOGUE[name].values if says else _SAYS_NOTHING[name])
        marker = self.kind.rules.marker
        more = {"text": marker, "blob": marker.encode().hex()}.get(of)
        return [*CATALOGUE[of].values, None, *([more] * 3 if more else [])]

    def _partition(self) -> Any:
        values = PARTITIONS[self.kind.partition_type]
        more = [None, ""] if self.kind.partition_type in TEXTS else [None]
        # mostly one partition, so that keys meet; some change it
        return self.random.choice([values[0]] * 3 + [*values, self.random.choice(more)])

    def _path(self) -> str:
        return Model(self.kind).path(self._partition())
