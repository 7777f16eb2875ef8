"""Estimates what representation, execution and framing each give, from the cells of a factorial run.

The model is linear in the logarithm of a value (seconds, CPU seconds): an effect for every round, for each
factor, and for each pair of factors. It is fitted by least squares to all cells of all rounds; rounds are
blocks. An effect is a contrast: the mean of the model over some cells minus its mean over others, both
existing and equal in all other factors. Its exponential is a ratio; the 95 % interval is Student's. What
no such pair of cells can tell is listed with the reason, not estimated. Whether the model fits at all is
tested against the means of the cells (F test of lack of fit; Draper and Smith 1998, chapter 2).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import special  # not scipy.stats, whose import takes a second

from serde_lab.analysis.cell_values import Rounds, by_round
from serde_lab.analysis.ratios import CONFIDENCE, Ratio, two_sided_t

ROW, BATCH = "row", "batch"
METRICS: Mapping[str, str] = {
    "seconds": "seconds end to end",
    "serde_cpu_s": "SerDe CPU",
    "tree_cpu_s": "CPU of all processes",
}
"""The metrics that are analysed, where a run has them, in words."""
FEWEST_ROUNDS = 2
_OPTIONS = ("execution", "rows_per_frame")

Group = Literal["format", "columns", "framing", "combination"]
Vector = npt.NDArray[np.float64]
Weights = Mapping["Combination", float]


@dataclass(frozen=True, slots=True, order=True)
class Combination:
    """A cell of the factorial: a level of each factor."""

    representation: str
    execution: str
    rows_per_frame: int


@dataclass(frozen=True, slots=True)
class Effect:
    """A ratio of values, below 1 where the change makes it cheaper, with its 95 % interval."""

    group: Group
    change: str
    where: str
    ratio: float
    low: float
    high: float

    @property
    def as_ratio(self) -> Ratio:
        """The effect as any ratio is shown; the rounds that would decide it are not known."""
        return Ratio(self.ratio, self.low, self.high, 0)


@dataclass(frozen=True, slots=True)
class FactorEffects:
    """The effects on one metric; `noise` is the residual as a factor, exp of its standard deviation.

    `lack_of_fit`: if the model were right, its cells would differ from it as much as they do, or more, with
    this chance. None where the model has a term for each cell, or a round has no noise to judge by.
    """

    metric: str
    effects: tuple[Effect, ...]
    rounds: int
    cells: int
    noise: float
    degrees_of_freedom: int
    lack_of_fit: float | None

    @property
    def fits(self) -> bool:
        """Whether nothing speaks against the model."""
        return self.lack_of_fit is None or self.lack_of_fit > 1 - CONFIDENCE


@dataclass(frozen=True, slots=True)
class Factorial:
    """A factorial run: the combination of each arm by its name, and the effects on each metric."""

    combinations: Mapping[str, Combination]
    effects: tuple[FactorEffects, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """The value of one cell of a run."""

    combination: Combination
    round: int
    value: float


class FactorModel:
    """The fitted model: the logarithm of a value by round, factors and pairs of factors."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        cells = [self._of(o.combination) | {("round", o.round): 1.0} for o in observations]
        self._places, design = _design(cells)
        logs = np.log([o.value for o in observations])
        self._inverse = np.linalg.pinv(design.T @ design)
        self._coefficients: Vector = self._inverse @ design.T @ logs
        rank = int(np.linalg.matrix_rank(design))
        self.degrees_of_freedom = len(logs) - rank
        residuals = logs - design @ self._coefficients
        left = float(residuals @ residuals)
        self.variance = left / max(1, self.degrees_of_freedom)
        self._projection = self._inverse @ design.T @ design
        # the largest model has a term for each cell: what it leaves is noise, what it explains more is not
        _, full = _design([{o.combination: 1.0, ("round", o.round): 1.0} for o in observations])
        noise = logs - full @ np.linalg.pinv(full) @ logs
        degrees = len(logs) - int(np.linalg.matrix_rank(full))
        self.lack_of_fit = _p_of_f(left, self.degrees_of_freedom, float(noise @ noise), degrees)

    def contrast(self, weights: Weights) -> tuple[float, float] | None:
        """Estimate and standard error of a weighted sum of cells, whose weights sum to 0.

        None if the cells that were measured cannot tell it.
        """
        vector = np.zeros(len(self._places))
        for combination, weight in weights.items():
            for term, one in self._of(combination).items():
                if term not in self._places:
                    return None
                vector[self._places[term]] += weight * one
        if not np.allclose(vector @ self._projection, vector, atol=1e-8):
            return None
        error = math.sqrt(max(0.0, self.variance * float(vector @ self._inverse @ vector)))
        return float(vector @ self._coefficients), error

    def _of(self, combination: Combination) -> dict[tuple[object, ...], float]:
        """The terms of a cell: the mean, each factor, each pair of factors."""
        levels = list(enumerate(astuple(combination)))
        terms: dict[tuple[object, ...], float] = {("mean",): 1.0}
        terms.update({(level,): 1.0 for level in levels})
        terms.update(dict.fromkeys(combinations(levels, 2), 1.0))
        return terms


def _design(cells: Sequence[Mapping[Any, float]]) -> tuple[dict[Any, int], Vector]:
    """The column of each term, and the value of each term (column) in each cell (row)."""
    places = {term: n for n, term in enumerate(dict.fromkeys(term for c in cells for term in c))}
    return places, np.array([[cell.get(term, 0.0) for term in places] for cell in cells])


def _p_of_f(
    left: float, degrees: int, left_by_larger: float, degrees_of_larger: int
) -> float | None:
    """The p value of the F test of a model against a larger one, from their residual sums of squares."""
    more = degrees - degrees_of_larger
    if more < 1 or degrees_of_larger < 1 or left_by_larger < 1e-12 * max(1.0, left):
        return None
    f = (left - left_by_larger) / more / (left_by_larger / degrees_of_larger)
    return float(special.fdtrc(more, degrees_of_larger, max(0.0, f)))


def combinations_of(arms: Iterable[Mapping[str, Any]]) -> dict[str, Combination]:
    """The combination of each strategy arm of a run's summary that has a timing, by the arm's name.

    Empty unless the run is a factorial: every strategy and execution has several frame sizes, two strategies
    or more run in both executions, each arm is a combination of its own, and arms differ in nothing else.
    """
    found: dict[str, Combination] = {}
    others = set()
    for arm in arms:
        options = arm["options"] or {}
        if arm["kind"] != "strategy" or arm["seconds"] is None:
            continue
        execution, rows = (options.get(key) for key in _OPTIONS)
        if not execution or not isinstance(rows, int):
            return {}
        rest = {k: v for k, v in options.items() if k not in _OPTIONS}
        others.add(repr((sorted(rest.items()), arm.get("table") or {})))
        found[arm["arm"]] = Combination(str(arm["strategy"]), str(execution), rows)
    cells = sorted(set(found.values()))
    sizes = Counter((cell.representation, cell.execution) for cell in cells)
    if len(others) != 1 or len(cells) < len(found) or min(sizes.values()) < 2:
        return {}
    return found if len(_with_both(cells)) > 1 else {}


def observations(
    timed: Mapping[str, Rounds], cells: Mapping[str, Combination], metric: str
) -> list[Observation]:
    """The values above 0 of the rounds in `timed`, by arm."""
    return [
        Observation(combination, number, value)
        for arm, combination in cells.items()
        for number, value in by_round(timed[arm], metric).items()
        if value > 0
    ]


def factor_effects(found: Sequence[Observation], metric: str) -> FactorEffects | None:
    """The effects on a metric; None with fewer than two rounds, or no degree of freedom left."""
    rounds = len({one.round for one in found})
    if rounds < FEWEST_ROUNDS:
        return None
    model = FactorModel(found)
    if model.degrees_of_freedom < 1:
        return None
    cells = sorted({one.combination for one in found})
    quantile = two_sided_t(model.degrees_of_freedom)
    effects = []
    for group, change, where, weights in _contrasts(cells):
        contrast = model.contrast(weights)
        if contrast is not None:
            low, high = contrast[0] - quantile * contrast[1], contrast[0] + quantile * contrast[1]
            effects.append(
                Effect(group, change, where, math.exp(contrast[0]), math.exp(low), math.exp(high))
            )
    noise = math.exp(math.sqrt(model.variance))
    return FactorEffects(
        metric,
        tuple(effects),
        rounds,
        len(cells),
        noise,
        model.degrees_of_freedom,
        model.lack_of_fit,
    )


def factorial_of(
    arms: Iterable[Mapping[str, Any]], timed: Mapping[str, Rounds]
) -> Factorial | None:
    """The combinations of the arms of a run's summary, and the effects over their rounds in `timed`.

    None for a run that is no factorial, or has too few rounds.
    """
    cells = combinations_of(arms)
    each = (factor_effects(observations(timed, cells, metric), metric) for metric in METRICS)
    found = tuple(effects for effects in each if effects is not None)
    return Factorial(cells, found) if found else None


def not_estimated(cells: Iterable[Combination]) -> list[str]:
    """What no pair of cells can tell, a sentence each."""
    found = []
    cells = set(cells)
    for name in sorted({c.representation for c in cells}):
        executions = {c.execution for c in cells if c.representation == name}
        if len(executions) == 1:
            (only,) = executions
            words = "by column" if only == ROW else "by row"
            found.append(
                f"`{name}` does not run {words}: what columns give it cannot be estimated."
            )
    return found


Contrast = tuple[Group, str, str, dict[Combination, float]]


def _contrasts(cells: Sequence[Combination]) -> list[Contrast]:
    """Every effect that is asked for, with the weights of its cells."""
    both = _with_both(cells)
    sizes = sorted({c.rows_per_frame for c in cells})
    first, last = sizes[0], sizes[-1]
    return [
        *_formats(cells, both, last),
        *_columns(cells, both),
        *_framings(cells, sizes),
        *_combined(cells, both, first, last),
    ]


def _with_both(cells: Sequence[Combination]) -> list[str]:
    """The representations that run in both executions."""
    names = sorted({c.representation for c in cells})
    return [
        n for n in names if {c.execution for c in cells if c.representation == n} >= {ROW, BATCH}
    ]


def _mean_step(pairs: Sequence[tuple[Combination, Combination]]) -> dict[Combination, float]:
    """The mean over pairs of the second cell minus the first."""
    weights: dict[Combination, float] = {}
    for before, after in pairs:
        weights[after] = weights.get(after, 0.0) + 1 / len(pairs)
        weights[before] = weights.get(before, 0.0) - 1 / len(pairs)
    return weights


def _minus(one: Mapping[Combination, float], other: Mapping[Combination, float]) -> Any:
    return {c: one.get(c, 0.0) - other.get(c, 0.0) for c in {**one, **other}}


def _steps(
    cells: Sequence[Combination], before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[tuple[Combination, Combination]]:
    """The pairs of existing cells that agree but for the factors of `before` and `after`."""
    there = set(cells)
    starts = [c for c in cells if all(getattr(c, k) == v for k, v in before.items())]
    pairs = [(c, Combination(**{**asdict(c), **after})) for c in starts]
    return [pair for pair in pairs if pair[1] in there]


def _formats(cells: Sequence[Combination], both: Sequence[str], last: int) -> Iterable[Contrast]:
    base = both[0]
    for execution, words in ((ROW, "by row"), (BATCH, "by column")):
        names = sorted({c.representation for c in cells if c.execution == execution} - {base})
        for name in names:
            given = {"representation": base, "execution": execution}
            pairs = _steps(cells, given, {"representation": name})
            if pairs:
                change = f"{base} to {name}"
                yield "format", change, f"{words}, all frame sizes", _mean_step(pairs)
            # a format made for large frames is not judged by frames of one record alone
            large = [pair for pair in pairs if pair[0].rows_per_frame == last]
            if large:
                yield "format", change, f"{words}, {last:,} a frame", _mean_step(large)


def _columns(cells: Sequence[Combination], both: Sequence[str]) -> Iterable[Contrast]:
    all_pairs = []
    for name in both:
        given = {"representation": name, "execution": ROW}
        pairs = _steps(cells, given, {"execution": BATCH})
        all_pairs += pairs
        yield "columns", "by row to by column", f"{name}, all frame sizes", _mean_step(pairs)
    if len(both) > 1:
        yield (
            "columns",
            "by row to by column",
            f"mean of {' and '.join(both)}",
            _mean_step(all_pairs),
        )


def _framings(cells: Sequence[Combination], sizes: Sequence[int]) -> Iterable[Contrast]:
    for size in sizes[1:]:
        change = f"{sizes[0]:,} to {size:,} a frame"
        for execution, words in ((ROW, "by row"), (BATCH, "by column")):
            given = {"execution": execution, "rows_per_frame": sizes[0]}
            pairs = _steps(cells, given, {"rows_per_frame": size})
            if pairs:
                yield "framing", change, f"mean of all strategies {words}", _mean_step(pairs)


def _combined(
    cells: Sequence[Combination], both: Sequence[str], first: int, last: int
) -> Iterable[Contrast]:
    def columns(**given: object) -> dict[Combination, float]:
        return _mean_step(
            [
                pair
                for name in ([given["representation"]] if "representation" in given else both)
                for pair in _steps(
                    cells,
                    {"execution": ROW, **given, "representation": name},
                    {"execution": BATCH},
                )
            ]
        )

    together = _minus(columns(rows_per_frame=last), columns(rows_per_frame=first))
    change = f"columns and {last:,} a frame together"
    yield "combination", change, "beyond what each gives alone", together
    for name in both[1:]:
        extra = _minus(columns(representation=name), columns(representation=both[0]))
        yield "combination", f"columns and {name}", f"beyond what columns give {both[0]}", extra
    base = both[0]
    names = sorted({c.representation for c in cells} - {base})
    for name in names:
        # the model gives the same ratio in either execution
        for execution in (BATCH, ROW):
            framed = {"rows_per_frame": last}
            given = {"execution": execution, "rows_per_frame": first}
            own = _steps(cells, {**given, "representation": name}, framed)
            others = _steps(cells, {**given, "representation": base}, framed)
            if own and others:
                extra = _minus(_mean_step(own), _mean_step(others))
                change = f"{last:,} a frame and {name}"
                yield "combination", change, f"beyond what they give {base}", extra
                break
