"""Checks `[stream]`: what a streaming query can write, and which arms have a sink for it."""

from __future__ import annotations

from collections.abc import Iterator

from serde_lab.scenario.model import Scenario
from serde_lab.scenario.problems import Problem, a

_OPERATIONS = ("upsert", "insert")


def check(scenario: Scenario) -> Iterator[Problem]:
    """Problems of `[stream]`."""
    if scenario.stream is None:
        return
    if len(scenario.timed) > 1:
        yield Problem(
            "commit",
            f"has {len(scenario.timed)} tables, but every micro-batch of [stream] is like the first;"
            " expected one",
        )
    batch = scenario.timed[0]
    if batch.path is not None:
        yield Problem(
            "commit.1.path", "micro-batches of [stream] differ, so they are derived from [data]"
        )
    if batch.operation not in _OPERATIONS:
        yield Problem(
            "commit.1.operation",
            f"{a(batch.operation)} cannot be measured as a stream, only {' or '.join(_OPERATIONS)}",
        )
    if scenario.data.keyless:
        yield Problem("data.keyless", "rows without keys cannot be measured as a stream")
    if scenario.measure.exchange != "spark":
        yield Problem(
            "measure.exchange",
            f"is {scenario.measure.exchange!r}, but a streaming query needs 'spark'",
        )
    for arm in scenario.arms:
        if arm.control is not None:
            yield Problem(f"arm.{arm.name}", f"{arm.control} has no sink for a streaming query")
        if arm.source_reader != "auto":
            yield Problem(
                f"arm.{arm.name}.source_reader", "has no effect: Spark reads a stream's source"
            )
