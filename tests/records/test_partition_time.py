"""Dates as partition folders: what `tests/peers/test_keys_of_hudi.py` holds against Hudi itself, in short."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from serde_lab.errors import DataError, OptionError
from serde_lab.records.date_pattern import write_times
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.partition_time import PREFIX, TimeRule
from serde_lab.records.schema import RecordSchema


def rule(kind: str, output: str, **more: str) -> TimeRule:
    stated = {"timestamp.type": kind, "output.dateformat": output} | {
        key.replace("_", "."): value for key, value in more.items()
    }
    return TimeRule.from_properties({f"{PREFIX}{key}": value for key, value in stated.items()})


def test_every_unit_of_time() -> None:
    seconds = pa.array([1_700_000_000, -1, None])
    day = "yyyy-MM-dd HH:mm:ss"
    assert rule("UNIX_TIMESTAMP", day).folders(seconds).to_pylist() == [
        "2023-11-14 22:13:20",
        "1969-12-31 23:59:59",
        "1970-01-01 00:00:01",  # null counts as 1
    ]
    assert rule("EPOCHMICROSECONDS", day).folders(pa.array([-1])).to_pylist() == [
        "1970-01-01 00:00:00"  # cut off towards zero, as TimeUnit does
    ]
    days = rule("SCALAR", "yyyy-MM-dd", timestamp_scalar_time_unit="days")
    assert days.folders(pa.array([date(2024, 2, 29)])).to_pylist() == ["2024-02-29"]
    assert days.folders(pa.array([Decimal("1.9")])).to_pylist() == ["1970-01-02"]
    assert days.folders(pa.array([-1.9, float("nan")])).to_pylist() == ["1969-12-31", "1970-01-01"]


def test_zones_move_numbers_and_dates() -> None:
    hour = "yyyy/MM/dd/HH"
    berlin = rule("EPOCHMILLISECONDS", hour, timezone="Europe/Berlin")
    assert berlin.folders(pa.array([1_720_000_000_000])).to_pylist() == ["2024/07/03/11"]
    texts = pa.array(["2024-01-01T23:00:00+01:00", "2024-07-01", None])
    patterns = "yyyy-MM-dd'T'HH:mm:ssZ, yyyy-MM-dd"
    read = rule(
        "DATE_STRING",
        hour,
        input_dateformat=patterns,
        input_timezone="America/New_York",
        output_timezone="GMT+8:00",
    )
    assert read.folders(texts).to_pylist() == ["2024/01/02/06", "2024/07/01/12", "1970/01/01/08"]
    as_written = rule("MIXED", hour, input_dateformat=patterns)
    assert as_written.folders(texts).to_pylist() == [
        "2024/01/01/23",
        "2024/07/01/00",
        "1970/01/01/00",
    ]


def test_clocks_change_in_later_years_too() -> None:
    """Arrow knows no change after 2037; Joda goes by the zone's rules for ever."""
    hour = "yyyy-MM-dd HH:mm"
    summers = ["2037-07-01", "2038-07-01", "2062-07-01", "2400-07-01", "9999-07-01"]
    instants = pa.array([f"{day} 12:00:00" for day in summers]).cast(pa.timestamp("ms"))
    for zone, there in (
        ("Europe/Berlin", "14:00"),
        ("America/New_York", "08:00"),
        ("Australia/Lord_Howe", "22:30"),
        ("GMT+1:30", "13:30"),
    ):
        written = rule("EPOCHMILLISECONDS", hour, timezone=zone)
        made = written.folders(instants.cast(pa.int64())).to_pylist()
        assert made == [f"{day} {there}" for day in summers]
        read = rule(
            "DATE_STRING",
            hour,
            input_dateformat="yyyy-MM-dd HH:mm",
            input_timezone=zone,
            output_timezone="UTC",
        )
        assert read.folders(pa.array(made)).to_pylist() == [f"{day} 12:00" for day in summers]
    winter = rule("UNIX_TIMESTAMP", hour, timezone="Europe/Berlin")
    assert winter.folders(pa.array([3_786_912_000])).to_pylist() == ["2090-01-01 01:00"]


def test_every_letter_is_written() -> None:
    times = np.array([1_700_000_000_123], np.int64)
    assert write_times("yy D EEEE E e w xxxx MMMM MMM K h k a S SSSS 'o''clock'", times)[
        0
    ].as_py() == ("23 318 Tuesday Tue 2 46 2023 November Nov 10 10 22 PM 1 1230 o'clock")


@pytest.mark.parametrize("text", ["2024-02-30", "2024", "x", "", "2024-01-01 "])
def test_what_is_no_date_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(DataError, match=f"'{text}' is no"):
        rule("DATE_STRING", "yyyy", input_dateformat="yyyy-MM-dd").folders(pa.array([text]))


def test_an_hour_that_a_zone_leaves_out_is_refused() -> None:
    read = rule(
        "DATE_STRING", "yyyy", input_dateformat="yyyy-MM-dd HH:mm", timezone="Europe/Berlin"
    )
    with pytest.raises(DataError, match="Europe/Berlin"):
        read.folders(pa.array(["2024-03-31 02:30"]))
    with pytest.raises(DataError, match=r"2090-03-26 02:30:00 does not exist in .* Europe/Berlin"):
        read.folders(pa.array(["2090-03-26 02:30"]))
    # of an hour that comes twice, the first one
    twice = rule(
        "DATE_STRING",
        "HH",
        input_dateformat="yyyy-MM-dd HH:mm",
        input_timezone="Europe/Berlin",
        output_timezone="UTC",
    )
    assert twice.folders(pa.array(["2024-10-27 02:30", "2090-10-29 02:30"])).to_pylist() == [
        "00",
        "00",
    ]


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({}, "timestamp.type is ''"),
        ({"timestamp.type": "EPOCH"}, "'EPOCH'"),
        ({"timestamp.type": "MIXED"}, "output.dateformat is missing"),
        ({"timestamp.type": "MIXED", "output.dateformat": "yyyy"}, "input.dateformat is missing"),
        ({"timestamp.type": "UNIX_TIMESTAMP", "output.dateformat": "yyyy q"}, "'q'"),
        (
            {
                "timestamp.type": "SCALAR",
                "output.dateformat": "y",
                "timestamp.scalar.time.unit": "WEEKS",
            },
            "WEEKS",
        ),
        ({"timestamp.type": "SCALAR", "output.dateformat": "y", "timezone": "Mars"}, "'Mars'"),
        # an offset and this machine's zone to Arrow, and UTC to Java
        ({"timestamp.type": "SCALAR", "output.dateformat": "y", "timezone": "localtime"}, "zone"),
        ({"timestamp.type": "SCALAR", "output.dateformat": "y", "timezone": "+02:00"}, "'.02:00'"),
        (
            {"timestamp.type": "SCALAR", "output.dateformat": "y", "output.timezone": "-0530"},
            "output.timezone is '-0530', which is not a time zone",
        ),
        (
            {"timestamp.type": "MIXED", "output.dateformat": "y", "input.dateformat": "MM-dd"},
            "'MM-dd'",
        ),
    ],
)
def test_properties_that_cannot_be_are_refused_by_name(
    properties: dict[str, str], named: str
) -> None:
    with pytest.raises(OptionError, match=named):
        TimeRule.from_properties({f"{PREFIX}{key}": value for key, value in properties.items()})


@pytest.mark.parametrize(
    ("style", "path"),
    [
        ({}, "2023/11/14"),
        ({"hive_style": True}, "t=2023/11/14"),
        ({"url_encode": True}, "2023%2F11%2F14"),
    ],
)
def test_paths_of_a_batch(style: dict[str, Any], path: str) -> None:
    data = pa.RecordBatch.from_arrays([pa.array([7]), pa.array([1_700_000_000])], names=["k", "t"])
    maker = KeyGenerator(
        RecordSchema(data.schema, ("k",), ("t",)),
        time=rule("UNIX_TIMESTAMP", "yyyy/MM/dd"),
        **style,
    )
    made = maker.envelop(data)
    assert made.column("_hoodie_partition_path").to_pylist() == [path]
    assert made.column("_hoodie_record_key").to_pylist() == ["7"]


@pytest.mark.parametrize("pattern", ["'.hoodie'/yyyy", "yyyy/'.hoodie'", "yyyy/../MM"])
def test_a_reserved_folder_is_refused_at_any_depth(pattern: str) -> None:
    """Readers look for no data in `.hoodie`, so that the rows would be gone."""
    data = pa.RecordBatch.from_arrays([pa.array([7]), pa.array([1_700_000_000])], names=["k", "t"])
    maker = KeyGenerator(
        RecordSchema(data.schema, ("k",), ("t",)), time=rule("UNIX_TIMESTAMP", pattern)
    )
    with pytest.raises(DataError, match=r"'t' holds .* which is a reserved folder name"):
        maker.envelop(data)
