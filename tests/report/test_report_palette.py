"""Colours keep their contrast in both themes."""

from __future__ import annotations

import pytest

from serde_lab.measure import phases
from serde_lab.report.plots import palette
from serde_lab.report.run.time_split import role


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, from 1 to 21 (WCAG 2.2, relative luminance)."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_contrast_follows_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("text", palette.TEXT)
@pytest.mark.parametrize("surface", palette.SURFACE)
def test_text_has_aa_contrast_on_every_surface(text: str, surface: str, theme: int) -> None:
    pair = palette.PALETTE[text][theme], palette.PALETTE[surface][theme]
    assert contrast(*pair) >= 4.5


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("series", [r for r in palette.SERIES if r not in palette.OUTLINED])
def test_series_stand_out_from_the_page(series: str, theme: int) -> None:
    page = palette.PALETTE["page"][theme]
    assert contrast(palette.PALETTE[series][theme], page) >= 3.0


def test_every_light_colour_means_one_role() -> None:
    assert len({shade.light for shade in palette.PALETTE.values()}) == len(palette.PALETTE)


def test_every_phase_has_a_colour_of_its_own() -> None:
    stage = [role(f"map.{phase.name}") for phase in phases.VERBS]
    whole = [role(phase.name) for phase in phases.WHOLE_CELL]
    assert len({*stage, *whole}) == len(stage) + len(whole)
    assert role("map.unheard_of") == "other"
