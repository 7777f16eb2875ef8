"""Fits and verdicts of sweeps, on seconds that follow a known curve."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from serde_lab.analysis.growth import GrowthPoint, fit_power, growth
from serde_lab.report.run.shapes import growth_table

VALUES = (0.1, 0.3, 1.0, 3.0, 10.0)


def summary(
    curve: Callable[[float], float],
    peak_mb: float = 300,
    wrong_at: float | None = None,
    spread: float = 0.01,
) -> dict[str, Any]:
    return {
        "arms": [
            {
                "arm": f"arrow@{value:g}",
                "swept": {"arm": "arrow", "value": value},
                "seconds": None if value == wrong_at else _seconds(curve(value), spread),
                "rows": value * 6e6,
                "peak_worker_rss_bytes": peak_mb * (1 << 20),
            }
            for value in VALUES
        ]
    }


def _seconds(median: float, spread: float) -> dict[str, Any]:
    """Three rounds, or one if they have no spread."""
    return {"median": median, "values": [median * f for f in {1 - spread, 1, 1 / (1 - spread)}]}


CONTENT = {
    "sweep": {"key": "data.scale_factor", "values": list(VALUES)},
    "measure": {"worker_memory_mb": 1024},
}


@pytest.mark.parametrize("k", [0.9, 1.0, 1.04, 1.3])
def test_the_fit_finds_the_curve_that_the_seconds_follow(k: float) -> None:
    points = [GrowthPoint(n, 1.5 + 7 * n**k, (), None, None) for n in VALUES]
    fit = fit_power(points)
    assert fit is not None
    assert (fit.a_s, fit.b_s, fit.k) == pytest.approx((1.5, 7, k), rel=1e-3)
    assert fit.a_s + fit.b_s * 2**fit.k == pytest.approx(1.5 + 7 * 2**k, rel=1e-3)


def test_a_straight_line_is_called_one() -> None:
    (one,) = growth(summary(lambda n: 2 + 8 * n), CONTENT)
    assert one.is_straight
    assert one.fits_memory
    assert one.verdict == "linear"
    assert one.last_step is not None
    assert one.last_step.value == pytest.approx(82 / 26)
    assert one.most_last_step == pytest.approx(3.5)
    table = growth_table([one])
    assert table.rows[0][-1].text == "linear"
    assert len(table.columns) == len(table.rows[0])


def test_more_than_a_straight_line_is_not() -> None:
    (one,) = growth(summary(lambda n: 2 + 8 * n**1.2), CONTENT)
    assert one.is_straight is False
    assert one.verdict == "more than linear"


def test_a_last_step_that_jumps_is_seen_though_k_is_small() -> None:
    # everything in proportion but the largest run, which begins to swap
    (one,) = growth(summary(lambda n: 8 * n if n < 10 else 3.6 * 24), CONTENT)
    assert one.last_step is not None
    assert one.last_step.value == pytest.approx(3.6)
    assert one.is_straight is False


def test_a_last_step_whose_interval_holds_its_limit_decides_nothing() -> None:
    (one,) = growth(summary(lambda n: 8 * n if n < 10 else 3.6 * 24, spread=0.05), CONTENT)
    assert one.last_step is not None
    assert one.last_step.low is not None
    assert one.last_step.high is not None
    # three rounds of five values have 10 degrees of freedom; each step's error is that of two means
    reach = 2.2281 * 0.0512933 * (2 / 3) ** 0.5
    assert one.last_step.high / one.last_step.value == pytest.approx(math.exp(reach), rel=1e-4)
    assert one.last_step.low < 3.5 < one.last_step.high
    assert one.is_straight is None
    assert one.to_json()["last_step_interval"] == [one.last_step.low, one.last_step.high]


def test_single_samples_show_no_spread_of_the_last_step() -> None:
    (one,) = growth(summary(lambda n: 2 + 8 * n, spread=0), CONTENT)
    assert one.last_step is not None
    assert one.last_step.low is None
    assert one.is_straight is None
    # but the whole interval of k may lie above its limit
    (one,) = growth(summary(lambda n: 2 + 8 * n**1.2, spread=0), CONTENT)
    assert one.is_straight is False


def test_a_worker_beyond_its_memory_is_said() -> None:
    (one,) = growth(summary(lambda n: 2 + 8 * n, peak_mb=1025), CONTENT)
    assert one.fits_memory is False
    assert one.verdict == "linear, exceeds worker_memory_mb"


def test_a_worker_beyond_its_memory_is_said_though_cost_is_not_decided() -> None:
    noise = dict(zip(VALUES, (1.0, 0.3, 1.4, 0.6, 1.2), strict=True))
    (one,) = growth(summary(lambda n: 3 * noise[n], peak_mb=1025), CONTENT)
    assert one.verdict == "not decided, exceeds worker_memory_mb"
    (one,) = growth(summary(lambda n: 2 + 8 * n, peak_mb=1025, wrong_at=10.0), CONTENT)
    assert one.verdict == "no timing at 10, exceeds worker_memory_mb"


def test_a_peak_that_is_not_known_is_not_called_within_the_limit() -> None:
    found = summary(lambda n: 2 + 8 * n)
    found["arms"][-1]["peak_worker_rss_bytes"] = None
    (one,) = growth(found, CONTENT)
    assert one.fits_memory is None


def test_noise_that_leaves_k_open_decides_nothing() -> None:
    noise = dict(zip(VALUES, (1.0, 0.3, 1.4, 0.6, 1.2), strict=True))
    (one,) = growth(summary(lambda n: 3 * noise[n]), CONTENT)
    assert one.is_straight is None
    assert one.verdict == "not decided"


def test_a_point_without_a_timing_leaves_no_verdict() -> None:
    (one,) = growth(summary(lambda n: 2 + 8 * n, wrong_at=10.0), CONTENT)
    assert one.is_straight is None
    assert one.fits_memory is None
    assert one.missing == (10.0,)
    assert one.verdict == "no timing at 10"
    assert growth_table([one]).rows[0][5].text == "–"


@pytest.mark.parametrize("seconds", [(5, 4, 3, 2), (1, 1, 1, 1)])
def test_seconds_that_do_not_grow_have_any_exponent(seconds: tuple[float, ...]) -> None:
    found = fit_power(
        [GrowthPoint(n, s, (s,), None, None) for n, s in zip((1, 2, 4, 8), seconds, strict=True)]
    )
    assert found is not None
    assert (found.exponent.low, found.exponent.high) == (None, None)


def test_three_points_have_no_curve() -> None:
    assert fit_power([GrowthPoint(n, n, (), None, None) for n in (1.0, 2.0, 3.0)]) is None


def test_a_run_without_a_sweep_has_no_growth() -> None:
    assert growth(summary(lambda n: n), {"measure": {}}) == []


def test_a_k_whose_interval_reaches_beyond_the_limit_decides_nothing() -> None:
    # five single samples, a tenth apart from the line: k alone would be within the limit
    noise = dict(zip(VALUES, (1.05, 0.95, 1.03, 0.97, 1.0), strict=True))
    (one,) = growth(summary(lambda n: 8 * n * noise[n]), CONTENT)
    assert one.fit is not None
    assert one.fit.k <= 1.05 < one.fit.k_high
    assert one.is_straight is None
