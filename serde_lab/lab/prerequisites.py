"""Checks what a run needs on this machine, prerequisite by prerequisite, with advice where one is missing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from serde_lab.errors import LabError
from serde_lab.lab.jars.manifest import (
    FORMATS,
    HUDI,
    KAFKA_BROKER,
    KAFKA_CONNECTOR,
    Jar,
    by_hand,
    find_jar,
    find_jars,
    how_to_get,
)
from serde_lab.lab.session.session import find_java

Level = Literal["ok", "warning", "missing"]

_LEAST_MEMORY_BYTES = 6 << 30
_LEAST_DISK_BYTES = 5 << 30
_PYTHONS = ((3, 11), (3, 14))


@dataclass(frozen=True, slots=True)
class Prerequisite:
    """One prerequisite: what was found, and the remedy if that is not enough."""

    name: str
    level: Level
    found: str
    remedy: str = ""


def examine(results: Path, hudi_jar: str = "") -> list[Prerequisite]:
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
        _jars(
            "Apache Kafka",
            (*KAFKA_BROKER, *KAFKA_CONNECTOR),
            "streams from Kafka only, not by streams of files",
            "--fetch-kafka",
            "jars of broker and connector",
        ),
        *(
            _jars(jars[0].title, jars, f"the control {control} only", "--fetch-formats")
            for control, jars in FORMATS.items()
        ),
        _results(results),
    ]


def _python() -> Prerequisite:
    version = platform.python_version()
    low, high = _PYTHONS
    if low <= sys.version_info[:2] < high:
        return Prerequisite("Python", "ok", f"{version} at {sys.executable}")
    return Prerequisite("Python", "missing", version, "use Python 3.11, 3.12 or 3.13")


def _java() -> Prerequisite:
    try:
        java = find_java()
    except LabError as exc:
        return Prerequisite("Java", "missing", exc.message, exc.hint or "")
    return Prerequisite("Java", "ok", f"{java.version} from {java.origin} ({java.home})")


def _package(name: str, prefix: str) -> Prerequisite:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Prerequisite(name, "missing", "not installed", "run `make setup`")
    if not version.startswith(prefix):
        return Prerequisite(name, "missing", version, f"install {name} {prefix}x: run `make setup`")
    return Prerequisite(name, "ok", version)


def _memory() -> Prerequisite:
    total = psutil.virtual_memory().total
    found = f"{total / (1 << 30):.1f} GiB"
    if total < _LEAST_MEMORY_BYTES:
        advice = "use 6 GiB or more; the JVM's heap takes measure.driver_memory_mb of it, by default 4 GiB"
        return Prerequisite("memory", "warning", found, advice)
    return Prerequisite("memory", "ok", found)


def _disk(results: Path) -> Prerequisite:
    folder = next(p for p in (results.absolute(), *results.absolute().parents) if p.exists())
    free = shutil.disk_usage(folder).free
    found = f"{free / (1 << 30):.1f} GiB free below {folder}"
    if free < _LEAST_DISK_BYTES:
        return Prerequisite(
            "disk", "warning", found, "free some space: a run at scale factor 0.2 needs 5 GiB"
        )
    return Prerequisite("disk", "ok", found)


def _cores() -> Prerequisite:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if (allowed or 1) < 2:
        return Prerequisite(
            "cores",
            "warning",
            f"{allowed}",
            "use 2 or more, so that Spark and Python do not compete for one",
        )
    return Prerequisite("cores", "ok", f"{allowed}")


def _hudi(stated: str) -> Prerequisite:
    name = "Apache Hudi"
    try:
        found = find_jar(HUDI, stated)
    except LabError as exc:
        return Prerequisite(name, "warning", exc.message, exc.hint or "")
    if found is None:
        advice = f"needed by peers only: run `serde-lab doctor --fetch-hudi`, or {by_hand(HUDI)}"
        return Prerequisite(name, "warning", f"{HUDI.file_name} is not on this machine", advice)
    where = f"{found.path} ({found.origin})"
    if found.note:
        return Prerequisite(name, "warning", where, found.note)
    return Prerequisite(name, "ok", where)


def _jars(
    name: str, jars: Sequence[Jar], needed_by: str, option: str, what: str = "jars"
) -> Prerequisite:
    """A set of jars that only some runs need, and the option of `doctor` that downloads it."""
    try:
        found, missing = find_jars(jars)
    except LabError as exc:
        return Prerequisite(name, "warning", exc.message, exc.hint or "")
    if missing:
        advice = f"needed by {needed_by}: {how_to_get(missing, option)}"
        lacking = f"{len(missing)} of {len(jars)} {what} are not on this machine"
        return Prerequisite(name, "warning", lacking, advice)
    if len(jars) == 1:
        return Prerequisite(name, "ok", str(found[0]))
    folder = os.path.commonpath([path.parent for path in found])
    return Prerequisite(name, "ok", f"{len(jars)} jars in {folder}")


def _results(results: Path) -> Prerequisite:
    try:
        results.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=results):
            pass
    except OSError as exc:
        return Prerequisite(
            "results folder", "missing", f"{results}: {exc.strerror}", "use --results DIR"
        )
    return Prerequisite("results folder", "ok", f"{results.absolute()} is writable")
