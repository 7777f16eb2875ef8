"""Reads a comparison's document into typed values; keys may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serde_lab.errors import RunError

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ComparedValues:
    """The rounds of one side of a row; `values` by round."""

    median: float
    values: Mapping[int, float]
    outlying: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One compared cell, with its verdict."""

    arm: str
    before_arm: str
    after_arm: str
    quantity: str
    metric: str
    unit: str
    mark: str
    verdict: str
    because: str
    before: ComparedValues | None
    after: ComparedValues | None
    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    floor: float | None
    floor_source: str
    test: str
    inequalities: tuple[tuple[str, bool], ...]
    marked_rounds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ComparedSides:
    """The whole document; `findings` and `exit_status` are set if a gate judged it.

    In that case verdicts and counts are the gate's: passed, undecided, regression, wrong answer, failed.
    """

    before: str
    after: str
    scenario: str
    rows: tuple[ComparedRow, ...]
    means: Mapping[str, float]
    counts: Mapping[str, int]
    notes: tuple[str, ...]
    raised: tuple[str, ...]
    findings: tuple[Document, ...] = ()
    exit_status: int | None = None


def read_comparison(document: Document) -> ComparedSides:
    """Read a document of `compare` or of `gate`. Raises RunError if it is neither."""
    comparison = document.get("comparison", document)
    try:
        return ComparedSides(
            before=str(comparison["before"]),
            after=str(comparison["after"]),
            scenario=str(comparison["scenario"]),
            rows=tuple(_row(row) for row in comparison["rows"]),
            means=dict(comparison["geometric_means"]),
            counts=dict(document["counts"] if "findings" in document else comparison["counts"]),
            notes=tuple(comparison["notes"]),
            raised=tuple(comparison["raised"]),
            findings=tuple(document.get("findings", ())),
            exit_status=document.get("exit_status"),
        )
    except (KeyError, TypeError, AttributeError) as exc:
        raise RunError(f"this is no document of a comparison: {exc!r}") from exc


def _row(row: Document) -> ComparedRow:
    interval, test, floor = row["interval"] or {}, row["test"] or {}, row["noise_floor"] or {}
    commit = f" commit {row['commit']}" if row["commit"] else ""
    phase = f" {row['phase']}" if row["phase"] else ""
    return ComparedRow(
        arm=row["arm"],
        before_arm=row["before_arm"],
        after_arm=row["after_arm"],
        quantity=f"{row['metric']}{phase}{commit}",
        metric=row["metric"],
        unit=row["scale"] or row["unit"] or "",
        mark="" if "level" in row else row["mark"],
        verdict=row.get("level") or row["verdict"],
        because=row["because"],
        before=_side(row["before"]),
        after=_side(row["after"]),
        ratio=row["ratio"],
        low=interval.get("low"),
        high=interval.get("high"),
        p=test.get("adjusted_p"),
        floor=floor.get("change"),
        floor_source=str(floor.get("source") or ""),
        test=str(test.get("name") or ""),
        inequalities=tuple((str(one["text"]), bool(one["holds"])) for one in row["inequalities"]),
        marked_rounds=tuple(row["marked_rounds"]),
    )


def _side(side: Document | None) -> ComparedValues | None:
    if side is None:
        return None
    values = dict(zip(side["rounds"], side["values"], strict=True))
    return ComparedValues(side["median"], values, tuple(side["outlying_rounds"]))
