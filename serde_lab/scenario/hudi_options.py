"""Translates a scenario into the `hoodie.*` options of its table and its writes.

The lab's writer and Apache Hudi are both handed these options, and each side adds a few of its own. So
this mapping is the one description of a table: nothing else translates `[table]`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from serde_lab.records.operation import Operation
from serde_lab.scenario.model import Arm, Scenario, TableSection

TABLE_NAME = "lab"

OPERATION = "hoodie.datasource.write.operation"
LOG_BLOCKS = "hoodie.logfile.data.block.format"
MERGERS = "hoodie.write.record.merge.custom.implementation.classes"
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
    if partitions:
        options["hoodie.datasource.write.partitions.to.delete"] = ",".join(partitions)
    if table.index == "BUCKET" and not scenario.data.keyless:
        tasks = table.buckets
    else:
        tasks = 0 if set_up or topology.name == "bucket" else topology.tasks
    if tasks:
        for kind in ("upsert", "insert", "bulkinsert", "delete"):
            options[f"hoodie.{kind}.shuffle.parallelism"] = str(tasks)
    return options


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
