"""The doctor's findings: the catalogue of all kinds of damage, with severity, effect and cure.

Effects are those observed with Hudi 1.2.0 on Spark 3.5 and hudi-rs 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is.

    `rows`: a reader sees wrong rows or none, now or after the next steps of any writer. `hazard`: right
    today, but a named reader, writer or setting would go wrong. `note`: worth knowing.
    """

    ROWS = "rows"
    HAZARD = "hazard"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of damage."""

    name: str
    severity: Severity
    effect: str
    """What a reader would see, or a writer would do."""
    cure: str
    """How to repair it."""


@dataclass(frozen=True, slots=True)
class TableFinding:
    """One finding. `where`: file, column or instant; `detail`: what was found and what was expected."""

    kind: Kind
    where: str
    detail: str

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def severity(self) -> Severity:
        return self.kind.severity

    def to_dict(self) -> dict[str, str]:
        """The finding for JSON output."""
        return {
            "name": self.kind.name,
            "severity": self.kind.severity.value,
            "where": self.where,
            "detail": self.detail,
            "effect": self.kind.effect,
            "cure": self.kind.cure,
        }


CATALOGUE: dict[str, Kind] = {}


def _kind(name: str, severity: Severity, effect: str, cure: str) -> Kind:
    kind = CATALOGUE[name] = Kind(name, severity, effect, cure)
    return kind


_ROWS, _HAZARD, _NOTE = Severity.ROWS, Severity.HAZARD, Severity.NOTE

NOT_A_TABLE = _kind(
    "not-a-table",
    _ROWS,
    "no reader finds a table",
    "restore .hoodie/hoodie.properties, from hoodie.properties.backup if there is one",
)
PROPERTY_MISSING = _kind(
    "property-missing",
    _ROWS,
    "depending on the key readers fail, see no rows, or leave log files out, most of them silently",
    "write the property into hoodie.properties and delete its .crc file",
)
PROPERTY_WRONG = _kind(
    "property-wrong",
    _ROWS,
    "readers fail, or silently read the table as another kind",
    "put the property right in hoodie.properties and delete its .crc file",
)
UNSUPPORTED_TABLE = _kind(
    "unsupported-table",
    _NOTE,
    "readers that support this kind of table read it; this doctor cannot look at its rows",
    "nothing needs mending; judge it with Apache Hudi itself",
)
CHECKSUM_WRONG = _kind(
    "checksum-wrong",
    _ROWS,
    "Apache Hudi neither reads nor writes the table; hudi-rs does not look",
    "if name and database are right, put hoodie.table.checksum right and delete the .crc file",
)
STALE_CRC = _kind(
    "stale-crc",
    _ROWS,
    "Apache Hudi fails with a checksum error on the local file system; others do not look",
    "delete the .crc file, if the file beside it is the one that is meant",
)
PARTITION_METADATA_MISSING = _kind(
    "partition-metadata-missing",
    _ROWS,
    "Apache Hudi sees no rows of the partition and says nothing; hudi-rs sees them",
    "write .hoodie_partition_metadata into the folder",
)
COMMIT_UNREADABLE = _kind(
    "commit-unreadable",
    _ROWS,
    "readers fail: a completed instant has to be readable",
    "restore the file, or roll back to the instant before it",
)
COMMIT_MISNAMED = _kind(
    "commit-misnamed",
    _ROWS,
    "Apache Hudi fails; hudi-rs does not see the commit",
    "rename the file to <time>_<completion time>.<action>",
)
SCHEMA_MISSING = _kind(
    "schema-missing",
    _HAZARD,
    "Apache Hudi takes the schema from a data file and misreads lists that it did not write",
    "write a commit whose extraMetadata has the schema",
)
INSTANT_DISORDER = _kind(
    "instant-disorder",
    _HAZARD,
    "time travel and incremental reads order these commits otherwise than they happened",
    "nothing, once it is so; keep the writers' clocks together",
)
PENDING_INSTANT = _kind(
    "pending-instant",
    _NOTE,
    "readers do not see it; the next write rolls it back",
    "write once, or roll it back, if its writer is gone",
)
PENDING_WITHOUT_MARKERS = _kind(
    "pending-without-markers",
    _ROWS,
    "Apache Hudi's rollback leaves these files, and archiving makes their rows visible later",
    "let a writer roll it back that lists files (hoodie.rollback.using.markers=false, or this project)",
)
ORPHAN_FILE = _kind(
    "orphan-file",
    _ROWS,
    "its rows are not visible yet; archiving makes them visible once it has passed the instant",
    "delete the file, once it is sure that no writer of it lives",
)
ORPHAN_VISIBLE = _kind(
    "orphan-visible",
    _ROWS,
    "its rows are visible, though no commit on the timeline or in the history wrote them",
    "delete the file, once it is sure that no commit wrote it",
)
FILE_MISSING = _kind(
    "file-missing",
    _ROWS,
    "rows that were committed are gone, and readers say nothing",
    "restore the file",
)
FILE_SIZE_DIFFERS = _kind(
    "file-size-differs",
    _HAZARD,
    "the file is not the one that was committed, or was appended to or cut since",
    "compare the rows with their source; restore the file if it was cut",
)
BASE_FILE_DOUBLED = _kind(
    "base-file-doubled",
    _ROWS,
    "hudi-rs fails; Apache Hudi reads one of the two files, not always the committed one",
    "delete the file that the commit does not name",
)
REPLACED_GROUP_WRITTEN = _kind(
    "replaced-group-written",
    _ROWS,
    "no reader sees these rows: a replaced file group is left out whatever is written to it later",
    "write the rows again, to a new file group",
)
STRAY_PARQUET = _kind(
    "stray-parquet",
    _ROWS,
    "Apache Hudi and hudi-rs fail on the whole table",
    "move the file out of the table's folder",
)
BASE_FILE_UNREADABLE = _kind(
    "base-file-unreadable",
    _ROWS,
    "readers fail on its partition",
    "restore the file, or roll back the instant that wrote it",
)
LOG_DAMAGED = _kind(
    "log-damaged",
    _ROWS,
    "Apache Hudi and hudi-rs leave the block out and say nothing: committed changes are gone",
    "restore the file; else write the changes of its instant again",
)
LOG_UNSUPPORTED = _kind(
    "log-unsupported",
    _NOTE,
    "readers that know the block type read it; this doctor cannot",
    "nothing needs mending",
)
LOG_ONLY_GROUP = _kind(
    "log-only-group",
    _HAZARD,
    "an upsert by Apache Hudi with the SIMPLE or BLOOM index silently duplicates these keys",
    "compact the table, or upsert with the bucket index",
)
BUCKET_WRONG = _kind(
    "bucket-wrong",
    _ROWS,
    "an upsert does not find the key in its bucket and silently writes it a second time",
    "upsert with the number of buckets that the files were written with, or rewrite the table",
)
BUCKET_DOUBLED = _kind(
    "bucket-doubled",
    _ROWS,
    "Apache Hudi's upserts fail: two file groups of one bucket",
    "merge the two file groups, or roll back the instant that made the second",
)
HASHING_METADATA_WRONG = _kind(
    "hashing-metadata-wrong",
    _ROWS,
    "a write creates new buckets for the partition and writes its keys a second time",
    "restore the .hashing_meta file, or rewrite the partition",
)
METADATA_TABLE_STALE = _kind(
    "metadata-table-stale",
    _ROWS,
    "readers that list files through the metadata table do not see these commits",
    "drop the metadata table, or read with hoodie.metadata.enable=false",
)
ORDERING_STRING_PARQUET = _kind(
    "ordering-string-parquet",
    _ROWS,
    "Apache Hudi 1.2.0 compares all rows of such a block with the last one: updates are lost",
    "compact with this project, and write Avro blocks",
)
ORDERING_TYPE = _kind(
    "ordering-type",
    _HAZARD,
    "Apache Hudi 1.2.0's AVRO record type fails on the first update of a stored row (copy on write)",
    "order by a long or a timestamp, or upsert with the SPARK record type",
)
ORDERING_NULL = _kind(
    "ordering-null",
    _HAZARD,
    "Apache Hudi 1.2.0 fails where it compares the null; hudi-rs takes it as the lowest value",
    "give these rows an ordering value",
)
COLUMN_TYPE = _kind(
    "column-type",
    _HAZARD,
    "upserts by Apache Hudi 1.2.0's AVRO record type fail on this file",
    "store timestamps in UTC and decimals as fixed bytes; rewrite the file",
)
NULL_LIST_ELEMENT = _kind(
    "null-list-element",
    _HAZARD,
    "upserts by Apache Hudi's AVRO record type fail unless "
    "parquet.avro.write-old-list-structure=false",
    "use that setting, or replace the nulls",
)
KEY_DOUBLED = _kind(
    "key-doubled",
    _ROWS,
    "all readers return every copy; an upsert replaces only one of them",
    "delete the key and write it once",
)
KEY_IN_PARTITIONS = _kind(
    "key-in-partitions",
    _NOTE,
    "right for an index that is not global; an upsert with a global index would expect one",
    "nothing, unless keys are meant to be unique in the table",
)
KEY_NULL = _kind(
    "key-null", _ROWS, "no upsert or delete can find the row", "write the row again with a key"
)
META_COLUMN_WRONG = _kind(
    "meta-column-wrong",
    _HAZARD,
    "readers return the meta column as it is; upserts look for the row where it is not",
    "rewrite the file group",
)
BLOOM_MISSING = _kind(
    "bloom-missing",
    _HAZARD,
    "upserts with the BLOOM index fail; all other indexes work",
    "upsert with another index; every rewritten file gets its filter",
)
BLOOM_WRONG = _kind(
    "bloom-wrong",
    _HAZARD,
    "an upsert with the BLOOM index misses stored keys and writes them a second time",
    "upsert with another index, or rewrite the file",
)
READERS_DISAGREE = _kind(
    "readers-disagree",
    _ROWS,
    "which rows there are depends on who reads",
    "see the other findings for which reader is right",
)
ROWS_UNREADABLE = _kind(
    "rows-unreadable", _ROWS, "the reader fails", "see the other findings for where"
)
