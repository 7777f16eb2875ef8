"""Translates a scenario into the `hoodie.*` options of its table and its writes, and of an arm's settings.

The lab's writer and Apache Hudi are both handed these options, and each side adds a few of its own. So
this mapping is the one description of a table: nothing else translates `[table]`.

The settings that an arm may change are options of Apache Hudi and of Parquet, and properties of Spark.
Anything that would give an arm other work than the rest is refused: another codec, missing statistics or meta
columns, more slots, other input partitions. A `spark.` property is fixed when a session starts, so arms that
differ in one run in sessions of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from serde_lab.records.operation import Operation
from serde_lab.scenario.model import RECORD_PEERS, Arm, Scenario, TableSection
from serde_lab.scenario.problems import Problem, suggestion

TABLE_NAME = "lab"

OPERATION = "hoodie.datasource.write.operation"
LOG_BLOCKS = "hoodie.logfile.data.block.format"
MERGERS = "hoodie.write.record.merge.custom.implementation.classes"
_LEAST_WITH_PARTITIONS = 8
_MAY_BE_EMPTY = ("hoodie.datasource.write.partitionpath.field",)


def table_options(scenario: Scenario, arm: Arm | None = None) -> dict[str, str]:
    """The options of the table that `arm` writes; None means the table of `[table]`."""
    table, data = scenario.table_of(arm), scenario.data
    options = {
        "hoodie.table.name": TABLE_NAME,
        "hoodie.datasource.write.table.type": table.type,
        "hoodie.write.table.version": str(table.version),
        "hoodie.datasource.write.recordkey.field": ",".join(data.record_key),
        "hoodie.datasource.write.partitionpath.field": _partition(scenario),
        "hoodie.datasource.write.keygenerator.class": _key_generator(scenario),
        "hoodie.datasource.write.hive_style_partitioning": _flag(table.hive_style),
        "hoodie.datasource.write.partitionpath.urlencode": _flag(table.url_encode),
        **table.time_properties,
    }
    if data.keyless:
        return options
    options |= {
        "hoodie.table.ordering.fields": ",".join(scenario.ordering),
        "hoodie.write.record.merge.mode": table.merge_mode,
        "hoodie.table.partial.update.mode": table.partial_update,
        "hoodie.write.partial.update.unavailable.value": table.unavailable_value,
        "hoodie.payload.delete.field": table.delete_field,
        "hoodie.payload.delete.marker": table.delete_marker,
        "hoodie.index.type": table.index,
    }
    if table.index == "BUCKET":
        consistent = scenario.topology_of(arm).name == "consistent"
        options |= {
            "hoodie.index.bucket.engine": "CONSISTENT_HASHING" if consistent else "SIMPLE",
            "hoodie.bucket.index.num.buckets": str(table.buckets),
            "hoodie.bucket.index.hash.field": ",".join(table.bucket_fields or data.record_key),
        }
    return {key: value for key, value in options.items() if value or key in _MAY_BE_EMPTY}


def write_options(
    scenario: Scenario,
    arm: Arm | None,
    operation: Operation,
    partitions: Sequence[str] = (),
    set_up: bool = False,
) -> dict[str, str]:
    """The options of one write of `arm`, those of its table included.

    `partitions` are the paths of a delete_partition. An untimed write (`set_up`) has as many tasks as the
    table's index asks for, whatever `[topology]` says.
    """
    table, topology = scenario.table_of(arm), scenario.topology_of(arm)
    options = table_options(scenario, arm) | {
        OPERATION: operation.value,
        "hoodie.parquet.compression.codec": table.codec,
        "hoodie.metadata.enable": "false",
        **_services(scenario, table, set_up),
    }
    if table.type == "MERGE_ON_READ":
        options[LOG_BLOCKS] = table.log_blocks or "avro"
    if operation.overwrites:
        # Hudi's default keeps all rows of a key, which no scenario's right answer does
        options["hoodie.combine.before.insert"] = "true"
    if partitions:
        options["hoodie.datasource.write.partitions.to.delete"] = ",".join(partitions)
    if table.index == "BUCKET" and not scenario.data.keyless:
        tasks = tasks_of_buckets(scenario, arm, set_up)
    else:
        tasks = 0 if set_up or topology.name == "bucket" else topology.tasks
    if tasks:
        for kind in ("upsert", "insert", "bulkinsert", "delete"):
            options[f"hoodie.{kind}.shuffle.parallelism"] = str(tasks)
    return options


def tasks_of_buckets(scenario: Scenario, arm: Arm | None, set_up: bool = False) -> int:
    """How many tasks write a table whose records are assigned by bucket: one for each bucket, if `[topology]`
    does not say it.

    A table with partitions has at least 8, since its file groups are many more than its buckets.
    """
    asked = 0 if set_up else scenario.topology_of(arm).tasks
    if asked:
        return asked
    buckets = scenario.table_of(arm).buckets
    return max(buckets, _LEAST_WITH_PARTITIONS) if scenario.data.partition else buckets


def _services(scenario: Scenario, table: TableSection, set_up: bool) -> dict[str, str]:
    """The services that follow each write: only those of a stream, with Hudi's own numbers."""
    stream = scenario.stream
    on = stream is not None and stream.services and not set_up
    compacts = on and table.type == "MERGE_ON_READ"
    options = {
        "hoodie.compact.inline": _flag(compacts),
        "hoodie.clean.automatic": _flag(on),
        "hoodie.archive.automatic": _flag(on),
    }
    if compacts and stream is not None:
        options["hoodie.compact.inline.max.delta.commits"] = str(stream.compact_after)
    return options


def _key_generator(scenario: Scenario) -> str:
    """The class that Hudi would infer, or the one that names folders by time.

    Source: org.apache.hudi.keygen.KeyGenUtils#inferKeyGeneratorType.
    """
    keys, partition = scenario.data.record_key, scenario.data.partition
    if scenario.table.time_folders:
        # TimestampBased takes one key column only
        kind = "TimestampBased" if len(keys) == 1 else "Custom"
    elif not partition:
        kind = "Nonpartitioned"
    else:
        kind = "Complex" if len(partition) > 1 or len(keys) > 1 else "Simple"
    return f"org.apache.hudi.keygen.{kind}KeyGenerator"


def _partition(scenario: Scenario) -> str:
    """The partition columns; the key generator CUSTOM takes each with its kind."""
    data = scenario.data
    if scenario.table.time_folders and len(data.record_key) > 1:
        return ",".join(f"{name}:TIMESTAMP" for name in data.partition)
    return ",".join(data.partition)


def _flag(value: bool) -> str:
    return "true" if value else "false"


_KEYS_OF_OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "data.key",
    "hoodie.datasource.write.partitionpath.field": "data.partition",
    "hoodie.datasource.write.partitionpath.urlencode": "table.url_encode",
    "hoodie.datasource.write.hive_style_partitioning": "table.hive_style",
    "hoodie.datasource.write.precombine.field": "data.ordering",
    "hoodie.table.ordering.fields": "data.ordering",
    "hoodie.datasource.write.operation": "commit.operation",
    "hoodie.datasource.write.partitions.to.delete": "commit.partitions",
    "hoodie.datasource.write.payload.class": "table.merge_mode",
    "hoodie.write.record.merge.strategy.id": "table.merger_classes",
    "hoodie.bucket.index.num.buckets": "table.buckets",
    "hoodie.bucket.index.hash.field": "table.bucket_fields",
    "hoodie.index.type": "table.index",
    "hoodie.table.type": "table.type",
    "hoodie.datasource.write.table.type": "table.type",
    "hoodie.table.version": "table.version",
    "hoodie.write.table.version": "table.version",
    "hoodie.record.merge.mode": "table.merge_mode",
    "hoodie.write.record.merge.mode": "table.merge_mode",
    "hoodie.table.partial.update.mode": "table.partial_update",
    "hoodie.write.partial.update.unavailable.value": "table.unavailable_value",
    MERGERS: "table.merger_classes",
    "hoodie.payload.delete.field": "table.delete_field",
    "hoodie.payload.delete.marker": "table.delete_marker",
    "hoodie.parquet.compression.codec": "table.codec",
    LOG_BLOCKS: "table.log_blocks",
    "serde_lab.topology": "topology.name",
}
_OPTION = re.compile("|".join(map(re.escape, sorted(_KEYS_OF_OPTIONS, key=len, reverse=True))))


def in_scenario_keys(text: str) -> str:
    """`text` with the names of write options replaced by the scenario keys for them."""
    return _OPTION.sub(lambda found: _KEYS_OF_OPTIONS[found[0]], text)


BLOOM = "hoodie.parquet.bloom.filter.enabled"
HEAP = "spark.driver.memory"

_FLAG, _NUMBER, _SHARE = r"true|false", r"[1-9][0-9]{0,9}", r"0\.[0-9]{1,3}"
_SIZE = r"[1-9][0-9]{0,6}[kmg]"
_LEVEL = r"NONE|(MEMORY_ONLY|MEMORY_AND_DISK)(_SER)?|DISK_ONLY|OFF_HEAP"
_COLLECTOR = (
    r"-XX:[+-]Use(Serial|Parallel|G1|Z|Shenandoah)GC"
    r"|-XX:(NewRatio|SurvivorRatio|MaxGCPauseMillis|ParallelGCThreads|ConcGCThreads)=[0-9]+"
    r"|-XX:(NewSize|MaxNewSize|G1HeapRegionSize)=[0-9]+[kmg]"
)

_FILES: Mapping[str, str] = {
    "hoodie.parquet.dictionary.enabled": _FLAG,
    "hoodie.parquet.page.size": _NUMBER,
    "hoodie.parquet.block.size": _NUMBER,
    "hoodie.logfile.data.block.max.size": _NUMBER,
    "hoodie.logfile.max.size": _NUMBER,
}
"""Options of files that the lab's writer knows as well."""

_HUDI: Mapping[str, str] = {
    **_FILES,
    BLOOM: _FLAG,
    "hoodie.bloom.index.filter.type": "SIMPLE|DYNAMIC_V0",
    "hoodie.common.spillable.diskmap.type": "BITCASK|ROCKS_DB",
    "hoodie.embed.timeline.server": _FLAG,
    "hoodie.filesystem.view.type": "MEMORY|SPILLABLE_DISK|EMBEDDED_KV_STORE",
    "hoodie.finalize.write.parallelism": _NUMBER,
    "hoodie.markers.delete.parallelism": _NUMBER,
    "hoodie.markers.timeline_server_based.batch.interval_ms": _NUMBER,
    "hoodie.markers.timeline_server_based.batch.num_threads": _NUMBER,
    "hoodie.memory.dfs.buffer.max.size": _NUMBER,
    "hoodie.memory.merge.max.size": _NUMBER,
    "hoodie.metadata.enable": _FLAG,
    "hoodie.upsert.shuffle.parallelism": _NUMBER,
    "hoodie.write.buffer.limit.bytes": _NUMBER,
    "hoodie.write.executor.disruptor.buffer.limit.bytes": _NUMBER,
    "hoodie.write.executor.type": "SIMPLE|BOUNDED_IN_MEMORY|DISRUPTOR",
    "hoodie.write.markers.type": "DIRECT|TIMELINE_SERVER_BASED",
    "hoodie.write.status.storage.level": _LEVEL,
    "hoodie.write.tagged.record.storage.level": _LEVEL,
}

_SPARK: Mapping[str, str] = {
    "spark.driver.defaultJavaOptions": rf"({_COLLECTOR})( ({_COLLECTOR}))*",
    HEAP: _SIZE,
    "spark.io.compression.codec": "lz4|lzf|snappy|zstd",
    "spark.io.compression.lz4.blockSize": _SIZE,
    "spark.io.compression.zstd.level": _NUMBER,
    "spark.kryo.unsafe": _FLAG,
    "spark.kryoserializer.buffer": _SIZE,
    "spark.memory.fraction": _SHARE,
    "spark.memory.storageFraction": _SHARE,
    "spark.rdd.compress": _FLAG,
    "spark.shuffle.compress": _FLAG,
    "spark.shuffle.file.buffer": _SIZE,
    "spark.shuffle.sort.bypassMergeThreshold": _NUMBER,
    "spark.shuffle.spill.compress": _FLAG,
}

_REFUSED: Mapping[str, str] = {
    "hoodie.parquet.compression.": "every arm has the codec of [table]",
    "hoodie.logfile.data.block.format": "table.log_blocks sets it for every arm",
    "hoodie.populate.meta.fields": "every table has the five meta columns",
    "hoodie.combine.before.": "the kind of the peer sets it",
    "hoodie.bucket.index.": "[table] sets the index",
    "hoodie.index.": "[table] sets the index",
    "hoodie.datasource.": "the scenario sets it for every arm",
    "hoodie.table.": "[table] sets it for every arm",
    "hoodie.write.record.merge.": "[table] sets it for every arm",
    "hoodie.write.table.version": "table.version sets it for every arm",
    "hoodie.archive": "no arm runs table services",
    "hoodie.clean": "no arm runs table services",
    "hoodie.clustering.": "no arm runs table services",
    "hoodie.compact": "no arm runs table services",
    "spark.cores.": "every arm has the slots of measure.cores",
    "spark.default.parallelism": "every arm has the slots of measure.cores",
    "spark.driver.extraJavaOptions": "a collector is set by spark.driver.defaultJavaOptions",
    "spark.executor.": "every arm has the same executors",
    "spark.hadoop.": "it could change the codec or the statistics of files",
    "spark.kryo.registrator": "Apache Hudi needs its own",
    "spark.master": "every arm has the slots of measure.cores",
    "spark.serializer": "Apache Hudi needs Kryo",
    "spark.sql.": "every arm has the same plan and the same input partitions",
    "spark.task.": "every arm has the same tasks",
}
"""By the beginning of a key, why no arm may change it."""


def with_settings(start: Arm, name: str, settings: Mapping[str, Any]) -> Arm:
    """An arm that differs from `start` in its name and in these settings alone."""
    together = {**start.settings, **settings}
    return start.model_copy(update={"name": name, "settings": together, "changes": None})


def candidate_arms(scenario: Scenario, arms: Iterable[Arm]) -> tuple[Arm, ...]:
    """The arms of a search that try a candidate in one of `arms`; none without a search."""
    starts = {arm.name: arm for arm in arms}
    candidates = () if scenario.search is None else scenario.search.candidates
    return tuple(
        with_settings(starts[one.arm], one.arm_name, one.settings)
        for one in candidates
        if one.arm in starts
    )


def settings_problems(key: str, arm: Arm, scenario: Scenario) -> Iterator[Problem]:
    """Problems of an arm's `settings`; `key` is the name of the arm's table in the file."""
    if not arm.settings:
        return
    peer = arm.kind == "peer" and arm.peer not in RECORD_PEERS
    if not peer and arm.kind != "strategy":
        yield Problem(f"{key}.settings", f"{arm.subject} takes no settings")
        return
    if scenario.measure.exchange != "spark":
        found = scenario.measure.exchange
        yield Problem(f"{key}.settings", f"needs Spark, but measure.exchange is {found!r}")
        return
    known = {**(_HUDI if peer else _FILES), **_SPARK}
    for name, value in arm.stated_settings.items():
        where = f"{key}.settings.{name}"
        if name not in known:
            yield Problem(where, _not_known(name, known, arm))
        elif not re.fullmatch(known[name], value):
            yield Problem(
                where, f"found {value!r}, expected {_IN_WORDS.get(known[name], known[name])}"
            )
    table = scenario.table_of(arm)
    if table.type == "COPY_ON_WRITE":
        for name in arm.stated_settings:
            if name.startswith("hoodie.logfile."):
                yield Problem(f"{key}.settings.{name}", "a copy-on-write table has no log files")
    if arm.stated_settings.get(BLOOM) == "false" and table.index != "BUCKET":
        yield Problem(
            f"{key}.settings.{BLOOM}", f"the index {table.index} may read Bloom filters: keep them"
        )


def _not_known(name: str, known: Mapping[str, str], arm: Arm) -> str:
    for beginning, reason in _REFUSED.items():
        if name.startswith(beginning):
            return f"no arm may change this: {reason}"
    if name in _HUDI:
        return f"is for peers, and arm {arm.name!r} is a strategy"
    return f"is no setting of an arm{suggestion(name, known)}"


_IN_WORDS = {
    _FLAG: "true or false",
    _NUMBER: "a whole number from 1",
    _SHARE: "a share, such as 0.5",
    _SIZE: "a size, such as 512m or 8g",
    _SPARK[
        "spark.driver.defaultJavaOptions"
    ]: "flags of a garbage collector, such as -XX:+UseParallelGC",
}
