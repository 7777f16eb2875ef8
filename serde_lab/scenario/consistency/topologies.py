"""Checks `[topology]` and `[arm.topology]`: which operations and arms can go through which topology."""

from __future__ import annotations

from collections.abc import Iterator

from serde_lab.scenario.model import Arm, Batch, Scenario, Topology
from serde_lab.scenario.problems import Problem


def check(scenario: Scenario) -> Iterator[Problem]:
    """Problems of `[topology]` and of `[arm.topology]`."""
    if scenario.topology.name == "bucket" and scenario.table.index != "BUCKET":
        own = [arm for arm in scenario.arms if arm.strategy is not None and arm.topology is None]
        if own:
            yield Problem(
                "table.index",
                f"is {scenario.table.index}, and topology.name is 'bucket', which goes with BUCKET",
            )
    for arm in scenario.arms:
        topology = scenario.topology_of(arm)
        where = "topology" if arm.topology is None else f"arm.{arm.name}.topology"
        if arm.strategy is None:
            if arm.topology is not None:
                yield Problem(f"{where}", f"a {arm.kind} has no topology of its own")
            elif topology.name != "bucket":
                yield Problem(
                    f"arm.{arm.name}",
                    f"{arm.subject} goes through the bucket index, and topology.name is"
                    f" {topology.name!r}; take one of them out",
                )
            continue
        for n, batch in enumerate(scenario.commits, 1):
            yield from _travels(f"commit.{n}.operation", batch, arm, scenario)
        if topology.sort != "none" and topology.name != "bulk":
            yield Problem(f"{where}.sort", f"is for 'bulk', and the name is {topology.name!r}")
        plain = Topology(name=topology.name)
        sized = (topology.batch_mb, topology.buffer_mb) != (plain.batch_mb, plain.buffer_mb)
        if topology.name != "step3" and sized:
            yield Problem(
                where, f"has batch_mb or buffer_mb, which are for 'step3', not {topology.name!r}"
            )


def _travels(key: str, batch: Batch, arm: Arm, scenario: Scenario) -> Iterator[Problem]:
    """Problems of a batch whose operation cannot go through the arm's topology."""
    topology = scenario.topology_of(arm)
    if not topology.makes_records and batch.operation != "insert":
        yield Problem(
            key,
            f"{batch.operation} cannot go through {topology.name!r}, the topology of arm"
            f" {arm.name!r}: it is for an insert",
        )
    if batch.operation.startswith("insert_overwrite") and scenario.key_is_global(arm):
        yield Problem(
            key,
            f"what {batch.operation} leaves of a key in other partitions is not worked out, and under the"
            f" index {scenario.table_of(arm).index} a key is told apart in the whole table",
        )
