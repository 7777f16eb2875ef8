"""The level of each look, when a sitting looks at its rounds more than once.

Owns the looks of an adaptive sitting, fixed beforehand, and how the level is spent over them. The
union bound holds the error rate whatever the dependence between looks (Lan and DeMets 1983 give the
idea of spending; the quadratic spending function is Kim and DeMets 1987). Knows no samples.
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

    `family` cells are compared, which the comparison itself counts. A look at which no exact p
    could pass its level spends nothing and leaves its share to the next.
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
        """The numbers of rounds after which the sitting looks."""
        return (*range(self.first, self.maximum, self.step), self.maximum)

    def levels(self) -> dict[int, float]:
        """The level spent at each look; they add up to at most `alpha`."""
        spent = 0.0
        levels = {}
        for rounds in self.looks:
            share = self.alpha * (rounds / self.maximum) ** _POWER - spent
            # The last look has nobody to leave its share to: Student's t may still decide there.
            usable = smallest_paired_p(rounds) * self.family <= share or rounds == self.maximum
            levels[rounds] = share if usable else 0.0
            spent += levels[rounds]
        return levels

    def level(self, rounds: int) -> float:
        """The level of a cell with this many rounds: that of the last look it has reached.

        0 before the first look; a cell may have fewer rounds than a look when one of them failed.
        """
        reached = [look for look in self.looks if look <= rounds]
        return self.levels()[reached[-1]] if reached else 0.0


DEFAULT_LOOKS = AlphaSpending(first=6, step=2, maximum=20)
"""Six rounds are the fewest that reach a paired p below 0.05; at twenty, 10 % shows through noise of
5 % a cell and heavy tails (tests/gate/test_gate_error_rates.py)."""

SITTING_LOOKS = AlphaSpending(first=8, step=4, maximum=40)
"""For cells well under a second (`ab`, the self-test): many short rounds tell more than few long ones
in the same time, since neighbours in time meet the same noise."""
