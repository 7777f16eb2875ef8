"""Inspects the files of a table: codec, footers and log blocks. Implements the check `files_alike`.

It shows that all tables of a run were written on equal terms: a table that leaves out Bloom filters or
statistics takes less work. `report/run/ways_of_upserting.py` compares the facts of arms pair by pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import TableError
from serde_lab.peers.likeness import FILES_ALIKE
from serde_lab.records.schema import META_NAMES, RECORD_KEY
from serde_lab.runs.model import Check
from serde_lab.table.files.base_file import BLOOM_KEY, BLOOM_TYPE_KEY, MAX_KEY, MIN_KEY
from serde_lab.table.files.key_footer import BloomFilter, KeyRange
from serde_lab.table.files.log_block import BlockType, LogBlock, parse_blocks
from serde_lab.table.files.parquet import columns_with_nan
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable

_UNORDERED = "INT96"
"""Parquet's type for old timestamps has no order, so no writer stores its statistics."""
_FLOATS = frozenset({"FLOAT", "DOUBLE"})
_TRIED_KEYS = 1000
_DATA_BLOCKS = {"avro", "parquet", "hfile"}


@dataclass(frozen=True, slots=True)
class WantedFiles:
    """What a table's files must be like: codec, format of log blocks, and whether they have Bloom filters."""

    codec: str
    log_blocks: str = "avro"
    bloom: bool = True


@dataclass
class FileFacts:
    """Sums over the files of a table's latest slices; byte counts are compressed sizes."""

    base_files: int = 0
    base_bytes: int = 0
    bloom_bytes: int = 0
    row_groups: int = 0
    key_ranges: int = 0
    log_files: int = 0
    log_bytes: int = 0
    blocks: dict[str, int] = field(default_factory=dict)
    codecs: set[str] = field(default_factory=set)
    statistics: set[str] = field(default_factory=set)
    """How many columns have statistics, in the form "21 of 21"."""
    without_bloom: int = 0
    """Base files without a Bloom filter."""
    wrong_keys: int = 0
    """Base files whose Bloom filter or key range is not that of their keys."""
    without_statistics: int = 0
    """Row groups of base files in which a column has no statistics, though its type has an order."""
    without_meta: int = 0

    @property
    def words(self) -> str:
        """The facts in one line."""
        parts = [f"{self.base_files} base files of {self.base_bytes:,} B"]
        if self.base_files:
            bloom = f"{self.bloom_bytes:,} B" if self.bloom_bytes else "none"
            parts += [
                f"bloom filters {bloom}",
                f"key ranges in {self.key_ranges}",
                f"statistics of {', '.join(sorted(self.statistics))} columns",
                f"{self.row_groups} row groups",
            ]
        if self.log_files:
            blocks = ", ".join(f"{n} {kind}" for kind, n in sorted(self.blocks.items()))
            parts.append(f"{self.log_files} log files of {self.log_bytes:,} B, blocks: {blocks}")
        parts.append(f"codec {', '.join(sorted(self.codecs)) or 'none'}")
        return "; ".join(parts)

    @property
    def to_compare(self) -> dict[str, int | str]:
        """What reports compare between arms; byte counts are whole numbers."""
        found: dict[str, int | str] = {
            "codec": ", ".join(sorted(self.codecs)) or "none",
            "base_files": self.base_files,
            "base_bytes": self.base_bytes,
            "row_groups": self.row_groups,
            "bloom_bytes": self.bloom_bytes,
            "key_ranges": self.key_ranges,
            "statistics": ", ".join(sorted(self.statistics)) or "none",
        }
        if self.log_files:
            found |= {
                "log_files": self.log_files,
                "log_bytes": self.log_bytes,
                "log_blocks": ", ".join(sorted(self.data_blocks)) or "none",
            }
        return found

    @property
    def data_blocks(self) -> set[str]:
        """The formats of the log blocks that hold rows."""
        return self.blocks.keys() & _DATA_BLOCKS


def read_facts(table: HoodieTable, folder: Path) -> FileFacts:
    facts = FileFacts()
    for one in table.view().latest_file_slices():
        if one.base_file is not None:
            facts.base_files += 1
            facts.base_bytes += one.base_file.size_bytes
            _add_parquet(facts, pq.ParquetFile(folder / one.base_file.path), footer=True)
        for log in one.log_files:
            facts.log_files += 1
            facts.log_bytes += log.size_bytes
            _add_blocks(facts, folder / log.path)
    return facts


def _add_parquet(facts: FileFacts, file: pq.ParquetFile, footer: bool) -> None:
    with file:
        metadata = file.metadata
        groups = [
            [metadata.row_group(number).column(i) for i in range(metadata.num_columns)]
            for number in range(metadata.num_row_groups)
        ]
        facts.codecs |= {column.compression.lower() for group in groups for column in group}
        names = {metadata.schema.column(i).name for i in range(metadata.num_columns)}
        facts.without_meta += not set(META_NAMES) <= names
        if not footer:
            return
        keys = metadata.metadata or {}
        bloom_bytes = len(keys.get(BLOOM_KEY.encode(), b""))
        facts.bloom_bytes += bloom_bytes
        facts.without_bloom += not bloom_bytes
        facts.key_ranges += MIN_KEY.encode() in keys and MAX_KEY.encode() in keys
        if bloom_bytes:
            facts.wrong_keys += not _tells_keys(
                file, {k.decode(): v.decode() for k, v in keys.items()}
            )
        facts.row_groups += len(groups)
        for columns in groups:
            seen = sum(column.is_stats_set for column in columns)
            facts.statistics.add(f"{seen} of {len(columns)}")
            facts.without_statistics += any(_lacks_statistics(file, column) for column in columns)


def _tells_keys(file: pq.ParquetFile, footer: Mapping[str, str]) -> bool:
    """Whether the filter has keys of the file, drawn at random, and the range, if there is one, is theirs."""
    keys = file.read(columns=[RECORD_KEY]).column(0)
    extent = KeyRange()
    for chunk in keys.chunks:
        extent.add(chunk)
    for stated, found in ((MIN_KEY, extent.least), (MAX_KEY, extent.greatest)):
        if footer.get(stated, found) != found:
            return False
    try:
        bloom = BloomFilter.from_footer(footer[BLOOM_KEY], footer.get(BLOOM_TYPE_KEY, ""), "")
    except TableError:
        return False
    # by the operating system's chance, so that no writer knows which are tried
    drawn = np.random.default_rng().integers(len(keys), size=_TRIED_KEYS if len(keys) else 0)
    tried = pa.chunked_array([keys.take(pa.array(drawn))], pa.string()).combine_chunks()
    return bool(bloom.may_contain(tried).all())


def _lacks_statistics(file: pq.ParquetFile, column: pq.ColumnChunkMetaData) -> bool:
    found = column.statistics
    if found is not None and (found.has_min_max or not found.num_values):
        return False
    if column.physical_type == _UNORDERED:
        return False
    if column.physical_type not in _FLOATS:
        return True
    # NaN has no place between minimum and maximum
    whole = column.path_in_schema.partition(".")[0]
    return not columns_with_nan(file.read(columns=[whole]))


def _add_blocks(facts: FileFacts, path: Path) -> None:
    with pa.memory_map(str(path)) as mapped:
        for block in parse_blocks(mapped.read_buffer()):
            kind = _kind(block) if isinstance(block, LogBlock) else "damaged"
            facts.blocks[kind] = facts.blocks.get(kind, 0) + 1
            if isinstance(block, LogBlock) and kind == "parquet":
                _add_parquet(facts, pq.ParquetFile(pa.BufferReader(block.content)), footer=False)


def _kind(block: LogBlock) -> str:
    try:
        return BlockType(block.type).name.lower().removesuffix("_data").removesuffix("_block")
    except ValueError:
        return f"type {block.type}"


def files_alike(folder: Path, wanted: WantedFiles) -> Check:
    """Check that a table's files are as `wanted` and have meta columns, statistics and key ranges.

    The detail of the result lists the other facts.
    """
    try:
        facts = read_facts(HoodieTable.open(Storage.open(folder)), folder)
    except (TableError, pa.ArrowException, OSError) as exc:
        return Check(FILES_ALIKE, False, f"its files cannot be read: {exc}")
    return _check(facts, [*_problems(facts, wanted)])


def plain_files_alike(files: Iterable[Path], codec: str) -> Check:
    """Check codec and statistics of the data files of a table that is not Hudi's and has no meta columns."""
    facts = FileFacts()
    try:
        for file in files:
            facts.base_files += 1
            facts.base_bytes += file.stat().st_size
            _add_parquet(facts, pq.ParquetFile(file), footer=True)
    except (pa.ArrowException, OSError) as exc:
        return Check(FILES_ALIKE, False, f"its files cannot be read: {exc}")
    return _check(facts, [*_codec_problems(facts, codec), *_statistics_problems(facts)])


def _check(facts: FileFacts, problems: list[str]) -> Check:
    detail = "; ".join([*problems, facts.words])
    return Check(FILES_ALIKE, not problems, detail, facts=facts.to_compare)


def _problems(facts: FileFacts, wanted: WantedFiles) -> Iterable[str]:
    yield from _codec_problems(facts, wanted.codec)
    blocks = facts.data_blocks - {wanted.log_blocks}
    if blocks:
        yield f"expected {wanted.log_blocks} log blocks, found {', '.join(sorted(blocks))}"
    if wanted.bloom and facts.without_bloom:
        yield f"{facts.without_bloom} of {facts.base_files} base files have no Bloom filter"
    if facts.wrong_keys:
        yield (
            f"{facts.wrong_keys} of {facts.base_files} base files have a Bloom filter or a key range of"
            " other keys"
        )
    yield from _statistics_problems(facts)
    if facts.without_meta:
        yield f"{facts.without_meta} files or blocks have no meta columns"
    # without bloom filters Apache Hudi leaves out the key range too
    if facts.bloom_bytes and facts.key_ranges != facts.base_files:
        yield f"only {facts.key_ranges} of {facts.base_files} base files store their key range"


def _codec_problems(facts: FileFacts, codec: str) -> Iterable[str]:
    foreign = facts.codecs - {"lz4": {"lz4", "lz4_raw"}}.get(codec, {codec})
    if foreign:
        yield f"expected codec {codec}, found {', '.join(sorted(foreign))}"


def _statistics_problems(facts: FileFacts) -> Iterable[str]:
    if facts.without_statistics:
        yield (
            f"{facts.without_statistics} of {facts.row_groups} row groups lack statistics of a column"
        )
