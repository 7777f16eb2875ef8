"""Validation: what is wrong with a Hudi table, what a reader would see, and how to repair it. Read-only."""

from __future__ import annotations

from serde_lab.table.validation.diagnosis import Diagnosis, validate_table
from serde_lab.table.validation.finding import Severity, TableFinding

__all__ = ["Diagnosis", "Severity", "TableFinding", "validate_table"]
