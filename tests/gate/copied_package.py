"""Copies of the checkout whose code runs in a process of its own, by clocks that count.

Owns what is copied, and how the clocks get in. Must not know what is measured there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def copy_checkout(folder: Path, names: Iterable[str]) -> None:
    """Files and folders of the checkout by `names`; `serde_lab` measures by clocks that count."""
    for name in names:
        if (CHECKOUT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(CHECKOUT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(CHECKOUT / name, folder / name)
    package = folder / "serde_lab"
    shutil.copy(Path(__file__).with_name("counted_clock.py"), package)
    first = package / "__init__.py"
    before, line, after = first.read_text().partition("from __future__ import annotations\n")
    assert line
    first.write_text(f"{before}{line}\nfrom serde_lab import counted_clock\n{after}")
