"""Stores acknowledged changes: which change was accepted, by whom, and why.

    results/acknowledged/<scenario>.json

The files are kept beside the baselines and committed. Only a user's command adds an entry.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from serde_lab.errors import RunError, UsageError
from serde_lab.gate.compare.sides import Quantity

FILE_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One accepted change, first seen in `run`; an empty arm, metric or phase matches all."""

    run: str
    by: str
    why: str
    at: str
    arm: str = ""
    metric: str = ""
    phase: str = ""

    def covers(self, arm: str, quantity: Quantity, run: str) -> bool:
        """Whether this covers a step of that arm and quantity, first seen in that run."""
        return (
            self.run == run
            and self.arm in ("", arm)
            and self.metric in ("", quantity.metric)
            and self.phase in ("", quantity.phase)
        )


def acknowledged(folder: Path, scenario: str) -> tuple[Acknowledgement, ...]:
    """The acknowledged changes of a scenario; raises RunError if the file is damaged."""
    file = folder / f"{scenario}.json"
    try:
        document = json.loads(file.read_bytes())
        if document["format_version"] != FILE_FORMAT:
            raise RunError(
                f"{file} has format_version {document['format_version']!r}, and expected is "
                f"{FILE_FORMAT}"
            )
        return tuple(Acknowledgement(**entry) for entry in document["changes"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise RunError(f"{file} holds no acknowledgements: {exc!r}") from exc


def acknowledge(
    folder: Path,
    scenario: str,
    *,
    run: str,
    by: str,
    why: str,
    arm: str = "",
    metric: str = "",
    phase: str = "",
    at: datetime | None = None,
) -> Acknowledgement:
    """Add one acknowledgement; raises UsageError without a reason or a name."""
    if not why.strip() or not by.strip():
        raise UsageError("an acknowledgement needs a reason and a name")
    moment = (at or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    entry = Acknowledgement(run, by, why, moment, arm, metric, phase)
    changes = [*acknowledged(folder, scenario), entry]
    document = {"format_version": FILE_FORMAT, "changes": [asdict(one) for one in changes]}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{scenario}.json"
    file.write_text(
        json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return entry
