"""Assigns a tone to each verdict; the verdict's word always stands beside its colour."""

from __future__ import annotations

from serde_lab.report.page import Tone

_TONES: dict[str, Tone] = {
    "faster": "good",
    "failed": "bad",
    "regression": "bad",
    "undecided": "warn",
    "slower": "bad",
    "wrong answer": "bad",
    "unchecked": "bad",
    "missing": "bad",
    "inconclusive": "warn",
    "insufficient": "warn",
    "not comparable": "warn",
}


def verdict_tone(verdict: str) -> Tone:
    """The tone of a verdict; none for an unchanged figure or an unknown word."""
    return _TONES.get(verdict, "")
