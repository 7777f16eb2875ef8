"""What `make differential` found so far, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.differential.history import cases
from tests.differential.state import Finished
from tests.peers.journal import versions

_HEAD = """# The same histories by Apache Hudi and by the lab

Written by `make differential`; do not edit. Histories of inserts, updates, deletes, duplicates, late rows,
nulls and keys that change their partition are drawn by hypothesis. Apache Hudi writes each, the four
strategies write it in-process (every 20th on Spark, too), and one more table is written by Apache Hudi and
the lab in turn. Every reader that `tests/readers.toml` lets judge must see, in every table, the rows that
Apache Hudi sees in its own.
"""


def write_report(path: Path, done: Sequence[Finished]) -> None:
    """Write what the batches `done` came to."""
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    codes = ", ".join(sorted({one.code for one in done}))
    parts = [
        _HEAD,
        f"Ran: {sum(one.histories for one in done):,} histories of"
        f" {sum(one.commits for one in done):,} commits and {sum(one.rows for one in done):,} rows,"
        f" {sum(one.on_spark for one in done)} of them on Spark, in {len(done)} batches, with {named},"
        f" at commit {codes}.\n",
        "| merge mode | table type | record type | histories | differ |\n|---|---|---|---|---|",
        *_lines(done),
        "\n## What differs\n",
        "\n".join(_differences(done)) or "Nothing.",
        "\n## Histories that once differed\n",
        "\n".join(f"- `{case.name}`: {case.why}" for case in cases()) or "None.",
    ]
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


def _lines(done: Iterable[Finished]) -> Iterable[str]:
    shapes: dict[tuple[str, str, str], list[Finished]] = {}
    for one in done:
        kind = one.kind
        blocks = f", {kind.blocks} blocks" if kind.merge_on_read else ""
        shape = (kind.mode, f"{kind.table_type}{blocks}", kind.record_type)
        shapes.setdefault(shape, []).append(one)
    for shape, ones in sorted(shapes.items()):
        differ = sum(len(one.differing) for one in ones)
        yield f"| {' | '.join(shape)} | {sum(one.histories for one in ones)} | {differ} |"


def _differences(done: Iterable[Finished]) -> Iterable[str]:
    for one in done:
        if one.differences:
            writers = sorted({difference.writer for difference in one.differences})
            readers = sorted({difference.reader for difference in one.differences})
            yield (
                f"- batch {one.number} ({one.kind}): histories {', '.join(sorted(one.differing))},"
                f" written by {', '.join(writers)}, read by {', '.join(readers)}. The first:"
                f" {one.differences[0]}"
            )
