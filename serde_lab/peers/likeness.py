"""Lists what the lab's pipeline and Apache Hudi's do alike and what they do differently.

Reports show the table, and `python -m serde_lab.peers.likeness` prints it as `LIKENESS.md`. Each row says
which side does more work, and which figures of a run measure the difference.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

MoreWork = Literal["alike", "ours", "peer", "either"]

_WORDS: dict[MoreWork, str] = {
    "alike": "alike",
    "ours": "the lab does more",
    "peer": "Hudi does more",
    "either": "different",
}


@dataclass(frozen=True, slots=True)
class Aspect:
    """One row: what each side does, which side does more work, and which figures of a run measure it.

    `metrics` are names of a run's figures, which the report prints beside the row; `shown_in` is the check
    whose detail has the figure of each arm's table.
    """

    name: str
    ours: str
    peer: str
    more: MoreWork = "alike"
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
        "the scenario's Parquet files, one input partition for each file",
        "the same DataFrame",
        metrics=("rows",),
    ),
    Aspect(
        "reader of the input",
        "the map tasks read the Parquet files with Arrow (phase `map.read_source`). In spark_native and in"
        ' arms with source_reader = "spark", Spark reads them',
        "Spark's vectorised reader, in the JVM that also processes the rows",
        "either",
    ),
    Aspect(
        "record key, partition, ordering",
        "the scenario's columns",
        "the same columns; Hudi's key generator writes the same keys and paths",
    ),
    Aspect(
        "index and file groups",
        "simple bucket index, hash of the record key",
        "the same index, hash and number of buckets, so every key is in the same bucket",
        metrics=("files",),
    ),
    Aspect(
        "table",
        "the scenario's type, version, merge mode and file layout; no metadata table",
        "the same; hoodie.metadata.enable=false",
    ),
    Aspect(
        "table services",
        "no cleaning, compaction or archiving",
        "the same; by default Hudi would clean and archive",
    ),
    Aspect(
        "parallelism",
        "one reduce task for each bucket, or as many as `tasks` of the topology says",
        "one shuffle partition for each bucket whatever `tasks` says, which sets only the exchange that"
        " combines duplicates; a session with the same task slots",
        metrics=("slots",),
    ),
    Aspect(
        "shuffles of whole records",
        "one; the task that writes a bucket resolves its duplicates",
        "two: the first combines duplicates, the second brings records to their buckets;"
        " hudi_one_exchange and the tuned peers skip the first if a batch has no duplicates",
        "peer",
        ("shuffle_records", "shuffle_bytes"),
    ),
    Aspect(
        "reading the input",
        "once",
        "once; without the first shuffle, whose files could be read again, twice or from a cache in memory",
        "peer",
    ),
    Aspect(
        "duplicates and late rows",
        "resolved by the ordering value, even if a batch has none",
        "the same; hudi_one_exchange and the tuned peers do not look for duplicates if a batch has none",
    ),
    Aspect(
        "five meta columns",
        "written to every base file and log block",
        "the same",
        shown_in=FILES_ALIKE,
    ),
    Aspect(
        "Parquet codec and level",
        "the scenario's",
        "the same: Hadoop's configuration sets the level of zstd; gzip is at 6, the only level that Hudi"
        " writes",
        metrics=("table_bytes",),
        shown_in=FILES_ALIKE,
    ),
    Aspect(
        "Parquet encodings",
        "dictionaries for columns with repeated values, delta byte arrays for keys and sequence numbers,"
        " delta encoding for integers and dates",
        "tries a dictionary for every column, and writes plain values if it does not pay",
        "either",
        ("table_bytes",),
        FILES_ALIKE,
    ),
    Aspect(
        "statistics in the footer",
        "minimum, maximum and number of nulls of every column",
        "the same, and a page index",
        "peer",
        shown_in=FILES_ALIKE,
    ),
    Aspect(
        "Bloom filter in the footer",
        "sized for the file's rows: 20 hash functions and 46 bits for each key",
        "a filter of fixed size for every 60,000 keys, two at most: 30 hash functions and 43 bits for each"
        " key, with the same error rate; beyond 120,000 keys a file the two take the rest, with fewer bits"
        " for each and more errors; the tuned peers write none, because the bucket index never reads it",
        "either",
        shown_in=FILES_ALIKE,
    ),
    Aspect(
        "key range in the footer",
        "least and greatest key, in Java's order of strings",
        "the same; the tuned peers write none, because Hudi writes it together with the Bloom filter",
        shown_in=FILES_ALIKE,
    ),
    Aspect(
        "log blocks (merge-on-read)",
        "Avro or Parquet, as the scenario says",
        "the same with both record types",
        shown_in=FILES_ALIKE,
    ),
    Aspect(
        "sorting",
        "none: rows are written in the order of arrival",
        "none",
    ),
    Aspect(
        "markers",
        "an empty file for each data file, created before it",
        "a marker for each data file, written in batches by the timeline server on the driver; for"
        " the tuned peers the tasks create marker files themselves",
    ),
    Aspect(
        "durability",
        "no fsync; a file appears under its name when it is complete",
        "no fsync; a file grows under its name",
    ),
    Aspect(
        "checksums of Parquet pages",
        "written for every page, and compared whenever a page is read",
        "written for every page, and not compared",
        "ours",
    ),
    Aspect(
        "checksum files",
        "none",
        "Hadoop's local file system writes a .crc file for every file",
        "peer",
    ),
    Aspect(
        "timeline",
        "requested, inflight and completed instants, without a workload profile",
        "the same instants; a job of its own computes a workload profile for the inflight file",
        "peer",
    ),
    Aspect(
        "time on the clock",
        "from the requested to the completed instant, removal of markers included",
        "the whole call of save, which also plans before the requested instant and cleans up after the"
        " completed one",
        "peer",
        ("driver.before_requested_s", "driver.after_completed_s"),
    ),
    Aspect(
        "session",
        "all arms have Kryo, Hudi's SQL extension and its catalog in their session; the lab uses none of"
        " them",
        "the same session, because Hudi needs these settings; `run --isolate-peers` measures the effect of"
        " sharing it",
    ),
    Aspect(
        "heap",
        "fixed size; garbage is collected before each cell, outside the clock",
        "the same heap",
    ),
    Aspect(
        "language",
        "Python workers beside the JVM: every row crosses a socket twice",
        "everything runs in the JVM",
        "ours",
        ("tree_cpu_s", "tree_peak_bytes"),
    ),
    Aspect(
        "start of workers",
        "fresh Python workers for each cell, started and warmed before the clock",
        "needs none: its tasks run in the session's JVM, which the rounds before have warmed",
        "ours",
        ("worker_start_s", "session_start_s", "fresh_s"),
    ),
)


_IN_STREAMS = (
    Aspect(
        "reader of the input",
        "Spark's file source; the rows go on to the Python workers as Arrow batches",
        "the same source, in the JVM that also processes the rows",
        "ours",
    ),
    Aspect(
        "table services",
        "compaction, cleaning and archiving as `[stream]` says, inside the batch",
        "the same",
    ),
    Aspect(
        "time on the clock",
        "a micro-batch by Spark's own progress for the query",
        "the same",
    ),
    Aspect(
        "warm-up",
        "micro-batches into a copy of the table, and then the empty jobs",
        "the same micro-batches",
        "either",
    ),
)


def in_streams(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The records of a run's table, with the rows that are others in a stream."""
    own = {str(one["name"]): one for one in as_records(_IN_STREAMS)}
    return [own.pop(str(one["name"]), one) for one in records] + list(own.values())


def as_records(aspects: Iterable[Aspect] = ASPECTS) -> tuple[dict[str, object], ...]:
    """The table as stored in a run, so that its report shows what was true at the time."""
    return tuple(
        {**asdict(one), "metrics": list(one.metrics), "verdict": one.verdict} for one in aspects
    )


def as_document() -> str:
    """The text of `LIKENESS.md`; a test compares it with this table."""
    lines = [
        "# What the lab's pipeline and Apache Hudi do alike, and what they do differently",
        "",
        "Written by `python -m serde_lab.peers.likeness`; do not edit. The report of a run",
        "has the same table with the figures of its arms.",
        "",
        "| | this pipeline | Apache Hudi | | measured by |",
        "|---|---|---|---|---|",
    ]
    for one in ASPECTS:
        shown = [f"`{name}`" for name in one.metrics]
        shown += [f"check `{one.shown_in}`"] if one.shown_in else []
        lines.append(
            f"| {one.name} | {one.ours} | {one.peer} | {one.verdict} | {', '.join(shown)} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(as_document())
