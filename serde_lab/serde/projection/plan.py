"""Plans a projection: the source of every column of a target schema, and the change of its type.

One plan serves three verbs of RFC-46: rewriting to another schema (with renames), rewriting with
defaults for new columns, and joining with another record's columns. It is made once for a batch. For
every target column it holds side (0 the records themselves, 1 those joined with them), column and change
of type, or the default. `projection/columns.py` applies it to columns and to Python values.

| from            | to                                     | value                                      |
|-----------------|----------------------------------------|--------------------------------------------|
| int8 … int64    | a wider integer                        | the same                                   |
| int8 … int64    | float, double                          | the nearest                                |
| float           | double                                 | by its digits, as Hudi does: 0.1 stays 0.1 |
| number          | string                                 | its text in Java                           |
| string, binary  | each other                             | the same bytes; refused unless UTF-8       |
| decimal(p, s)   | decimal(q, t), t >= s, q - t >= p - s  | the same                                   |
| a time zone     | another                                | the same instant                           |
| list, map, struct | the same with changed insides        | fields by name; new ones null, others dropped |

A table's column may change in fewer ways (`records/conversion.py`, which defines the same values).
Types are plain (`records/schema.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pat

from serde_lab.errors import SchemaError
from serde_lab.records.conversion import is_wider
from serde_lab.records.schema import RecordSchema, child_fields, is_decimal, is_list, plain_type


@dataclass(frozen=True, slots=True)
class Change:
    """A change from one plain type to another.

    `children` has, for each child of a nested `after`, the number of its source among the children of
    `before` (None: it is new, and null) and the change of that child (None: unchanged).
    """

    before: pa.DataType
    after: pa.DataType
    children: tuple[tuple[int | None, Change | None], ...] = ()

    @property
    def is_nested(self) -> bool:
        """Whether the change is inside a list, map or struct."""
        return bool(self.children)

    @property
    def only_names(self) -> bool:
        """Whether only names of fields differ, or time zones; order and stored values stay the same."""
        if not self.is_nested:
            return pat.is_timestamp(self.after)
        return len(self.children) == len(child_fields(self.before)) and all(
            number == i and (change is None or change.only_names)
            for i, (number, change) in enumerate(self.children)
        )

    @property
    def by_digits(self) -> bool:
        """Whether numbers are converted by their decimal digits: to text, or from float to double."""
        if self.is_nested:
            return any(change is not None and change.by_digits for _, change in self.children)
        is_number = pat.is_integer(self.before) or pat.is_floating(self.before)
        to_text = is_number and pat.is_string(self.after)
        return to_text or (pat.is_float32(self.before) and pat.is_float64(self.after))

    @classmethod
    def between(
        cls, before: pa.DataType, after: pa.DataType, path: str, renames: _Renames
    ) -> Change | None:
        """The change from one plain type to another; None if they are the same.

        Raises SchemaError naming the column if the type cannot change so.
        """
        if before.equals(after) and not renames.inside(path):
            return None
        if pat.is_struct(before) and pat.is_struct(after):
            return cls(before, after, _fields(list(before), list(after), f"{path}.", renames))
        if is_list(before) and is_list(after):
            inner = cls.between(before.value_type, after.value_type, f"{path}.element", renames)
            return cls(before, after, ((0, inner),))
        if pat.is_map(before) and pat.is_map(after):
            inner = cls.between(before.item_type, after.item_type, f"{path}.value", renames)
            return cls(before, after, ((0, None), (1, inner)))
        if child_fields(before) or child_fields(after) or not _is_promotion(before, after):
            raise SchemaError(f"column {path!r} cannot change from type {before} to {after}")
        return cls(before, after)


def _is_promotion(before: pa.DataType, after: pa.DataType) -> bool:
    if pat.is_integer(before) and before.bit_width < 32:
        wider = pat.is_integer(after) and after.bit_width > before.bit_width
        return wider or is_wider(after, pa.int32())
    if pat.is_string(before) or pat.is_binary(before):
        return pat.is_string(after) or pat.is_binary(after)
    if is_decimal(before) and is_decimal(after):
        digits = after.precision - after.scale
        return after.scale >= before.scale and digits >= before.precision - before.scale
    if pat.is_timestamp(before) and pat.is_timestamp(after):
        return before.tz is not None and after.tz is not None
    return is_wider(after, before)


class _Renames:
    """Renames of fields, by path in the new schema, and those that have been used."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self._used: set[str] = set()

    def inside(self, path: str) -> bool:
        return any(key.startswith(f"{path}.") for key in self._given)

    def sources(
        self, after: Sequence[pa.Field], parent: str, before: Sequence[str]
    ) -> list[tuple[str, int | None]]:
        """For each field of the new schema its path, and the number of the old field (None: it is new).

        A renamed old field is not found by its old name, so a new field may have that name.
        """
        paths = [parent + field.name for field in after]
        claimed = {self._given[path] for path in paths if path in self._given}
        found: list[tuple[str, int | None]] = []
        for field, path in zip(after, paths, strict=True):
            old = self._given.get(path)
            if old is not None:
                if old not in before:
                    known = ", ".join(before)
                    raise SchemaError(
                        f"column {path!r} cannot be the renamed {old!r}: there are only {known}"
                    )
                self._used.add(path)
                found.append((path, before.index(old)))
            else:
                kept = field.name in before and field.name not in claimed
                found.append((path, before.index(field.name) if kept else None))
        return found

    def check_used(self) -> None:
        for path in self._given:
            if path not in self._used:
                raise SchemaError(f"column {path!r} is renamed, but is not in the new schema")


def _fields(
    before: Sequence[pa.Field], after: Sequence[pa.Field], parent: str, renames: _Renames
) -> tuple[tuple[int | None, Change | None], ...]:
    names = [f.name for f in before]
    found: list[tuple[int | None, Change | None]] = []
    for field, (path, old) in zip(after, renames.sources(after, parent, names), strict=True):
        change = None
        if old is not None:
            change = Change.between(before[old].type, field.type, path, renames)
        found.append((old, change))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """One target column: `source` is side and number of a data column, or None if the column is new."""

    name: str
    type: pa.DataType
    source: tuple[int, int] | None
    change: Change | None = None
    default: pa.Scalar | None = None

    @property
    def is_copied(self) -> bool:
        """Whether it has the values of its source unchanged; names of nested fields may differ."""
        return self.source is not None and (self.change is None or self.change.only_names)


@dataclass(frozen=True, slots=True)
class Projection:
    """For each data column of the target schema, where it comes from. Types are plain."""

    columns: tuple[TargetColumn, ...]

    @classmethod
    def rewriting(
        cls,
        source: RecordSchema,
        target: RecordSchema,
        renames: Mapping[str, str],
        defaults: Mapping[str, object],
    ) -> Projection:
        """The projection of records of `source` to `target`.

        `renames` maps new names to old ones. A nested field is given by its path in the new schema
        (`a.b`, `a.element.b`, `a.value.b`) and its old name in the same parent, as in Hudi's renameCols.
        `defaults` maps new columns to the value of all rows; without one they are null.
        Raises SchemaError naming a column that is missing or whose type cannot change so.
        """
        changes = _Renames(renames)
        found = []
        sources = changes.sources(list(target.data), "", source.data.names)
        for field, (_, number) in zip(target.data, sources, strict=True):
            after = plain_type(field.type)
            if number is None:
                value = _default(field.name, after, defaults.get(field.name))
                found.append(TargetColumn(field.name, after, None, default=value))
            else:
                before = plain_type(source.data.field(number).type)
                change = Change.between(before, after, field.name, changes)
                found.append(TargetColumn(field.name, after, (0, number), change))
        changes.check_used()
        new = {column.name for column in found if column.source is None}
        for name in defaults:
            if name not in new:
                what = "comes from the records" if name in target.data.names else "is not there"
                raise SchemaError(f"column {name!r} has a default, but {what}")
        return cls(tuple(found))

    @classmethod
    def joining(cls, left: RecordSchema, right: RecordSchema, target: RecordSchema) -> Projection:
        """The projection of both sides to `target`; a column of both comes from `right`, as in
        HoodieAvroUtils.stitchRecords.

        Raises SchemaError naming a column that neither has, or whose type cannot change so.
        """
        none = _Renames({})
        found = []
        for field in target.data:
            side = 1 if field.name in right.data.names else 0
            schema = (left, right)[side].data
            if field.name not in schema.names:
                raise SchemaError(f"column {field.name!r} is in neither of the records joined")
            after = plain_type(field.type)
            number = schema.get_field_index(field.name)
            change = Change.between(plain_type(schema.field(number).type), after, field.name, none)
            found.append(TargetColumn(field.name, after, (side, number), change))
        return cls(tuple(found))


def _default(name: str, t: pa.DataType, value: object) -> pa.Scalar | None:
    if value is None:
        return None
    try:
        return value.cast(t) if isinstance(value, pa.Scalar) else pa.scalar(value, t)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as exc:
        raise SchemaError(f"column {name!r} of type {t} cannot default to {value!r}") from exc
