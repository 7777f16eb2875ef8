"""Numbers are written one way everywhere."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde_lab.report import notation


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.012345, "0.0123"),
        (4.5, "4.50"),
        (9.996, "10.0"),
        (99.96, "100"),
        (1234.4, "1,230"),
        (-0.5, "-0.500"),
        (1.5e-9, "1.50e-09"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_numbers_have_three_significant_digits(value: float | None, text: str) -> None:
    assert notation.number(value) == text


@given(st.floats(1e-5, 1e9))
def test_a_number_is_within_half_a_digit_of_its_value(value: float) -> None:
    shown = float(notation.number(value).replace(",", ""))
    assert math.isclose(shown, value, rel_tol=0.00501)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.2, "3.20 s"),
        (0.1, "0.100 s"),
        (0.0421, "42.1 ms"),
        (0.0000421, "42.1 µs"),
        (0, "0 s"),
        (None, "–"),
    ],
)
def test_seconds_choose_their_unit(value: float | None, text: str) -> None:
    assert notation.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.50 kB"), (19_400_000, "19.4 MB"), (8e9, "8.00 GB")],
)
def test_bytes_are_decimal(value: float, text: str) -> None:
    assert notation.size(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.7391, "74 %"), (0.0421, "4.2 %"), (0.0995, "10 %"), (0.0994, "9.9 %"), (-0.2, "-20 %")],
)
def test_percent(share: float, text: str) -> None:
    assert notation.percent(share) == text


def test_words_are_listed_as_a_sentence_lists_them() -> None:
    assert notation.listed([]) == ""
    assert notation.listed(["a"]) == "a"
    assert notation.listed(["a", "b", "c"]) == "a, b and c"
    assert notation.plural(1, "round") == "1 round"
    assert notation.plural(1200, "round") == "1,200 rounds"


@given(st.text(max_size=60), st.integers(1, 40))
def test_shortened_never_exceeds_its_room(text: str, room: int) -> None:
    short = notation.shortened(text, room)
    assert len(short) <= room
    assert short == text or len(text) > room


def test_a_name_cannot_end_its_own_marking() -> None:
    assert notation.named("a`b") == "`a'b`"


@given(st.floats(1e-5, 1e6), st.floats(1, 10))
def test_a_shown_interval_holds_its_interval(low: float, times: float) -> None:
    high = low * times
    ends = notation.rounded_apart(low, high)
    assert ends[0] <= low * (1 + 1e-8)
    assert high * (1 - 1e-8) <= ends[1]
    assert math.isclose(ends[0], low, rel_tol=0.0101)
    assert math.isclose(ends[1], high, rel_tol=0.0101)
