"""Checks a cell before its timing counts: the table's contents, the bytes on the wire, and the timers.

`serde_lab.verify` compares contents; this module decides which checks a cell gets, and names them.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import PortabilityWarning
from serde_lab.lab.cells.cell import CellResult
from serde_lab.lab.cells.peer_arms import options_of_peer
from serde_lab.lab.checks.file_facts import WantedFiles, files_alike, plain_files_alike
from serde_lab.lab.checks.read_checks import ReadChecks, oracle_commits
from serde_lab.lab.checks.stored_batches import states_of, stored_once, whole_reads
from serde_lab.lab.inputs.prepared import CommitInput, PreparedInputs
from serde_lab.lab.lab_reader import LabReader
from serde_lab.lab.plan import serde_options, table_config, table_rules
from serde_lab.measure.metrics import DRIVER_PREFIX
from serde_lab.measure.phases import IDLE_DRIVER, group
from serde_lab.pipeline.read import open_table
from serde_lab.records.schema import RecordSchema
from serde_lab.runs.model import Check
from serde_lab.scenario.hudi_options import table_options
from serde_lab.scenario.model import UPSERT_CONTROLS, WORK_FLOOR, Arm, Scenario
from serde_lab.serde.interface import SerdeOptions
from serde_lab.serde.registry import BUILT_IN, strategy
from serde_lab.table.portability import (
    CUSTOM_PARTITION_FIELDS,
    unreadable_by_rust,
    zoneless_columns,
)
from serde_lab.verify.contents import RowSource
from serde_lab.verify.oracle import solve
from serde_lab.verify.readers import PlainParquet, without_kinds
from serde_lab.verify.table_checks import (
    Expected,
    TableVerdict,
    check_contents,
    check_path,
    check_table,
)
from serde_lab.verify.table_rules import TableRules

WIRE_IS_THE_STRATEGYS = "wire_is_the_strategys"
EVERY_ROW_MOVED = "every_row_moved"
WORK_IS_INSIDE_TIMERS = "work_is_inside_timers"
PROCESSES_WORK_IN_PHASES = "processes_work_in_phases"
FRAMES_HOLD_THE_ROWS = "frames_hold_the_rows"

_MOST_UNATTRIBUTED, _LEAST_UNATTRIBUTED_S = 0.06, 0.5
"""The larger of a share of the workers' CPU and of seconds is how much of it may lie outside all phases.

In the cells of strategies in results/reference it is 1.3 % in the median, and less than 4 % in cells with 1 s
of CPU or more; shorter cells have at most 0.04 s. The most that an honest arm was seen to have is 5.2 %:
`step3` with the smallest mini-batches, on an overloaded machine. The first cell of a process imports what it
needs, outside all phases: up to 0.32 s on such a machine.
"""
_MOST_WAITING_CPU, _LEAST_WAITING_S = 0.25, 0.25
"""The same for CPU in phases of waiting; honest cells had at most 16.3 % there."""
_MOST_ASIDE, _LEAST_ASIDE_S = 0.15, 0.5
"""The same for CPU in phases that run the strategy's code and are not SerDe: binding it, and freeing records.
Cells of honest strategies with 0.2 s or more there had at most 4.9 %."""
_STRATEGYS = (".bind", ".release")
_MOST_OF_DRIVER, _LEAST_OF_DRIVER_S = 0.25, 0.5
"""How much CPU, of that of the workers or in seconds for each commit, the driver's own process may use on
Spark. Honest strategies had at most 0.02 s for each task of a stream; in other cells 6 % where it was 1 s."""
_MOST_BESIDE, _LEAST_BESIDE_S = 0.05, 0.5
"""The same for the CPU of worker processes that no phase has. Cells of five honest strategies on Spark, with
0.04 to 1.7 s of CPU, had 0.00 to 0.03 s there; half of a tick of 10 ms a process is uncertain."""
_OF_A_TASK_S, _AROUND_A_TASK_S, _OF_DRIVER_A_TASK_S = 0.002, 0.025, 0.05
"""What a task of a stream may add to these seconds. Micro-batches of 1,000 rows of two honest strategies had
0.6 to 1.4 ms a task outside of the phases, and 12 ms around them, where Spark's worker unpickles the task."""
_FLOOR_SHARE, _FLOOR_ROWS, _FLOOR_BYTES, _FLOOR_BATCH = 0.5, 32_768, 8 << 20, 512
"""The sample ends with the rows or the bytes, whichever comes first: at its highest level zstd compresses
about a megabyte a second, and 32,768 rows of 300 columns have more than 200."""
_ELSEWHERE = ("idle", "jvm", "lost")
"""Groups of phases whose CPU is not a Python worker's."""


class CellChecks:
    """Judges the cells of one scenario; each expected answer is computed once."""

    def __init__(self, scenario: Scenario, inputs: PreparedInputs, work: Path) -> None:
        self.rules = table_rules(scenario, inputs.record_schema)
        self._scenario, self._schema, self._work = scenario, inputs.record_schema, work
        self._commits, self._floors = inputs.commits, dict[str, float]()
        self._history = oracle_commits((*inputs.setups, *inputs.commits))
        self._reads = ReadChecks(scenario, inputs, work / "oracle-of-reads")
        self._set_up = [file for commit in inputs.setups for file in commit.files]
        self._answers: dict[tuple[tuple[str, str], ...], tuple[TableRules, Expected]] = {}
        self.expected = self._answer(None)[1]
        self.zoneless = zoneless_columns(self.rules.stored)
        # no warning here: the writes give one
        self.unreadable = unreadable_by_rust(table_config(scenario))
        if self.zoneless:
            # warn before anything is measured, since hudi-rs would end in a panic
            warnings.warn(
                f"columns {', '.join(self.zoneless)}: hudi-rs 0.5.0 cannot read timestamps without time"
                " zone, so the lab's own reader checks all tables of this run",
                PortabilityWarning,
                stacklevel=2,
            )

    def _answer(self, arm: Arm | None) -> tuple[TableRules, Expected]:
        """What `arm`'s table must hold, computed once for arms with equal options of the table."""
        kind = tuple(table_options(self._scenario, arm).items())
        if kind not in self._answers:
            rules = table_rules(self._scenario, self._schema, arm)
            folder = self._work / "oracle" / str(len(self._answers))
            self._answers[kind] = rules, Expected.of(solve(rules, self._history, folder))
        return self._answers[kind]

    @cached_property
    def _states(self) -> list[tuple[int, int]]:
        """What readers may see of a stream's table."""
        batches = [commit.files for commit in self._commits]
        key = (*self._schema.record_key, *self._schema.partition)
        by_event = self.rules.merge_mode == "EVENT_TIME_ORDERING"
        return states_of(self._set_up, batches, key, self._schema.ordering[0], by_event)

    def rows_of(self, arm: Arm) -> RowSource:
        """The rows that the arm's table must hold; it holds them if its checks passed."""
        return self._answer(arm)[1].rows

    def judge(self, arm: Arm, result: CellResult) -> TableVerdict:
        """Every check of one cell; the fingerprint is None if no table was written or readable."""
        of_table = self.of_table(arm, result)
        of_reads = self._reads.judge(self._answer(arm)[0], result)
        found = (*self.of_cell(arm, result), *of_table.results, *of_reads)
        return TableVerdict(found, of_table.fingerprint)

    def of_cell(self, arm: Arm, result: CellResult) -> list[Check]:
        """The checks of what a cell did as a whole, however many tables it wrote."""
        on_spark = self._scenario.measure.exchange == "spark"
        if arm.control == WORK_FLOOR:
            return [_timers(result), _processes(result, on_spark)]
        if arm.strategy is None:
            return []
        tasks = 0
        if self._scenario.stream is not None:
            tasks = round(sum(s.value for s in result.samples if s.metric == "spark.tasks"))
        return [
            _wire(arm, result) if self._sends(arm) else _no_wire(result),
            _timers(result, tasks, on_spark),
            _processes(result, on_spark, tasks),
        ]

    def of_table(self, arm: Arm, result: CellResult) -> TableVerdict:
        """The checks of one table and of the frames that carried its rows."""
        found: list[Check] = []
        fingerprint = None
        if arm.strategy is not None and self._sends(arm):
            found.append(self._holds_rows(arm, result))
        if result.table is None:
            found.append(Check(EVERY_ROW_MOVED, True, f"{result.rows:,} rows"))
        elif arm.control in UPSERT_CONTROLS:
            # no Hudi table holds the rows; equal rows have no key twice
            rows, reader = PlainParquet(result.table), "Spark" if result.data_files else "pyarrow"
            contents = check_contents(rows, self.expected, self.rules, reader)
            fingerprint = contents.fingerprint
            found += contents.results
            files = result.data_files or rows.files()
            found.append(plain_files_alike(files, self._scenario.table_of(arm).codec))
        else:
            contents = self._contents(str(result.table), arm)
            fingerprint = contents.fingerprint
            found += contents.results
            found.append(files_alike(result.table, _wanted_files(self._scenario, arm)))
            if self._scenario.stream is not None:
                stored = open_table(result.table)
                found.append(stored_once(stored, self._scenario.stream.batches))
                if self._scenario.stream.readers and arm.strategy is not None:
                    found.append(whole_reads(result.reads_beside, self._states))
        return TableVerdict(tuple(found), fingerprint)

    def _sends(self, arm: Arm) -> bool:
        """Whether the arm's timed commits send records."""
        return self._scenario.topology_of(arm).makes_records and not self._scenario.only_reads

    def _holds_rows(self, arm: Arm, result: CellResult) -> Check:
        """Check that frames have at least half the bytes of the best compressed Parquet of the same rows.

        Fewer bytes cannot hold the rows. A dictionary that both sides share counts if it is declared.
        """
        shared = len(strategy(arm.strategy or "").shared_dictionary())
        sent = sum(_first_hop_bytes(result, n) for n in (None, *range(1, len(self._commits) + 1)))
        if self._scenario.stream is None:
            least = sum(map(self._floor, self._commits))
        else:  # micro-batches are alike, and there may be hundreds
            least = len(self._commits) * self._floor(self._commits[0])
        words = f"{sent:,.0f} B of frames"
        if shared:
            words += f" and {shared:,} B of a shared dictionary"
        if sent + shared < least:
            expected = (
                f"expected at least {least:,.0f} B, half of the same rows as Parquet with zstd"
            )
            return Check(FRAMES_HOLD_THE_ROWS, False, f"{words}, {expected}")
        return Check(FRAMES_HOLD_THE_ROWS, True, f"{words}, at least {least:,.0f} B")

    def _floor(self, commit: CommitInput) -> float:
        if commit.name not in self._floors:
            floor = _FLOOR_SHARE * _parquet_bytes(commit) if commit.sends_rows else 0.0
            self._floors[commit.name] = floor
        return self._floors[commit.name]

    def _contents(self, table: str, arm: Arm) -> TableVerdict:
        """The checks of a table's rows, read by hudi-rs if it can read the table."""
        rules, expected = self._answer(arm)
        if self.zoneless or self.unreadable not in ("", CUSTOM_PARTITION_FIELDS):
            own = LabReader(table)
            return check_table(own, expected, rules, own.facts())
        if not self.unreadable:
            return check_path(table, expected, rules)
        with without_kinds(Path(table), rules.schema.partition) as readable:
            return check_path(str(readable), expected, rules)


def _wanted_files(scenario: Scenario, arm: Arm) -> WantedFiles:
    """What the files of an arm's table must be like; a peer's own options may differ, and say so."""
    table = scenario.table_of(arm)
    blocks = table.log_blocks or "avro"
    if arm.peer is None:
        return WantedFiles(table.codec, blocks)
    options = options_of_peer(scenario, arm, len(scenario.commits))
    return WantedFiles(
        table.codec,
        options.get("hoodie.logfile.data.block.format", blocks),
        options.get("hoodie.parquet.bloom.filter.enabled", "true") == "true",
    )


def _wire(arm: Arm, result: CellResult) -> Check:
    sent = sum(s.value for s in result.samples if s.metric == "frames")
    frames, of_arm = f"{result.sniffed:,}", f"the mark of {arm.strategy}"
    problem = ""
    if lender := _lender_of_mark(arm):
        problem = f"{arm.strategy} uses the mark of {lender} as its own"
    elif not result.sniffed:
        problem = f"no frame of {arm.strategy} reached a reduce task"
    elif result.foreign:
        problem = f"{result.foreign:,} of {frames} frames do not carry {of_arm}"
    elif sent != result.sniffed:
        problem = f"{frames} of {sent:,.0f} sent frames arrived"
    return Check(
        WIRE_IS_THE_STRATEGYS, not problem, problem or f"all {frames} frames carry {of_arm}"
    )


def _no_wire(result: CellResult) -> Check:
    return Check(
        WIRE_IS_THE_STRATEGYS, not result.sniffed, f"{result.sniffed:,} frames, expected none"
    )


def _lender_of_mark(arm: Arm) -> str:
    """The built-in strategy whose mark a plug-in uses; "" if the plug-in has its own mark."""
    anything = RecordSchema(pa.schema([pa.field("k", pa.string())]), ("k",))
    mark = strategy(arm.strategy or "").bind(anything, serde_options(arm)).mark
    for name in BUILT_IN:
        if name != arm.strategy and strategy(name).bind(anything, SerdeOptions()).mark == mark:
            return name
    return ""


def _timers(result: CellResult, tasks: int = 0, on_spark: bool = False) -> Check:
    """Check that the timers of SerDe cover its work: little CPU lies where a strategy could hide it.

    That is outside the phases, in waits, where a strategy is bound and records are freed, and, on Spark, in
    the driver's process. `tasks`: those of a stream, each of which may have some of it.
    """
    spine = _worker_phases(result)
    total = sum(spine.values())
    outside = spine.get("unattributed", 0.0)
    waiting = sum(s for p, s in spine.items() if p.endswith("_wait"))
    aside = sum(s for p, s in spine.items() if p.endswith(_STRATEGYS))
    cpu_s = (s for s in result.samples if s.metric == "phase_cpu_s")
    of_driver = [s.value for s in cpu_s if on_spark and s.phase == IDLE_DRIVER]
    driver_s, commits = sum(of_driver), len(of_driver)
    small_s = tasks * _OF_A_TASK_S
    of_total = f"s of the workers' {total:.2f} s CPU are in"
    problem = ""
    if result.threads_left:
        problem = f"{result.threads_left} times a thread ran beside the phases"
    elif outside > max(_MOST_UNATTRIBUTED * total, _LEAST_UNATTRIBUTED_S + small_s):
        problem = f"{outside:.2f} {of_total} no phase"
    elif waiting > max(_MOST_WAITING_CPU * total, _LEAST_WAITING_S + small_s):
        problem = f"{waiting:.2f} {of_total} phases of waiting"
    elif aside > max(_MOST_ASIDE * total, _LEAST_ASIDE_S + small_s):
        problem = f"{aside:.2f} {of_total} binding the strategy and freeing records"
    elif driver_s > max(
        _MOST_OF_DRIVER * total, _LEAST_OF_DRIVER_S * commits + tasks * _OF_DRIVER_A_TASK_S
    ):
        problem = f"{driver_s:.2f} s of CPU are the driver's, beside the workers' {total:.2f} s"
    words = problem or f"{outside:.2f} s of {total:.2f} s CPU are in no phase"
    return Check(WORK_IS_INSIDE_TIMERS, not problem, words)


def _processes(result: CellResult, on_spark: bool, tasks: int = 0) -> Check:
    """Check that the phases have the CPU of all worker processes and of what they started.

    On Spark a thread that works between tasks, or a child process, makes the workers use more than the phases
    have. In one process there are no workers, so that all CPU of other processes is an arm's own. `tasks`:
    those of a stream, whose start and end are a large part of a small micro-batch.
    """
    used = [s.value for s in result.samples if s.metric == "tree_worker_cpu_s"]
    if not used:
        return Check(
            PROCESSES_WORK_IN_PHASES,
            None,
            "the workers' CPU is not known here: no /proc, or a cluster",
        )
    total = sum(used)
    in_phases = sum(_worker_phases(result).values()) if on_spark else 0.0
    # processes of the lab's own
    in_phases += sum(s.value for s in result.samples if s.metric == f"{DRIVER_PREFIX}readers_cpu_s")
    beside = max(0.0, total - in_phases)
    words = f"{beside:.2f} s of the {total:.2f} s CPU of worker processes are in no phase"
    most = max(_MOST_BESIDE * total, _LEAST_BESIDE_S + tasks * _AROUND_A_TASK_S)
    if beside > most:
        return Check(PROCESSES_WORK_IN_PHASES, False, f"{words}, expected at most {most:.2f} s")
    return Check(PROCESSES_WORK_IN_PHASES, True, words)


def _worker_phases(result: CellResult) -> dict[str, float]:
    """CPU seconds of the phases of Python tasks, over all commits."""
    phases: dict[str, float] = {}
    for sample in result.samples:
        if sample.metric == "phase_cpu_s" and sample.phase is not None:
            phases[sample.phase] = phases.get(sample.phase, 0.0) + sample.value
    return {p: s for p, s in phases.items() if group(p) not in _ELSEWHERE}


def _first_hop_bytes(result: CellResult, commit: int | None) -> float:
    """Frame bytes that the map tasks of a commit sent: later hops send some records again.

    None: those that were measured for the whole cell, as of a stream.
    """
    found = {s.metric: s.value for s in result.samples if s.commit == commit}
    return found.get("hop.map.frame_bytes", found.get("frame_bytes", 0.0))


def _parquet_bytes(commit: CommitInput) -> float:
    """Bytes of the commit's rows as Parquet with zstd at its highest level, from the first rows of its files.

    What a file of a single row takes is left out, since frames have no footer.
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in commit.batches(_FLOOR_BATCH):
        held.append(batch.slice(0, _FLOOR_ROWS - rows))
        rows += held[-1].num_rows
        size += held[-1].nbytes
        if rows >= _FLOOR_ROWS or size >= _FLOOR_BYTES:
            break
    if rows < 2:
        return 0.0
    table = pa.Table.from_batches(held).combine_chunks()
    return (_written(table) - _written(table.slice(0, 1))) / (rows - 1) * commit.rows


def _written(table: pa.Table) -> int:
    sink = pa.BufferOutputStream()
    level = pa.Codec.maximum_compression_level("zstd")
    options = {"compression": "zstd", "compression_level": level, "write_statistics": False}
    pq.write_table(table, sink, store_schema=False, **options)
    return int(sink.getvalue().size)
