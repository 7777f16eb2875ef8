"""Checks `[data]`, the columns and keys of the rows, and `[table]` and `[arm.table]`, which hold them."""

from __future__ import annotations

from collections.abc import Iterator

from serde_lab.errors import OptionError
from serde_lab.inputs.event_time import EVENT_TS
from serde_lab.records.partition_time import MEANING as TIME_OPTIONS
from serde_lab.records.partition_time import PREFIX, TimeRule
from serde_lab.scenario.model import (
    LEVELS,
    UPSERT_CONTROLS,
    Arm,
    Files,
    Merging,
    ParquetData,
    Scenario,
    TableSection,
    TpchData,
)
from serde_lab.scenario.problems import Problem, a, comma_separated, keys_of, repeated, suggestion
from serde_lab.scenario.sections import ShapesData, shape_problems
from tpch import REFRESHED, TABLES


def check_data(scenario: Scenario) -> Iterator[Problem]:
    """Problems of `[data]`."""
    yield from _columns(scenario)
    yield from _keyless(scenario) if scenario.data.keyless else _keyed(scenario)


def _columns(scenario: Scenario) -> Iterator[Problem]:
    data = scenario.data
    for role in ("key", "partition", "ordering"):
        names: tuple[str, ...] = getattr(data, role)
        for name, times in repeated(names):
            yield Problem(f"data.{role}", f"names {name!r} {times} times")
    if isinstance(data, TpchData):
        known = TABLES[data.table].columns
        for role, names in (
            ("key", data.key), ("partition", data.partition), ("ordering", data.own_ordering),
        ):  # fmt: skip
            for name in names:
                if name not in known:
                    yield Problem(
                        f"data.{role}",
                        f"table {data.table} has no column {name!r}; its columns are "
                        f"{comma_separated(known)}{suggestion(name, known)}",
                    )
        yield from _key_range(scenario, data)
        if data.refresh:
            yield from _refresh(data)
    if isinstance(data, ShapesData):
        for key, clause in shape_problems(data, scenario.table.buckets):
            yield Problem(f"data.{key}", clause)
        yield from _one_key(scenario, data)
    for name in scenario.ordering:
        if name in data.record_key or name in data.partition:
            role = "key" if name in data.record_key else "partition"
            yield Problem(
                "data.ordering",
                f"{name!r} is also a {role} column, so rows with the same {role} cannot differ in it",
            )


def _keyed(scenario: Scenario) -> Iterator[Problem]:
    data = scenario.data
    if isinstance(data, ParquetData) and not data.key:
        found = (
            "is empty, expected at least one" if "key" in data.model_fields_set else "is missing"
        )
        yield Problem(
            "data.key", f"{found}; name the columns of the record key, or set keyless = true"
        )


def _keyless(scenario: Scenario) -> Iterator[Problem]:
    """Rows without a key are only added; they are never looked up, compared or hashed."""
    data, table = scenario.data, scenario.table
    if data.key:
        yield Problem("data.keyless", f"is true, but data.key names {comma_separated(data.key)}")
    if data.ordering:
        yield Problem("data.ordering", "has no effect: rows without keys are never compared")
    for key, batch in scenario.named_batches:
        if batch.operation not in ("insert", "bulk_insert"):
            yield Problem(
                f"{key}.operation",
                f"{a(batch.operation)} needs record keys, but data.keyless is true; use 'insert' or"
                " 'bulk_insert'",
            )
    # not "the keys that the file gives": a stored scenario gives all of them
    plain = TableSection()
    changed = {
        name for name in keys_of(TableSection) if getattr(table, name) != getattr(plain, name)
    }
    for name in ("index", "buckets", "bucket_fields"):
        if name in changed:
            yield Problem(f"table.{name}", "has no effect: rows without keys have no bucket")
    merging = [("table", changed)]
    merging += [
        (f"arm.{arm.name}.merging", arm.merging.model_fields_set)
        for arm in scenario.arms
        if arm.merging is not None
    ]
    for key, given in merging:
        for name in sorted(given & Merging.model_fields.keys()):
            yield Problem(f"{key}.{name}", "has no effect: rows without keys are never merged")
    for arm in scenario.arms:
        if arm.kind == "peer":
            yield Problem(f"arm.{arm.name}", "peers cannot write rows without keys yet")
        elif arm.control == "spark_native":
            yield Problem(
                f"arm.{arm.name}",
                "spark_native sends rows to the bucket of their key, but data.keyless is true",
            )


def _refresh(data: TpchData) -> Iterator[Problem]:
    """The refresh functions change two tables, whose orders they know by the primary key."""
    if data.table not in REFRESHED:
        yield Problem(
            "data.refresh",
            f"needs table {comma_separated(REFRESHED)}; refreshes do not change {data.table}",
        )
    if data.record_key != TABLES[data.table].primary_key:
        yield Problem("data.refresh", "needs the table's primary key as data.key")
    if data.own_ordering:
        yield Problem(
            "data.refresh", f"needs the ordering column {EVENT_TS}; leave out data.ordering"
        )
    if data.key_range != "whole":
        yield Problem("data.refresh", f"cannot be combined with key_range {data.key_range!r}")


def _one_key(scenario: Scenario, data: ShapesData) -> Iterator[Problem]:
    """`skew = "key"` repeats a stored key in the rows of each upsert."""
    if data.skew != "key":
        return
    upserts = [
        (key, batch.rows_of(data.rows))
        for key, batch in scenario.named_batches
        if batch.operation == "upsert"
    ]
    if not upserts:
        yield Problem("data.skew", '"key" needs an upsert, whose rows it changes')
    for key, rows in upserts:
        if rows < data.versions:
            yield Problem(
                "data.versions", f"is {data.versions:,}, but {key} has {rows:,} rows only"
            )
    for arm in scenario.arms:
        if arm.kind == "peer" or arm.control in UPSERT_CONTROLS:
            yield Problem(
                "data.skew",
                f'"key" repeats keys, which arm {arm.name!r} ({arm.subject}) does not support yet',
            )


def _key_range(scenario: Scenario, data: TpchData) -> Iterator[Problem]:
    """`key_range` makes rows share keys, which needs a key like lineitem's, and no bulk_insert."""
    if data.key_range == "whole":
        return
    if data.keyless:
        yield Problem("data.key_range", "needs record keys, but data.keyless is true")
        return
    if data.table != "lineitem" or data.record_key[0] != "l_orderkey" or len(data.record_key) < 2:
        yield Problem(
            "data.key_range", "needs table lineitem with a key of l_orderkey and another column"
        )
    for key, batch in scenario.named_batches:
        if batch.operation == "bulk_insert":
            yield Problem(
                f"{key}.operation",
                f"a bulk_insert would store keys twice: with key_range {data.key_range!r} rows share keys",
            )


def check_table(scenario: Scenario) -> Iterator[Problem]:
    """Problems of `[table]`."""
    table, data = scenario.table, scenario.data
    if not data.partition:
        for key in ("hive_style", "url_encode"):
            if getattr(table, key):
                yield Problem(f"table.{key}", "needs data.partition, which is empty")
    if table.time_folders:
        yield from _time_folders(scenario)
    if table.partial_update and any(arm.kind == "peer" for arm in scenario.arms):
        yield Problem("table.partial_update", "peers cannot do partial updates yet")
    beside_peers = any(arm.peer for arm in scenario.arms)
    yield from _files("table", table, beside_peers)
    for arm in scenario.arms:
        if arm.table is not None:
            yield from _files_of_arm(scenario, arm, beside_peers)
    if beside_peers:
        yield from _one_level(scenario)
    for name in () if data.keyless else table.bucket_fields:
        if name not in data.record_key:
            yield Problem(
                "table.bucket_fields",
                f"{name!r} is not in the key, which is {comma_separated(data.record_key)}",
            )


def _files(key: str, table: Files, beside_peers: bool) -> Iterator[Problem]:
    if table.log_blocks is not None and table.type != "MERGE_ON_READ":
        yield Problem(
            f"{key}.log_blocks", f"is only for MERGE_ON_READ: a {table.type} table has no log files"
        )
    if table.codec == "gzip" and table.level != 6 and beside_peers:
        yield Problem(
            f"{key}.codec_level",
            f"found {table.level}, but Apache Hudi writes gzip at level 6 only: peers would not be"
            " measured on equal terms",
        )
    if table.codec_level is None:
        return
    if table.codec not in LEVELS:
        yield Problem(f"{key}.codec_level", f"codec {table.codec} has no levels")
        return
    low, high = LEVELS[table.codec]
    if not low <= table.codec_level <= high:
        yield Problem(
            f"{key}.codec_level",
            f"found {table.codec_level}, expected {low} to {high} for {table.codec}",
        )


def _files_of_arm(scenario: Scenario, arm: Arm, beside_peers: bool) -> Iterator[Problem]:
    key = f"arm.{arm.name}.table"
    if scenario.codec_only or arm.control == "exchange_only":
        yield Problem(key, "this arm writes no table")
        return
    yield from _files(key, scenario.table_of(arm), beside_peers)


def _one_level(scenario: Scenario) -> Iterator[Problem]:
    """Peers need one zstd level: Apache Hudi takes it from the session, which all arms share."""
    tables = [scenario.table_of(arm) for arm in scenario.arms if arm.peer]
    levels = sorted({table.level or 0 for table in tables if table.codec == "zstd"})
    if len(levels) > 1:
        yield Problem(
            "table.codec_level",
            f"peers have zstd levels {comma_separated(map(str, levels))}, but Apache Hudi has one level per"
            " session",
        )


def _time_folders(scenario: Scenario) -> Iterator[Problem]:
    data, key = scenario.data, "table.time_folders"
    if len(data.partition) != 1 or not data.record_key:
        yield Problem(
            key,
            f"needs one key column or more and one partition column, found {len(data.record_key)} and"
            f" {len(data.partition)}",
        )
    for name, option in zip(
        scenario.table.time_folders, scenario.table.time_properties, strict=True
    ):
        if option not in TIME_OPTIONS:
            known = [option.removeprefix(PREFIX) for option in TIME_OPTIONS]
            yield Problem(
                key,
                f"unknown option {name!r}; known are {comma_separated(known)}{suggestion(name, known)}",
            )
            return
    try:
        TimeRule.from_properties(scenario.table.time_properties)
    except OptionError as exc:
        yield Problem(key, exc.message)
