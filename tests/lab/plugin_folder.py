"""Makes a folder in which a plug-in is installed, as `pip install --target` would leave it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from serde_lab.serde.registry import GROUP


def install(folder: Path, module: Path, strategies: Iterable[tuple[str, str]]) -> Path:
    """`module` with its entry points (name, class) in `folder`, which is returned."""
    info = folder / f"{module.stem}-1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(module, folder)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.stem}\nVersion: 1.0\n")
    lines = [f"{name} = {module.stem}:{class_name}\n" for name, class_name in strategies]
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{''.join(lines)}")
    files = [module.name, *(f"{info.name}/{name}" for name in ("METADATA", "entry_points.txt"))]
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, f"{info.name}/RECORD")))
    return folder
