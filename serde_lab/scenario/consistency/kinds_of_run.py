"""Checks what makes a run another kind: several tables and queries of them, a stream, or a search.

`[[dataset]]` and `queries`: names, what several tables allow, and which tables a query reads. `[stream]`:
what a streaming query can write, and which arms have a sink for it. `[search]`: its candidates, where they
start from, and what they change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from serde_lab.scenario.hudi_options import settings_problems, with_settings
from serde_lab.scenario.model import RECORD_PEERS, UPSERT_CONTROLS, Scenario, TpchData
from serde_lab.scenario.problems import Problem, a, comma_separated, repeated, unknown_arm
from serde_lab.scenario.sweep import first_table, tables_of
from tpch import QUERIES

_OF_A_TABLE = ("data", "setup", "commit", "table")
_WITHOUT_A_TABLE = ("exchange_only", "parquet_floor", *UPSERT_CONTROLS)


def within(name: str, problem: Problem) -> Problem:
    """A problem of the scenario of one dataset, under the dataset's own key."""
    if problem.key.split(".")[0] in _OF_A_TABLE:
        return Problem(f"dataset.{name}.{problem.key}", problem.clause)
    return Problem(f"dataset.{name}", f"{problem.key}: {problem.clause}")


def check_datasets(scenario: Scenario) -> Iterator[Problem]:
    """Problems of `[[dataset]]` as a whole, and of `queries`."""
    if scenario.datasets:
        yield from _datasets(scenario)
    if scenario.queries:
        yield from _queries(scenario)


def _datasets(scenario: Scenario) -> Iterator[Problem]:
    names = [first_table(scenario), *(one.name for one in scenario.datasets)]
    for name, times in repeated(names):
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
    for name, times in repeated(scenario.queries):
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
    for table, times in repeated(tables):
        yield Problem("queries", f"read {table}, of which the scenario has {times} tables")
    for query in dict.fromkeys(scenario.queries):
        missing = [name for name in QUERIES[query].tables if name not in tables]
        if missing:
            yield Problem(
                "queries", f"{query} reads {comma_separated(missing)}, not among the tables here"
            )
    for arm in scenario.arms:
        if arm.control in _WITHOUT_A_TABLE:
            yield Problem(
                f"arm.{arm.name}", f"{arm.control} writes no Hudi table that queries could read"
            )
        if arm.peer is not None:
            yield Problem(f"arm.{arm.name}", "queries are asked of the lab's own tables only")


_OPERATIONS = ("upsert", "insert")


def check_stream(scenario: Scenario) -> Iterator[Problem]:
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
    if scenario.sweep is not None and scenario.sweep.key != "commit.1.rows":
        yield Problem("sweep.key", "a stream is swept by the rows of its batches, commit.1.rows")
    if scenario.stream.readers:
        yield from _stream_readers(scenario)
    for arm in scenario.arms:
        if arm.control is not None:
            yield Problem(f"arm.{arm.name}", f"{arm.control} has no sink for a streaming query")
        if arm.source_reader != "auto":
            yield Problem(
                f"arm.{arm.name}.source_reader", "has no effect: Spark reads a stream's source"
            )


FEWEST_CONFIRMING = 6
"""The fewest rounds in which a combination is compared with its start."""


def _stream_readers(scenario: Scenario) -> Iterator[Problem]:
    """What readers may see is known only where one of a key's rows stays, and none is deleted."""
    key = "stream.readers"
    if not scenario.setups:
        yield Problem(key, "need a table before the first micro-batch; expected a [[setup]]")
    if scenario.timed[0].operation != "upsert":
        yield Problem(key, f"need upserts, and the operation is {scenario.timed[0].operation}")
    refreshed = isinstance(scenario.data, TpchData) and scenario.data.refresh
    if refreshed or any(batch.deletes for batch in (*scenario.setups, *scenario.timed)):
        yield Problem(key, "need rows that nothing deletes")
    for table in (scenario.table, *(scenario.table_of(arm) for arm in scenario.arms)):
        if table.partial_update or table.merger_classes:
            yield Problem(key, "need a table that keeps one of the rows of a key as it is")
            return


def check_search(scenario: Scenario) -> Iterator[Problem]:
    search = scenario.search
    if search is None:
        return
    for section in ("stream", "sweep", "shapes"):
        if getattr(scenario, section) is not None:
            yield Problem("search", f"cannot be combined with [{section}]")
    if scenario.datasets:
        yield Problem("search", "cannot be combined with [[dataset]]")
    if scenario.measure.rounds < FEWEST_CONFIRMING:
        yield Problem(
            "measure.rounds",
            f"found {scenario.measure.rounds}, but a search confirms its result in at least"
            f" {FEWEST_CONFIRMING} rounds",
        )
    names = [arm.name for arm in scenario.arms]
    taken = Counter([*names, *(f"{start}-best" for start in search.starts)])
    taken.update(one.arm_name for one in search.candidates)
    for number, one in enumerate(search.candidates, 1):
        key = f"search.candidate.{one.name or number}"
        yield from unknown_arm(f"{key}.arm", one.arm, names)
        if one.arm not in names:
            continue
        if taken[one.arm_name] > 1:
            yield Problem(key, f"two arms would be called {one.arm_name!r}")
        start = scenario.arm(one.arm)
        if start.kind == "control" or start.peer in RECORD_PEERS:
            yield Problem(f"{key}.arm", f"{start.subject} takes no settings")
            continue
        tried = with_settings(start, one.arm_name, one.settings)
        own = tried.model_copy(update={"settings": one.settings})
        yield from settings_problems(key, own, scenario)
        if tried.stated_settings == start.stated_settings:
            yield Problem(f"{key}.settings", f"changes nothing in arm {one.arm!r}")
    yield from _factors(scenario)


def _factors(scenario: Scenario) -> Iterator[Problem]:
    """Winners of different factors are combined, so they may not set the same key."""
    owners: dict[tuple[str, str], str] = {}
    for one in scenario.search.candidates if scenario.search else ():
        for key in one.settings:
            owner = owners.setdefault((one.arm, key), one.changed_factor)
            if owner != one.changed_factor:
                yield Problem(
                    f"search.candidate.{one.name}.settings.{key}",
                    f"is set by factors {owner!r} and {one.changed_factor!r} of arm {one.arm!r}; give both"
                    " candidates the same factor",
                )
