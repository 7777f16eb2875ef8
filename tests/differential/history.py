"""The rows of one history, commit by commit, and the case files that keep some of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.differential.columns import line
from tests.differential.kind import Kind

CASES = Path(__file__).with_name("cases")

Row = dict[str, Any]


@dataclass(frozen=True)
class History:
    """`commits`: the rows of each commit of the kind's program, without the history's letter."""

    commits: tuple[tuple[Row, ...], ...]

    @property
    def rows(self) -> int:
        return sum(len(rows) for rows in self.commits)

    def lines(self) -> tuple[tuple[str, ...], ...]:
        """As text, by which histories are told apart."""
        return tuple(tuple(line(row) for row in rows) for rows in self.commits)


@dataclass(frozen=True)
class Case:
    """A history that once differed, and the right rows after it, which are Apache Hudi's.

    Where it differs still, `exception` names the entry of `tests/readers.toml`. Apache Hudi then gives
    the rows `by_hudi`, or says what `failure` is a part of, and `rows` are those of everybody else.
    """

    name: str
    why: str
    kind: Kind
    history: History
    rows: tuple[Row, ...]
    exception: str = ""
    by_hudi: tuple[Row, ...] = ()
    failure: str = ""

    @classmethod
    def load(cls, path: Path) -> Case:
        content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            path.stem,
            content["why"],
            Kind.of(content["kind"]),
            History(tuple(tuple(rows) for rows in content["commits"])),
            tuple(content["rows"]),
            content.get("exception", ""),
            tuple(content.get("by_hudi", ())),
            content.get("failure", ""),
        )

    def save(self, folder: Path) -> Path:
        """Write it to be read by people: one row a line."""
        default = asdict(Kind("", "", ""))
        kind = {k: v for k, v in asdict(self.kind).items() if v != default[k]}
        parts = [f'  "why": {_text(self.why)}', f'  "kind": {_text(kind)}']
        if self.exception:
            parts.append(f'  "exception": {_text(self.exception)}')
        commits = ",\n".join(_rows(rows, 4) for rows in self.history.commits)
        parts.append(f'  "commits": [\n{commits}\n  ]')
        parts.append(f'  "rows": {_rows(self.rows, 2).lstrip()}')
        if self.failure:
            parts.append(f'  "failure": {_text(self.failure)}')
        elif self.exception:
            parts.append(f'  "by_hudi": {_rows(self.by_hudi, 2).lstrip()}')
        path = folder / f"{self.name}.json"
        path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
        return path


def cases() -> list[Case]:
    """Every case that is kept, by name."""
    return [Case.load(path) for path in sorted(CASES.glob("*.json"))]


def _rows(rows: tuple[Row, ...], indent: int) -> str:
    if not rows:
        return " " * indent + "[]"
    inner = ",\n".join(" " * (indent + 2) + line(row) for row in rows)
    return f"{' ' * indent}[\n{inner}\n{' ' * indent}]"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
