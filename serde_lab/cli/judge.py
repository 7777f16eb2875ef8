"""`compare`, `gate`, `baseline` and `history`: judging runs.

Owns the options of these commands; the verdicts are the gate's. Works without Java and pyspark.
"""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
