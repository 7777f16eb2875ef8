"""Reads the cores and memory that a container allows, from Linux control groups of versions 1 and 2.

Sources are the files in /sys/fs/cgroup and the marks that containers leave.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# version 1 writes "no limit" as the largest page-aligned number
_UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of this process's control group; None if there is none. `cores` may be a fraction."""

    cores: float | None
    memory_bytes: int | None


def limits(root: Path = Path("/")) -> Limits:
    """The tightest limits from this process's control group up to the root of the tree.

    `root` is the file system's root, which tests replace.
    """
    cores: list[float] = []
    memory: list[int] = []
    for controllers, folder in _groups(root):
        if not controllers:
            quota, _, period = (_text(folder / "cpu.max") or "max").partition(" ")
            if quota.isdigit() and int(period or 0) > 0:
                cores.append(int(quota) / int(period))
            most = _text(folder / "memory.max") or "max"
            if most.isdigit():
                memory.append(int(most))
        if "cpu" in controllers:
            quota = _text(folder / "cpu.cfs_quota_us") or "-1"
            period = _text(folder / "cpu.cfs_period_us") or "100000"
            if quota.isdigit() and int(quota) > 0 and int(period) > 0:
                cores.append(int(quota) / int(period))
        if "memory" in controllers:
            most = _text(folder / "memory.limit_in_bytes") or ""
            if most.isdigit() and int(most) < _UNLIMITED_BYTES:
                memory.append(int(most))
    return Limits(min(cores, default=None), min(memory, default=None))


def container_kind(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> str:
    """The kind of container that this process runs in; "" if none is recognised."""
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    return ""


def _groups(root: Path) -> Iterator[tuple[frozenset[str], Path]]:
    """Each control group above this process, with its version 1 controllers (empty for version 2)."""
    tree = root / "sys/fs/cgroup"
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, names, path = [*line.split(":", 2), "", ""][:3]
        controllers = frozenset(names.split(",")) - {""}
        if controllers:
            mount = next((tree / n for n in (names, *controllers) if (tree / n).is_dir()), None)
        else:
            mount = tree / "unified" if (tree / "unified").is_dir() else tree
        if mount is None:
            continue
        folder = mount / path.strip("/")
        # inside a container the path is the host's: then only the mount itself is readable
        while folder != mount:
            yield controllers, folder
            folder = folder.parent
        yield controllers, mount


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
