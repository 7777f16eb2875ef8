"""Colours keep their contrast in both themes."""

from __future__ import annotations

import pytest

from serde_lab.measure import phases
from serde_lab.report.plots import palette
from serde_lab.report.run.time_split import role


def test_contrast_follows_wcag() -> None:
    assert palette.contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert palette.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("text", palette.TEXT_ROLES)
@pytest.mark.parametrize("surface", palette.SURFACE_ROLES)
def test_text_has_aa_contrast_on_every_surface(text: str, surface: str, theme: int) -> None:
    pair = palette.PALETTE[text][theme], palette.PALETTE[surface][theme]
    assert palette.contrast(*pair) >= 4.5


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("series", [r for r in palette.SERIES_ROLES if r not in palette.OUTLINED])
def test_series_stand_out_from_the_page(series: str, theme: int) -> None:
    page = palette.PALETTE["page"][theme]
    assert palette.contrast(palette.PALETTE[series][theme], page) >= 3.0


def test_every_light_colour_means_one_role() -> None:
    assert len({shade.light for shade in palette.PALETTE.values()}) == len(palette.PALETTE)


def test_every_phase_has_a_colour_of_its_own() -> None:
    stage = [role(f"map.{phase.name}") for phase in phases.VERBS]
    whole = [role(phase.name) for phase in phases.WHOLE_CELL]
    assert len({*stage, *whole}) == len(stage) + len(whole)
    assert role("map.unheard_of") == "other"
