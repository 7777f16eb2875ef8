"""How many shards a reduce task is cut into, so that one of them fits a worker's memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.plan import _shards

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
}
MIB = 1 << 20


@pytest.mark.parametrize(
    ("source_mib", "memory_mb", "shards"),
    [
        # nothing is known of the source
        (0, 64, 1),
        (0, 1024, 1),
        # lineitem at scale factors 1, 3 and 10 into 32 tasks of 2 GiB: the last one held 2.4 GB whole
        (290, 2048, 1),
        (900, 2048, 1),
        (3000, 2048, 2),
        # into 32 tasks of the default
        (900, 1024, 2),
        (1 << 30, 64, 256),
    ],
)
def test_a_task_is_written_whole_where_that_fits(
    source_mib: int, memory_mb: int, shards: int
) -> None:
    options = replace(
        parse_options(OPTIONS), source_bytes=source_mib * MIB, worker_memory_mb=memory_mb
    )
    assert _shards(options, 32, ()) == shards
