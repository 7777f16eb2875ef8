"""What a scenario may not combine, each with the reason.

Owns rules that need more than one key. Must not know a strategy's own options, which the strategy
checks when it is bound, nor data, which is checked when it is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from serde_lab.errors import OptionError
from serde_lab.records.partition_time import MEANING as TIME_OPTIONS
from serde_lab.records.partition_time import PREFIX
from serde_lab.scenario.model import (
    LEVELS,
    Arm,
    Batch,
    Merging,
    ParquetData,
    Scenario,
    Topology,
    TpchData,
)
from serde_lab.scenario.problems import Problem, listed, suggestion
from tpch.tables import TABLES

EXECUTIONS: Mapping[str, tuple[str, ...]] = {
    "pickle": ("row",),
    "avro": ("row", "batch"),
    "internal_row": ("row", "batch"),
    "arrow": ("batch",),
}
"""What the built-in strategies can do, so that `validate` needs none of them; a test compares."""

NEEDS_SPARK = ("spark_native", "parquet_floor")

# what of stored keys, or twice in a batch, they make right
_OF_STORED_KEYS = ("upsert", "insert_overwrite", "insert_overwrite_table")

_FACTORS: Mapping[str, str] = {
    "execution": "execution",
    "rows_per_frame": "framing",
    "max_frame_bytes": "framing",
    "integrity": "integrity",
}


def check(scenario: Scenario) -> Iterator[Problem]:
    """Every problem, in the order of the file."""
    yield from _not_yet(scenario)
    yield from _columns(scenario)
    yield from _keyless(scenario) if scenario.data.keyless else _keyed(scenario)
    yield from _batches(scenario)
    yield from _table(scenario)
    yield from _arms(scenario)
    yield from _topologies(scenario)
    yield from _gate(scenario)


def _not_yet(scenario: Scenario) -> Iterator[Problem]:
    """Words that are agreed on, for what this version cannot do yet."""
    for key, batch in scenario.named_batches:
        if batch.deletes:
            yield Problem(f"{key}.deletes", "delete markers are not supported yet")


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
    """Rows without a key are added and never looked up, compared or hashed."""
    data, table = scenario.data, scenario.table
    if data.key:
        yield Problem("data.keyless", f"is true, and data.key names {listed(data.key)}")
    if data.ordering:
        yield Problem("data.ordering", "is of no use: rows without keys are never compared")
    for key, batch in scenario.named_batches:
        if batch.operation not in ("insert", "bulk_insert"):
            yield Problem(
                f"{key}.operation",
                f"{_a(batch.operation)} looks keys up, and data.keyless says that there are none;"
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
    """A third of the keys: what makes rows share keys needs a key of lineitem's form, and upserts."""
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


def _batches(scenario: Scenario) -> Iterator[Problem]:
    own = ""
    for number, (key, batch) in enumerate(scenario.named_batches):
        yield from _size(key, batch, scenario)
        if own and not batch.path:
            yield Problem(
                key,
                f"is derived from [data], but {own} before it has its own `path`: which keys are "
                "stored by then is not known",
            )
        own = own or (key if batch.path else "")
        shares = {
            name: getattr(batch, name)
            for name in ("updates", "duplicates", "late", "deletes")
            if getattr(batch, name)
        }
        if shares and (batch.path or batch.operation not in _OF_STORED_KEYS):
            why = (
                "its rows are those of `path`"
                if batch.path
                else f"{_a(batch.operation)} has none, only an upsert"
            )
            yield Problem(f"{key}.{next(iter(shares))}", f"cannot be asked for: {why}")
            continue
        stored = batch.updates * (1 - batch.duplicates)
        if batch.late + batch.deletes > stored + 1e-9:
            yield Problem(
                key,
                f"late and deletes ask for {batch.late + batch.deletes:g} of the rows, but only "
                f"{stored:g} of them, updates * (1 - duplicates), are of stored keys",
            )
        if not number and not batch.path and (batch.updates or batch.operation == "delete"):
            asked = "delete" if batch.operation == "delete" else f"updates = {batch.updates:g}"
            yield Problem(
                f"{key}.{'operation' if batch.operation == 'delete' else 'updates'}",
                f"{asked} needs stored keys, and this is the first batch of an empty table",
            )
    strategies = [arm.name for arm in scenario.arms if arm.kind == "strategy"]
    for number, batch in enumerate(scenario.commits, 1):
        if batch.operation == "bulk_insert" and strategies:
            yield Problem(
                f"commit.{number}.operation",
                "a bulk_insert makes no records, so that no strategy would be measured; "
                "put it into [[setup]]",
            )


def _a(operation: str) -> str:
    return f"{'an' if operation in ('insert', 'upsert') else 'a'} {operation}"


def _size(key: str, batch: Batch, scenario: Scenario) -> Iterator[Problem]:
    given = [name for name in ("rows", "share", "path") if getattr(batch, name) is not None]
    if len(given) > 1:
        yield Problem(key, f"has {' and '.join(given)}, expected one of them at most")
    if batch.path is None:
        return
    if not isinstance(scenario.data, ParquetData):
        yield Problem(f"{key}.path", 'needs [data] source = "parquet", since files have a schema')
    elif scenario.data.keyless:
        return
    elif not scenario.data.ordering and scenario.table.merge_mode == "EVENT_TIME_ORDERING":
        yield Problem(
            f"{key}.path",
            "needs data.ordering: times can be added to derived rows only, not to your own",
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


def _table(scenario: Scenario) -> Iterator[Problem]:
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


def _arms(scenario: Scenario) -> Iterator[Problem]:
    names = [arm.name for arm in scenario.arms]
    for name, times in Counter(names).items():
        if times > 1:
            yield Problem(f"arm.{name}", f"{times} arms have this name")
    for number, arm in enumerate(scenario.arms):
        key = f"arm.{arm.name}"
        yield from _kind(key, arm, scenario)
        if arm.options.execution is not None:
            allowed = EXECUTIONS.get(arm.subject, ("row", "batch"))
            if arm.options.execution not in allowed:
                yield Problem(
                    f"{key}.options.execution",
                    f"{arm.strategy} cannot work by {arm.options.execution!r}, only by "
                    f"{' or '.join(map(repr, allowed))}",
                )
        yield from _step(key, arm, scenario.arms[:number])
    yield from _named("reference", scenario.reference, names)


def _kind(key: str, arm: Arm, scenario: Scenario) -> Iterator[Problem]:
    kinds = [kind for kind in ("strategy", "control", "peer") if getattr(arm, kind) is not None]
    if len(kinds) != 1:
        found = f"has {' and '.join(kinds)}" if kinds else "has none"
        yield Problem(key, f"{found} of strategy, control and peer, expected exactly one")
        return
    if arm.kind != "strategy" and arm.options.given:
        yield Problem(f"{key}.options", f"a {arm.kind} takes no options")
    if arm.kind != "strategy" and arm.merging is not None:
        yield Problem(f"{key}.merging", f"a {arm.kind} merges as [table] says")
    exchange = scenario.measure.exchange
    needs_spark = arm.control in NEEDS_SPARK or arm.kind == "peer"
    if needs_spark and exchange != "spark":
        yield Problem(
            key,
            f"{arm.subject} needs Spark, but measure.exchange is {exchange!r}; take one of them out",
        )
    elif arm.kind != "strategy" and exchange == "none":
        yield Problem(key, "measure.exchange 'none' encodes and decodes only: it takes strategies")
    if arm.frames_of is None:
        return
    if arm.control != "exchange_only":
        yield Problem(f"{key}.frames_of", "belongs to control = 'exchange_only' only")
        return
    strategies = [other.name for other in scenario.arms if other.kind == "strategy"]
    yield from _named(f"{key}.frames_of", arm.frames_of, strategies)


def _topologies(scenario: Scenario) -> Iterator[Problem]:
    if scenario.topology.name == "bucket" and scenario.table.index != "BUCKET":
        own = [arm for arm in scenario.arms if arm.strategy is not None and arm.topology is None]
        if own:
            yield Problem(
                "table.index",
                f"is {scenario.table.index}, and topology.name is 'bucket', which goes with BUCKET",
            )
    for arm in scenario.arms:
        topology = scenario.topology_of(arm)
        where = "topology" if arm.topology is None else f"arm.{arm.name}.topology"
        if arm.strategy is None:
            if arm.topology is not None:
                yield Problem(f"{where}", f"a {arm.kind} has no topology of its own")
            elif topology.name != "bucket":
                yield Problem(
                    f"arm.{arm.name}",
                    f"{arm.subject} goes through the bucket index, and topology.name is"
                    f" {topology.name!r}; take one of them out",
                )
            continue
        for n, batch in enumerate(scenario.commits, 1):
            yield from _travels(f"commit.{n}.operation", batch, arm, scenario)
        if topology.sort != "none" and topology.name != "bulk":
            yield Problem(f"{where}.sort", f"is for 'bulk', and the name is {topology.name!r}")
        plain = Topology(name=topology.name)
        sized = (topology.batch_mb, topology.buffer_mb) != (plain.batch_mb, plain.buffer_mb)
        if topology.name != "step3" and sized:
            yield Problem(
                where, f"has batch_mb or buffer_mb, which are for 'step3', not {topology.name!r}"
            )


def _travels(key: str, batch: Batch, arm: Arm, scenario: Scenario) -> Iterator[Problem]:
    """Whether the operation goes through the arm's topology."""
    topology = scenario.topology_of(arm)
    if not topology.makes_records and batch.operation != "insert":
        yield Problem(
            key,
            f"{batch.operation} cannot go through {topology.name!r}, the topology of arm"
            f" {arm.name!r}: it is for an insert",
        )
    if batch.operation == "insert" and topology.name == "bucket" and not scenario.data.keyless:
        yield Problem(
            key,
            f"an insert looks no key up, and arm {arm.name!r} writes a table with the bucket index, where"
            " every key has its place; rows with keys come by upsert, the first ones by bulk_insert",
        )
    if batch.operation.startswith("insert_overwrite") and scenario.key_is_global(arm):
        yield Problem(
            key,
            f"what {batch.operation} leaves of a key in other partitions is not worked out, and under the"
            f" index {scenario.table_of(arm).index} a key is told apart in the whole table",
        )


def _step(key: str, arm: Arm, before: Iterable[Arm]) -> Iterator[Problem]:
    """`changes` must be the one factor in which an arm differs from the strategy arm before it."""
    if arm.changes is None:
        return
    earlier = [other for other in before if other.kind == "strategy"]
    if arm.kind != "strategy" or not earlier:
        yield Problem(
            f"{key}.changes",
            "says what differs from the strategy arm before it, and there is none"
            if arm.kind == "strategy"
            else f"belongs to strategies, not to a {arm.kind}",
        )
        return
    found = factors(earlier[-1], arm)
    if set(found) != {arm.changes}:
        said = "; ".join(f"{factor} ({', '.join(keys)})" for factor, keys in found.items())
        yield Problem(
            f"{key}.changes",
            f"says {arm.changes!r}, but what differs from arm {earlier[-1].name!r} is "
            f"{said or 'nothing'}",
        )


def factors(before: Arm, after: Arm) -> dict[str, list[str]]:
    """In which factors two strategy arms differ as the file has them, and by which keys.

    A key that only one of the two gives counts as a difference: its default is the strategy's.
    """
    found: dict[str, list[str]] = {}
    if before.strategy != after.strategy:
        found["representation"] = ["strategy"]
    if before.merging != after.merging:
        found["merging"] = ["merging"]
    if before.topology != after.topology:
        found["topology"] = ["topology"]
    one, other = before.options.given, after.options.given
    for key in sorted(one.keys() | other.keys()):
        own = key not in _FACTORS
        if own and before.strategy != after.strategy:
            continue  # options of two strategies, which are representation anyway
        if one.get(key) != other.get(key):
            found.setdefault(_FACTORS.get(key, "representation"), []).append(key)
    return found


def _gate(scenario: Scenario) -> Iterator[Problem]:
    names = [arm.name for arm in scenario.arms]
    if scenario.gate.control is not None:
        yield from _named("gate.control", scenario.gate.control, names)
    for number, limit in enumerate(scenario.gate.limits, 1):
        if limit.arm is not None:
            yield from _named(f"gate.limit.{number}.arm", limit.arm, names)
        if limit.relative is None and limit.absolute is None:
            yield Problem(f"gate.limit.{number}", "sets neither relative nor absolute")


def _named(key: str, name: str, known: list[str]) -> Iterator[Problem]:
    if name not in known:
        yield Problem(
            key, f"there is no arm {name!r}; arms are {listed(known)}{suggestion(name, known)}"
        )
