"""Reads and writes the JSON file that holds a scenario's baselines on one machine class.

Equal contents give equal bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serde_lab.errors import RunError

FILE_FORMAT = 1

_NUMBERS = re.compile(r"\[\n\s+([^\[\]{}\"]*?)\n\s+\]")
_SPACE = re.compile(r",\s+")


def baseline_file(folder: Path, machine_class: str, scenario: str) -> Path:
    """Where the baselines of a scenario on a machine class are kept."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", machine_class).lstrip(".") or "unknown"
    return folder / safe / f"{scenario}.json"


def new_document(scenario: str, machine_class: str) -> dict[str, Any]:
    """The document of a file without baselines."""
    return {
        "format_version": FILE_FORMAT,
        "scenario": scenario,
        "machine_class": machine_class,
        "baselines": {},
        "events": [],
    }


def record_named(document: Mapping[str, Any], name: str, file: Path) -> dict[str, Any]:
    """One baseline of a file; raises RunError that lists the existing ones."""
    record: dict[str, Any] | None = document["baselines"].get(name)
    if record is None:
        known = ", ".join(sorted(document["baselines"])) or "none"
        raise RunError(f"{file} has no baseline {name!r}; it has {known}")
    return record


def read_document(file: Path) -> dict[str, Any]:
    """Read a baseline file; raises RunError if it is missing, damaged or of another format version."""
    try:
        document = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise RunError(f"there is no baseline file {file}", "baseline save RUN makes one") from None
    except (OSError, ValueError) as exc:
        raise RunError(f"{file} cannot be read: {exc}") from exc
    version = document.get("format_version") if isinstance(document, dict) else None
    if version != FILE_FORMAT:
        raise RunError(f"{file} has format_version {version!r}, and expected is {FILE_FORMAT}")
    missing = {"scenario", "machine_class", "baselines", "events"} - document.keys()
    if missing:
        raise RunError(f"{file} lacks the keys {', '.join(sorted(missing))}")
    return dict(document)


def write_document(file: Path, document: Mapping[str, Any]) -> None:
    """Replace the file atomically; raises RunError if that fails."""
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)
    # A list of numbers stays on one line: diffs then show one line per quantity.
    text = _NUMBERS.sub(lambda found: f"[{_SPACE.sub(', ', found.group(1).strip())}]", text)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}.new")
        new.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
        new.replace(file)
    except OSError as exc:
        raise RunError(f"{file} cannot be written: {exc}") from exc
