"""Defines the names of the phases that a cell's time is split into, and their meanings.

They are the verbs of the stages, the phases around them in a task, and the states of slots without a task. A
phase on a sample is `<stage>.<verb>` ("map.encode") or a name of `WHOLE_CELL` ("idle.driver"). A changed
definition makes phases of runs incomparable: `instruments` hashes this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["serde", "pipeline", "wait", "worker", "jvm", "idle", "lost", "unattributed"]

UNATTRIBUTED = "unattributed"
IDLE_DRIVER = "idle.driver"
IDLE_STAGE_TAIL = "idle.stage_tail"
IDLE_SCHEDULER = "idle.scheduler"
LOST_ATTEMPTS = "lost_attempts"
TASK_SETUP = "task_setup"
JVM_BEFORE = "jvm_before"
JVM_AFTER = "jvm_after"
JVM = "jvm"


@dataclass(frozen=True, slots=True)
class PhaseSeconds:
    """Slot seconds and CPU seconds of one phase."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Phase:
    """A verb within a stage, or a name for a share of the whole cell."""

    name: str
    group: Group
    meaning: str


VERBS = (
    Phase(TASK_SETUP, "worker", "the JVM deserialises the task, by Spark's own clock"),
    Phase(
        JVM_BEFORE,
        "worker",
        "the rest before the worker's function: the JVM fetches shuffle blocks and calls the worker",
    ),
    Phase("input_wait", "wait", "waiting in next() while Spark reads, fetches or sends the input"),
    Phase("read_source", "pipeline", "the task reads the source's parquet files itself"),
    Phase("bind", "worker", "find the strategy and bind it to the schema"),
    Phase("keygen", "pipeline", "record keys and partition paths from the rows"),
    Phase("from_arrow", "serde", "from Arrow to the strategy's own records"),
    Phase("route", "serde", "sort records by target task"),
    Phase("encode", "serde", "records to frames"),
    Phase("sniff", "pipeline", "check that frames carry the strategy's mark"),
    Phase("decode", "serde", "frames to records"),
    Phase("order", "pipeline", "rows put back into input order"),
    Phase("group", "pipeline", "split records by file group"),
    Phase("precombine", "pipeline", "duplicates within the batch resolved by the ordering value"),
    Phase("read_base", "pipeline", "stored records read"),
    Phase("merge", "pipeline", "merged with what is stored"),
    Phase("payload", "pipeline", "convert to Avro and back for a payload class"),
    Phase(
        "read_columns", "serde", "columns of records read: keys, ordering values, marks of deletes"
    ),
    Phase("take", "serde", "records picked, cut or put together on the strategy's representation"),
    Phase("to_arrow", "serde", "from the strategy's own records to Arrow"),
    Phase("write", "pipeline", "base or log file written"),
    Phase("release", "pipeline", "free the records; Python objects take time to delete"),
    Phase(
        "output_wait", "wait", "from yield to resumption, while Spark takes and shuffles the output"
    ),
    Phase(
        JVM_AFTER,
        "worker",
        "after the worker's function: the JVM takes the last output, sorts and writes shuffle files",
    ),
    Phase(JVM, "jvm", "a task without a Python worker, as a whole"),
)

ASSIGNING = (
    Phase(
        "index_from_arrow",
        "pipeline",
        "index records, which have no row, to the strategy's own records",
    ),
    Phase("index_route", "pipeline", "sort index records by target task"),
    Phase("index_encode", "pipeline", "index records to frames"),
    Phase("index_decode", "pipeline", "frames to index records"),
    Phase("lookup", "pipeline", "look up keys in the index"),
    Phase("assign", "pipeline", "choose file groups for records that are new or change partition"),
    Phase("update_metadata", "pipeline", "write the file group into each record"),
)
"""Verbs of topologies that look records up: reports show them by group; VERBS have their own colours."""

RETIRED = (
    Phase("worker_start", "worker", "task_setup and jvm_before together, in older runs"),
    Phase("worker_end", "worker", "jvm_after, in older runs"),
)
"""Names in older runs, which keep them."""

WHOLE_CELL = (
    Phase(
        IDLE_DRIVER, "idle", "no stage has a task to run, while the driver plans, commits or waits"
    ),
    Phase(
        IDLE_STAGE_TAIL, "idle", "a stage runs its last tasks, and this slot has none left to run"
    ),
    Phase(IDLE_SCHEDULER, "idle", "the slot is empty although a task is waiting"),
    Phase(
        LOST_ATTEMPTS, "lost", "task attempts that failed, or whose result another attempt replaced"
    ),
    Phase(UNATTRIBUTED, "unattributed", "inside the worker's function, outside every timer"),
)

_BY_NAME = {phase.name: phase for phase in (*VERBS, *ASSIGNING, *RETIRED, *WHOLE_CELL)}
# an assigner's own work comes between decoding and the work of a writer
_AT = [phase.name for phase in VERBS].index("decode") + 1
_IN_ORDER = (
    *RETIRED[:1],
    *VERBS[:_AT],
    *ASSIGNING,
    *VERBS[_AT:],
    *RETIRED[1:],
    *WHOLE_CELL,
)
_PLACES = {phase.name: place for place, phase in enumerate(_IN_ORDER)}

STAGES = ("bootstrap", "map", "generator", "assign", "reduce", "write")
"""The stages of all topologies, in the order in which a record passes them."""

INDEX_VERBS = frozenset(phase.name for phase in ASSIGNING if phase.name.startswith("index_"))
"""The verbs of index records, which are not rows and do not count in `serde_cpu_s`."""

SERDE_VERBS = frozenset(phase.name for phase in VERBS if phase.group == "serde")
"""What `serde_cpu_s` sums: `SERDE_WORK` in words."""

SERDE_WORK = "the four verbs, route, and reading and picking records"


def split(name: str) -> tuple[str, str]:
    """Stage and verb of a phase; the stage of a whole-cell phase is ""."""
    if name in _BY_NAME:
        return "", name
    stage, _, verb = name.rpartition(".")
    return stage, verb


def group(name: str) -> Group:
    """The group of a phase; unlisted verbs belong to the pipeline."""
    phase = _BY_NAME.get(split(name)[1])
    return "pipeline" if phase is None else phase.group


def is_serde(name: str) -> bool:
    """Whether a phase is one of `SERDE_VERBS`, in any stage."""
    return split(name)[1] in SERDE_VERBS


def is_index(name: str) -> bool:
    """Whether a phase handles index records, in any stage."""
    return split(name)[1] in INDEX_VERBS


def order(name: str) -> tuple[int, int, str, int, str]:
    """A sort key: stages first (map before reduce), verbs in order of work, idle last."""
    stage, verb = split(name)
    at = STAGES.index(stage) if stage in STAGES else len(STAGES)
    return (0 if stage else 1, at, stage, _PLACES.get(verb, len(_PLACES)), verb)
