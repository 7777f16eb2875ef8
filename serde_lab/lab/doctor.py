"""Checks what a run needs on this machine, prerequisite by prerequisite, with advice where one is missing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from serde_lab.errors import LabError
from serde_lab.lab.jars.manifest import HUDI, by_hand, find_jar
from serde_lab.lab.session.java import find_java

Level = Literal["ok", "warning", "missing"]

_LEAST_MEMORY_BYTES = 6 << 30
_LEAST_DISK_BYTES = 5 << 30
_PYTHONS = ((3, 11), (3, 13))


@dataclass(frozen=True, slots=True)
class Finding:
    """One prerequisite: what was found, and what to do if that is not enough."""

    name: str
    level: Level
    found: str
    remedy: str = ""


def examine(results: Path, hudi_jar: str = "") -> list[Finding]:
    """Examine all prerequisites; the lab can run if none is `missing`."""
    return [
        _python(),
        _java(),
        _package("pyspark", "3.5."),
        _package("pyarrow", ""),
        _memory(),
        _disk(results),
        _cores(),
        _hudi(hudi_jar),
        _results(results),
    ]


def _python() -> Finding:
    version = platform.python_version()
    low, high = _PYTHONS
    if low <= sys.version_info[:2] < high:
        return Finding("Python", "ok", f"{version} at {sys.executable}")
    return Finding("Python", "missing", version, "use Python 3.11 or 3.12")


def _java() -> Finding:
    try:
        java = find_java()
    except LabError as exc:
        return Finding("Java", "missing", exc.message, exc.hint or "")
    return Finding("Java", "ok", f"{java.version} from {java.origin} ({java.home})")


def _package(name: str, prefix: str) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "missing", "not installed", "run `make setup`")
    if not version.startswith(prefix):
        return Finding(name, "missing", version, f"install {name} {prefix}x: run `make setup`")
    return Finding(name, "ok", version)


def _memory() -> Finding:
    total = psutil.virtual_memory().total
    found = f"{total / (1 << 30):.1f} GiB"
    if total < _LEAST_MEMORY_BYTES:
        advice = (
            "6 GiB or more, of which the JVM's heap takes what measure.driver_memory_mb says, 4 GiB"
        )
        return Finding("memory", "warning", found, advice)
    return Finding("memory", "ok", found)


def _disk(results: Path) -> Finding:
    folder = next(p for p in (results.absolute(), *results.absolute().parents) if p.exists())
    free = shutil.disk_usage(folder).free
    found = f"{free / (1 << 30):.1f} GiB free below {folder}"
    if free < _LEAST_DISK_BYTES:
        return Finding("disk", "warning", found, "free some space: scale factor 0.2 takes 5 GiB")
    return Finding("disk", "ok", found)


def _cores() -> Finding:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if (allowed or 1) < 2:
        return Finding("cores", "warning", f"{allowed}", "2 or more keep Spark and Python apart")
    return Finding("cores", "ok", f"{allowed}")


def _hudi(stated: str) -> Finding:
    name = "Apache Hudi"
    try:
        found = find_jar(HUDI, stated)
    except LabError as exc:
        return Finding(name, "warning", exc.message, exc.hint or "")
    if found is None:
        advice = f"only peers need it: `serde-lab doctor --fetch-hudi`, or {by_hand(HUDI)}"
        return Finding(name, "warning", f"{HUDI.file_name} is not on this machine", advice)
    where = f"{found.path} ({found.origin})"
    if found.note:
        return Finding(name, "warning", where, found.note)
    return Finding(name, "ok", where)


def _results(results: Path) -> Finding:
    try:
        results.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=results):
            pass
    except OSError as exc:
        return Finding(
            "results folder", "missing", f"{results}: {exc.strerror}", "use --results DIR"
        )
    return Finding("results folder", "ok", f"{results.absolute()} can be written")
