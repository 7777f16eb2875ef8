"""`python -m serde_lab`: the command line."""

from __future__ import annotations

from serde_lab.cli.app import entry

entry()
