"""Describes the eight TPC-H tables, and makes them as Parquet files with the program `tpchgen-cli`.

Names, keys and sizes are from the TPC-H specification 3.0.1, sections 1.4 and 4.2.5. The program's files have
view types and row groups of 7 MiB. They are rewritten with plain types, one file at a time.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from serde_lab.errors import SetupError, UsageError, did_you_mean
from serde_lab.files import alone_in, is_utf8
from serde_lab.inputs.parquet_rows import ParquetRows
from serde_lab.inputs.parts import Manifest, OnProgress, Part, PartFolder, PartWriter, silent


@dataclass(frozen=True, slots=True)
class TpchTable:
    """One table: its columns in order.

    `primary_key` is unique from scale factor `unique_from` on. Below it, partsupp repeats keys at some
    factors: TPC-H's formula for the four suppliers of a part needs many to choose from. The key's first
    column is an int64, so that new keys can be made by adding to it. `rows_at_factor_1` is exact except for
    lineitem, whose orders have 1 to 7 lines.
    """

    name: str
    columns: tuple[str, ...]
    primary_key: tuple[str, ...]
    rows_at_factor_1: int
    scales: bool = True
    unique_from: float = 0.0

    def rows_at(self, scale_factor: float) -> int:
        """About how many rows the table has at `scale_factor`."""
        return round(self.rows_at_factor_1 * scale_factor) if self.scales else self.rows_at_factor_1


def _table(
    name: str,
    prefix: str,
    columns: str,
    key: str,
    rows: int,
    scales: bool = True,
    unique_from: float = 0.0,
) -> TpchTable:
    def full(names: str) -> tuple[str, ...]:
        return tuple(f"{prefix}_{name}" for name in names.split())

    return TpchTable(name, full(columns), full(key), rows, scales, unique_from)


TABLES: Mapping[str, TpchTable] = {
    table.name: table
    for table in (
        _table("region", "r", "regionkey name comment", "regionkey", 5, scales=False),
        _table("nation", "n", "nationkey name regionkey comment", "nationkey", 25, scales=False),
        _table(
            "supplier", "s", "suppkey name address nationkey phone acctbal comment", "suppkey",
            10_000,
        ),
        _table(
            "customer", "c", "custkey name address nationkey phone acctbal mktsegment comment",
            "custkey", 150_000,
        ),
        _table(
            "part", "p", "partkey name mfgr brand type size container retailprice comment",
            "partkey", 200_000,
        ),
        _table(
            "partsupp", "ps", "partkey suppkey availqty supplycost comment", "partkey suppkey",
            800_000, unique_from=0.03,
        ),
        _table(
            "orders", "o",
            "orderkey custkey orderstatus totalprice orderdate orderpriority clerk shippriority "
            "comment",
            "orderkey", 1_500_000,
        ),
        _table(
            "lineitem", "l",
            "orderkey partkey suppkey linenumber quantity extendedprice discount tax returnflag "
            "linestatus shipdate commitdate receiptdate shipinstruct shipmode comment",
            "orderkey linenumber", 6_001_215,
        ),
    )
}  # fmt: skip
"""Every table by name, the smallest first."""


ROWS_PER_PART = 1_000_000
_RAW = "_raw"
_ROWS_AT_A_TIME = 1 << 17


@dataclass(frozen=True, slots=True)
class Generated:
    """One table on disk; `reused` is true if it existed before."""

    table: str
    folder: Path
    manifest: Manifest
    reused: bool


def generate(
    table: str,
    scale_factor: float,
    out: Path,
    *,
    parts: int | None = None,
    progress: OnProgress = silent,
) -> Generated:
    """Make `out/<table>` unless it exists; an unfinished folder is made again.

    `parts` is the number of files, by default one per million rows. If another process makes the same
    folder, this one waits for it. Raises UsageError for an unknown table, an impossible number, or a folder
    that holds something else or cannot be written, and SetupError if tpchgen-cli is missing or fails.
    """
    wanted = find_table(table)
    if not (math.isfinite(scale_factor) and scale_factor > 0):
        raise UsageError(f"scale factor {scale_factor:g}: expected a number above 0")
    if parts is not None and not 1 <= parts <= 99_999:
        raise UsageError(f"parts {parts}: expected a number from 1 to 99999")
    if not wanted.scales:
        # these tables have 5 and 25 rows at any factor, and the program makes them only in one piece
        scale_factor, parts = 1.0, 1
    elif parts is None:
        parts = max(1, math.ceil(wanted.rows_at(scale_factor) / ROWS_PER_PART))
    request: dict[str, Any] = {"table": table, "scale_factor": float(scale_factor), "parts": parts}
    with alone_to_make(out / table) as folder:
        return _made_once(PartFolder(folder), wanted, scale_factor, request, progress)


@contextmanager
def alone_to_make(folder: Path) -> Iterator[Path]:
    """`folder`, which is made if it is missing; no other process makes its tables while the block lasts.

    Raises UsageError if the folder cannot be written, or has a name under which pyarrow cannot open files.
    """
    if not is_utf8(folder):
        raise UsageError(f"{folder}: its name is not UTF-8", "name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone_in(folder):
            yield folder
    except (FileExistsError, NotADirectoryError, PermissionError) as exc:
        raise UsageError(
            f"{folder}: cannot be written: {exc.strerror or exc}", "name another folder"
        ) from exc


def _made_once(
    target: PartFolder,
    table: TpchTable,
    scale_factor: float,
    request: Mapping[str, Any],
    progress: OnProgress,
) -> Generated:
    """The table in `target`, made unless it is there."""
    there = target.manifest()
    if there is not None:
        _check_same(there, request, target.folder)
        return Generated(table.name, target.folder, there, reused=True)
    if target.is_unfinished():
        # remove the program's files; `begin` clears only our own
        shutil.rmtree(target.folder / _RAW, ignore_errors=True)
    target.begin()
    manifest = _make(target, table, scale_factor, request, progress)
    return Generated(table.name, target.folder, manifest, reused=False)


def find_table(name: str) -> TpchTable:
    """The table with this name. Raises UsageError with the known names."""
    if name in TABLES:
        return TABLES[name]
    raise UsageError(
        f"unknown table {name!r}, the tables are {', '.join(TABLES)}",
        did_you_mean(name.lower(), TABLES),
    )


def generator_version() -> str:
    """Name and version of the program that makes the rows; other versions may make other rows."""
    return f"tpchgen-cli {version('tpchgen-cli')}"


def _check_same(there: Manifest, request: Mapping[str, Any], folder: Path) -> None:
    if there.request != request:
        stored = ", ".join(f"{key} {there.request.get(key)}" for key in request if key != "table")
        wanted = ", ".join(f"{key} {request[key]}" for key in request if key != "table")
        raise UsageError(
            f"{folder}: has the table with {stored}, expected {wanted}",
            "name another folder, or remove this one",
        )


def _make(
    target: PartFolder,
    table: TpchTable,
    scale_factor: float,
    request: Mapping[str, Any],
    progress: OnProgress,
) -> Manifest:
    raw = target.folder / _RAW
    parts = request["parts"]
    expected = table.rows_at(scale_factor)
    try:
        _run_generator(table, scale_factor, parts, raw, progress)
        files = _raw_files(raw, table.name, parts)
        made = list(_rewrite(files, target.folder, expected, f"{table.name}: rows", progress))
    finally:
        shutil.rmtree(raw, ignore_errors=True)
    return target.finish(request, made, {"generator": generator_version()})


def _rewrite(
    files: list[Path], folder: Path, expected: int, task: str, progress: OnProgress
) -> Iterator[Part]:
    done = 0
    for number, file in enumerate(files):
        rows = ParquetRows([file])
        with PartWriter(folder, number, rows.schema) as writer:
            for batch in rows.batches(_ROWS_AT_A_TIME):
                writer.write(batch)
                done += len(batch)
                progress(task, done, max(expected, done + 1))
            part = writer.close()
        # delete each file at once, so that a large table does not need its space twice
        file.unlink()
        yield part
    progress(task, done, done)


def _raw_files(raw: Path, table: str, parts: int) -> list[Path]:
    """The program's files in the order of their part numbers."""
    found = {}
    for file in (raw / table).glob("*.parquet"):
        match = re.fullmatch(rf"{table}\.(\d+)\.parquet", file.name)
        if match:
            found[int(match[1])] = file
    if sorted(found) != list(range(1, parts + 1)):
        raise SetupError(
            f"tpchgen-cli made {len(found)} files of table {table}, expected {parts}",
            "check that its version is the one in requirements.lock",
        )
    return [found[number] for number in sorted(found)]


def _run_generator(
    table: TpchTable, scale_factor: float, parts: int, raw: Path, progress: OnProgress
) -> None:
    command = [
        _program(),
        "parquet",
        f"--tables={table.name}",
        f"--scale-factor={scale_factor!r}",
        f"--parts={parts}",
        f"--output-dir={raw}",
        "--compression=SNAPPY",
        "--quiet",
    ]
    task = f"{table.name}: tpchgen-cli"
    # roughly right for every table; only the progress bar depends on it
    expected_bytes = max(1, table.rows_at(scale_factor) * 40)
    progress(task, 0, expected_bytes)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            while process.poll() is None:
                time.sleep(0.05)
                grown = sum(file.stat().st_size for file in raw.rglob("*") if file.is_file())
                progress(task, min(grown, expected_bytes - 1), expected_bytes)
        except BaseException:
            process.kill()
            process.wait()
            raise
        assert process.stderr is not None
        message = process.stderr.read().decode(errors="replace").strip()
    if process.returncode:
        reason = message.splitlines()[0] if message else "it printed no message"
        raise SetupError(f"tpchgen-cli ended with status {process.returncode}: {reason}")
    progress(task, expected_bytes, expected_bytes)


def _program() -> str:
    """The program in the running Python's environment, else on the PATH."""
    for folder in (sysconfig.get_path("scripts"), str(Path(sys.executable).parent), None):
        found = shutil.which("tpchgen-cli", path=folder)
        if found:
            return found
    raise SetupError(
        "the program tpchgen-cli is missing", "install the package of that name, see `make setup`"
    )
