"""Checks `[table]` and `[arm.table]`, and what peers cannot write."""

from __future__ import annotations

from collections.abc import Iterator

from serde_lab.errors import OptionError
from serde_lab.records.partition_time import MEANING as TIME_OPTIONS
from serde_lab.records.partition_time import PREFIX, TimeRule
from serde_lab.scenario.model import LEVELS, Arm, Files, Scenario
from serde_lab.scenario.problems import Problem, comma_separated, suggestion


def check(scenario: Scenario) -> Iterator[Problem]:
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
