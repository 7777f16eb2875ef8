"""Checks `[data]`: columns, keys, and rows without keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from serde_lab.scenario.consistency.wording import a
from serde_lab.scenario.model import Merging, ParquetData, Scenario, TpchData
from serde_lab.scenario.problems import Problem, listed, suggestion
from tpch import TABLES


def check(scenario: Scenario) -> Iterator[Problem]:
    """Problems of `[data]`."""
    yield from _columns(scenario)
    yield from _keyless(scenario) if scenario.data.keyless else _keyed(scenario)


def _columns(scenario: Scenario) -> Iterator[Problem]:
    data = scenario.data
    for role in ("key", "partition", "ordering"):
        names: tuple[str, ...] = getattr(data, role)
        for name, times in Counter(names).items():
            if times > 1:
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
                        f"{listed(known)}{suggestion(name, known)}",
                    )
        yield from _key_range(scenario, data)
    for name in scenario.ordering:
        if name in data.record_key or name in data.partition:
            role = "key" if name in data.record_key else "partition"
            yield Problem(
                "data.ordering",
                f"{name!r} is also the {role}, and rows of one key must be able to differ in it",
            )


def _keyed(scenario: Scenario) -> Iterator[Problem]:
    data = scenario.data
    if isinstance(data, ParquetData) and not data.key:
        found = (
            "is empty, expected at least one" if "key" in data.model_fields_set else "is missing"
        )
        yield Problem(
            "data.key", f"{found}: it names the record key, or keyless = true says of none"
        )


def _keyless(scenario: Scenario) -> Iterator[Problem]:
    """Rows without a key are only added; they are never looked up, compared or hashed."""
    data, table = scenario.data, scenario.table
    if data.key:
        yield Problem("data.keyless", f"is true, and data.key names {listed(data.key)}")
    if data.ordering:
        yield Problem("data.ordering", "is of no use: rows without keys are never compared")
    for key, batch in scenario.named_batches:
        if batch.operation not in ("insert", "bulk_insert"):
            yield Problem(
                f"{key}.operation",
                f"{a(batch.operation)} looks keys up, and data.keyless says that there are none;"
                " expected 'insert' or 'bulk_insert'",
            )
    for name in ("index", "buckets", "bucket_fields"):
        if name in table.model_fields_set:
            yield Problem(f"table.{name}", "is of no use: rows without keys have no bucket")
    merging = [("table", table.model_fields_set)]
    merging += [
        (f"arm.{arm.name}.merging", arm.merging.model_fields_set)
        for arm in scenario.arms
        if arm.merging is not None
    ]
    for key, given in merging:
        for name in sorted(given & Merging.model_fields.keys()):
            yield Problem(f"{key}.{name}", "is of no use: rows without keys are never merged")
    for arm in scenario.arms:
        if arm.kind == "peer":
            yield Problem(f"arm.{arm.name}", "peers are not asked to write rows without keys yet")
        elif arm.control == "spark_native":
            yield Problem(
                f"arm.{arm.name}",
                "spark_native sends rows by the bucket of their key, and data.keyless says that there"
                " are none",
            )


def _key_range(scenario: Scenario, data: TpchData) -> Iterator[Problem]:
    """`key_range` makes rows share keys, which needs a key like lineitem's, and no bulk_insert."""
    if data.key_range == "whole":
        return
    if data.keyless:
        yield Problem("data.key_range", "is for rows with keys, and data.keyless says of none")
        return
    if data.table != "lineitem" or data.record_key[0] != "l_orderkey" or len(data.record_key) < 2:
        yield Problem(
            "data.key_range", "is for lineitem with a key of l_orderkey and another column"
        )
    for key, batch in scenario.named_batches:
        if batch.operation == "bulk_insert":
            yield Problem(
                f"{key}.operation",
                f"a bulk_insert looks no key up, and with key_range {data.key_range!r} rows share keys",
            )
