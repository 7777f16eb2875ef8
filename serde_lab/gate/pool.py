"""Records and stores a pool of interleaved rounds (`pool.json`), with and without an injected slowdown.

A callable measures each round.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from typing import Any

from serde_lab.errors import RunError
from serde_lab.files import read_versioned, write_whole

POOL_FORMAT = 1
SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class PoolRound:
    """One interleaved round: seconds of its cells, which ran in random order.

    `plain` and `plain_again` are the same arm measured twice, `slowed` contains the busy loop. `control` is a
    third plain cell, or None if the pool saves that time.
    """

    plain: float
    plain_again: float
    slowed: float
    control: float | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """Rounds of one scenario on one machine; `injected` is the slowdown as a share of a cell's time.

    `rounds` holds wall seconds. `others` holds further metrics of the same cells, also in seconds, by their
    names in the registry. `sittings` has the number of rounds of each recording, in their order, and
    `spent_s` the seconds that each took as a whole, None where a file does not say. `beside` has the pools of
    other arms by name, which were measured in the same rounds and never slowed.
    """

    scenario: str
    injected: float
    rounds: tuple[PoolRound, ...]
    machine_class: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    others: Mapping[str, tuple[PoolRound, ...]] = field(default_factory=dict)
    sittings: tuple[int, ...] = ()
    beside: Mapping[str, Pool] = field(default_factory=dict)
    spent_s: tuple[float | None, ...] = ()

    @property
    def by_sitting(self) -> tuple[Pool, ...]:
        """The pool of each sitting; the pool itself if it names none."""
        ends = list(accumulate(self.sittings)) or [len(self.rounds)]
        return tuple(self._part(start, end) for start, end in pairwise([0, *ends]))

    def _part(self, start: int, end: int) -> Pool:
        return replace(
            self,
            rounds=self.rounds[start:end],
            others={name: of[start:end] for name, of in self.others.items()},
            sittings=(),
            spent_s=(),
            beside={arm: of._part(start, end) for arm, of in self.beside.items()},
        )

    @property
    def metrics(self) -> Mapping[str, tuple[PoolRound, ...]]:
        """The rounds of every metric, `seconds` first."""
        return {SECONDS: self.rounds, **self.others}

    @property
    def minutes_a_round(self) -> tuple[float, bool]:
        """The minutes of a round, and whether they are whole: else of its cells alone, without what lies
        between them, such as the start of workers."""
        known = [(n, s) for n, s in zip(self.sittings, self.spent_s, strict=False) if s is not None]
        if known:
            return sum(s for _, s in known) / sum(n for n, _ in known) / 60, True
        sums = [
            one.plain + one.plain_again + one.slowed + (one.control or 0) for one in self.rounds
        ]
        return (median(sums) / 60 if sums else 0.0), False

    @property
    def plain_median(self) -> float:
        """The median of the plain cells in seconds; 0 for an empty pool."""
        return median(one.plain for one in self.rounds) if self.rounds else 0.0

    def only(self, metric: str) -> Pool:
        """The same cells with this metric alone, in the place of their wall seconds."""
        beside = {arm: of.only(metric) for arm, of in self.beside.items()}
        return replace(self, rounds=self.metrics[metric], others={}, beside=beside)

    def slowed_by(self, effect: float) -> Pool:
        """The same pool with `slowed` replaced by `plain_again` plus this share of its wall seconds."""
        return replace(
            self,
            injected=effect,
            rounds=self._longer(self.rounds, effect),
            others={name: self._longer(of, effect) for name, of in self.others.items()},
        )

    def _longer(self, rounds: tuple[PoolRound, ...], effect: float) -> tuple[PoolRound, ...]:
        return tuple(
            replace(one, slowed=one.plain_again + effect * wall.plain_again)
            for one, wall in zip(rounds, self.rounds, strict=True)
        )


MeasureRound = Callable[[int], Mapping[str, Mapping[str, PoolRound]]]
"""Measures the round of this number, from 1; returns by arm its cells by metric, including `seconds`. The
arm that is slowed comes first."""


def record_pool(
    measure_round: MeasureRound,
    begun_with: Pool,
    *,
    rounds: int,
    budget_s: float,
    clock: Callable[[], float],
    kept: Callable[[Pool], None] = lambda pool: None,
) -> Pool:
    """Extend a pool, which may be empty, by a sitting, up to `rounds` rounds in all.

    No round starts after `budget_s` seconds by `clock`. `kept` is called with the pool after each round.
    """
    begun = clock()
    earlier = begun_with.sittings or ((len(begun_with.rounds),) if begun_with.rounds else ())
    spent = begun_with.spent_s or (None,) * len(earlier)
    pool, took_s = begun_with, 0.0
    while len(pool.rounds) < rounds and took_s < budget_s:
        pool = _with_round(pool, measure_round(len(pool.rounds) + 1))
        took_s = clock() - begun
        pool = replace(
            pool,
            sittings=(*earlier, len(pool.rounds) - sum(earlier)),
            spent_s=(*spent, took_s),
        )
        kept(pool)
    return pool


def _with_round(pool: Pool, measured: Mapping[str, Mapping[str, PoolRound]]) -> Pool:
    slowed, *others = measured.items()
    beside = {
        arm: _longer_by(pool.beside.get(arm, Pool(pool.scenario, 0.0, ())), cells)
        for arm, cells in others
    }
    return replace(_longer_by(pool, slowed[1]), beside=beside)


def _longer_by(pool: Pool, cells: Mapping[str, PoolRound]) -> Pool:
    """The pool of one arm with one round more."""
    others = {
        name: (*pool.others.get(name, ()), one) for name, one in cells.items() if name != SECONDS
    }
    return replace(pool, rounds=(*pool.rounds, cells[SECONDS]), others=others)


def write_pool(pool: Pool, file: Path) -> None:
    """Write a pool atomically: one line per round, metric after metric, the arms beside it last."""
    head = {
        "format_version": POOL_FORMAT,
        "scenario": pool.scenario,
        "injected": pool.injected,
        "machine_class": pool.machine_class,
        "about": pool.about,
        "metrics": list(pool.metrics),
        "sittings": pool.sittings,
        **(
            {"spent_s": [s if s is None else round(s, 1) for s in pool.spent_s]}
            if pool.spent_s
            else {}
        ),
        **({"beside": list(pool.beside)} if pool.beside else {}),
    }
    columns = (column for one in (pool, *pool.beside.values()) for column in one.metrics.values())
    rows = zip(*columns, strict=True)
    lines = ",\n".join(f"  {json.dumps([v for one in row for v in _row(one)])}" for row in rows)
    text = json.dumps(head, sort_keys=True, indent=1, ensure_ascii=False)
    text = f'{text[:-2]},\n "rounds": [\n{lines}\n ]\n}}\n'
    write_whole(file, text.encode())


def _row(one: PoolRound) -> list[float | None]:
    values = one.plain, one.plain_again, one.slowed, one.control
    return [None if value is None else float(f"{value:.6g}") for value in values]


def read_pool(file: Path) -> Pool:
    """Read a pool; raises RunError if the file is missing, damaged or of another format version."""
    try:
        document = read_versioned(file, POOL_FORMAT)
        arms = {
            arm: dict[str, tuple[PoolRound, ...]]() for arm in ("", *document.get("beside", ()))
        }
        columns = ((arm, metric) for arm in arms for metric in document["metrics"])
        for i, (arm, metric) in enumerate(columns):
            arms[arm][metric] = tuple(
                PoolRound(*row[4 * i : 4 * i + 4]) for row in document["rounds"]
            )
        # older files name no sittings: theirs was one
        sittings = tuple(int(n) for n in document.get("sittings", ()))
        if sittings and sum(sittings) != len(document["rounds"]):
            raise RunError(f"{file} has other numbers of rounds than its sittings say")
        spent = tuple(None if s is None else float(s) for s in document.get("spent_s", ()))
        if len(spent) not in (0, len(sittings)):
            raise RunError(f"{file} has other numbers of sittings than seconds of them")
        pools = {
            arm: Pool(document["scenario"], 0.0, metrics.pop(SECONDS), others=metrics)
            for arm, metrics in arms.items()
        }
        return replace(
            pools.pop(""),
            injected=float(document["injected"]),
            machine_class=document["machine_class"],
            about=document["about"],
            sittings=sittings,
            spent_s=spent,
            beside=pools,
        )
    except (OSError, ValueError) as exc:
        raise RunError(f"{file} is no pool of rounds: {exc}") from exc
    except (KeyError, TypeError, AttributeError) as exc:
        raise RunError(f"{file} is no pool of rounds: a key is missing or of another kind") from exc


def recorded_so_far(file: Path, empty: Pool) -> Pool:
    """The pool in the file, which the recording of `empty` continues; `empty` if there is no file.

    Raises RunError for the pool of a different recording.
    """
    if not file.exists():
        return empty
    found = read_pool(file)
    if Pool(found.scenario, found.injected, (), found.machine_class, found.about) != empty:
        raise RunError(
            f"{file} has rounds of another scenario, slowdown or version of the measuring code",
            "move the file away to start a new recording",
        )
    return found
