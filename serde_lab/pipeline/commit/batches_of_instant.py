"""Writes several batches under one instant, as in RFC-24, where an instant may span several checkpoints.

Each batch sees the files of the earlier ones, which no reader sees yet. The commit names the files that
remain after the last batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from serde_lab.errors import OptionError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.exchange.in_process import Exchange
from serde_lab.pipeline.handles.handle import WriteStatus, together
from serde_lab.pipeline.options.write import WriteOptions
from serde_lab.pipeline.plan import Operation
from serde_lab.pipeline.planning import make_plan
from serde_lab.records.schema import RecordSchema
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.timeline import Instant

_SPANNING = (Operation.UPSERT, Operation.INSERT, Operation.DELETE)


def run_batches(
    table: HoodieTable,
    schema: RecordSchema,
    options: WriteOptions,
    instant: Instant,
    exchanges: Sequence[Exchange],
    clock: TaskTimeline,
    given: RecordSchema | None = None,
) -> tuple[WriteStatus, ...]:
    """Write the batches in order under `instant`, which is inflight; one status per remaining file.

    `given`: the records' schema if they leave out table columns. Raises OptionError for an operation that
    cannot span several batches.
    """
    if len(exchanges) > 1 and options.operation not in _SPANNING:
        raise OptionError(
            f"hoodie.datasource.write.operation is {options.operation}, and an instant of several"
            f" batches takes {', '.join(_SPANNING)}"
        )
    written: dict[str, WriteStatus] = {}
    for number, exchange in enumerate(exchanges):
        with clock.phase("plan"):
            plan = make_plan(table, schema, options, instant, number, len(exchanges), given)
        with clock.phase("execute"):
            for status in exchange.run(plan):
                _add(table.storage, written, status)
    return tuple(written.values())


def _add(storage: Storage, written: dict[str, WriteStatus], status: WriteStatus) -> None:
    """Record a file; a base file replaces the one that an earlier batch wrote for its file group."""
    if status.is_log:
        written[status.path] = status
        return
    group = f"{status.partitionPath}/{status.fileId}"
    before = written.get(group)
    if before is not None:
        # two base files of one file group in one instant would break the table
        storage.delete(before.path)
        status = together([before, status])
    written[group] = status
