"""Runs the checks on a finished table, and compares the tables of several arms.

The checks:

- `rows_match_oracle`: every row and column equals the oracle's;
- `no_duplicate_keys`: no record key occurs twice in a partition path;
- `meta_columns`: the five meta columns agree with data, files and timeline; the expected key texts come from
  `key_text.py`, which is independent of the writer;
- `arms_agree`: the tables of all arms hold the same rows.

If a reader cannot read the table, the check fails and the run continues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import TableError
from serde_lab.runs.model import Check
from serde_lab.verify.contents import (
    Fingerprint,
    Fingerprinter,
    RowSource,
    fingerprint,
    first_difference,
    in_words,
    key_words,
    rows_of,
    steps,
)
from serde_lab.verify.key_text import partition_paths, record_keys
from serde_lab.verify.readers import HudiRs, TableFacts, TableReader
from serde_lab.verify.row_hash import Hashes, hash_column, mix
from serde_lab.verify.table_rules import META_COLUMNS, TableRules

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
        paths, names = (
            batch.column(name).dictionary_encode("encode") for name in (PARTITION_PATH, FILE_NAME)
        )
        # each pair of a path and a name is looked up once
        width = max(len(names.dictionary), 1)
        codes = paths.indices.to_numpy().astype(np.int64) * width + names.indices.to_numpy()
        pairs, pair_of_row = np.unique(codes, return_inverse=True)
        path_of, name_of = paths.dictionary.to_pylist(), names.dictionary.to_pylist()
        found = [
            name_of[pair % width] in self.facts.files.get(path_of[pair // width] or "", ())
            for pair in pairs
        ]
        wrong = ~np.array(found, np.bool_)[pair_of_row]
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


ROWS_MATCH_ORACLE = "rows_match_oracle"
NO_DUPLICATE_KEYS = "no_duplicate_keys"
META_COLUMNS_CORRECT = "meta_columns"
ARMS_AGREE = "arms_agree"


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """All checks of one table, and its contents (None if it could not be read)."""

    results: tuple[Check, ...]
    fingerprint: Fingerprint | None

    @property
    def passed(self) -> bool:
        return not any(result.failed for result in self.results)


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected rows with their fingerprint, computed once for all arms and rounds."""

    rows: RowSource
    fingerprint: Fingerprint

    @classmethod
    def of(cls, source: RowSource | pa.Table) -> Expected:
        """`source` with its fingerprint."""
        return cls(rows_of(source), fingerprint(source))


def check_path(path: str, expected: Expected, rules: TableRules) -> TableVerdict:
    """All checks of the table at `path`, read by hudi-rs."""
    return check_table(HudiRs(path), expected, rules)


def check_table(
    reader: TableReader, expected: Expected, rules: TableRules, facts: TableFacts | None = None
) -> TableVerdict:
    """All checks of the table that `reader` reads, in one pass if nothing is wrong.

    `facts` default to those of hudi-rs; they are required for readers other than HudiRs.
    """
    names = (ROWS_MATCH_ORACLE, NO_DUPLICATE_KEYS, META_COLUMNS_CORRECT)
    try:
        if facts is None:
            if not isinstance(reader, HudiRs):
                raise TypeError(
                    f"{reader.name} gives no facts about the table's files: pass `facts`"
                )
            facts = reader.facts()
        meta = MetaColumns(rules, facts)
        contents = Fingerprinter(reader.schema)
        parts = [np.empty(0, np.uint64)]
        for batch in steps(reader):
            contents.add(batch)
            parts.append(meta.add(batch))
        found = contents.fingerprint()
        results = (
            _compared(reader, expected, found, rules, reader.name),
            _no_duplicates(reader, np.concatenate(parts), rules),
            _meta(reader, meta),
        )
    except TableError as exc:
        return TableVerdict(tuple(Check(name, False, exc.message) for name in names), None)
    return TableVerdict(results, found)


def check_contents(
    source: RowSource | pa.Table, expected: Expected, rules: TableRules, name: str = "the table"
) -> TableVerdict:
    """The first check alone, and the contents, for any rows with or without meta columns."""
    rows = rows_of(source)
    found = fingerprint(rows)
    return TableVerdict((_compared(rows, expected, found, rules, name),), found)


def arms_agree(prints: Mapping[str, Fingerprint | None]) -> dict[str, Check]:
    """One result per arm: whether its table equals those of the other arms.

    The contents that most arms hold are the reference (the first arm's in a tie): an arm with other contents,
    or without readable contents, fails.
    """
    readable = {arm: found for arm, found in prints.items() if found is not None}
    ranked = Counter(found.digest for found in readable.values()).most_common(1)
    chosen = (
        next((a for a, f in readable.items() if f.digest == ranked[0][0]), "") if ranked else ""
    )
    results = {}
    for arm, found in prints.items():
        if found is None:
            results[arm] = Check(ARMS_AGREE, False, f"the table of {arm} could not be read")
            continue
        difference = readable[chosen].difference(found)
        if difference is None:
            like = sum(other == found for other in readable.values()) - 1
            detail = f"equal to {like} other arm{'' if like == 1 else 's'}, {found.rows:,} rows"
        else:
            detail = f"differs from {chosen}: {difference}"
        results[arm] = Check(ARMS_AGREE, difference is None, detail)
    return results


def _compared(
    source: RowSource, expected: Expected, found: Fingerprint, rules: TableRules, name: str
) -> Check:
    if found == expected.fingerprint:
        detail = f"{found.rows:,} rows, {len(found.columns)} columns, digest {found.digest}"
        return Check(ROWS_MATCH_ORACLE, True, detail)
    words = first_difference(expected.rows, source, rules.key_columns)
    words = words or expected.fingerprint.difference(found)
    return Check(ROWS_MATCH_ORACLE, False, f"as read by {name}: {words}")


def _no_duplicates(reader: TableReader, keys: Hashes, rules: TableRules) -> Check:
    ordered = np.sort(keys)
    suspects = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(suspects):
        return Check(NO_DUPLICATE_KEYS, True, f"{len(keys):,} distinct keys")
    # by text: two keys may share a hash
    texts: Counter[tuple[str, str]] = Counter()
    judge = MetaColumns(rules, TableFacts({}, ()))
    for batch in steps(reader):
        here = np.isin(judge.add(batch), suspects)
        if here.any():
            mask = pa.array(here)
            paths = partition_paths(batch, rules).filter(mask).to_pylist()
            texts.update(
                zip(paths, record_keys(batch, rules).filter(mask).to_pylist(), strict=True)
            )
    doubled = sorted(pair for pair, count in texts.items() if count > 1)
    if not doubled:
        return Check(NO_DUPLICATE_KEYS, True, f"{len(keys):,} distinct keys")
    path, key = doubled[0]
    where = f" in partition {path!r}" if rules.schema.partition else ""
    detail = (
        f"as read by {reader.name}: {len(doubled):,} key{' is' if len(doubled) == 1 else 's are'} "
        f"in several rows; first {key!r}{where}, {texts[path, key]} times"
    )
    return Check(NO_DUPLICATE_KEYS, False, detail)


def _meta(reader: TableReader, meta: MetaColumns) -> Check:
    problems = meta.problems
    if not problems:
        return Check(META_COLUMNS_CORRECT, True, f"correct in {meta.rows:,} rows")
    return Check(META_COLUMNS_CORRECT, False, f"as read by {reader.name}: {'. '.join(problems)}")
