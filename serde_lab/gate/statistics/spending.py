"""Divides the significance level over the looks of an A/B measurement, which looks at its rounds repeatedly.

The looks are fixed in advance. The union bound keeps the error rate whatever the dependence between looks
(the idea of spending is from Lan and DeMets 1983, the quadratic spending function from Kim and DeMets 1987).
"""

from __future__ import annotations

from dataclasses import dataclass

from serde_lab.errors import UsageError
from serde_lab.gate.compare.evidence import SMALLEST_SAMPLE
from serde_lab.gate.statistics.exact_tests import smallest_paired_p

_POWER = 2.0


@dataclass(frozen=True, slots=True)
class AlphaSpending:
    """Looks after `first` rounds, then every `step`, the last after `maximum`.

    `family` is the number of compared cells, which the comparison counts. A look at which no exact p could
    pass its level spends nothing and leaves its share to the next look.
    """

    first: int
    step: int
    maximum: int
    alpha: float = 0.05
    family: int = 1

    def __post_init__(self) -> None:
        if not SMALLEST_SAMPLE <= self.first <= self.maximum or self.step < 1:
            raise UsageError(
                f"looks from {self.first} to {self.maximum} rounds in steps of {self.step}: expected"
                f" at least {SMALLEST_SAMPLE} rounds, a maximum no smaller, and a step of at least 1"
            )

    @property
    def looks(self) -> tuple[int, ...]:
        """The numbers of rounds after which the A/B measurement looks."""
        return (*range(self.first, self.maximum, self.step), self.maximum)

    def levels(self) -> dict[int, float]:
        """The level spent at each look; they add up to at most `alpha`."""
        spent = 0.0
        levels = {}
        for rounds in self.looks:
            share = self.alpha * (rounds / self.maximum) ** _POWER - spent
            # The last look has no successor for its share, and Student's t may still decide there.
            usable = smallest_paired_p(rounds) * self.family <= share or rounds == self.maximum
            levels[rounds] = share if usable else 0.0
            spent += levels[rounds]
        return levels

    def level(self, rounds: int) -> float:
        """The level of a cell with this many rounds: that of the last look it has reached.

        0 before the first look. A cell has fewer rounds than a look if one of its rounds failed.
        """
        reached = [look for look in self.looks if look <= rounds]
        return self.levels()[reached[-1]] if reached else 0.0


DEFAULT_LOOKS = AlphaSpending(first=6, step=2, maximum=20)
"""Looks from 6 to 20 rounds.

Six rounds are the fewest with a paired p below 0.05; at twenty, a 10 % change is detectable through 5 % noise
per cell with heavy tails (tests/gate/test_gate_error_rates.py).
"""

AB_LOOKS = AlphaSpending(first=8, step=4, maximum=40)
"""Looks from 8 to 40 rounds, for cells well under a second (`ab`, the self-test).

In the same time, many short rounds show more than few long ones, since neighbouring rounds share the same
noise.
"""
