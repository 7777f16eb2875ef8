"""Computes time-based partition folders value by value with Python's own dates, to check a writer.

Implemented independently of `records.partition_time`, which the writer uses. Supports the letters y M d H h a
m s S, and the time zones of `zoneinfo`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from serde_lab.errors import SchemaError

_PREFIX = "hoodie.keygen.timebased."
_NS = {
    "NANOSECONDS": 1,
    "MICROSECONDS": 10**3,
    "MILLISECONDS": 10**6,
    "SECONDS": 10**9,
    "MINUTES": 60 * 10**9,
    "HOURS": 3600 * 10**9,
    "DAYS": 86400 * 10**9,
}
_UNITS = {
    "UNIX_TIMESTAMP": "SECONDS",
    "EPOCHMILLISECONDS": "MILLISECONDS",
    "EPOCHMICROSECONDS": "MICROSECONDS",
}
_LETTERS = {
    "yyyy": "%Y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "hh": "%I",
    "a": "%p",
    "mm": "%M",
    "ss": "%S",
    "SSS": "%f",
    "Z": "%z",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Rule:
    """The parsed options. Zones are "" if not stated."""

    input_type: str
    output_format: str
    input_formats: tuple[str, ...]
    input_zone: str
    output_zone: str
    unit: str

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _Rule:
        def said(name: str, default: str = "") -> str:
            return options.get(f"{_PREFIX}{name}", default)

        kind, both = said("timestamp.type"), said("timezone")
        delimiter = said("input.dateformat.list.delimiter.regex", ",")
        return cls(
            kind,
            said("output.dateformat"),
            tuple(part.strip() for part in re.split(delimiter, said("input.dateformat"))),
            both or said("input.timezone"),
            both or said("output.timezone"),
            _UNITS.get(kind, said("timestamp.scalar.time.unit", "SECONDS").upper()),
        )


def folders(values: pa.Array | pa.ChunkedArray, options: Mapping[str, str]) -> pa.ChunkedArray:
    """The folder of each value under Hudi's options of the key generator TIMESTAMP.

    Raises SchemaError for a pattern that cannot be judged.
    """
    rule = _Rule.of(options)
    made: dict[Any, str] = {}
    found = []
    for value in values.to_pylist():
        if value not in made:
            made[value] = _folder(value, rule)
        found.append(made[value])
    return pa.chunked_array([pa.array(found, pa.string())])


def _folder(value: Any, rule: _Rule) -> str:
    if rule.input_type in ("DATE_STRING", "MIXED"):
        moment = _read(value, rule)
    else:
        moment = _EPOCH + timedelta(milliseconds=_ms(value, rule))
        moment = moment.astimezone(_zone(rule.output_zone))
    text = moment.strftime(_strftime(rule.output_format))
    if "%f" in _strftime(rule.output_format):
        text = text.replace(f"{moment.microsecond:06}", f"{moment.microsecond // 1000:03}")
    return text


def _ms(value: Any, rule: _Rule) -> int:
    if value is None:
        value = 1
    elif isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        value = (moment - _EPOCH) // timedelta(microseconds=1)
    elif isinstance(value, date):
        value = (value - _EPOCH.date()).days
    elif isinstance(value, float | Decimal):
        value = int(value)
    ns = value * _NS[rule.unit]
    return ns // 10**6 if ns >= 0 else -(-ns // 10**6)


def _read(value: str | None, rule: _Rule) -> datetime:
    zone = _zone(rule.input_zone)
    if value is None:
        first = _EPOCH.astimezone(_zone(rule.input_zone or rule.output_zone))
        value = first.strftime(_strftime(rule.input_formats[0]))
    for pattern in rule.input_formats:
        try:
            moment = datetime.strptime(value, _strftime(pattern))
        except ValueError:
            continue
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        given = rule.output_zone or rule.input_zone
        return moment.astimezone(_zone(given)) if given else moment
    raise SchemaError(f"{value!r} is of none of the patterns {', '.join(rule.input_formats)}")


def _strftime(pattern: str) -> str:
    pieces = []
    for quoted, letters, other in re.findall(r"'([^']*)'|((?:[A-Za-z])+)|([^A-Za-z']+)", pattern):
        if letters:
            for run in re.findall(r"((.)\2*)", letters):
                if run[0] not in _LETTERS:
                    raise SchemaError(f"the time pattern {pattern!r} cannot be judged")
                pieces.append(_LETTERS[run[0]])
        else:
            pieces.append((quoted or other).replace("%", "%%"))
    return "".join(pieces)


def _zone(name: str) -> tzinfo:
    found = re.fullmatch(r"GMT([+-])(\d{1,2})(?::?(\d\d))?", name)
    if found is None:
        return ZoneInfo(name or "UTC")
    size = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
    return timezone(-size if found[1] == "-" else size)
