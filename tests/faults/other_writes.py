"""Writes beside the upsert into buckets, for faults: operations that replace, and chains that assign.

Each is made to the small table with a row in a second partition, and says "dead" in its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from serde_lab.pipeline.exchange.in_process import Exchange, InProcessExchange
from serde_lab.table.storage.storage import Storage
from tests.faults.small_table import KEPT, Row, Seen, batches, make, prepare, upsert

OtherWork = Literal[
    "overwrite", "overwrite by state", "overwrite table", "delete partition", "move", "mini-batches"
]
Options = Mapping[str, str | None]

# one task: with several, the id of a new file group decides its task, and the id depends on the instant
_ONE_TASK = {"hoodie.upsert.shuffle.parallelism": "1"}
STATE: Options = {
    **_ONE_TASK,
    "hoodie.bucket.index.num.buckets": None,
    "hoodie.index.type": "FLINK_STATE",
    "serde_lab.topology": "state",
}
STEP3: Options = {
    **STATE,
    "serde_lab.topology": "step3",
    "serde_lab.rows_per_frame": "1",
    "write.batch.size": "0.00002",
    "write.task.max.size": "0.0002",
}
OPERATION = "hoodie.datasource.write.operation"
OPTIONS: Mapping[OtherWork, Options] = {
    "overwrite": {OPERATION: "insert_overwrite"},
    "overwrite by state": {**STATE, OPERATION: "insert_overwrite"},
    "overwrite table": {**STATE, OPERATION: "insert_overwrite_table"},
    "delete partition": {
        **STATE,
        OPERATION: "delete_partition",
        "hoodie.datasource.write.partitions.to.delete": "p",
    },
    "move": STATE,
    "mini-batches": STEP3,
}
BESIDE: Sequence[Row] = [("q", "z", 1, "beside")]
BEFORE: Seen = {**KEPT, ("q", "z"): (1, "beside")}
ROWS: Mapping[OtherWork, Sequence[Row]] = {
    "overwrite": [("p", "a", 9, "dead"), ("r", "e", 9, "dead")],
    # the ids of new file groups decide the order in which they are written, and depend on the instant
    "overwrite by state": [("p", "a", 9, "dead"), ("q", "e", 9, "dead")],
    "overwrite table": [("p", "a", 9, "dead")],
    "delete partition": (),
    # under a global index it leaves p
    "move": [("q", "a", 9, "dead"), ("p", "b", 9, "dead")],
    "mini-batches": [("p", k, 9, "dead") for k in "abce"],
}
AFTER: Mapping[OtherWork, Seen] = {
    "overwrite": {
        ("p", "a"): (9, "dead"),
        ("r", "e"): (9, "dead"),
        ("q", "z"): (1, "beside"),
    },
    "overwrite by state": {("p", "a"): (9, "dead"), ("q", "e"): (9, "dead")},
    "overwrite table": {("p", "a"): (9, "dead")},
    "delete partition": {("q", "z"): (1, "beside")},
    "move": {
        **{place: value for place, value in BEFORE.items() if place != ("p", "a")},
        ("q", "a"): (9, "dead"),
        ("p", "b"): (9, "dead"),
    },
    "mini-batches": {
        **BEFORE,
        **{("p", k): (9, "dead") for k in "abce"},
    },
}


def index_of(work: OtherWork) -> Options:
    """What the table itself has of a write's options; any other write to it names them too."""
    return {} if work == "overwrite" else STATE


def make_for(work: OtherWork, place: Path | Storage, table_type: str) -> Storage:
    """The table before the write; `BEFORE` is what it holds."""
    storage = make(place, table_type, index_of(work))
    upsert(storage, BESIDE, table_type, options=index_of(work))
    return storage


def other_write(
    work: OtherWork, storage: Storage, table_type: str, exchange: Exchange | None = None
) -> None:
    """The write, whatever becomes of it."""
    rows = ROWS[work]
    prepared = prepare(storage, table_type, OPTIONS[work])
    prepared.commit(exchange or InProcessExchange([batches(rows)] if rows else []))
