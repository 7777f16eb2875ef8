"""What long runs of tests came to, one JSON line each, under the versions that it was tried with."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from serde_lab.lab.jars.manifest import HUDI

_VERSIONS = "versions"


class Journal:
    """A file of entries, which a run that was interrupted goes on with."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entries(self) -> Iterator[dict[str, Any]]:
        """What was tried with these versions, in order; a torn line is as if it was not there."""
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        for line in lines:
            try:
                content: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            if content.pop(_VERSIONS) == versions():
                yield content

    def add(self, content: Mapping[str, Any]) -> None:
        """Keep an entry, on disk before anything else."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            line = json.dumps({**content, _VERSIONS: versions()})
            # on a line of its own, whatever was torn before it
            file.write(f"\n{line}\n".encode())


def versions() -> dict[str, str]:
    """Of everything that reads or writes here, the project itself apart."""
    named = {"hudi-rs": "hudi", "Spark": "pyspark", "pyarrow": "pyarrow"}
    found = {name: importlib.metadata.version(package) for name, package in named.items()}
    return {"Apache Hudi": HUDI.version, **found, "Python": platform.python_version()}


def code_version() -> str:
    """The commit of the checkout."""
    answer = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip()


def today() -> str:
    """The day in UTC."""
    return f"{datetime.now(UTC):%Y-%m-%d}"
