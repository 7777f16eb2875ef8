"""Has frames of the real run decoded by a referee that can know the rows from nothing but the frames.

The frames are drawn at random in the tasks that receive them. After the workers of all cells have ended, a
new process decodes them in namespaces (`isolation`) that hold only Python, packages, frames, schema and
options. A frame holds a record at least, and exactly one where frames hold one each. Its rows must be in
the table; those that are not must be rows of the input, which others then replaced. A row may come as often
as it was sent, and a record without a row must be that of a delete or a move.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.lab.checks import isolation, stand_alone
from serde_lab.lab.checks.stand_alone import DecodedArm, Sent
from serde_lab.lab.inputs.prepared import PreparedInputs
from serde_lab.pipeline.stages import stored_form
from serde_lab.records.operation import Operation
from serde_lab.records.schema import ENVELOPE, IS_INDEX_RECORD, OPERATION, RECORD_KEY, RecordSchema
from serde_lab.runs.model import Check
from serde_lab.serde.interface import SerdeOptions
from serde_lab.verify.contents import Fingerprinter, RowSource, steps
from serde_lab.verify.key_text import record_keys
from serde_lab.verify.row_hash import Hashes
from serde_lab.verify.table_rules import TableRules

REFEREE = "a_referee_reads_the_frames"

_BATCH_ROWS = 65_536
_DELETES = pa.array(["D", "-U"])


class Referee:
    """Judges the frames of one point of a run; `since_s` is when the run began, in seconds since 1970."""

    def __init__(
        self,
        inputs: PreparedInputs,
        schema: RecordSchema,
        rules: TableRules,
        work: Path,
        since_s: float,
    ) -> None:
        self._inputs, self._schema, self._rules = inputs, schema, rules
        self._work, self._since_s = work, since_s
        self._of_input: Hashes | None = None

    def judge(
        self,
        arms: Mapping[str, tuple[str, SerdeOptions]],
        frames: Mapping[str, tuple[bytes, ...]],
        tables: Mapping[str, RowSource],
        hops: Mapping[str, int],
    ) -> dict[str, Check]:
        """One result for each arm in `frames`: strategy and options of each are in `arms`, `tables` are the
        rows that its table was found to hold, and `hops` says how often it sends each."""
        sent = {
            name: Sent(*arms[name], self._schema, pa.array(drawn, pa.binary()))
            for name, drawn in frames.items()
        }
        if not sent:
            return {}
        self._work.mkdir(parents=True, exist_ok=True)
        enclosure = isolation.Enclosure.without_changes_since(self._since_s)
        # a new folder: whatever a strategy left in one that it could guess would be found there
        folder = Path(tempfile.mkdtemp(dir=self._work))
        obstacle = enclosure.obstacle(stand_alone.__name__, folder)
        if obstacle:
            return {name: _not_isolated(obstacle) for name in sent}
        answers = stand_alone.read_back(sent, folder, enclosure)
        return {
            name: self._judged(answers[name], one.frames, one.options, tables[name], hops[name])
            for name, one in sent.items()
        }

    def _judged(
        self,
        answer: DecodedArm,
        sent: pa.BinaryArray,
        options: SerdeOptions,
        table: RowSource,
        hops: int,
    ) -> Check:
        if not answer.bound:
            return _not_isolated(f"the strategy cannot be loaded there: {answer.problem}")
        if answer.rows is None:
            detail = f"the referee cannot decode the frames: {answer.problem}"
            return Check(REFEREE, False, detail)
        frames, records = len(sent), len(answer.rows)
        each_holds_one = options.rows_per_frame == 1
        if records < frames or (each_holds_one and records != frames):
            wanted = f"{frames:,}" if each_holds_one else f"at least {frames:,}"
            detail = f"the referee decodes {records:,} records from {frames:,} frames, which hold {wanted}"
            return Check(REFEREE, False, detail)
        rows, keys = _rows(answer.rows)
        words = f"{records:,} rows from {frames:,} frames of the run"
        if unknown := self._without_reason(keys):
            detail = (
                f"of {words}, {unknown:,} are keys without a row that the input does not delete"
            )
            return Check(REFEREE, False, detail)
        found = _hashes(self._schema, [rows])
        if again := self._too_often(found, hops):
            detail = f"of {words}, {again:,} come more often than the input has them"
            return Check(REFEREE, False, detail)
        in_table = np.isin(found, _hashes(table.schema, steps(table)))
        elsewhere = found[~in_table]
        lost = np.isin(elsewhere, self._input()) if len(elsewhere) else np.ones(0, np.bool_)
        if not lost.all():
            detail = f"of {words}, {int((~lost).sum()):,} are neither in the table nor in the input"
            return Check(REFEREE, False, detail)
        in_it = f"{int(in_table.sum()):,} are in the table"
        detail = f"the referee decodes {words}, of which {in_it}, and others replaced the rest"
        return Check(REFEREE, True, detail)

    def _without_reason(self, keys: pa.StringArray) -> int:
        """How many of these keys come without a row, although the input neither deletes nor moves them.

        Under a global index a record leaves its old partition by a delete.
        """
        if not len(keys):
            return 0
        moves = self._rules.key_is_global and bool(self._schema.partition)
        chunks = [
            chunk
            for commit in self._inputs.commits
            if moves or commit.operation == Operation.DELETE
            for batch in commit.batches(_BATCH_ROWS)
            for chunk in record_keys(batch, self._rules).chunks
        ]
        known = pc.is_in(keys, value_set=pa.chunked_array(chunks, pa.string()))
        return len(keys) - int(pc.sum(known).as_py())

    def _too_often(self, found: Hashes, hops: int) -> int:
        """How many rows come again although the input, sent over so many hops, does not have them so often.

        A frame may hold a row in full and stand for others, which only the sender knows.
        """
        different, times = np.unique(found, return_counts=True)
        repeated, times = different[times > 1], times[times > 1]
        if not len(repeated):
            return 0
        of_input = np.sort(self._input())
        begin, end = (np.searchsorted(of_input, repeated, side=side) for side in ("left", "right"))
        return int(np.maximum(times - hops * (end - begin), 0).sum())

    def _input(self) -> Hashes:
        if self._of_input is None:
            self._of_input = _hashes(self._schema, self._stored_input())
        return self._of_input

    def _stored_input(self) -> Iterator[pa.RecordBatch]:
        for commit in self._inputs.commits:
            for batch in commit.batches(_BATCH_ROWS):
                yield stored_form(batch, self._schema.data)


def _not_isolated(reason: str) -> Check:
    return Check(REFEREE, None, f"not isolated: {reason}")


def _rows(decoded: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.StringArray]:
    """The data columns of the decoded records that have a row, and the keys of those that have none."""
    without = pc.or_(
        pc.is_in(decoded.column(OPERATION), value_set=_DELETES), decoded.column(IS_INDEX_RECORD)
    )
    kept = decoded.filter(pc.invert(without))
    names = decoded.schema.names[len(ENVELOPE) :]
    rows = pa.RecordBatch.from_arrays(kept.columns[len(ENVELOPE) :], names=names)
    return rows, decoded.filter(without).column(RECORD_KEY)


def _hashes(
    schema: RecordSchema | pa.Schema, batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch]
) -> Hashes:
    """A hash of each row, over its data columns."""
    hashing = Fingerprinter(schema.data if isinstance(schema, RecordSchema) else schema)
    return np.concatenate([np.empty(0, np.uint64), *map(hashing.add, batches)])
