"""The matrix of the cover in Markdown, from the cells that ran."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.peers.interop.cells import (
    AUTHORS,
    KINDS,
    OPERATIONS,
    PARTITIONS,
    READERS_TOML,
    RECORD_TYPES,
    TYPES,
)
from tests.peers.interop.chain import Outcome
from tests.peers.interop.state import Finished, State
from tests.peers.journal import versions

_HEAD = """# Which tables the lab and Apache Hudi share

Written by `make interop`; do not edit. Each cell is one table: kind x partitioning x author and table
version x columns x record type of Apache Hudi. Its author makes the table by two upserts and a delete. Then,
in this order: it is **read**; Apache Hudi **upserts**, **deletes**, **compacts** and **cleans**; the lab
**writes again** (an upsert and a delete); Apache Hudi builds its **metadata table**. The lab refuses to write
until it has dropped that one; then both write once more. After every write, every row, key and meta column
that a reader sees (hudi-rs, Apache Hudi and the lab's own) is compared with the answer of the oracle, which
shares no code with any writer. `tests/readers.toml` says which reader cannot judge which columns.

`12/12` means: in all 12 cells that ran, every reader saw the right rows. `+ 3 known` are cells in which
Apache Hudi's own write fails in a way that `tests/readers.toml` lists as an exception, and the rows before it
stay. Anything else is listed below.
"""


def write_matrix(path: Path, state: State, cells: int) -> None:
    """Write the matrix of what `state` holds of `cells` cells."""
    done = list(state.finished.values())
    days = sorted({one.day for one in done})
    codes = sorted({one.code for one in done})
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    ran = len({one.name for one in done})
    judged = sum(len(one.outcomes) for one in done)
    parts = [
        _HEAD,
        f"Ran: {ran} of {cells} cells, {judged} operations, {_span(days)}, with {named}, at commit"
        f" {', '.join(codes)}. `make interop` goes on with the rest.\n",
        "## By table kind and author\n",
        _table(done, "table kind", KINDS, "author", AUTHORS, lambda c: (c.kind, c.author)),
        "## By partitioning and record type\n",
        _table(
            done,
            "partitioning",
            PARTITIONS,
            "record type",
            RECORD_TYPES,
            lambda c: (c.partition, c.record_type),
        ),
        "## By columns and table kind\n",
        _table(done, "columns", TYPES, "table kind", KINDS, lambda c: (c.types, c.kind)),
        "## Who may judge\n",
        _judges(),
        "## What is wrong\n",
        _wrong(state),
        "## Exceptions that are known\n",
        _exceptions(),
    ]
    path.write_text("\n".join(parts), encoding="utf-8")


def _table(
    done: list[Finished],
    outer_name: str,
    outer: Iterable[str],
    inner_name: str,
    inner: Iterable[str],
    place: Callable[[Finished], tuple[str, str]],
) -> str:
    lines = [
        f"| {outer_name} | {inner_name} | {' | '.join(OPERATIONS)} |",
        f"|---|---|{'---|' * len(OPERATIONS)}",
    ]
    for first in outer:
        for second in inner:
            here = [o for c in done if place(c) == (first, second) for o in c.outcomes]
            counts = [_count([o for o in here if o.operation == name]) for name in OPERATIONS]
            lines.append(f"| {first} | {second} | {' | '.join(counts)} |")
    return "\n".join(lines) + "\n"


def _count(outcomes: list[Outcome]) -> str:
    known = sum(o.state == "known" for o in outcomes)
    right = sum(o.state == "right" for o in outcomes)
    tried = len(outcomes) - known
    said = [f"{right}/{tried}"] if tried else []
    said += [f"{known} known"] if known else []
    return " + ".join(said) or "–"


def _judges() -> str:
    content = tomllib.loads(READERS_TOML.read_text(encoding="utf-8"))
    lines = [f"| feature | {' | '.join(content['readers'].values())} |"]
    lines.append(f"|---|{'---|' * len(content['readers'])}")
    for feature in content["feature"]:
        marks = ["judges" if reader in feature["judges"] else "–" for reader in content["readers"]]
        lines.append(f"| {feature['name']} | {' | '.join(marks)} |")
    return "\n".join(lines) + "\n"


def _exceptions() -> str:
    content = tomllib.loads(READERS_TOML.read_text(encoding="utf-8"))
    lines = ["| what | who | fault | smallest case | test |", "|---|---|---|---|---|"]
    for one in content["exception"]:
        who = f"{content['readers'][one['who']].split(' on ')[0]}, as {one['as']}"
        facts = (one["name"], who, one["fault"], one["smallest_case"], f"`{one['test']}`")
        lines.append(f"| {' | '.join(facts)} |")
    return "\n".join(lines) + "\n"


def _wrong(state: State) -> str:
    found = [f"- {name}: {one.operation}: {one.detail}" for name, one in state.wrong()]
    return "\n".join(found or ["Nothing."]) + "\n"


def _span(days: list[str]) -> str:
    if not days:
        return "on no day"
    return f"on {days[0]}" if days[0] == days[-1] else f"from {days[0]} to {days[-1]}"
