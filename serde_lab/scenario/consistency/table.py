"""What `[table]` may not combine. Must not know batches or arms, but for the peers' limits."""

from __future__ import annotations

from collections.abc import Iterator

from serde_lab.errors import OptionError
from serde_lab.records.partition_time import MEANING as TIME_OPTIONS
from serde_lab.records.partition_time import PREFIX
from serde_lab.scenario.model import LEVELS, Scenario
from serde_lab.scenario.problems import Problem, listed, suggestion


def check(scenario: Scenario) -> Iterator[Problem]:
    """Problems of `[table]`."""
    table, data = scenario.table, scenario.data
    if not data.partition:
        for key in ("hive_style", "url_encode"):
            if getattr(table, key):
                yield Problem(f"table.{key}", "needs data.partition, which names no column")
    if table.time_folders:
        yield from _time_folders(scenario)
    if table.partial_update and any(arm.kind == "peer" for arm in scenario.arms):
        yield Problem("table.partial_update", "peers are not asked to fill gaps yet")
    if table.log_blocks is not None and table.type != "MERGE_ON_READ":
        yield Problem("table.log_blocks", f"is for MERGE_ON_READ: a {table.type} table has no logs")
    if table.codec == "gzip" and table.level != 6 and any(arm.peer for arm in scenario.arms):
        yield Problem(
            "table.codec_level",
            f"found {table.level}, but Apache Hudi writes gzip at level 6 only: peers would not be"
            " measured on equal terms",
        )
    for name in () if data.keyless else table.bucket_fields:
        if name not in data.record_key:
            yield Problem(
                "table.bucket_fields",
                f"{name!r} is not in the key, which is {listed(data.record_key)}",
            )
    if table.codec_level is not None:
        if table.codec not in LEVELS:
            yield Problem("table.codec_level", f"codec {table.codec} has no levels")
        else:
            low, high = LEVELS[table.codec]
            if not low <= table.codec_level <= high:
                yield Problem(
                    "table.codec_level",
                    f"found {table.codec_level}, expected {low} to {high} for {table.codec}",
                )


def _time_folders(scenario: Scenario) -> Iterator[Problem]:
    data, key = scenario.data, "table.time_folders"
    if len(data.partition) != 1 or len(data.record_key) != 1:
        yield Problem(
            key,
            f"takes one key and one partition column, and there are {len(data.record_key)} and"
            f" {len(data.partition)}",
        )
    for name, option in zip(
        scenario.table.time_folders, scenario.table.time_properties, strict=True
    ):
        if option not in TIME_OPTIONS:
            known = [option.removeprefix(PREFIX) for option in TIME_OPTIONS]
            yield Problem(
                key, f"has no {name!r}; known are {listed(known)}{suggestion(name, known)}"
            )
            return
    try:
        _ = scenario.table.time_rule
    except OptionError as exc:
        yield Problem(key, exc.message)
