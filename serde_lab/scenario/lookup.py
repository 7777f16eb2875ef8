"""Finds scenario files by path or by name.

An argument with a separator or ending in `.toml` is a path. Anything else is a name in a folder of
scenarios: the one that the caller gives, else the one bundled with the package, else the checkout's.
"""

from __future__ import annotations

import os
from pathlib import Path

from serde_lab.errors import ScenarioError
from serde_lab.scenario.problems import listed, suggestion

_PACKAGE = Path(__file__).resolve().parent.parent


def scenario_folder(folder: Path | None = None) -> Path:
    """The folder in which names are looked up. Raises ScenarioError if `folder` is not a folder."""
    if folder is not None:
        if not folder.is_dir():
            raise ScenarioError(f"{folder}: is no folder, expected one with scenario files")
        return folder
    bundled = _PACKAGE / "_scenarios"
    return bundled if bundled.is_dir() else _PACKAGE.parent / "scenarios"


def find_scenario(what: str, folder: Path | None = None) -> Path:
    """The scenario file with the name or path `what`. Raises ScenarioError with the known names."""
    if what.endswith(".toml") or "/" in what or os.sep in what:
        path = Path(what)
        if path.is_dir():
            raise ScenarioError(f"{path}: is a folder, expected a scenario file")
        if not path.is_file():
            raise ScenarioError(f"{path}: no such file")
        return path
    where = scenario_folder(folder)
    path = where / f"{what}.toml"
    if what and path.is_file():
        return path
    names = [file.stem for file in scenario_files(where)]
    near = suggestion(what, names)
    raise ScenarioError(
        f"there is no scenario {what!r} in {where}; known are {listed(names)}{near}",
        "a path ends in .toml",
    )


def scenario_files(folder: Path) -> list[Path]:
    """The scenario files of a folder, sorted by name."""
    return sorted(folder.glob("*.toml"))
