"""Which tone goes with which verdict; the verdict's word always stands beside its colour.

Owns nothing else.
"""

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
    """No tone for what is the same, and for a word that nobody knows."""
    return _TONES.get(verdict, "")
