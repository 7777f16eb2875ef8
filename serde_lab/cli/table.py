"""Implements `table`: runs table services by hand on the table at a path.

The commands are `table compact`, `clean`, `archive`, `resize-buckets`, `rollback` and
`drop-metadata-table`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from serde_lab.cli.console import Format, emit_line, print_json
from serde_lab.errors import UsageError

if TYPE_CHECKING:
    from serde_lab.pipeline.commit.coordinator import Commit
    from serde_lab.table.table import HoodieTable

Path_ = Annotated[str, typer.Argument(metavar="PATH", help="The table's folder or URL.")]
DropOption = Annotated[
    bool,
    typer.Option(
        "--drop-metadata-table",
        help="First remove the metadata table that Apache Hudi built; without this option a table with one is"
        " refused.",
    ),
]
MergerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--merger",
        metavar="CLASS",
        help="Merger class (package.module:Class) for a table with merge mode CUSTOM. If repeated, the first"
        " that suits the table is used.",
    ),
]
FormatOption = Annotated[Format, typer.Option(help="Output format: json, or else a line of text.")]
_MOST_MIB = 1 << 30


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Run table services on a Hudi table.",
        no_args_is_help=True,
    )
    group.command("compact")(compact)
    group.command("clean")(clean)
    group.command("archive")(archive)
    group.command("resize-buckets")(resize_buckets)
    group.command("rollback")(rollback)
    group.command("drop-metadata-table")(drop_metadata_table)
    app.add_typer(group, name="table")


def compact(
    path: Path_,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Compact in this process, without Spark.")
    ] = False,
    master: Annotated[str, typer.Option(help="Spark master, by default local mode.")] = "",
    merger: MergerOption = None,
    drop: DropOption = False,
    format: FormatOption = "table",
) -> int:
    """Merge log files into base files.

    Runs one Spark task per file slice. The rows of the table do not change.
    """
    from serde_lab.pipeline.commit.table_services import compact as compact_table

    if in_process and master:
        raise UsageError("--in-process and --master exclude each other")
    table = _open(path, drop).merging_by(merger or ())
    if in_process:
        done = compact_table(table)
    elif not any(slice_.log_files for slice_ in table.view().latest_file_slices()):
        done = None
    else:
        done = _compact_on_spark(table, master)
    if done is None:
        return _print_outcome(format, "nothing to compact", {"compacted": None})
    rows = sum(stat.numWrites for stat in done.stats)
    return _print_outcome(
        format,
        f"compacted {len(done.stats)} file slices, {rows:,} rows, in instant {done.instant}",
        {"compacted": done.instant, "file_slices": len(done.stats), "rows": rows},
    )


def clean(
    path: Path_,
    retain: Annotated[
        int, typer.Option(min=1, help="Keep the file slices of this many latest commits.")
    ] = 10,
    drop: DropOption = False,
    format: FormatOption = "table",
) -> int:
    """Remove file slices of old commits."""
    from serde_lab.pipeline.commit.table_services import clean_now

    done = clean_now(_open(path, drop), retain)
    if done is None:
        return _print_outcome(format, "nothing to clean", {"cleaned": None})
    return _print_outcome(
        format,
        f"removed {len(done.deleted_files)} files that only commits before {done.earliest_kept} use",
        {"cleaned": list(done.deleted_files), "earliest_kept": done.earliest_kept},
    )


def archive(
    path: Path_,
    keep_min: Annotated[
        int,
        typer.Option("--min", min=1, help="Number of commits that stay on the active timeline."),
    ] = 20,
    keep_max: Annotated[
        int, typer.Option("--max", min=1, help="Archive if there are more commits than this.")
    ] = 30,
    drop: DropOption = False,
    format: FormatOption = "table",
) -> int:
    """Move old instants to the archived timeline."""
    from serde_lab.pipeline.commit.table_services import archive_now

    done = archive_now(_open(path, drop), keep_min, keep_max)
    if done is None:
        return _print_outcome(format, "nothing to archive", {"archived": None})
    times = [instant.time for instant in done.instants]
    return _print_outcome(
        format,
        f"archived {len(times)} instants up to {max(times)}",
        {"archived": times, "removed_files": list(done.removed_files)},
    )


def resize_buckets(
    path: Path_,
    split_above: Annotated[
        float, typer.Option(min=0, metavar="MIB", help="Split buckets larger than this.")
    ] = 240.0,
    merge_below: Annotated[
        float,
        typer.Option(min=0, metavar="MIB", help="Merge neighbouring buckets smaller than this."),
    ] = 24.0,
    drop: DropOption = False,
    format: FormatOption = "table",
) -> int:
    """Split and merge buckets by size.

    The table must use consistent hashing. A clustering instant moves rows to other file groups; the rows
    themselves do not change.
    """
    from serde_lab.pipeline.commit.table_services import resize_buckets_now
    from serde_lab.table.services.bucket_resizing import ResizeRules

    if not 0 <= merge_below <= split_above <= _MOST_MIB:
        raise UsageError(
            f"--merge-below is {merge_below:g} and --split-above {split_above:g}; expected MiB in this order"
        )
    rules = ResizeRules(int(split_above * (1 << 20)), int(merge_below * (1 << 20)))
    done = resize_buckets_now(_open(path, drop), rules)
    if done is None:
        return _print_outcome(format, "no bucket to split or merge", {"resized": None})
    return _print_outcome(format, f"resized buckets in instant {done.time}", {"resized": done.time})


def rollback(path: Path_, drop: DropOption = False, format: FormatOption = "table") -> int:
    """Roll back the instants of failed writers.

    Their pending cleans are completed instead, and so are instants in which a stream has stored batches.
    """
    from serde_lab.pipeline.commit.table_services import roll_back_now

    done = roll_back_now(_open(path, drop))
    instants = [f"{one.action} {one.instant}" for one in done.rolled_back]
    found = {
        "rolled_back": [
            {"instant": one.instant, "action": one.action, "deleted_files": list(one.deleted_files)}
            for one in done.rolled_back
        ],
        "finished_cleans": len(done.cleaned),
        "committed": [one.instant.time for one in done.shared],
    }
    words = f"rolled back {', '.join(instants)}" if instants else "nothing to roll back"
    if done.cleaned:
        words += f"; finished {len(done.cleaned)} cleans"
    for one in done.shared:
        words += f"; committed {one.batches} batches of a stream in {one.instant.time}"
    return _print_outcome(format, words, found)


def drop_metadata_table(path: Path_, format: FormatOption = "table") -> int:
    """Remove Apache Hudi's metadata table.

    The lab can then write the table. The rows do not change. If Apache Hudi writes the table again, set
    hoodie.metadata.enable=false, otherwise it builds a new metadata table.
    """
    from serde_lab.pipeline.commit.table_services import drop_metadata_table_now

    table = _open(path)
    partitions = table.config.metadata_partitions
    drop_metadata_table_now(table)
    words = "no metadata table to remove"
    if partitions:
        words = f"removed the metadata table ({', '.join(partitions)})"
    return _print_outcome(format, words, {"dropped": list(partitions)})


def _compact_on_spark(table: HoodieTable, master: str) -> Commit | None:
    from serde_lab.lab.session.session import SessionSettings, start_session, stop_session
    from serde_lab.pipeline.commit.table_services import compact as compact_table
    from serde_lab.pipeline.spark.tables import compactor_on

    # report invalid options before Spark starts
    table.config.merge_rules.check_merger()
    spark = start_session(SessionSettings(cores=os.cpu_count() or 1, master=master))
    try:
        return compact_table(table, compactor_on(spark))
    finally:
        stop_session(spark)


def _open(path: str, drop_metadata_table: bool = False) -> HoodieTable:
    from serde_lab.pipeline.commit.table_services import drop_metadata_table_now
    from serde_lab.pipeline.read import open_table

    table = open_table(path)
    return drop_metadata_table_now(table) if drop_metadata_table else table


def _print_outcome(format: Format, words: str, found: dict[str, object]) -> int:
    """Print the outcome as JSON, or in words; returns exit status 0."""
    if format == "json":
        print_json(found)
    else:
        emit_line(words)
    return 0
