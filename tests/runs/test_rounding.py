import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde_lab.analysis.rounding import Quantity, rounded, text


@pytest.mark.parametrize(
    ("quantity", "value", "shown"),
    [
        ("seconds", 12.3456, "12.35"),
        ("seconds", 2.5, "2.500"),
        ("seconds", 0.051234, "0.05123"),
        ("seconds", 1234.56, "1235"),
        ("seconds", 123456.0, "123,500"),
        ("seconds", 0.0, "0.000"),
        ("ratio", 0.98765, "0.988"),
        ("share", 0.04996, "5.00 %"),
        ("share", 0.050049, "5.00 %"),
        ("rows_per_s", 1234567.0, "1,235,000"),
        ("rows_per_s", 12.345, "12.35"),
        ("megabytes", 101.806, "101.81"),
        ("bytes", 1234567, "1,234,567"),
        ("p", 0.03125, "0.03125"),
        ("seconds", None, "–"),
    ],
)
def test_shown(quantity: Quantity, value: float | None, shown: str) -> None:
    assert text(quantity, value) == shown


@given(
    st.sampled_from(["seconds", "ratio", "share", "rows_per_s", "megabytes", "bytes", "p"]),
    st.floats(1e-3, 1e9),
)
def test_what_is_shown_is_what_decides(quantity: Quantity, value: float) -> None:
    """Reading the page back gives the very number that a verdict compares."""
    read = text(quantity, value).replace(",", "")
    number = float(read.removesuffix(" %")) / 100 if read.endswith("%") else float(read)
    assert number == pytest.approx(rounded(quantity, value), rel=1e-12, abs=1e-12)
    assert rounded(quantity, rounded(quantity, value)) == rounded(quantity, value)
