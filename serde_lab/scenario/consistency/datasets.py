"""Checks `[[dataset]]` and `queries`: names, what several tables allow, and which tables a query reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from serde_lab.scenario.model import UPSERT_CONTROLS, Scenario, TpchData
from serde_lab.scenario.problems import Problem, listed
from serde_lab.scenario.sweep import first_table, tables_of
from tpch import QUERIES

_OF_A_TABLE = ("data", "setup", "commit", "table")
_WITHOUT_A_TABLE = ("exchange_only", "parquet_floor", *UPSERT_CONTROLS)


def within(name: str, problem: Problem) -> Problem:
    """A problem of the scenario of one dataset, under the dataset's own key."""
    if problem.key.split(".")[0] in _OF_A_TABLE:
        return Problem(f"dataset.{name}.{problem.key}", problem.clause)
    return Problem(f"dataset.{name}", f"{problem.key}: {problem.clause}")


def check(scenario: Scenario) -> Iterator[Problem]:
    """Problems of `[[dataset]]` as a whole, and of `queries`."""
    if scenario.datasets:
        yield from _datasets(scenario)
    if scenario.queries:
        yield from _queries(scenario)


def _datasets(scenario: Scenario) -> Iterator[Problem]:
    names = [first_table(scenario), *(one.name for one in scenario.datasets)]
    for name, times in Counter(names).items():
        if times > 1:
            yield Problem(
                f"dataset.{name}", f"{times} tables have this name; that of [data] is {names[0]!r}"
            )
    if scenario.stream is not None:
        yield Problem("dataset", "a stream writes one table; remove [stream] or [[dataset]]")
    if scenario.codec_only:
        yield Problem("dataset", "has no effect: with measure.exchange 'none' no table is written")
    if scenario.sweep is not None:
        yield Problem("dataset", "a sweep changes one table; remove [sweep] or [[dataset]]")
    for arm in scenario.arms:
        if arm.peer is not None:
            yield Problem(f"arm.{arm.name}", "peers cannot write several tables yet")


def _queries(scenario: Scenario) -> Iterator[Problem]:
    for name, times in Counter(scenario.queries).items():
        if times > 1:
            yield Problem("queries", f"names {name!r} {times} times")
    if scenario.measure.exchange != "spark":
        yield Problem(
            "queries",
            f"need measure.exchange 'spark', not {scenario.measure.exchange!r}: Spark answers them",
        )
    if scenario.stream is not None:
        yield Problem("queries", "cannot be asked of a stream's table")
    if scenario.sweep is not None:
        yield Problem("queries", "cannot be combined with [sweep]")
    tables: list[str] = [
        one.data.table for one in tables_of(scenario).values() if isinstance(one.data, TpchData)
    ]
    for table, times in Counter(tables).items():
        if times > 1:
            yield Problem("queries", f"read {table}, of which the scenario has {times} tables")
    for query in dict.fromkeys(scenario.queries):
        missing = [name for name in QUERIES[query].tables if name not in tables]
        if missing:
            yield Problem("queries", f"{query} reads {listed(missing)}, not among the tables here")
    for arm in scenario.arms:
        if arm.control in _WITHOUT_A_TABLE:
            yield Problem(
                f"arm.{arm.name}", f"{arm.control} writes no Hudi table that queries could read"
            )
        if arm.peer is not None:
            yield Problem(f"arm.{arm.name}", "queries are asked of the lab's own tables only")
