"""Estimates how many rounds one metric needs to show the slowdown of a pool, by resampling its rounds.

In each resample a paired test (Student's t on logarithms, two-sided, level 5 %) looks once, after a fixed
number of rounds. The gate itself uses exact tests, several looks and limits, so its own rates, which the
self-test measures, differ a little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import numpy as np
from scipy import stats

from serde_lab.gate.pool import Pool, PoolRound
from serde_lab.gate.statistics.intervals import wilson

RATES = (0.85, 0.95)
MOST_ROUNDS = 400
_LEVEL = 0.05
_DRAWS, _SEED = 2_000, 20_261_123
_FEWEST = 3


def detection_rate(rounds: Sequence[PoolRound], number: int) -> float:
    """The share of resamples of `number` rounds in which the slowed cell is found slower."""
    logs = np.log([one.slowed / one.plain for one in rounds])
    chosen = np.random.default_rng([_SEED, number]).integers(0, logs.size, (_DRAWS, number))
    drawn = logs[chosen]
    spread = np.maximum(drawn.std(axis=1, ddof=1), 1e-12)
    t = drawn.mean(axis=1) * math.sqrt(number) / spread
    return float(np.mean(t > stats.t.isf(_LEVEL / 2, number - 1)))


def rounds_needed(rounds: Sequence[PoolRound], rate: float) -> int | None:
    """The fewest rounds that find the slowdown at this rate; None beyond 400."""
    few, enough = _FEWEST - 1, MOST_ROUNDS
    if len(rounds) < _FEWEST or detection_rate(rounds, MOST_ROUNDS) < rate:
        return None
    while enough - few > 1:
        middle = (few + enough) // 2
        found = detection_rate(rounds, middle) >= rate
        few, enough = (few, middle) if found else (middle, enough)
    return enough


def minutes(pool: Pool, rounds: int) -> float:
    """Minutes for so many rounds: the cells alone, by their medians."""
    of_round = (
        sum((one.plain, one.plain_again, one.slowed, one.control or 0.0)) for one in pool.rounds
    )
    return rounds * median(of_round) / 60 if pool.rounds else 0.0


def carried_bounds(trials: int) -> tuple[float, float]:
    """The best bounds that so many groups can show: most false alarms, and least detections."""
    return (wilson(0, trials).high, wilson(trials, trials).low) if trials else (1.0, 0.0)
