"""What `make differential` found so far, in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.differential.history import cases
from tests.differential.state import Finished
from tests.peers.journal import versions

_HEAD = """# Random histories of tables, held to a model of dicts

Written by `make differential`; do not edit. A history is a table of a random kind and up to ten steps:
upserts, inserts, deletes by operation and by mark, overwritten and deleted partitions, rows that leave
columns out, columns that are added, moved and made wider (ordering columns and members of structs too),
buckets that are split and merged, compaction, cleaning, archiving, rollback, savepoints and restores to them,
completed writes that are rolled back, and writers that are killed. The strategy, execution, log blocks and
topology change from write to write. Tables have the versions 6, 8 and 9, and merge by event time, by commit
time, or by a payload class.

A model that shares no code with the lab says which rows are right. After each step, the lab's own reader (by
the step's strategy) and hudi-rs must see these rows, and in a read-optimised read those in base files alone.
After some steps, and at the end for each earlier step, they must also see the rows as they were then, and
the changes since. A read that the lab planned before a service must see its rows after it, too.
`tests/readers.toml` says where a reader cannot judge. Some histories run on Spark too: the lab writes and
reads there, and Apache Hudi reads every table as it is and as it once was. If Apache Hudi can do all steps of
a history, it also writes the history, alone and in turn with the lab; if it can do the first alone, the lab
does the others.
"""


def write_report(path: Path, done: Sequence[Finished]) -> None:
    """Write what the histories `done` came to."""
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    codes = ", ".join(sorted({one.code for one in done}))
    parts = [
        _HEAD,
        f"Ran: {len(done):,} histories of {sum(one.steps for one in done):,} steps and"
        f" {sum(one.rows for one in done):,} rows, {sum(one.on_spark for one in done):,} of them on Spark"
        f" ({sum(one.by_hudi for one in done):,} written by Apache Hudi too), with {named}, at commit"
        f" {codes}.\n",
        "| reader | tables read |\n|---|---|",
        *_counted(one.looks for one in done),
        "\n| table | histories | differ |\n|---|---|---|",
        *_lines(done),
        "\n## Where Hudi itself is odd\n\nHow often the histories met it.\n",
        "| what | times |\n|---|---|",
        *_counted(one.oddities for one in done),
        "\n## What the lab refuses of what is drawn\n\n| what | times |\n|---|---|",
        *_counted(one.refused for one in done),
        "\n## What differs\n",
        "\n".join(_differences(done)) or "Nothing.",
        "\n## Histories that once differed\n",
        "\n".join(f"- `{case.name}`: {case.why}" for case in cases()) or "None.",
    ]
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


def _counted(counts: Iterable[dict[str, int]]) -> Iterator[str]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    yield from (f"| {name} | {number:,} |" for name, number in sorted(total.items()) if number)


def _lines(done: Iterable[Finished]) -> Iterator[str]:
    shapes: dict[str, list[Finished]] = {}
    for one in done:
        shapes.setdefault(f"{one.table_type}, {one.index}", []).append(one)
        shapes.setdefault(f"merging by {one.mode}", []).append(one)
    for shape, ones in sorted(shapes.items()):
        yield f"| {shape} | {len(ones)} | {sum(bool(one.differences) for one in ones)} |"


def _differences(done: Iterable[Finished]) -> Iterator[str]:
    for one in done:
        if one.differences:
            yield f"- history {one.number}: {one.differences[0]}"
