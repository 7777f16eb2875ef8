"""Lists how the lab's pipeline and Apache Hudi's are alike and how they differ.

The table is for the report and the documentation (`LIKENESS.md`, which `python -m
serde_lab.peers.likeness` prints). Each difference says who does more work, and which figures of a run
measure it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

MoreWork = Literal["alike", "ours", "peer", "either"]

_WORDS: dict[MoreWork, str] = {
    "alike": "alike",
    "ours": "we do more",
    "peer": "Hudi does more",
    "either": "different",
}


@dataclass(frozen=True, slots=True)
class Aspect:
    """One row: what each side does, who does more work, and which figures of a run measure it.

    `metrics` are names of a run's figures, which the report prints beside it; `shown_in` is a check whose
    detail has the figure for each arm.
    """

    name: str
    ours: str
    peer: str
    more: MoreWork
    metrics: tuple[str, ...] = ()
    shown_in: str = ""

    @property
    def verdict(self) -> str:
        """`more` in words."""
        return _WORDS[self.more]


FILES_ALIKE = "files_alike"
"""The check whose detail says what is inside the files of each arm's table."""

ASPECTS = (
    Aspect(
        "input",
        "the scenario's parquet files, one input partition a file",
        "the same DataFrame",
        "alike",
        ("rows",),
    ),
    Aspect(
        "reader of the input",
        "Arrow in the map tasks, since the DataFrame is a plain scan of parquet files (phase"
        " `map.read_source`; serde_lab.source_reader=spark has Spark read); spark_native leaves it to"
        " Spark",
        "Spark's vectorised reader, inside the JVM that goes on with the rows",
        "either",
    ),
    Aspect(
        "record key, partition, ordering",
        "of the scenario",
        "the same fields; Hudi's key generator writes the same keys and paths",
        "alike",
    ),
    Aspect(
        "index and file groups",
        "simple bucket index, hashed on the key",
        "the same index, hash and number of buckets: the same keys stand in the same bucket",
        "alike",
        ("files",),
    ),
    Aspect(
        "table",
        "type, version, merge mode and file layout of the scenario; no metadata table",
        "the same; hoodie.metadata.enable=false",
        "alike",
    ),
    Aspect(
        "table services",
        "none: no cleaning, compaction or archiving",
        "switched off, where Hudi cleans and archives by default",
        "alike",
    ),
    Aspect(
        "parallelism",
        "a reduce task a bucket; as many task slots",
        "shuffle parallelism is the number of buckets; the same session and slots",
        "alike",
        ("slots",),
    ),
    Aspect(
        "exchanges of whole records",
        "one; duplicates are resolved by the task that writes the bucket",
        "two: duplicates are combined by one shuffle before another one brings rows to their bucket;"
        " hudi_spark_tuned leaves the first out where a batch has no duplicates",
        "peer",
        ("shuffle_records", "shuffle_bytes"),
    ),
    Aspect(
        "reading the input",
        "once",
        "once; hudi_spark_tuned reads it twice or keeps it in memory in between, as there is no"
        " shuffle to read again",
        "peer",
    ),
    Aspect(
        "duplicates and late rows",
        "resolved by the ordering value, also where a batch has none",
        "the same; hudi_spark_tuned does not look for duplicates where a batch has none",
        "alike",
    ),
    Aspect(
        "five meta columns",
        "written to every base file and log block",
        "the same",
        "alike",
        shown_in=FILES_ALIKE,
    ),
    Aspect(
        "parquet codec and level",
        "of the scenario",
        "the same: zstd at the scenario's level by Hadoop's configuration, gzip at 6, the only level"
        " that Hudi writes",
        "alike",
        ("table_bytes",),
        FILES_ALIKE,
    ),
    Aspect(
        "parquet encodings",
        "dictionaries for columns whose values repeat, shared prefixes for keys and sequence numbers,"
        " differences for integers and dates",
        "dictionaries tried on every column, plain values where they do not pay",
        "either",
        ("table_bytes",),
        FILES_ALIKE,
    ),
    Aspect(
        "statistics in the footer",
        "minimum, maximum and nulls of every column",
        "the same, and a page index",
        "peer",
        shown_in=FILES_ALIKE,
    ),
    Aspect(
        "bloom filter in the footer",
        "sized for the rows that are there, 20 rounds and 46 bits a key",
        "grown in steps of 60,000 keys with a fixed size each, 30 rounds and 43 bits a key for the same"
        " rate; hudi_spark_tuned writes none, since a bucket index never asks for it",
        "either",
        shown_in=FILES_ALIKE,
    ),
    Aspect(
        "key range in the footer",
        "least and greatest key, in Java's order",
        "the same; hudi_spark_tuned writes none, as it goes with the bloom filter",
        "alike",
        shown_in=FILES_ALIKE,
    ),
    Aspect(
        "log blocks (merge-on-read)",
        "Avro or Parquet, as the scenario says",
        "the same with the SPARK record type; hudi_avro writes Avro blocks always",
        "alike",
        shown_in=FILES_ALIKE,
    ),
    Aspect(
        "sorting",
        "none: rows stand in the order of arrival",
        "none",
        "alike",
    ),
    Aspect(
        "markers",
        "an empty file for each data file, before it is written",
        "for each data file too, gathered by the timeline server in the driver; hudi_spark_tuned"
        " writes them itself",
        "alike",
    ),
    Aspect(
        "durability",
        "no fsync; a file appears under its name when it is whole",
        "no fsync; a file grows under its name",
        "alike",
    ),
    Aspect(
        "checksum files",
        "none",
        "Hadoop's local file system writes a .crc beside every file",
        "peer",
    ),
    Aspect(
        "timeline",
        "requested, inflight, completed; a workload profile is not written",
        "the same, with a workload profile, which takes a job of its own, in the inflight file",
        "peer",
    ),
    Aspect(
        "what the clock holds",
        "from requested to completed, markers removed",
        "the whole call of save, with its planning before requested and its tidying after completed",
        "peer",
        ("driver.before_requested_s", "driver.after_completed_s"),
    ),
    Aspect(
        "session",
        "Kryo, Hudi's SQL extension and its catalog are set for all arms; none of it is used here",
        "the same session, which Hudi needs so; `run --isolate-peers` measures what sharing does",
        "alike",
    ),
    Aspect(
        "heap",
        "one size from start to end, garbage collected before each cell and outside the clock",
        "the same heap",
        "alike",
    ),
    Aspect(
        "language",
        "Python workers beside the JVM: rows cross a socket twice",
        "all inside the JVM",
        "ours",
        ("spark.executor_cpu_s",),
    ),
)


def as_records(aspects: Iterable[Aspect] = ASPECTS) -> tuple[dict[str, object], ...]:
    """The table as stored in a run, so that its report shows what was true at the time."""
    return tuple(
        {**asdict(one), "metrics": list(one.metrics), "verdict": one.verdict} for one in aspects
    )


def as_document(aspects: Iterable[Aspect] = ASPECTS) -> str:
    """The text of `LIKENESS.md`; a test compares it with this table."""
    lines = [
        "# What is alike between the lab's pipeline and Apache Hudi's, and what is not",
        "",
        "Written by `python -m serde_lab.peers.likeness`; do not edit. The report of a run",
        "has the same table with the figures of its arms.",
        "",
        "| | this pipeline | Apache Hudi | | measured by |",
        "|---|---|---|---|---|",
    ]
    for one in aspects:
        shown = [f"`{name}`" for name in one.metrics]
        shown += [f"check `{one.shown_in}`"] if one.shown_in else []
        lines.append(
            f"| {one.name} | {one.ours} | {one.peer} | {one.verdict} | {', '.join(shown)} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(as_document())
