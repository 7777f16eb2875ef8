"""Checks `[[arm]]` and `[topology]`: kinds, options, the factor that an arm changes, and its topology."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from serde_lab.records.operation import Operation
from serde_lab.scenario.hudi_options import settings_problems
from serde_lab.scenario.model import (
    BY_HASH,
    FORMAT_CONTROLS,
    RECORD_PEERS,
    UPSERT_CONTROLS,
    Arm,
    Scenario,
    TopologySection,
    TpchData,
)
from serde_lab.scenario.problems import Problem, a, repeated, unknown_arm
from serde_lab.scenario.sections import Batch

EXECUTIONS: Mapping[str, tuple[str, ...]] = {
    "pickle": ("row",),
    "pickle_columns": ("batch",),
    "avro": ("row", "batch"),
    "internal_row": ("row", "batch"),
    "arrow": ("batch",),
}
"""Executions of the built-in strategies, so that `validate` need not import them; a test compares."""

NEEDS_SPARK = ("exchange_only", "spark_native", "parquet_floor", *UPSERT_CONTROLS)
FEWEST_ROWS = 1000
"""The smallest batch of a record class in the JVM."""

_FACTORS: Mapping[str, str] = {
    "execution": "execution",
    "rows_per_frame": "framing",
    "max_frame_bytes": "framing",
    "integrity": "integrity",
}


def check_arms(scenario: Scenario) -> Iterator[Problem]:
    """Problems of `[[arm]]` and of `[topology]`."""
    names = [arm.name for arm in scenario.arms]
    for name, times in repeated(names):
        yield Problem(f"arm.{name}", f"{times} arms have this name")
    for number, arm in enumerate(scenario.arms):
        key = f"arm.{arm.name}"
        yield from _kind(key, arm, scenario)
        if arm.options.execution is not None:
            allowed = EXECUTIONS.get(arm.subject, ("row", "batch"))
            if arm.options.execution not in allowed:
                yield Problem(
                    f"{key}.options.execution",
                    f"{arm.strategy} has no execution {arm.options.execution!r}, only "
                    f"{' or '.join(map(repr, allowed))}",
                )
        yield from _step(key, arm, scenario.arms[:number])
    yield from unknown_arm("reference", scenario.reference, names)
    yield from _topologies(scenario)


def _kind(key: str, arm: Arm, scenario: Scenario) -> Iterator[Problem]:
    kinds = [kind for kind in ("strategy", "control", "peer") if getattr(arm, kind) is not None]
    if len(kinds) != 1:
        found = f"has {' and '.join(kinds)}" if kinds else "has none"
        yield Problem(key, f"{found}, expected exactly one of strategy, control and peer")
        return
    if arm.kind != "strategy" and arm.options.given:
        yield Problem(f"{key}.options", f"a {arm.kind} takes no options")
    if arm.kind != "strategy" and arm.merging is not None:
        yield Problem(f"{key}.merging", f"a {arm.kind} always merges as [table] says")
    yield from _source_reader(key, arm, scenario)
    yield from _shuffle(key, arm, scenario)
    yield from settings_problems(key, arm, scenario)
    if arm.control is not None and arm.control in UPSERT_CONTROLS:
        yield from _upsert(key, arm.control, scenario)
    exchange = scenario.measure.exchange
    if arm.peer in RECORD_PEERS:
        yield from _record_peer(key, arm, scenario)
        return
    needs_spark = arm.control in NEEDS_SPARK or arm.kind == "peer"
    if arm.kind != "strategy" and exchange == "none":
        yield Problem(
            key,
            "measure.exchange 'none' only encodes and decodes, so every arm must be a strategy or one of"
            f" {', '.join(RECORD_PEERS)}",
        )
    elif needs_spark and exchange != "spark":
        yield Problem(
            key,
            f"{arm.subject} needs Spark, but measure.exchange is {exchange!r}; remove one of the two",
        )
    if arm.frames_of is None:
        return
    if arm.control != "exchange_only":
        yield Problem(f"{key}.frames_of", "is only for control = 'exchange_only'")
        return
    strategies = [other.name for other in scenario.arms if other.kind == "strategy"]
    yield from unknown_arm(f"{key}.frames_of", arm.frames_of, strategies)
    if any(other.shuffle == "rdd" for other in scenario.arms if other.name == arm.frames_of):
        yield Problem(
            f"{key}.frames_of",
            f"is {arm.frames_of!r}, whose shuffle is 'rdd', but exchange_only sends frames as a DataFrame",
        )


def _upsert(key: str, control: str, scenario: Scenario) -> Iterator[Problem]:
    """Only what a PySpark user's code of some lines does, with or without another table format."""
    table, data = scenario.table, scenario.data
    if data.keyless:
        yield Problem(key, f"{control} merges by record key, but data.keyless is true")
    for name, batch in scenario.named_batches:
        if batch.operation not in ("upsert", "bulk_insert"):
            yield Problem(key, f"{control} cannot {batch.operation.replace('_', ' ')} ({name})")
        elif batch.deletes:
            yield Problem(key, f"{control} knows no marked deletes ({name}.deletes)")
    if isinstance(data, TpchData) and data.refresh:
        yield Problem(key, f"{control} knows no deletes, which data.refresh has")
    if table.merge_mode != "EVENT_TIME_ORDERING" or not scenario.ordering:
        yield Problem(
            key, f"{control} keeps the row with the greatest ordering value, and needs one"
        )
    given = [k for k in ("partial_update", "delete_field", "merger_classes") if getattr(table, k)]
    for name in given:
        yield Problem(key, f"{control} does not know table.{name}")
    if control in FORMAT_CONTROLS and data.partition:
        yield Problem(
            key,
            f"{control} writes a table without partitions, but data.partition is"
            f" {', '.join(data.partition)}",
        )


def _source_reader(key: str, arm: Arm, scenario: Scenario) -> Iterator[Problem]:
    """Only tasks of a strategy can read the source in two ways, and only on Spark."""
    if arm.source_reader == "auto":
        return
    if arm.kind != "strategy":
        yield Problem(f"{key}.source_reader", f"is only for strategies, not for a {arm.kind}")
    elif scenario.measure.exchange != "spark":
        found = scenario.measure.exchange
        yield Problem(f"{key}.source_reader", f"needs Spark, but measure.exchange is {found!r}")


def _shuffle(key: str, arm: Arm, scenario: Scenario) -> Iterator[Problem]:
    """Frames can cross as the bytes of an RDD where tasks read the source, and no hop sorts them."""
    if arm.shuffle == "dataframe":
        return
    where, exchange = f"{key}.shuffle", scenario.measure.exchange
    if arm.kind != "strategy":
        yield Problem(where, f"is only for strategies, not for a {arm.kind}")
    elif exchange != "spark":
        yield Problem(where, f"needs Spark, but measure.exchange is {exchange!r}")
    elif scenario.stream is not None or arm.source_reader == "spark":
        yield Problem(where, "is 'rdd', but Spark reads the source, whose rows come as a DataFrame")
    elif scenario.topology_of(arm).name == "step3":
        yield Problem(where, "is 'rdd', but topology 'step3' sorts frames, which a DataFrame does")


def _record_peer(key: str, arm: Arm, scenario: Scenario) -> Iterator[Problem]:
    """Apache Hudi's record classes are written and read in memory, in batches that a call is small beside."""
    if scenario.measure.exchange != "none":
        yield Problem(
            key,
            f"{arm.peer} writes no table: it needs measure.exchange 'none', which is"
            f" {scenario.measure.exchange!r}",
        )
        return
    codec = scenario.codec
    small = [rows for rows in codec.batch_rows if rows < FEWEST_ROWS]
    if small:
        yield Problem(
            "codec.batch_rows",
            f"has {small[0]}, but {arm.peer} needs batches of at least {FEWEST_ROWS:,}: one call from Python"
            " into the JVM costs as much as tens of records",
        )
    if codec.types or codec.widths:
        yield Problem(
            key,
            f"{arm.peer} is measured on the scenario's own records only: set codec.types = [] and"
            " codec.widths = []",
        )


def _step(key: str, arm: Arm, before: Iterable[Arm]) -> Iterator[Problem]:
    """`changes` must be the one factor in which an arm differs from the strategy arm before it."""
    if arm.changes is None:
        return
    earlier = [other for other in before if other.kind == "strategy"]
    if arm.kind != "strategy" or not earlier:
        yield Problem(
            f"{key}.changes",
            "names the difference from the strategy arm before it, but there is no such arm"
            if arm.kind == "strategy"
            else f"is only for strategies, not for a {arm.kind}",
        )
        return
    found = factors(earlier[-1], arm)
    if set(found) != {arm.changes}:
        listed_factors = "; ".join(
            f"{factor} ({', '.join(keys)})" for factor, keys in found.items()
        )
        yield Problem(
            f"{key}.changes",
            f"is {arm.changes!r}, but the difference from arm {earlier[-1].name!r} is "
            f"{listed_factors or 'none'}",
        )


def factors(before: Arm, after: Arm) -> dict[str, list[str]]:
    """The factors in which two strategy arms of a file differ, each with the keys that differ.

    A key that only one of the two gives counts as a difference, because each strategy has its own default.
    """
    found: dict[str, list[str]] = {}
    if before.strategy != after.strategy:
        found["representation"] = ["strategy"]
    # compare only given keys: a missing key has the value of [table], not its default
    for factor in ("merging", "table"):
        sections = [getattr(arm, factor) for arm in (before, after)]
        one, other = ({} if section is None else section.given for section in sections)
        if one != other:
            found[factor] = [factor]
    if before.topology != after.topology:
        found["topology"] = ["topology"]
    if before.source_reader != after.source_reader:
        found["source"] = ["source_reader"]
    if before.shuffle != after.shuffle:
        found["shuffle"] = ["shuffle"]
    if before.stated_settings != after.stated_settings:
        found["settings"] = ["settings"]
    given, later = before.options.given, after.options.given
    for key in sorted(given.keys() | later.keys()):
        own = key not in _FACTORS
        if own and before.strategy != after.strategy:
            continue  # two strategies' own options, which count as representation anyway
        if given.get(key) != later.get(key):
            found.setdefault(_FACTORS.get(key, "representation"), []).append(key)
    return found


def _topologies(scenario: Scenario) -> Iterator[Problem]:
    name = scenario.topology.name
    if name in BY_HASH and scenario.table.index != "BUCKET":
        own = [arm for arm in scenario.arms if arm.strategy is not None and arm.topology is None]
        if own:
            yield Problem(
                "table.index",
                f"is {scenario.table.index}, but topology.name is {name!r}, which needs BUCKET",
            )
    for arm in scenario.arms:
        topology = scenario.topology_of(arm)
        where = "topology" if arm.topology is None else f"arm.{arm.name}.topology"
        if arm.strategy is None:
            takes_tasks = arm.kind == "peer" and arm.peer not in RECORD_PEERS
            allowed = TopologySection(tasks=topology.tasks) if takes_tasks else None
            if arm.topology not in (None, allowed):
                but = ", only `tasks`" if takes_tasks else ""
                yield Problem(where, f"{arm.subject} has no topology of its own{but}")
            elif topology.name != "bucket":
                yield Problem(
                    f"arm.{arm.name}",
                    f"{arm.subject} needs the bucket index, but topology.name is {topology.name!r}; remove"
                    " one of the two",
                )
            continue
        for n, batch in enumerate(scenario.commits, 1):
            yield from _travels(f"commit.{n}.operation", batch, arm, scenario)
        if topology.name == "consistent":
            yield from _consistent(arm, scenario)
        if topology.sort != "none" and topology.name != "bulk":
            yield Problem(
                f"{where}.sort", f"is for topology 'bulk', but the name is {topology.name!r}"
            )
        plain = TopologySection(name=topology.name)
        sized = (topology.batch_mb, topology.buffer_mb) != (plain.batch_mb, plain.buffer_mb)
        if topology.name != "step3" and sized:
            yield Problem(
                where, f"has batch_mb or buffer_mb, which are for 'step3', not {topology.name!r}"
            )


def _consistent(arm: Arm, scenario: Scenario) -> Iterator[Problem]:
    """Consistent hashing fixes the file groups of a partition before its first row is written."""
    for key, batch in scenario.named_batches:
        if batch.operation is Operation.BULK_INSERT or batch.write_operation.replaces:
            yield Problem(
                f"{key}.operation",
                f"{a(batch.operation)} creates or removes file groups, and consistent hashing (arm"
                f" {arm.name!r}) fixes them; use 'insert', 'upsert' or 'delete'",
            )


def _travels(key: str, batch: Batch, arm: Arm, scenario: Scenario) -> Iterator[Problem]:
    """Problems of a batch whose operation cannot go through the arm's topology."""
    topology = scenario.topology_of(arm)
    if not batch.writes:
        return
    if not topology.makes_records and batch.operation != "insert":
        yield Problem(
            key,
            f"{batch.operation} cannot use topology {topology.name!r} of arm {arm.name!r}, which only"
            " takes insert",
        )
    if batch.operation.startswith("insert_overwrite") and scenario.key_is_global(arm):
        yield Problem(
            key,
            f"the lab cannot compute the right answer for {batch.operation} under the global index"
            f" {scenario.table_of(arm).index}",
        )
