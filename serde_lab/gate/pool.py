"""A pool of interleaved rounds with and without a slowdown that was really injected.

Owns the file format (`pool.json`) and the loop that records it; what a round measures is a
callable's business. Knows no statistics.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from serde_lab.errors import RunError

POOL_FORMAT = 1


@dataclass(frozen=True, slots=True)
class PoolRound:
    """One interleaved round, in seconds, its cells in random order.

    `plain` and `plain_again` are the same arm twice, `slowed` has the busy loop. `control` is a
    third plain cell, or None where a pool saves that time.
    """

    plain: float
    plain_again: float
    slowed: float
    control: float | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """Rounds of one scenario on one machine; `injected` is the slowdown's share of a cell."""

    scenario: str
    injected: float
    rounds: tuple[PoolRound, ...]
    machine_class: str = ""
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def has_control(self) -> bool:
        """Whether every round has a third plain cell."""
        return bool(self.rounds) and all(one.control is not None for one in self.rounds)

    @property
    def plain_median(self) -> float:
        """The median of the plain cells in seconds; 0 of an empty pool."""
        return median(one.plain for one in self.rounds) if self.rounds else 0.0

    def slowed_by(self, effect: float) -> Pool:
        """The same pool with `slowed` made of `plain_again`, longer by this share."""
        rounds = tuple(
            PoolRound(one.plain, one.plain_again, one.plain_again * (1 + effect), one.control)
            for one in self.rounds
        )
        return Pool(self.scenario, effect, rounds, self.machine_class, self.about)


def record_pool(
    measure_round: Callable[[int], PoolRound],
    *,
    scenario: str,
    injected: float,
    rounds: int,
    budget_s: float,
    clock: Callable[[], float],
    machine_class: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Pool:
    """Record up to `rounds` rounds, or as many as begin within `budget_s` by `clock` (seconds)."""
    begun = clock()
    measured: list[PoolRound] = []
    while len(measured) < rounds and clock() - begun < budget_s:
        measured.append(measure_round(len(measured) + 1))
        if progress is not None:
            progress(len(measured), rounds)
    return Pool(scenario, injected, tuple(measured), machine_class)


def write_pool(pool: Pool, file: Path) -> None:
    """Write a pool: one line a round."""
    head = {key: value for key, value in asdict(pool).items() if key != "rounds"}
    lines = ",\n".join(f"  {json.dumps(_row(one))}" for one in pool.rounds)
    text = json.dumps({"format_version": POOL_FORMAT, **head}, sort_keys=True, indent=1)
    text = f'{text[:-2]},\n "rounds": [\n{lines}\n ]\n}}\n'
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _row(one: PoolRound) -> list[float | None]:
    values = one.plain, one.plain_again, one.slowed, one.control
    return [None if value is None else float(f"{value:.6g}") for value in values]


def read_pool(file: Path) -> Pool:
    """Raises RunError when the file is missing, damaged or of another format version."""
    try:
        document = json.loads(file.read_bytes())
        if document["format_version"] != POOL_FORMAT:
            raise RunError(
                f"{file} has format_version {document['format_version']!r}, and expected is "
                f"{POOL_FORMAT}"
            )
        return Pool(
            scenario=document["scenario"],
            injected=float(document["injected"]),
            rounds=tuple(PoolRound(*row) for row in document["rounds"]),
            machine_class=document["machine_class"],
            about=document["about"],
        )
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise RunError(f"{file} is no pool of rounds: {exc!r}") from exc
