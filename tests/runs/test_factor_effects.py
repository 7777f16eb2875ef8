"""The effects of a factorial run are those that its values were made with, and their intervals are right."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from serde_lab.analysis.factor_effects import (
    BATCH,
    ROW,
    Combination,
    Effect,
    Observation,
    combinations_of,
    factor_effects,
    not_estimated,
)

SIZES = (1, 100, 8000)
EXECUTIONS = {"avro": (ROW, BATCH), "typed": (ROW, BATCH), "pickle": (ROW,), "arrow": (BATCH,)}
CELLS = [
    Combination(name, execution, rows)
    for name, executions in EXECUTIONS.items()
    for execution, rows in product(executions, SIZES)
]
FORMAT = {"avro": 1.0, "typed": 0.8, "pickle": 0.5, "arrow": 0.7}
FRAMING = {1: 1.0, 100: 0.5, 8000: 0.4}
COLUMNS, TOGETHER, TYPED_COLUMNS, ARROW_FRAMED = 0.1, 0.9, 0.6, 0.3


def true_seconds(cell: Combination) -> float:
    """Factors that multiply, and three of pairs of factors."""
    value = 10 * FORMAT[cell.representation] * FRAMING[cell.rows_per_frame]
    if cell.execution == BATCH:
        value *= COLUMNS
        if cell.rows_per_frame == 8000:
            value *= TOGETHER
        if cell.representation == "typed":
            value *= TYPED_COLUMNS
    if cell.representation == "arrow" and cell.rows_per_frame == 8000:
        value *= ARROW_FRAMED
    return value


def observed(noise: float = 0.0, rounds: int = 4, seed: int = 0) -> list[Observation]:
    draw = np.random.default_rng(seed)
    return [
        # rounds differ by a third, which the blocks take out
        Observation(cell, n, true_seconds(cell) * 1.3**n * math.exp(draw.normal(0, noise)))
        for n in range(rounds)
        for cell in CELLS
    ]


def effects(found: list[Observation]) -> dict[tuple[str, str, str], Effect]:
    made = factor_effects(found, "seconds")
    assert made is not None
    return {(e.group, e.change, e.where): e for e in made.effects}


def test_effects_are_those_that_the_values_were_made_with() -> None:
    found = effects(observed())
    whole, large, by_row, by_column = "all frame sizes", "8,000 a frame", "by row", "by column"
    expected = {
        ("format", "avro to typed", f"{by_row}, {large}"): 0.8,
        ("format", "avro to pickle", f"{by_row}, {large}"): 0.5,
        ("format", "avro to typed", f"{by_column}, {large}"): 0.8 * TYPED_COLUMNS,
        ("format", "avro to arrow", f"{by_column}, {large}"): 0.7 * ARROW_FRAMED,
        ("format", "avro to typed", f"{by_row}, {whole}"): 0.8,
        ("format", "avro to pickle", f"{by_row}, {whole}"): 0.5,
        ("format", "avro to typed", f"{by_column}, {whole}"): 0.8 * TYPED_COLUMNS,
        ("format", "avro to arrow", f"{by_column}, {whole}"): 0.7 * ARROW_FRAMED ** (1 / 3),
        ("columns", "by row to by column", f"avro, {whole}"): COLUMNS * TOGETHER ** (1 / 3),
        ("columns", "by row to by column", f"typed, {whole}"): (
            COLUMNS * TYPED_COLUMNS * TOGETHER ** (1 / 3)
        ),
        ("columns", "by row to by column", "mean of avro and typed"): (
            COLUMNS * TYPED_COLUMNS**0.5 * TOGETHER ** (1 / 3)
        ),
        ("framing", "1 to 100 a frame", f"mean of all strategies {by_row}"): 0.5,
        ("framing", "1 to 100 a frame", f"mean of all strategies {by_column}"): 0.5,
        ("framing", "1 to 8,000 a frame", f"mean of all strategies {by_row}"): 0.4,
        ("framing", "1 to 8,000 a frame", f"mean of all strategies {by_column}"): (
            0.4 * TOGETHER * ARROW_FRAMED ** (1 / 3)
        ),
        (
            "combination",
            "columns and 8,000 a frame together",
            "beyond what each gives alone",
        ): TOGETHER,
        ("combination", "columns and typed", "beyond what columns give avro"): TYPED_COLUMNS,
        ("combination", "8,000 a frame and arrow", "beyond what they give avro"): ARROW_FRAMED,
        ("combination", "8,000 a frame and pickle", "beyond what they give avro"): 1.0,
        ("combination", "8,000 a frame and typed", "beyond what they give avro"): 1.0,
    }
    assert found.keys() == expected.keys()
    for key, ratio in expected.items():
        assert found[key].ratio == pytest.approx(ratio), key
        assert found[key].low == pytest.approx(ratio), key


def test_estimates_and_intervals_are_those_of_the_normal_equations() -> None:
    """Another way to the same numbers: full-rank columns by hand, solved and inverted as they stand."""
    found = observed(noise=0.1)
    logs = np.log([one.value for one in found])
    columns = []
    for one in found:
        cell = one.combination
        name = [cell.representation == other for other in ("typed", "pickle", "arrow")]
        framed = [cell.rows_per_frame == size for size in (100, 8000)]
        batch = cell.execution == BATCH
        columns.append(
            [
                1.0,
                *(one.round == n for n in (1, 2, 3)),
                *name,
                *framed,
                batch,
                *(batch and f for f in framed),
                batch and name[0],
                *(a and f for a in name for f in framed),
            ]
        )
    design = np.array(columns, float)
    normal = np.linalg.inv(design.T @ design)
    solved = normal @ design.T @ logs
    residuals = logs - design @ solved
    free = len(logs) - design.shape[1]
    variance = float(residuals @ residuals) / free
    # columns' extra gain for the typed row is one coefficient: that of batch and typed
    at = 1 + 3 + 3 + 2 + 1 + 2
    half = stats.t.ppf(0.975, free) * math.sqrt(variance * normal[at, at])
    effect = effects(found)["combination", "columns and typed", "beyond what columns give avro"]
    assert math.log(effect.ratio) == pytest.approx(solved[at])
    assert math.log(effect.low) == pytest.approx(solved[at] - half)
    assert math.log(effect.high) == pytest.approx(solved[at] + half)
    made = factor_effects(found, "seconds")
    assert made is not None
    assert made.degrees_of_freedom == free
    assert made.noise == pytest.approx(math.exp(math.sqrt(variance)))


@pytest.mark.slow
def test_95_of_100_intervals_hold_the_true_effect() -> None:
    held = [
        effect.low <= TYPED_COLUMNS <= effect.high
        for seed in range(200)
        for effect in effects(observed(noise=0.1, seed=seed)).values()
        if effect.change == "columns and typed"
    ]
    # 4 of the 200 outside 95 % either way is what chance gives in 95 of 100 such tests
    assert len(held) == 200
    assert 0.91 <= sum(held) / 200 <= 0.99


def test_a_missing_cell_leaves_the_other_effects() -> None:
    found = [o for o in observed() if o.combination != Combination("avro", ROW, 100)]
    assert effects(found)["columns", "by row to by column", "typed, all frame sizes"].ratio == (
        pytest.approx(COLUMNS * TYPED_COLUMNS * TOGETHER ** (1 / 3))
    )


def test_an_execution_that_a_strategy_lacks_is_named_and_not_estimated() -> None:
    assert not_estimated(CELLS) == [
        "`arrow` does not run by row: what columns give it cannot be estimated.",
        "`pickle` does not run by column: what columns give it cannot be estimated.",
    ]
    wheres = {where for group, _, where in effects(observed()) if group == "columns"}
    assert not {where for where in wheres if "pickle" in where or "arrow" in where}


def test_one_round_gives_no_effects() -> None:
    assert factor_effects(observed(rounds=1), "seconds") is None
    assert factor_effects([], "seconds") is None


def arm(
    cell: Combination, own: dict[str, object] | None = None, **changed: object
) -> dict[str, object]:
    options = {"execution": cell.execution, "rows_per_frame": cell.rows_per_frame, **(own or {})}
    name = f"{cell.representation}_{cell.execution}_{cell.rows_per_frame}"
    told = {"arm": name, "kind": "strategy", "strategy": cell.representation, "seconds": {}}
    return {**told, "options": options, **changed}


def test_a_factorial_is_recognised() -> None:
    found = combinations_of([*map(arm, CELLS), arm(CELLS[0], kind="control", options=None)])
    assert list(found.values()) == CELLS


@pytest.mark.parametrize(
    "arms",
    [
        [arm(cell) for cell in CELLS if cell.rows_per_frame == 1],
        [arm(cell) for cell in CELLS if cell.execution == ROW],
        [arm(cell) for cell in CELLS if cell.representation != "typed"],
        [*map(arm, CELLS), arm(CELLS[0], arm="again")],
        [arm(cell, table={"codec": cell.execution}) for cell in CELLS],
        [arm(cell, own={"layout": cell.execution}) for cell in CELLS],
        [arm(cell, own={"own": {"layout": cell.execution}}) for cell in CELLS],
        [arm(cell, own={"rows_per_frame": [cell.rows_per_frame]}) for cell in CELLS],
        [],
    ],
    ids=[
        *("one size", "one execution", "one in both", "twice", "other tables", "other options"),
        *("other options in a table of their own", "frame sizes that are no numbers", "none"),
    ],
)
def test_other_runs_are_no_factorial(arms: list[dict[str, object]]) -> None:
    assert combinations_of(arms) == {}


def lack_of_fit(found: list[Observation]) -> float | None:
    made = factor_effects(found, "seconds")
    assert made is not None
    return made.lack_of_fit


def test_values_of_the_model_fit_it_as_often_as_they_should() -> None:
    chances = [lack_of_fit(observed(0.1, seed=seed)) for seed in range(200)]
    # uniform between 0 and 1 if the model is right
    assert stats.kstest(chances, "uniform").pvalue > 0.01


def test_an_effect_of_three_factors_together_does_not_fit() -> None:
    three = Combination("typed", BATCH, 8000)
    found = [
        Observation(o.combination, o.round, o.value * (1.5 if o.combination == three else 1))
        for o in observed(0.03)
    ]
    chance = lack_of_fit(found)
    assert chance is not None
    assert chance < 1e-6
    made = factor_effects(found, "seconds")
    assert made is not None
    assert not made.fits


def test_values_without_noise_say_nothing_of_fit() -> None:
    assert lack_of_fit(observed()) is None
