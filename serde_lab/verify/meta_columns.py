"""Checks the five meta columns of a table's rows against their data and the table's files and timeline.

The expected key texts come from `key_text.py`, which is independent of the writer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.verify.difference import in_words, key_words
from serde_lab.verify.key_text import partition_paths, record_keys
from serde_lab.verify.readers import TableFacts
from serde_lab.verify.row_hash import Hashes, hash_column, mix
from serde_lab.verify.rules import META_COLUMNS, TableRules

COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME = META_COLUMNS


@dataclass
class MetaColumns:
    """Checks batches one by one; `problems` then says, for each broken rule, how often and where."""

    rules: TableRules
    facts: TableFacts
    rows: int = 0
    _broken: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> Hashes:
        """Check a batch with meta columns; returns one word per row for its partition path and key.

        Raises SchemaError for a key of a type whose text is not known.
        """
        self.rows += batch.num_rows
        missing = [name for name in META_COLUMNS if name not in batch.schema.names]
        keys, paths = record_keys(batch, self.rules), partition_paths(batch, self.rules)
        if missing:
            self._broken.setdefault(f"the rows have no {', '.join(missing)}", (batch.num_rows, ""))
        else:
            for name in META_COLUMNS:
                self._note(batch, batch.column(name).is_null(), f"{name} is null", name)
            for name, texts in ((RECORD_KEY, keys), (PARTITION_PATH, paths)):
                wrong = pc.not_equal(batch.column(name), texts.combine_chunks())
                self._note(batch, wrong, f"{name} does not follow from the data", name)
            self._files(batch)
            self._instants(batch)
        return mix(hash_column(PARTITION_PATH, paths) + hash_column(RECORD_KEY, keys))

    @property
    def problems(self) -> list[str]:
        """One sentence per broken rule; empty if there is none."""
        return [
            f"{rule} in {count:,} row{'' if count == 1 else 's'}{where}"
            for rule, (count, where) in self._broken.items()
        ]

    def _files(self, batch: pa.RecordBatch) -> None:
        places = _distinct(batch, PARTITION_PATH, FILE_NAME)
        known = np.array(
            [name in self.facts.files.get(path or "", ()) for path, name in places.values], np.bool_
        )
        wrong = ~known[places.index] if len(known) else np.zeros(0, np.bool_)
        self._note(
            batch, pa.array(wrong), f"{FILE_NAME} is not a file of the latest slices", FILE_NAME
        )

    def _instants(self, batch: pa.RecordBatch) -> None:
        times = batch.column(COMMIT_TIME)
        known = pc.is_in(times, value_set=pa.array(self.facts.instants, pa.string()))
        if self.facts.archived and self.facts.instants:
            known = pc.or_(known, pc.less(times, self.facts.instants[0]))
        self._note(
            batch, pc.invert(known), f"{COMMIT_TIME} is not a completed instant", COMMIT_TIME
        )
        # compare the part before the first underscore: a seqno is <instant>_<task>_<n>
        seqno = batch.column(COMMIT_SEQNO)
        own = pc.binary_join_element_wise(times, "", "_")
        starts = pc.equal(pc.utf8_slice_codeunits(seqno, 0, 18), own)
        short = pc.not_equal(pc.utf8_length(times), 17)  # instants of 14 digits, from old writers
        self._note(
            batch,
            pc.and_(pc.invert(starts), pc.invert(short)),
            f"{COMMIT_SEQNO} does not begin with the commit time",
            COMMIT_SEQNO,
        )

    def _note(self, batch: pa.RecordBatch, wrong: pa.Array, rule: str, column: str) -> None:
        """Count the rows where `wrong` is true (another rule covers nulls), and keep the first."""
        count = pc.sum(wrong).as_py() or 0
        if not count:
            return
        before, where = self._broken.get(rule, (0, ""))
        if not before:
            row = pc.index(wrong, True).as_py()
            one = batch.slice(row, 1)
            key = key_words(one, self.rules.key_columns)
            where = f"; one is {in_words(one.column(column)[0])} at {key}"
        self._broken[rule] = (before + count, where)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The distinct pairs of two text columns, and for each row the index of its pair."""

    values: list[tuple[str | None, str | None]]
    index: npt.NDArray[np.int64]


def _distinct(batch: pa.RecordBatch, left: str, right: str) -> _Pairs:
    a, b = (batch.column(name).dictionary_encode("encode") for name in (left, right))
    width = max(len(b.dictionary), 1)
    codes = a.indices.to_numpy().astype(np.int64) * width + b.indices.to_numpy()
    distinct, index = np.unique(codes, return_inverse=True)
    paths, names = a.dictionary.to_pylist(), b.dictionary.to_pylist()
    return _Pairs([(paths[code // width], names[code % width]) for code in distinct], index)
