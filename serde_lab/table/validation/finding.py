"""The findings of a validation: the catalogue of all kinds of damage, with severity, effect and cure.

Effects are those observed with Hudi 1.2.0 on Spark 3.5 and hudi-rs 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, unique


class Severity(StrEnum):
    """How bad a finding is.

    `rows`: a reader sees wrong rows or none, now or after the next steps of any writer. `hazard`: right
    today, but a named reader, writer or setting would go wrong. `note`: worth knowing.
    """

    ROWS = "rows"
    HAZARD = "hazard"
    NOTE = "note"


def _rows(effect: str, cure: str) -> tuple[Severity, str, str]:
    return Severity.ROWS, effect, cure


def _hazard(effect: str, cure: str) -> tuple[Severity, str, str]:
    return Severity.HAZARD, effect, cure


def _note(effect: str, cure: str) -> tuple[Severity, str, str]:
    return Severity.NOTE, effect, cure


@unique
class Kind(Enum):
    """All kinds of damage: what a reader would see or a writer would do, and how to repair it."""

    def __init__(self, severity: Severity, effect: str, cure: str) -> None:
        self.severity, self.effect, self.cure = severity, effect, cure

    NOT_A_TABLE = _rows(
        "no reader finds a table",
        "restore .hoodie/hoodie.properties, from hoodie.properties.backup if there is one",
    )
    PROPERTY_MISSING = _rows(
        "depending on the key readers fail, see no rows, or leave log files out, most of them silently",
        "write the property into hoodie.properties and delete its .crc file",
    )
    PROPERTY_WRONG = _rows(
        "readers fail, or silently read the table as another kind",
        "put the property right in hoodie.properties and delete its .crc file",
    )
    UNSUPPORTED_TABLE = _note(
        "readers that support this kind of table read it; the lab cannot look at its rows",
        "nothing needs mending; judge it with Apache Hudi itself",
    )
    CHECKSUM_WRONG = _rows(
        "Apache Hudi neither reads nor writes the table; hudi-rs does not look",
        "if name and database are right, put hoodie.table.checksum right and delete the .crc file",
    )
    STALE_CRC = _rows(
        "Apache Hudi fails with a checksum error on the local file system; others do not look",
        "delete the .crc file, if the file beside it is the one that is meant",
    )
    PARTITION_METADATA_MISSING = _rows(
        "Apache Hudi sees no rows of the partition and says nothing; hudi-rs sees them",
        "write .hoodie_partition_metadata into the folder",
    )
    COMMIT_UNREADABLE = _rows(
        "readers fail: a completed instant has to be readable",
        "restore the file, or roll back to the instant before it",
    )
    COMMIT_MISNAMED = _rows(
        "Apache Hudi fails; hudi-rs does not see the commit",
        "rename the file to <time>_<completion time>.<action>",
    )
    SCHEMA_MISSING = _hazard(
        "Apache Hudi takes the schema from a data file and misreads lists that it did not write",
        "write a commit whose extraMetadata has the schema",
    )
    INSTANT_DISORDER = _hazard(
        "time travel and incremental reads order these commits otherwise than they happened",
        "nothing changes what has happened; keep the clocks of the writers in step",
    )
    PENDING_INSTANT = _note(
        "readers do not see it; the next write rolls it back",
        "write once, or roll it back, if its writer is gone",
    )
    PENDING_WITHOUT_MARKERS = _rows(
        "Apache Hudi's rollback leaves these files, and archiving makes their rows visible later",
        "let a writer roll it back that lists files (hoodie.rollback.using.markers=false, or this project)",
    )
    ORPHAN_FILE = _rows(
        "its rows are not visible yet; archiving makes them visible once it has passed the instant",
        "delete the file, once it is sure that no writer of it lives",
    )
    ORPHAN_VISIBLE = _rows(
        "its rows are visible, though no commit on the timeline or in the history wrote them",
        "delete the file, once it is sure that no commit wrote it",
    )
    FILE_MISSING = _rows(
        "rows that were committed are gone, and readers say nothing",
        "restore the file",
    )
    FILE_SIZE_DIFFERS = _hazard(
        "the file is not the one that was committed, or was appended to or cut since",
        "compare the rows with their source; restore the file if it was cut",
    )
    FILE_ROWS_DIFFER = _rows(
        "rows that were committed are gone, or there are others, and readers say nothing",
        "restore the file, or roll back the instant that wrote it",
    )
    BASE_FILE_DOUBLED = _rows(
        "hudi-rs fails; Apache Hudi reads one of the two files, not always the committed one",
        "delete the file that the commit does not name",
    )
    REPLACED_GROUP_WRITTEN = _rows(
        "no reader sees these rows: a replaced file group is left out whatever is written to it later",
        "write the rows again, to a new file group",
    )
    STRAY_PARQUET = _rows(
        "Apache Hudi and hudi-rs fail on the whole table",
        "move the file out of the table's folder",
    )
    BASE_FILE_UNREADABLE = _rows(
        "readers fail on its partition",
        "restore the file, or roll back the instant that wrote it",
    )
    LOG_DAMAGED = _rows(
        "Apache Hudi and hudi-rs leave the block out and say nothing: committed changes are gone",
        "restore the file; else write the changes of its instant again",
    )
    LOG_UNSUPPORTED = _note(
        "readers that know the block type read it; the lab cannot",
        "nothing needs mending",
    )
    LOG_ONLY_GROUP = _hazard(
        "an upsert by Apache Hudi with the SIMPLE or BLOOM index silently duplicates these keys",
        "compact the table, or upsert with the bucket index",
    )
    BUCKET_WRONG = _rows(
        "an upsert does not find the key in its bucket and silently writes it a second time",
        "upsert with the number of buckets that the files were written with, or rewrite the table",
    )
    BUCKET_DOUBLED = _rows(
        "Apache Hudi's upserts fail: two file groups of one bucket",
        "merge the two file groups, or roll back the instant that made the second",
    )
    HASHING_METADATA_WRONG = _rows(
        "a write creates new buckets for the partition and writes its keys a second time",
        "restore the .hashing_meta file, or rewrite the partition",
    )
    METADATA_TABLE_STALE = _rows(
        "readers that list files through the metadata table do not see these commits",
        "drop the metadata table, or read with hoodie.metadata.enable=false",
    )
    ORDERING_STRING_PARQUET = _rows(
        "Apache Hudi 1.2.0 compares all rows of such a block with the last one: updates are lost",
        "compact with this project, and write Avro blocks",
    )
    ORDERING_TYPE = _hazard(
        "Apache Hudi 1.2.0's AVRO record type fails on the first update of a stored row (copy on write)",
        "order by a long or a timestamp, or upsert with the SPARK record type",
    )
    ORDERING_NULL = _hazard(
        "Apache Hudi 1.2.0 fails where it compares the null; hudi-rs takes it as the lowest value",
        "give these rows an ordering value",
    )
    COLUMN_TYPE = _hazard(
        "upserts by Apache Hudi 1.2.0's AVRO record type fail on this file",
        "store timestamps in UTC and decimals as fixed bytes; rewrite the file",
    )
    NULL_LIST_ELEMENT = _hazard(
        "upserts by Apache Hudi's AVRO record type fail unless "
        "parquet.avro.write-old-list-structure=false",
        "use that setting, or replace the nulls",
    )
    KEY_DOUBLED = _rows(
        "all readers return every copy; an upsert replaces only one of them",
        "delete the key and write it once",
    )
    KEY_IN_PARTITIONS = _note(
        "right for an index that is not global; an upsert with a global index would expect one",
        "nothing, unless keys are meant to be unique in the table",
    )
    KEY_NULL = _rows(
        "no upsert or delete can find the row",
        "write the row again with a key",
    )
    META_COLUMN_WRONG = _hazard(
        "readers return the meta column as it is; upserts look for the row where it is not",
        "rewrite the file group",
    )
    BLOOM_MISSING = _hazard(
        "upserts with the BLOOM index fail; all other indexes work",
        "upsert with another index; every rewritten file gets its filter",
    )
    BLOOM_WRONG = _hazard(
        "an upsert with the BLOOM index misses stored keys and writes them a second time",
        "upsert with another index, or rewrite the file",
    )
    READERS_DISAGREE = _rows(
        "which rows there are depends on who reads",
        "see the other findings for which reader is right",
    )
    ROWS_UNREADABLE = _rows(
        "the reader fails",
        "see the other findings for where",
    )

    @property
    def label(self) -> str:
        """The name in JSON and on the terminal."""
        return self.name.lower().replace("_", "-")

    def at(self, where: str, detail: str) -> TableFinding:
        return TableFinding(self, where, detail)


@dataclass(frozen=True, slots=True)
class TableFinding:
    """One finding. `where`: file, column or instant; `detail`: what was found and what was expected."""

    kind: Kind
    where: str
    detail: str

    @property
    def name(self) -> str:
        return self.kind.label

    @property
    def severity(self) -> Severity:
        return self.kind.severity

    def to_dict(self) -> dict[str, str]:
        return {
            "name": self.name,
            "severity": self.severity.value,
            "where": self.where,
            "detail": self.detail,
            "effect": self.kind.effect,
            "cure": self.kind.cure,
        }
