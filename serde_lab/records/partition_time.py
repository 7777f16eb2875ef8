"""Names partition folders by time, as the TIMESTAMP key generator does, vectorised.

Inputs are epochs in several units or dates in text, with time zones. A table defines them by the
properties `hoodie.keygen.timebased.…`. Source: TimestampBasedAvroKeyGenerator and HoodieDateTimeParser of
Hudi 1.2.0.

If no zone is set, Hudi uses that of its JVM; this module uses UTC. A null counts as the time 1 in the
input's unit, as in Hudi. Zones are names of the tz database, UTC, GMT, or an offset `GMT+hh:mm`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Literal, Self, cast, get_args
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError, OptionError
from serde_lab.records.conversion import java_trim
from serde_lab.records.date_pattern import (
    LAST_MS,
    Milliseconds,
    check_read,
    check_written,
    read_times,
    write_times,
)

InputType = Literal[
    "UNIX_TIMESTAMP", "EPOCHMILLISECONDS", "EPOCHMICROSECONDS", "SCALAR", "DATE_STRING", "MIXED"
]

PREFIX = "hoodie.keygen.timebased."
INPUT_TYPE = f"{PREFIX}timestamp.type"
SCALAR_UNIT = f"{PREFIX}timestamp.scalar.time.unit"
INPUT_FORMATS = f"{PREFIX}input.dateformat"
DELIMITER = f"{PREFIX}input.dateformat.list.delimiter.regex"
INPUT_ZONE = f"{PREFIX}input.timezone"
OUTPUT_FORMAT = f"{PREFIX}output.dateformat"
OUTPUT_ZONE = f"{PREFIX}output.timezone"
ZONE = f"{PREFIX}timezone"

MEANING: Mapping[str, str] = {
    INPUT_TYPE: ", ".join(get_args(InputType)),
    SCALAR_UNIT: "for SCALAR: NANOSECONDS, MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS",
    INPUT_FORMATS: "for DATE_STRING and MIXED: patterns in Joda's letters, separated by commas",
    DELIMITER: "a regular expression that separates input patterns, instead of the comma",
    INPUT_ZONE: "the zone of dates that state none",
    OUTPUT_FORMAT: "the partition path, as a pattern in Joda's letters; / makes nested folders",
    OUTPUT_ZONE: "the zone of partition paths",
    ZONE: "the input and output zone; overrides the two options above",
}

_PER_MS = {"NANOSECONDS": 1_000_000, "MICROSECONDS": 1000, "MILLISECONDS": 1}
_MS_PER = {"SECONDS": 1000, "MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": 86_400_000}
_UNITS = {
    "UNIX_TIMESTAMP": "SECONDS",
    "EPOCHMILLISECONDS": "MILLISECONDS",
    "EPOCHMICROSECONDS": "MICROSECONDS",
}
_OFFSET = re.compile(r"GMT([+-])(\d{1,2})(?::?(\d\d))?")
_LONG = np.iinfo(np.int64)
_MINUTE_MS = 60_000
_RULES_FROM_MS = 2_114_380_800_000
"""The year 2037, the last one for which Arrow knows when clocks change."""
_CYCLE_MS = 146_097 * 86_400_000
"""400 years, after which the calendar repeats."""
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class TimeRule:
    """How a partition field becomes a date. A zone is "" if none is set."""

    input_type: InputType
    output_format: str
    input_formats: tuple[str, ...] = ()
    input_zone: str = ""
    output_zone: str = ""
    scalar_unit: str = "SECONDS"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """The rule that the properties under PREFIX define. Raises OptionError naming the property."""
        kind = properties.get(INPUT_TYPE, "")
        if kind not in get_args(InputType):
            known = ", ".join(get_args(InputType))
            raise OptionError(f"{INPUT_TYPE} is {kind!r}, expected one of {known}")
        output = properties.get(OUTPUT_FORMAT, "")
        if not output:
            raise OptionError(f"{OUTPUT_FORMAT} is missing: the key generator TIMESTAMP needs it")
        check_written(output, OUTPUT_FORMAT)
        unit = properties.get(SCALAR_UNIT, "SECONDS").upper()
        if unit not in _PER_MS and unit not in _MS_PER:
            known = ", ".join([*_PER_MS, *_MS_PER])
            raise OptionError(f"{SCALAR_UNIT} is {unit!r}, expected one of {known}")
        formats: tuple[str, ...] = ()
        if kind in ("DATE_STRING", "MIXED"):
            listed = properties.get(INPUT_FORMATS, "")
            formats = tuple(java_trim(p) for p in re.split(properties.get(DELIMITER, ","), listed))
            if not listed:
                raise OptionError(f"{INPUT_FORMATS} is missing: {INPUT_TYPE}={kind} needs it")
            for pattern in formats:
                check_read(pattern, INPUT_FORMATS)
        both = properties.get(ZONE)
        zones = {}
        for key in (INPUT_ZONE, OUTPUT_ZONE):
            zones[key] = (properties.get(key, "") if both is None else both).strip()
            _check_zone(zones[key], key if both is None else ZONE)
        return cls(
            cast(InputType, kind), output, formats, zones[INPUT_ZONE], zones[OUTPUT_ZONE], unit
        )

    @property
    def reads_text(self) -> bool:
        """Whether the field holds dates as text; otherwise it holds numbers."""
        return self.input_type in ("DATE_STRING", "MIXED")

    def takes(self, kind: pa.DataType) -> bool:
        """Whether the rule can read a field of this type."""
        if self.reads_text:
            return pa.types.is_string(kind)
        return (
            pa.types.is_signed_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_decimal(kind)
            or pa.types.is_date32(kind)
            or pa.types.is_timestamp(kind)
        )

    def folders(self, values: pa.Array) -> pa.StringArray:
        """The folder of each value, not escaped and without the field's name.

        `values` have a type that `takes` accepts. Raises DataError for a text that is not a date.
        """
        if self.reads_text:
            local = self._local_of_text(pc.fill_null(values, self._text_of_null()))
        else:
            local = _on_clock(self._instants(values), self.output_zone)
        return write_times(self.output_format, local)

    def _instants(self, values: pa.Array) -> Milliseconds:
        """Milliseconds since 1970, as by TimeUnit#convert: rounded towards zero, clipped to 64 bits."""
        numbers = pc.fill_null(_as_int64(values), 1).to_numpy()
        unit = _UNITS.get(self.input_type, self.scalar_unit)
        if unit in _PER_MS:
            per = _PER_MS[unit]
            return np.where(numbers < 0, -(-numbers // per), numbers // per)
        times = _MS_PER[unit]
        held = np.clip(numbers, _LONG.min // times + 1, _LONG.max // times)
        return held * times

    def _local_of_text(self, texts: pa.StringArray) -> Milliseconds:
        """Each date on the clock of the output zone."""
        # many rows have few different dates
        encoded = texts.dictionary_encode()
        distinct = encoded.dictionary
        local = np.zeros(len(distinct), np.int64)
        open_ = np.ones(len(distinct), np.bool_)
        for pattern in self.input_formats:
            rows = np.flatnonzero(open_)
            found = read_times(pattern, distinct.take(pa.array(rows)))
            there = found.matched
            offset = None if found.offset_ms is None else found.offset_ms[there]
            local[rows[there]] = self._on_output_clock(found.local_ms[there], offset)
            open_[rows[there]] = False
        if open_.any():
            text = distinct[int(np.flatnonzero(open_)[0])].as_py()
            raise DataError(
                f"{text!r} is not a date of the pattern {' or '.join(self.input_formats)}"
            )
        return local[encoded.indices.to_numpy()]

    def _on_output_clock(self, local: Milliseconds, offset: Milliseconds | None) -> Milliseconds:
        if not self.output_zone and (not self.input_zone or offset is None):
            return local  # written in the zone in which it was read
        # of two such instants the earlier one
        instants = (
            _moved(local, self.input_zone, to_local=False) if offset is None else local - offset
        )
        return _on_clock(instants, self.output_zone or self.input_zone)

    def _text_of_null(self) -> str:
        """Millisecond 1, written by the first input pattern."""
        if not self.reads_text:
            return ""
        at = _on_clock(np.ones(1, np.int64), self.input_zone or self.output_zone)
        minutes = int(at[0] - 1) // 60_000
        offset = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}{abs(minutes) % 60:02}"
        return cast(str, write_times(self.input_formats[0], at, offset)[0].as_py())


def _as_int64(values: pa.Array) -> pa.Array:
    """The number that Hudi uses for a value: days of a date, microseconds of a timestamp, else truncated."""
    kind = values.type
    if pa.types.is_date32(kind):
        return values.view(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz)).view(pa.int64())
    if pa.types.is_floating(kind):
        wide = pc.trunc(values.cast(pa.float64()))
        wide = pc.if_else(pc.is_nan(wide), 0.0, wide)
        edge = float(2**63)
        inside = pc.and_(pc.less(wide, edge), pc.greater_equal(wide, -edge))
        cut = pc.if_else(inside, wide, 0.0).cast(pa.int64())
        beyond = pc.if_else(pc.greater(wide, 0.0), int(_LONG.max), int(_LONG.min))
        return pc.if_else(inside, cut, beyond)
    if pa.types.is_decimal(kind):
        whole = pc.trunc(values).cast(pa.decimal128(38, 0))
        try:
            return whole.cast(pa.int64())
        except pa.ArrowInvalid as exc:
            raise DataError(f"a time of type {kind} does not fit into 64 bits") from exc
    return values.cast(pa.int64())


@lru_cache(maxsize=64)
def _arrow_zone(zone: str) -> str:
    found = _OFFSET.fullmatch(zone)
    if found:
        return f"{found[1]}{int(found[2]):02}:{found[3] or '00'}"
    return zone or "UTC"


def _check_zone(zone: str, option: str) -> None:
    # Arrow takes these, and Java does not
    known = zone != "localtime" and not zone.startswith(("+", "-"))
    try:
        pc.local_timestamp(pa.array([0], pa.timestamp("ms", _arrow_zone(zone))))
    except pa.ArrowInvalid:
        known = False
    if not known:
        # Java silently takes UTC for a name that it does not know
        raise OptionError(
            f"{option} is {zone!r}, which is not a time zone",
            hint="a name of the tz database such as Europe/Berlin, UTC, or GMT+02:00",
        )


def _on_clock(instants: Milliseconds, zone: str) -> Milliseconds:
    """Instants as local times of a zone."""
    return _moved(instants, zone, to_local=True)


def _moved(times: Milliseconds, zone: str, to_local: bool) -> Milliseconds:
    if zone in ("", "UTC", "GMT"):
        return times
    name = _arrow_zone(zone)
    if name.startswith(("+", "-")):
        return _by_table(times, zone, to_local)
    later = times >= _RULES_FROM_MS
    if not later.any():
        return _by_table(times, zone, to_local)
    moved = np.empty(len(times), np.int64)
    moved[~later] = _by_table(times[~later], zone, to_local)
    moved[later] = _by_rules(times[later], zone, to_local)
    return moved


def _by_rules(times: Milliseconds, zone: str, to_local: bool) -> Milliseconds:
    """Times after the tz database's table of changes, by the rules for all later years."""
    near = np.where(times > LAST_MS - _CYCLE_MS, times - _CYCLE_MS, times)
    if (near > LAST_MS).any():
        raise DataError("a time lies outside the years 1 to 9999")
    minutes, place = np.unique(near // _MINUTE_MS, return_inverse=True)
    ahead = [_minutes_ahead(minute, zone, to_local) for minute in minutes.tolist()]
    offsets = np.array(ahead, np.int64)[place] * _MINUTE_MS
    return times + offsets if to_local else times - offsets


def _minutes_ahead(minute: int, zone: str, to_local: bool) -> int:
    """How far the clock of a zone is ahead of UTC, at a minute of UTC or, not `to_local`, of that clock."""
    region, moment = ZoneInfo(zone), _EPOCH + timedelta(minutes=minute)
    if to_local:
        return (
            region.fromutc(moment.replace(tzinfo=region)).replace(tzinfo=None) - moment
        ) // timedelta(minutes=1)
    ahead = (moment.replace(tzinfo=region).utcoffset() or timedelta()) // timedelta(minutes=1)
    if _minutes_ahead(minute - ahead, zone, to_local=True) != ahead:
        raise _skipped(str(moment), zone)
    return ahead


def _skipped(time: str, zone: str) -> DataError:
    return DataError(f"{time} does not exist in the time zone {zone}, whose clocks skip it")


def _by_table(times: Milliseconds, zone: str, to_local: bool) -> Milliseconds:
    name = _arrow_zone(zone)
    if to_local:
        there = pc.local_timestamp(pa.array(times).cast(pa.timestamp("ms", name)))
    else:
        try:
            there = pc.assume_timezone(
                pa.array(times).cast(pa.timestamp("ms")), name, ambiguous="earliest"
            )
        except pa.ArrowInvalid as exc:
            which = str(exc).partition(" is in a gap")[0].rpartition(": ")[2]
            raise _skipped(which, zone) from exc
    moved: npt.NDArray[np.int64] = there.view(pa.int64()).to_numpy()
    return moved
