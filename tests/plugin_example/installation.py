"""Installs the example without a network: what `pip install --target` would leave in a folder.

The folder holds the plug-in's module and its metadata with the entry point; whoever has it on the path
(`sys.path`, or PYTHONPATH for workers of Spark) finds the strategy by name.
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

SOURCE = Path(__file__).parent


def install(target: Path) -> Path:
    """Install into `target`, which is made; returns it."""
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(SOURCE / "json_lines.py", target)
    name, version = project["name"], project["version"]
    info = target / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    sections = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(sections))
    return target
