"""Recovery: the repairs that a writer makes first, once it holds the table's lock and writes alone."""

from __future__ import annotations

from dataclasses import dataclass

from serde_lab.table.services.cleaning import Cleaned, finish_pending_cleans
from serde_lab.table.services.rollback import RolledBack, rollback_pending
from serde_lab.table.table import HoodieTable


@dataclass(frozen=True, slots=True)
class Recovered:
    """What earlier writers left behind and was repaired."""

    rolled_back: tuple[RolledBack, ...]
    cleaned: tuple[Cleaned, ...]


def recover(table: HoodieTable) -> Recovered:
    """Roll back every pending write and finish every pending clean.

    Raises TableError for a pending instant that only its own writer can finish.
    """
    rolled_back = rollback_pending(table)
    return Recovered(rolled_back, finish_pending_cleans(table))
