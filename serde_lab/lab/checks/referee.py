"""Has frames of the real run decoded by a referee that can know the rows from nothing but the frames.

The frames are drawn at random in the tasks that receive them. After the workers of all cells have ended, a
new process decodes them in namespaces (`isolation`) that hold only Python, packages, frames, schema and
options. A frame holds a record at least, and exactly one where frames hold one each. Its rows must be in
the table; those that are not must be rows of the input, which others then replaced. A row may come as often
as it was sent, and a record without a row must be that of a delete or a move.

The same process decodes rows that no cell has seen. A strategy may keep what it made of the input, in a file
or in memory, and find it again in the next round. Or it makes it before the clock starts. Its frames and its
table are then right, and its times are not. So after the cells each strategy gets rows of the input of which
every column was shuffled by itself, in an order that the operating system drew. This process encodes them,
and the referee decodes them. The CPU time of these verbs is compared with what they took in the cells.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.analysis.cell_values import CellValues, CommitValues, measured_rounds
from serde_lab.errors import reason_of
from serde_lab.lab.cells.cell import heap_set_aside
from serde_lab.lab.checks import isolation, stand_alone
from serde_lab.lab.checks.stand_alone import DecodedArm, EncodedSample, Sent, encoded
from serde_lab.lab.inputs.prepared import CommitInput, PreparedInputs
from serde_lab.measure import phases
from serde_lab.pipeline.stages import stored_form
from serde_lab.records.keys import NOWHERE, KeyGenerator
from serde_lab.records.operation import Operation
from serde_lab.records.plain_form import first_difference
from serde_lab.records.schema import ENVELOPE, IS_INDEX_RECORD, OPERATION, RECORD_KEY, RecordSchema
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import Check, Run
from serde_lab.runs.writer import RunWriter
from serde_lab.serde.interface import SerdeOptions
from serde_lab.verify.contents import Fingerprinter, RowSource, steps
from serde_lab.verify.key_text import record_keys
from serde_lab.verify.row_hash import Hashes
from serde_lab.verify.table_rules import TableRules

REFEREE = "a_referee_reads_the_frames"
WORK_IS_DONE_IN_THE_CELLS = "work_is_done_in_the_cells"

LEAST_SHARE, _MOST_LESS_S = 0.25, 0.5
"""A cell may take less than unseen rows do by this many seconds, or down to this share of them."""
_ROWS, _BYTES, _PASSES = 8192, 4 << 20, 3
_VERBS = {"from_arrow and encode": ("from_arrow", "encode"), "decode": ("decode",)}

_BATCH_ROWS = 65_536
_DELETES = pa.array(["D", "-U"])


@dataclass(frozen=True, slots=True)
class Spent:
    """The CPU seconds of the verbs of `_VERBS` in a cell, medians over its rounds, and the rows of it."""

    rows: int
    cpu_s: Mapping[str, float]


def spent_in_cells(run: Run, arm: str, commits: Sequence[CommitInput]) -> Spent | None:
    """What the cells of an arm took for the commits that send whole rows; None if there are none."""
    rounds = list(measured_rounds(run, arm).values())
    whole = {n: commit for n, commit in enumerate(commits, start=1) if commit.sends_rows}
    if not rounds or not whole:
        return None
    # the phases of a stream are those of all its batches
    parts: list[list[CellValues | CommitValues]] = [
        [commit for commit in one.commits if commit.n in whole and commit.phases] or [one]
        for one in rounds
    ]
    cpu_s = {
        words: median(fsum(_cpu_s(part, verbs) for part in of_round) for of_round in parts)
        for words, verbs in _VERBS.items()
    }
    return Spent(sum(commit.rows for commit in whole.values()), cpu_s)


def _cpu_s(part: CellValues | CommitValues, verbs: tuple[str, ...]) -> float:
    return fsum(t.cpu_s for name, t in part.phases.items() if phases.split(name)[1] in verbs)


class UnseenRows:
    """Encodes unseen rows of the commits of one table, and judges what decoding them took."""

    def __init__(
        self, commits: Sequence[CommitInput], schema: RecordSchema, keys: KeyGenerator
    ) -> None:
        self._commits = commits
        whole = [commit for commit in commits if commit.sends_rows and commit.rows]
        self._rows = _first_rows(whole[0], schema) if whole else None
        self._schema, self._keys = deepcopy(schema), keys
        self._samples: dict[str, list[EncodedSample]] = {}
        self._raised: dict[str, str] = {}

    def sent(self, arms: Mapping[str, tuple[str, SerdeOptions]]) -> dict[str, Sent]:
        """Frames of each arm, several times, to be decoded in another process."""
        if self._rows is None:
            return {}
        for arm, (subject, options) in arms.items():
            try:
                with heap_set_aside():
                    self._samples[arm] = [
                        encoded(subject, options, self._schema, rows) for rows in self._shuffled()
                    ]
            except Exception as exc:  # a plug-in may raise anything
                self._raised[arm] = reason_of(exc)
        return {
            _named(arm, n): sample.sent
            for arm, samples in self._samples.items()
            for n, sample in enumerate(samples)
        }

    def _shuffled(self) -> Iterator[pa.RecordBatch]:
        assert self._rows is not None
        for _ in range(_PASSES):
            yield self._keys.envelop(shuffled(self._rows), NOWHERE)

    def judge(self, arm: str, answers: Mapping[str, DecodedArm], run: Run) -> list[Check]:
        """Compare unseen rows with the cells of an arm; nothing if they send no whole rows."""
        spent = spent_in_cells(run, arm, self._commits)
        if spent is None:
            return []
        if arm in self._raised:
            detail = f"it cannot encode other rows than those of the input: {self._raised[arm]}"
            return [Check(WORK_IS_DONE_IN_THE_CELLS, False, detail)]
        samples = self._samples[arm]
        decoded = [answers[_named(arm, n)] for n in range(len(samples))]
        for sample, answer in zip(samples, decoded, strict=True):
            if not answer.bound:
                detail = f"the strategy cannot be loaded there: {answer.problem}"
                return [Check(WORK_IS_DONE_IN_THE_CELLS, None, f"not isolated: {detail}")]
            problem = answer.problem
            if answer.rows is not None:
                problem = first_difference(answer.rows, sample.expected) or ""
            if problem:
                detail = f"rows that no cell has seen do not come back: {problem}"
                return [Check(WORK_IS_DONE_IN_THE_CELLS, False, detail)]
        rows = len(samples[0].expected)
        unseen = (min(s.cpu_s for s in samples), min(a.cpu_s for a in decoded))
        return [
            _compared(spent, dict(zip(_VERBS, (cpu_s / rows for cpu_s in unseen), strict=True)))
        ]


def shuffled(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with every column shuffled by itself, in an order that nobody can know."""
    order = np.random.default_rng()  # seeded by the operating system
    columns = [one.take(pa.array(order.permutation(len(one)))) for one in rows]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _compared(spent: Spent, a_row_s: Mapping[str, float]) -> Check:
    """Compare with the CPU seconds of an unseen row."""
    found = []
    for words, cpu_s in spent.cpu_s.items():
        unseen_s = a_row_s[words] * spent.rows
        said = f"{words} took {cpu_s:.2f} s of CPU in a cell, and {unseen_s:.2f} s for unseen rows"
        if cpu_s < LEAST_SHARE * unseen_s and unseen_s - cpu_s > _MOST_LESS_S:
            return Check(WORK_IS_DONE_IN_THE_CELLS, False, said)
        found.append(said)
    return Check(WORK_IS_DONE_IN_THE_CELLS, True, "; ".join(found))


def _first_rows(commit: CommitInput, schema: RecordSchema) -> pa.RecordBatch:
    rows = stored_form(next(commit.batches(_ROWS)), schema.data)
    return rows.slice(0, max(2, min(len(rows), len(rows) * _BYTES // max(1, rows.nbytes))))


def _named(arm: str, number: int) -> str:
    """The name of a sample beside the arms themselves, whose names have no line breaks."""
    return f"{arm}\n{number}"


class Referee:
    """Judges the frames of one point of a run; made before its cells.

    `since_s` is when the run began, in seconds since 1970.
    """

    def __init__(
        self,
        inputs: PreparedInputs,
        schema: RecordSchema,
        rules: TableRules,
        unseen: UnseenRows,
        work: Path,
        since_s: float,
    ) -> None:
        # it is sent with the frames, and a strategy may change what it is bound to
        self._inputs, self._schema, self._rules = inputs, deepcopy(schema), rules
        self._unseen, self._work, self._since_s = unseen, work, since_s
        self._of_input: Hashes | None = None

    def judge(
        self,
        arms: Mapping[str, tuple[str, SerdeOptions]],
        frames: Mapping[str, tuple[bytes, ...]],
        tables: Mapping[str, RowSource],
        hops: Mapping[str, int],
        run: Run,
    ) -> dict[str, list[Check]]:
        """The results for each arm in `frames`: strategy and options of each are in `arms`, `tables` are the
        rows that its table was found to hold, and `hops` says how often it sends each. Unseen rows are
        compared with the cells of `run`; an ordinary process decodes them where none can be isolated.
        """
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
        others = self._unseen.sent({name: arms[name] for name in sent})
        if obstacle:
            answers = stand_alone.read_back(others, folder)
            found = {name: [_not_isolated(obstacle)] for name in sent}
        else:
            answers = stand_alone.read_back({**sent, **others}, folder, enclosure)
            found = {
                name: [
                    self._judged(answers[name], one.frames, one.options, tables[name], hops[name])
                ]
                for name, one in sent.items()
            }
        for name, checks in found.items():
            checks += self._unseen.judge(name, answers, run)
        return found

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


def note_unread_frames(writer: RunWriter) -> None:
    """State for each arm of a resumed run that its frames went with the process that measured them."""
    run = load_run(writer.path)
    read = {check.arm for check in run.checks if check.name == REFEREE}
    sent = {
        cell.arm
        for cell in run.cells
        if cell.status == "ok" and any(s.metric == "hops" and s.value > 0 for s in cell.samples)
    }
    for arm in sorted(sent - read):
        detail = "not made: the run was interrupted after the arm's cells, whose frames are gone"
        writer.check(Check(REFEREE, None, detail, arm=arm))
