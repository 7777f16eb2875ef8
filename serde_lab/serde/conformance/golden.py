"""Reads and writes files of golden frames: bytes of older versions, which must always decode.

A folder holds, for each setting of options and each version of the bytes, `<setting>-<version>.json`:
the options, the frames in hexadecimal, and the name of the file `batch-<n>.arrow` (an Arrow stream)
with the batch that the frames hold. Files are added, never rewritten.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from serde_lab.serde.equality import first_difference
from serde_lab.serde.interface import SerdeOptions


@dataclass(frozen=True, slots=True)
class Golden:
    """One file of golden frames; `newest` if no later version of its setting exists."""

    path: Path
    options: SerdeOptions
    batch: pa.RecordBatch
    frames: pa.BinaryArray
    newest: bool


@dataclass(frozen=True, slots=True)
class GoldenFolder:
    """The golden frames of one strategy."""

    path: Path

    def versions(self) -> list[Golden]:
        """All golden frames, by setting and version."""
        files = sorted(
            self.path.glob("*.json"), key=lambda p: (p.stem.rpartition("-")[0], _version(p))
        )
        newest = {p.stem.rpartition("-")[0]: p for p in files}
        return [_read(p, newest=p in newest.values()) for p in files]

    def offer(self, options: SerdeOptions, batch: pa.RecordBatch, frames: pa.BinaryArray) -> None:
        """With SERDE_LAB_UPDATE_GOLDEN=1, add `frames` unless they equal the newest ones of this setting."""
        if os.environ.get("SERDE_LAB_UPDATE_GOLDEN") != "1":
            return
        setting = _setting(options)
        olds = [g for g in self.versions() if g.path.stem.rpartition("-")[0] == setting]
        if olds and olds[-1].frames.equals(frames):
            return
        number = _version(olds[-1].path) + 1 if olds else 1
        self.path.mkdir(parents=True, exist_ok=True)
        content = {
            "options": asdict(options),
            "batch": self._keep(batch),
            "frames": [frame.hex() for frame in frames.to_pylist()],
        }
        target = self.path / f"{setting}-{number}.json"
        target.write_text(json.dumps(content, indent=1) + "\n")

    def _keep(self, batch: pa.RecordBatch) -> str:
        for path, kept in self._batches():
            if first_difference(kept, batch) is None:
                return path.name
        path = self.path / f"batch-{1 + len(list(self._batches()))}.arrow"
        with pa.ipc.new_stream(path, batch.schema) as stream:
            stream.write_batch(batch)
        return path.name

    def _batches(self) -> Iterator[tuple[Path, pa.RecordBatch]]:
        for path in sorted(self.path.glob("batch-*.arrow")):
            yield path, _read_batch(path)


def _setting(options: SerdeOptions) -> str:
    """A file name for options: those that differ from the defaults."""
    default = asdict(SerdeOptions())
    changed = {k: v for k, v in asdict(options).items() if k != "own" and v != default[k]}
    words = [f"{key}={value}" for key, value in {**changed, **options.own}.items()]
    return re.sub(r"[^A-Za-z0-9_=]+", "_", "-".join(words).replace("-", ",")) or "default"


def _version(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def _read(path: Path, *, newest: bool) -> Golden:
    content = json.loads(path.read_text())
    frames = pa.array([bytes.fromhex(frame) for frame in content["frames"]], pa.binary())
    batch = _read_batch(path.parent / content["batch"])
    return Golden(path, SerdeOptions(**content["options"]), batch, frames, newest)


def _read_batch(path: Path) -> pa.RecordBatch:
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        return stream.read_next_batch()
