"""Parsing and formatting of data file names: file id, write token, instant, log version.

Source: org.apache.hudi.common.fs.FSUtils.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Self

_BASE = re.compile(r"^([^._][^_]*)_([^_.]*)_(\d{14,17})\.parquet$")
_LOG = re.compile(r"^\.([^._]+)_(\d{14,17})\.log\.(\d+)(?:_(\d+-\d+-\d+))?$")

MarkerKind = Literal["CREATE", "MERGE", "APPEND"]


def write_token(task_partition: int, stage: int, attempt: int = 0) -> str:
    """`<task partition>-<stage>-<attempt>`.

    Our writers keep the attempt at 0: retries and concurrent attempts write the same name, so one file group
    never gets two files of one instant.
    """
    return f"{task_partition}-{stage}-{attempt}"


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """`<file id>_<write token>_<instant>.parquet`."""

    file_id: str
    write_token: str
    instant: str

    def __str__(self) -> str:
        return f"{self.file_id}_{self.write_token}_{self.instant}.parquet"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        match = _BASE.match(name)
        return None if match is None else cls(match[1], match[2], match[3])


@dataclass(frozen=True, slots=True)
class LogFileName:
    """`.<file id>_<instant>.log.<version>_<write token>`.

    From table version 8 on, `instant` is the deltacommit's; before, the base file's.
    """

    file_id: str
    instant: str
    version: int
    write_token: str

    def __str__(self) -> str:
        return f".{self.file_id}_{self.instant}.log.{self.version}_{self.write_token}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        match = _LOG.match(name)
        return None if match is None else cls(match[1], match[2], int(match[3]), match[4] or "")


def in_partition(partition_path: str, name: str) -> str:
    """A file's path relative to the table; the partition "" is the table's own folder."""
    return f"{partition_path}/{name}" if partition_path else name
