"""A history: a table and the steps that are done to it, one frozen value; and the cases that are kept.

A step is a write with its rows, or a service; it says how it is done, too: by which strategy, execution,
log blocks and topology, and after how many changes of the storage its writer is killed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.differential.columns import line
from tests.differential.kind import Kind, readers_toml

CASES = Path(__file__).with_name("cases")

Row = dict[str, Any]

OF_HUDI = ("BUCKET", "SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM")
REPLACING = ("insert_overwrite", "insert_overwrite_table", "delete_partition")
SERVICES = (
    "compact",
    "clean",
    "archive",
    "rollback",
    "split",
    "merge",
    "savepoint",
    "restore",
)
"""Steps without rows: after a restore a table reads as at its last savepoint, after the others as before.
Split and merge are resize-buckets."""


@dataclass(frozen=True)
class Step:
    """`operation`: upsert, partial (an upsert that leaves columns out, which keep what is stored), insert,
    bulk_insert, delete, insert_overwrite, insert_overwrite_table, delete_partition, or one of SERVICES.

    `columns`: types of the catalogue by name, in the order in which the rows bring them. An ordering column
    is among them once it is wider than the kind says.
    """

    operation: str
    rows: tuple[Row, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    partitions: tuple[str, ...] = ()
    """Of delete_partition: the paths."""
    strategy: str = "arrow"
    execution: str = ""
    rows_per_frame: int = -1
    blocks: str = "avro"
    topology: str = ""
    files: int = 1
    """Into how many input files the rows are split."""
    killed_at: int = -1
    """Its writer's storage goes down at this change of it."""
    undone: bool = False
    """It is rolled back once it has completed."""
    looks_back: int = 0
    """After it, the table is also read as it was so many steps before, and what changed since; 0: not."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Step:
        """From JSON."""
        lists = {
            "rows": tuple(content.get("rows", ())),
            "columns": tuple((name, of) for name, of in content.get("columns", ())),
            "partitions": tuple(content.get("partitions", ())),
        }
        return cls(**{**content, **lists})

    @property
    def writes(self) -> bool:
        """Whether it may change what readers see."""
        return self.operation not in SERVICES

    @property
    def brings_columns(self) -> bool:
        return self.writes and self.operation not in ("delete", "delete_partition")

    def facts(self) -> dict[str, Any]:
        """What differs from a plain step, for JSON."""
        default = Step("")
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: v for k, v in named.items() if v != getattr(default, k)}


@dataclass(frozen=True)
class History:
    """A table, and what is done to it in order."""

    kind: Kind
    steps: tuple[Step, ...]

    @property
    def rows(self) -> int:
        return sum(len(step.rows) for step in self.steps)

    @property
    def digest(self) -> str:
        """Of everything in it: a history that is drawn otherwise is another history."""
        drawn = [asdict(self.kind), [asdict(step) for step in self.steps]]
        return hashlib.sha256(json.dumps(drawn).encode()).hexdigest()[:16]

    def columns(self, steps: int | None = None) -> dict[str, str]:
        """The table's data columns after its first `steps` steps, and their widest types so far."""
        found: dict[str, str] = {}
        for step in self.steps[:steps]:
            if step.brings_columns:
                for name, of in step.columns:
                    found[name] = wider(found.get(name, of), of)
        return found

    def schema(self, steps: int | None = None) -> pa.Schema:
        """All columns of the table after its first `steps` steps."""
        return self.kind.schema(self.columns(steps))

    @property
    def judges(self) -> tuple[str, ...]:
        """The readers that may judge it."""
        wrong = {one["who"] for one in self._exceptions() if one["as"] == "reader"}
        return tuple(reader for reader in readers_toml()["readers"] if reader not in wrong)

    @property
    def hudi_can_write(self) -> bool:
        """Whether Apache Hudi has all of its steps, and does them in the same way."""
        known = ("upsert", "insert", "delete", *REPLACING, *SERVICES)
        steps = all(s.operation in known and s.killed_at < 0 and not s.undone for s in self.steps)
        # it does not refuse to make an ordering column wider beside deletes in logs
        refused = self.kind.merge_on_read and not self.kind.orderings.keys().isdisjoint(
            self.columns()
        )
        # where columns come in another order, the SPARK record type reads the rows that a global index finds
        # by that order: garbage, of which the JVM dies
        dies = self.kind.index.startswith("GLOBAL") and self.kind.record_type == "SPARK"
        return steps and self.kind.index in OF_HUDI and not (dies or refused)

    @property
    def hudi_may_write(self) -> bool:
        """Whether Apache Hudi is known to make the same table of it."""
        mine = [one for one in self._exceptions() if one["who"] == "apache-hudi"]
        return self.hudi_can_write and not mine

    @property
    def hudi_may_begin(self) -> bool:
        """Whether Apache Hudi may write its first step, and the lab all others."""
        mine = [one for one in self._exceptions() if one["who"] == "apache-hudi"]
        right = all(one.get("begins", False) for one in mine)
        return self.kind.index in OF_HUDI and self.steps[0].operation == "upsert" and right

    def _exceptions(self) -> list[dict[str, Any]]:
        """The entries of `tests/readers.toml` that are about such a history."""
        facts = self.facts()
        return [
            one
            for one in readers_toml()["exception"]
            if any(_fits(wanted, facts) for wanted in one.get("kinds", []))
        ]

    def facts(self) -> dict[str, Any]:
        """What `kinds` may ask for; of what differs from step to step, all values."""
        logs = self.kind.merge_on_read
        brings = [step for step in self.steps if step.brings_columns]
        typed = {column for step in brings for column in step.columns}
        typed |= set(self.kind.orderings.items())
        return {
            **asdict(self.kind),
            "several": bool(self.kind.second),
            "empty": any(row.get("p") == "" for step in brings for row in step.rows),
            "star": any("%2A" in path for step in self.steps for path in step.partitions),
            "empty_key": any(row.get("k") == "" for step in brings for row in step.rows),
            "beyond": any(
                letter > "\uffff" for s in brings for row in s.rows for letter in str(row.get("k"))
            ),
            "percent": "escaped" not in self.kind.partitioning
            and any(
                re.search("%[0-9A-Fa-f]{2}", str(row.get("p"))) for s in brings for row in s.rows
            ),
            "widens": len({name for name, _ in typed}) < len(typed),
            "evolves": len({frozenset(step.columns) for step in brings}) > 1,
            "columns": tuple({name for step in self.steps for name, _ in step.columns}),
            "types": tuple({of for _, of in typed}),
            "blocks": tuple({step.blocks for step in self.steps}) if logs else (),
            "operations": tuple({step.operation for step in self.steps}),
        }


WIDER = {
    "int": ("long", "double"),
    "long": ("double",),
    "single": ("double",),
    "nested": ("grown",),
}
"""Types that a column may become."""


def wider(one: str, other: str) -> str:
    """The wider one of two types, one of which holds the other."""
    return other if other in WIDER.get(one, ()) else one


def _fits(wanted: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    return all(
        value in facts[name] if isinstance(facts[name], tuple) else value == facts[name]
        for name, value in wanted.items()
    )


@dataclass(frozen=True)
class Case:
    """A history that once differed, and the right rows after it.

    Where it differs still, `exception` names the entry of `tests/readers.toml`. Whom that is about then
    gives the rows `wrong`, or says what `failure` is a part of; `rows` are those of everybody else.
    `refused`: the lab refuses the last step, and what it says holds this.
    """

    name: str
    why: str
    history: History
    rows: tuple[Row, ...]
    exception: str = ""
    wrong: tuple[Row, ...] = ()
    failure: str = ""
    refused: str = ""

    @classmethod
    def load(cls, path: Path) -> Case:
        content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        steps = tuple(Step.of(step) for step in content["steps"])
        return cls(
            path.stem,
            content["why"],
            History(Kind.of(content["kind"]), steps),
            tuple(content["rows"]),
            content.get("exception", ""),
            tuple(content.get("wrong", ())),
            content.get("failure", ""),
            content.get("refused", ""),
        )

    def save(self, folder: Path) -> Path:
        """Write it to be read by people: one row a line."""
        default = asdict(Kind("", ""))
        kind = {k: v for k, v in asdict(self.history.kind).items() if v != default[k]}
        parts = [f'  "why": {_text(self.why)}', f'  "kind": {_text(kind)}']
        for name in ("exception", "failure", "refused"):
            if said := getattr(self, name):
                parts.append(f'  "{name}": {_text(said)}')
        steps = ",\n".join(_step(step) for step in self.history.steps)
        parts.append(f'  "steps": [\n{steps}\n  ]')
        parts.append(f'  "rows": {_rows(self.rows, 2)}')
        if self.exception and not self.failure:
            parts.append(f'  "wrong": {_rows(self.wrong, 2)}')
        path = folder / f"{self.name}.json"
        path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
        return path


def cases() -> list[Case]:
    """Every case that is kept, by name."""
    return [Case.load(path) for path in sorted(CASES.glob("*.json"))]


def _step(step: Step) -> str:
    facts = step.facts()
    rows = facts.pop("rows", None)
    text = _text(facts)
    return f"    {text}" if rows is None else f'    {text[:-1]}, "rows": {_rows(rows, 4)}}}'


def _rows(rows: tuple[Row, ...], indent: int) -> str:
    if not rows:
        return "[]"
    inner = ",\n".join(" " * (indent + 2) + line(row) for row in rows)
    return f"[\n{inner}\n{' ' * indent}]"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
