"""What a table must hold after each step of a history, worked out with dicts, without any code of the lab.

Two versions of a key: by event time the one with the higher ordering value stands, the newer one of
equals; by commit time the newer one. A delete by operation stands over all that came before it, and the
first row after it stands over it. A merge-on-read table merges its log first, and the result with the
base file: so a base row comes back where a delete in the log was followed by a row older than it.

Before version 9 some payload classes merge rows themselves: the one that takes the newer row still takes
that of the higher ordering value within a commit, and lets ordering values decide about marked deletes.

Where a row goes (base file or log) depends on the index, and under some indexes on file sizes. There a
key is in several `Place`s at once, and each of their rows is a right answer. `oddities` names what of
Hudi's own ways was met.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any

from tests.differential.columns import MARKS, line
from tests.differential.history import History, Row, Step, wider
from tests.differential.kind import PARTITIONINGS, Kind

RETURNS = "a deleted row that returns"
ZERO = "an ordering value 0 in a delete"
ORDER = "input order under a global index"

_DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 32)}

_NULL = (0,)
"""The order of null, below all others."""

Key = tuple[str, str]
"""Partition path and record key, as rows bear them."""


@dataclass(frozen=True)
class Version:
    """A row or a delete. `values`: JSON by column, with its type; of a `partial` row, of some columns."""

    order: tuple[Any, ...]
    values: tuple[tuple[str, str, str], ...] | None = None
    always: bool = False
    """A delete by operation, or one whose ordering value says that there is none: it stands anyway."""
    after_delete: bool = False
    partial: bool = False
    written: int = 0
    """The step that wrote it."""

    @property
    def deletes(self) -> bool:
        return self.values is None

    @property
    def by_operation(self) -> bool:
        return self.always and not self.order


@dataclass(frozen=True)
class Place:
    """What is stored of a key: in the base file, and one after the other in the log after it."""

    base: Version | None = None
    log: tuple[Version, ...] = ()


@dataclass
class Model:
    """The table of a history, step by step."""

    kind: Kind
    columns: dict[str, str] = field(default_factory=dict)
    oddities: Counter[str] = field(default_factory=Counter)
    step: int = 0
    """How many steps were done."""
    _places: dict[Key, frozenset[Place]] = field(default_factory=dict)
    _groups: dict[tuple[str, int], int] = field(default_factory=dict)
    """Partition and bucket, by the step that wrote their base files."""
    _logged: dict[str, bool] = field(default_factory=dict)
    """The partitions with deletes in logs; False where the index leaves open whether there are any."""
    _unknown: set[str] = field(default_factory=set)
    _saved: Model | None = None
    """At the last savepoint."""

    @classmethod
    def after(cls, history: History) -> Model:
        """The table after all steps, none of which was killed."""
        model = cls(history.kind)
        for step in history.steps:
            model.apply(step)
        return model

    def apply(self, step: Step) -> None:
        """Do a step that was done in full."""
        self.step += 1
        if step.brings_columns:
            for name, of in step.columns:
                self.columns[name] = wider(self._had(name) or of, of)
        if step.operation == "compact":
            self._compact()
        elif step.operation in ("split", "merge"):
            # some file groups are written anew
            self._logged = dict.fromkeys(self._logged, False)
        elif step.operation == "savepoint":
            self._saved = self.kept()
        elif step.operation == "restore":
            self._restore()
        elif step.operation == "delete_partition":
            self._forget(set(step.partitions))
        elif step.writes:
            if step.operation.startswith("insert_overwrite"):
                paths = {key[0] for key, _ in self._entries(step)}
                everything = step.operation.endswith("table") or self.kind.partitioning == "none"
                self._forget({path for path, _ in self._places} if everything else paths)
            self._write(step)

    def kept(self) -> Model:
        """This moment of the table, which later steps leave alone."""
        places, groups, unknown = dict(self._places), dict(self._groups), set(self._unknown)
        columns, logged = dict(self.columns), dict(self._logged)
        return Model(self.kind, columns, Counter(), self.step, places, groups, logged, unknown)

    def is_undone(self, moment: Model) -> bool:
        """Whether a restore takes back what was done between the savepoint and an earlier moment."""
        return self._saved is not None and self._saved.step < moment.step

    def _restore(self) -> None:
        if self._saved is None:
            return
        then = self._saved.kept()
        self.columns, self._places, self._groups = then.columns, then._places, then._groups
        self._logged, self._unknown = then._logged, then._unknown

    def changes_columns(self, step: Step) -> bool:
        """Whether a step makes a column wider, or brings one that marks deletes."""
        return any(
            self._had(name) != wider(self._had(name), of) if self._had(name) else name in MARKS
            for name, of in step.columns
        )

    def widens_deletes(self, step: Step) -> bool | None:
        """Whether a step makes an ordering column wider whose values are in deletes of logs; None: maybe."""
        if not (self.kind.ordered and self.kind.merge_on_read):
            return False
        named = set(self.kind.orderings)
        widens = any(
            n in named and wider(self._had(n), of) != self._had(n) for n, of in step.columns
        )
        if not (widens and self._logged):
            return False
        return any(self._logged.values()) or None

    def _had(self, name: str) -> str:
        """The type of a column so far, "" for none."""
        return self.columns.get(name) or self.kind.orderings.get(name, "")

    def rows(self, base_files: bool = False) -> dict[Key, frozenset[str]]:
        """What may be seen of each key, in base files alone if so asked: rows as lines, "" for none."""
        return {
            key: frozenset(
                self._line(key, place.base if base_files else self._seen(place)) for place in places
            )
            for key, places in self._places.items()
            if key[1] not in self._unknown
        }

    def changed_since(self, then: int) -> dict[Key, frozenset[str]]:
        """What may be seen of each key among the changes after step `then`, as `rows` gives it.

        Files that are older do not count: a row of a log is among the changes even if it is late. But where
        a log has partial rows, they are merged with all that came before, and what changed is chosen then.
        """
        partial = {
            self._group(key)
            for key, places in self._places.items()
            if any(v.partial and v.written > then for place in places for v in place.log)
        }
        return {
            key: frozenset(
                self._line(key, self._changed(place, then, self._group(key), partial))
                for place in places
            )
            for key, places in self._places.items()
            if key[1] not in self._unknown
        }

    def _changed(
        self, place: Place, then: int, group: tuple[str, int], partial: set[tuple[str, int]]
    ) -> Version | None:
        if group not in partial:
            base = place.base if self._groups.get(group, 0) > then else None
            place = Place(base, tuple(v for v in place.log if v.written > then))
        found = self._seen(place)
        return None if found is None or found.written <= then else found

    def plain_rows(self) -> tuple[Row, ...]:
        """The rows that are seen, one of those that may be of each key."""
        lines = sorted(max(allowed) for allowed in self.rows().values())
        return tuple(json.loads(line) for line in lines if line)

    def differences(
        self, seen: Iterable[Row], base_files: bool = False, since: int | None = None
    ) -> Iterator[tuple[str, str]]:
        """What is expected and what is seen, as lines, for each key where they differ; `since`: among the
        changes after that step."""
        found: dict[Key, list[str]] = {}
        for row in seen:
            key = (row["_hoodie_partition_path"], row["_hoodie_record_key"])
            found.setdefault(key, []).append(line(row))
        right = self.rows(base_files) if since is None else self.changed_since(since)
        for key in {**right, **found}:
            if key[1] in self._unknown:
                continue
            lines, allowed = found.get(key, []), right.get(key, frozenset({""}))
            if len(lines) > 1 or (lines or [""])[0] not in allowed:
                yield " or ".join(sorted(allowed)), "; ".join(sorted(lines))

    def _write(self, step: Step) -> None:
        batch: dict[Key, Version] = {}
        for key, version in self._entries(step):
            before = batch.get(key)
            batch[key] = version if before is None else self._combined(before, version)
        if self.kind.is_global:
            batch = dict(self._moved(batch))
        deletes = step.operation == "delete"
        groups = {self._group(key) for key in batch}
        new_groups = groups - self._groups.keys()
        for key, version in batch.items():
            new = self._group(key) in new_groups
            if (
                version.deletes
                and self.kind.merge_on_read
                and not (new and self.kind.index == "BUCKET")
            ):
                sure = self.kind.index == "BUCKET" or self._logged.get(key[0], False)
                self._logged[key[0]] = sure
            if deletes and key not in self._places and (new or not self._logs_any_delete):
                continue
            places = self._places.get(key, frozenset({Place()}))
            self._places[key] = frozenset(
                after for place in places for after in self._put(place, version, new)
            )
        if not deletes:
            written = dict.fromkeys(new_groups if self.kind.merge_on_read else groups, self.step)
            self._groups |= written

    @property
    def knows_base_files(self) -> bool:
        """Whether it knows what base files hold: else a key that a log deletes may be new in another one."""
        return not self.kind.merge_on_read or self.kind.index == "BUCKET"

    @property
    def _logs_any_delete(self) -> bool:
        """Whether a delete is logged though its key is not stored: where the hash says which file group it is
        for, nobody looks whether it is there."""
        by_hash = self.kind.index in ("BUCKET", "CONSISTENT_HASHING")
        return self.kind.merge_on_read and by_hash

    def _put(self, place: Place, version: Version, new: bool) -> Iterator[Place]:
        """Where a version may go to. `new`: into a file group that was not there before."""
        if version.partial and self._seen(place) is None:
            # the row of a key that is not stored is whole: what it leaves out is null
            version = replace(version, partial=False)
        if version.deletes and self.kind.deletes_late:
            version = replace(version, always=True)
        merged = version if place.base is None else self._merged(place.base, version)
        by_class = self.kind.by_class and not self.kind.merge_on_read
        if by_class or (version.values and place.base and self._has_gap(place.base)):
            # the class makes a new row of both, and so does whoever fills gaps
            merged = replace(merged, written=version.written)
        # base files hold whole rows
        based = Place(None if merged.deletes else replace(merged, partial=False))
        if not self.kind.merge_on_read:
            yield based
            return
        logged = Place(place.base, (*place.log, version))
        if self.kind.index == "BUCKET":
            yield based if new else logged
            return
        if not (version.by_operation and new):
            yield logged
        if not place.log and not version.by_operation:
            yield based
        if self.kind.is_global and not version.deletes and self._seen(place) is None:
            # a global index reads logs, too: a key that they delete is new, and goes to another file group
            yield Place(replace(version, partial=False))
        if version.deletes and place == Place():
            yield place

    def _combined(self, before: Version, new: Version) -> Version:
        """What two versions of a key in one commit are together."""
        takes_newer = self.kind.by_class and not self.kind.rules.by_value
        if takes_newer and not (before.deletes or new.deletes):
            return before if new.order < before.order else new
        return self._merged(before, new)

    def _merged(self, before: Version, new: Version) -> Version:
        """What two versions of a key are together."""
        if before.always and new.deletes:
            return before
        stands, other = new, before
        if before.always:
            stands = replace(new, after_delete=True)
        elif self._is_late(new, before):
            stands, other = before, new
        return self._filled(stands, other)

    def _is_late(self, new: Version, before: Version) -> bool:
        kind = self.kind
        decides = kind.ordered if new.deletes or before.deletes else kind.by_value
        return decides and not new.always and new.order < before.order

    def _filled(self, row: Version, other: Version) -> Version:
        """`row` with its gaps filled by `other`."""
        if row.values is None or other.values is None:
            return row
        fills_new = row.partial or self.kind.rules.fill == "null"
        own = {name: (of, value) for name, of, value in row.values}
        for name, of, value in other.values:
            if self._is_gap(*own[name]) if name in own else fills_new:
                own[name] = (of, value)
        values = tuple((name, *own[name]) for name in sorted(own))
        order = row.order
        if self.kind.rules.fill == "null":
            pairs = zip(row.order, other.order, strict=True)
            order = tuple(there if mine == _NULL else mine for mine, there in pairs)
        return replace(row, order=order, values=values, partial=row.partial and other.partial)

    def _has_gap(self, row: Version) -> bool:
        """Whether a row has a gap. What it lacks of columns that came later is null."""
        values = row.values or ()
        lacks = self.columns.keys() - {name for name, _, _ in values}
        return bool(self.kind.rules.fill == "null" and lacks) or any(
            self._is_gap(of, value) for _, of, value in values
        )

    def _is_gap(self, of: str, value: str) -> bool:
        rules = self.kind.rules
        if rules.fill == "null":
            return value == "null"
        text = json.loads(value)
        return rules.fill == "marker" and (
            (of == "text" and text == rules.marker)
            or (of == "blob" and text == rules.marker.encode().hex())
        )

    def _moved(self, batch: Mapping[Key, Version]) -> Iterator[tuple[Key, Version]]:
        """Under a global index: the entries, and the deletes of rows that leave their partition."""
        self.oddities[ORDER] += len(batch) - len({key for _, key in batch})
        for (path, key), version in batch.items():
            there = [place for place in self._places if place[1] == key and self._may_see(place)]
            if any(len(self._visible(place)) > 1 for place in there) or len(there) > 1:
                self._unknown.add(key)
            if not there or there[0][0] == path:
                yield (path, key), version
                continue
            stored = next(iter(self._visible(there[0])))
            if stored is None or not self._is_late(version, stored):
                yield there[0], Version((), None, always=True, written=self.step)
                if not version.deletes:
                    yield (path, key), version

    def _visible(self, key: Key) -> set[Version | None]:
        return {self._seen(place) for place in self._places[key]}

    def _may_see(self, key: Key) -> bool:
        return bool(self._visible(key) - {None})

    def _seen(self, place: Place) -> Version | None:
        """What a reader sees of a key."""
        found = place.base
        if place.log:
            log = reduce(self._merged, place.log)
            found = log if place.base is None else self._merged(place.base, log)
            if log.after_delete and found.order != log.order:
                self.oddities[RETURNS] += 1
        return None if found is None or found.deletes else found

    def _compact(self) -> None:
        self._logged.clear()
        for key, places in self._places.items():
            if any(place.log for place in places):
                self._groups[self._group(key)] = self.step
        self._places = {
            key: frozenset(Place(self._whole(place)) for place in places)
            for key, places in self._places.items()
        }

    def _whole(self, place: Place) -> Version | None:
        found = self._seen(place)
        return None if found is None else replace(found, partial=False)

    def _forget(self, paths: set[str]) -> None:
        self._places = {key: places for key, places in self._places.items() if key[0] not in paths}
        self._groups = {group: at for group, at in self._groups.items() if group[0] not in paths}
        self._logged = {path: sure for path, sure in self._logged.items() if path not in paths}

    def _entries(self, step: Step) -> Iterator[tuple[Key, Version]]:
        for row in step.rows:
            key = (self.path(row.get("p")), f"h:{row['h']},k:{_key_text(row.get('k'))}")
            if step.operation == "delete":
                yield key, Version((), None, always=True, written=self.step)
            else:
                yield key, self._version(row, step)

    def _version(self, row: Row, step: Step) -> Version:
        kind = self.kind
        orderings = {name: self._had(name) for name in kind.orderings}
        order = tuple(_order(row.get(name), of) for name, of in orderings.items())
        if kind.deletes(row):
            anyway = kind.deletes_anyway(row, orderings)
            self.oddities[ZERO] += anyway
            return Version(order, always=anyway, written=self.step)
        types = kind.orderings | dict(step.columns) | {"h": "text", "k": kind.key}
        if kind.partitioning != "none":
            types["p"] = kind.partition_type
        values = ((name, of, json.dumps(row.get(name))) for name, of in types.items())
        partial = step.operation == "partial"
        return Version(order, tuple(sorted(values)), partial=partial, written=self.step)

    def path(self, value: Any) -> str:
        """The partition path of a value of p."""
        how = PARTITIONINGS[self.kind.partitioning]
        if not how:
            return ""
        text = _DEFAULT_PARTITION if value in (None, "") else _text(value)
        if how.get("url_encode"):
            text = "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in text)
        return f"p={text}" if how.get("hive_style") else text

    def _group(self, key: Key) -> tuple[str, int]:
        """The file group of a key under the bucket index: partition and bucket.

        The bucket is by the hash of a list that holds h alone, as Java makes it."""
        h, number = key[1].removeprefix("h:").partition(",")[0], 0
        for letter in h:
            number = 31 * number + ord(letter)
        return key[0], ((31 + number) & 0x7FFFFFFF) % self.kind.buckets

    def _line(self, key: Key, version: Version | None) -> str:
        if version is None or version.values is None:
            return ""
        stored = {name: (of, json.loads(value)) for name, of, value in version.values}
        row: Row = {}
        for name in self.kind.schema(self.columns).names:
            of, value = stored.get(name, ("", None))
            row[name] = _as_type(value, of, self.columns.get(name, of))
        row |= {"_hoodie_record_key": key[1], "_hoodie_partition_path": key[0]}
        return line(row)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _key_text(value: Any) -> str:
    if value is None:
        return "__null__"
    return "__empty__" if value == "" else _text(value)


def _as_type(value: Any, of: str, wanted: str) -> Any:
    """A value as a column of the type `wanted` holds it. A float that becomes a double keeps its text."""
    if value is None:
        return None
    if wanted == "double":
        return float(value)
    if of == "nested" and wanted == "grown":
        inner = value["b"]
        return value | {"b": inner and {"c": _as_type(inner["c"], "long", "double"), "d": None}}
    return struct.unpack("<f", struct.pack("<f", value))[0] if of == "single" else value


def _order(value: Any, of: str) -> tuple[Any, ...]:
    """An ordering value as something that Python compares as Apache Hudi does; null is lowest."""
    if value is None:
        return _NULL
    if isinstance(value, float):
        if math.isnan(value):
            return (1, math.inf, 1)
        return (1, value, -1 if value == 0 and math.copysign(1, value) < 0 else 0)
    if of in ("price", "huge"):
        return (1, Decimal(value))
    if of == "day":
        return (1, date.fromisoformat(value).toordinal() - date(1970, 1, 1).toordinal())
    if of in ("moment", "local"):
        return (1, datetime.fromisoformat(value).isoformat())
    # Python orders texts by code point, which is the order of their bytes of UTF-8; the third value is for
    # integers that meet floats, where the column became wider
    return (1, value, 0)
