"""Checks `[[setup]]` and `[[commit]]`: operations, shares, and the order of batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from serde_lab.records.operation import TableOperation
from serde_lab.scenario.model import READ_CONTROLS, Arm, ParquetData, Scenario, TpchData
from serde_lab.scenario.problems import Problem, a, comma_separated
from serde_lab.scenario.sections import Batch

_SHARES = ("updates", "duplicates", "late", "deletes")
# operations that handle stored keys and duplicates within a batch correctly
_OF_STORED_KEYS = ("upsert", "upsert_prepped", "insert_overwrite", "insert_overwrite_table")
_LOADS = ("bulk_insert", "insert", "upsert")
_REPLACES = ("insert_overwrite", "insert_overwrite_table", "delete_partition")


def check_batches(scenario: Scenario) -> Iterator[Problem]:
    """Problems of `[[setup]]` and `[[commit]]`."""
    yield from _not_yet(scenario)
    yield from _table_operations(scenario)
    if isinstance(scenario.data, TpchData) and scenario.data.refresh:
        yield from _refreshes(scenario)
    own = ""
    for number, (key, batch) in enumerate(scenario.named_batches):
        if not batch.writes:
            continue
        if batch.takes_no_rows or batch.partitions:
            yield from _partitions(key, batch, scenario, first=not number)
            continue
        yield from _size(key, batch, scenario)
        if own and not batch.path:
            yield Problem(
                key,
                f"is derived from [data], but {own} before it has its own `path`, so the lab does not "
                "know the stored keys",
            )
        own = own or (key if batch.path else "")
        yield from _shares(key, batch, first=not number)
    yield from _prepped(scenario)
    strategies = [arm.name for arm in scenario.arms if arm.kind == "strategy"]
    for number, batch in enumerate(scenario.commits, 1):
        if batch.operation == "bulk_insert" and strategies:
            yield Problem(
                f"commit.{number}.operation",
                "a bulk_insert makes no records, so no strategy would be measured; move it to [[setup]]",
            )
    if all(batch.takes_no_rows and batch.writes for batch in scenario.commits):
        yield Problem("commit", "has no batch with rows, so nothing would be measured")


def _not_yet(scenario: Scenario) -> Iterator[Problem]:
    """Problems of valid keys whose meaning is not implemented yet."""
    for key, batch in scenario.named_batches:
        if (batch.takes_no_rows and batch.writes) or batch.operation == "upsert_prepped":
            for arm in scenario.arms:
                if arm.kind != "strategy":
                    yield Problem(
                        f"{key}.operation",
                        f"arm {arm.name!r} ({arm.subject}) cannot do {batch.operation} yet; remove one"
                        " of the two",
                    )


def _table_operations(scenario: Scenario) -> Iterator[Problem]:
    """Reads and compactions: what they may be given, what they need, and which arms can do them."""
    named = scenario.named_batches
    asked = [(key, batch) for key, batch in named if not batch.writes]
    for number, (key, batch) in enumerate(named):
        yield from _of_operation(key, batch)
        if not batch.writes:
            yield from _before(key, batch, scenario, [earlier for _, earlier in named[:number]])
    if asked and scenario.codec_only:
        yield Problem(f"{asked[0][0]}.operation", "measure.exchange 'none' has no table to read")
    for name, given in (("dataset", scenario.datasets), ("search", scenario.search)):
        if asked and given:
            yield Problem(f"{asked[0][0]}.operation", f"cannot be combined with [{name}]")
    for arm in scenario.arms:
        yield from _arm_of_operations(arm, scenario, asked)


def _of_operation(key: str, batch: Batch) -> Iterator[Problem]:
    """Keys that only some operations have."""
    if batch.since != 1 and batch.operation != TableOperation.INCREMENTAL:
        yield Problem(f"{key}.since", f"is for incremental, not for {batch.operation}")
    if batch.while_writing and batch.operation != TableOperation.READ:
        yield Problem(f"{key}.while_writing", f"is for read, not for {batch.operation}")
    if batch.writes:
        return
    if key.startswith("setup"):
        yield Problem(
            f"{key}.operation", f"{a(batch.operation)} is timed: it belongs in [[commit]]"
        )
    for name in ("rows", "share", "path", "partitions", *_SHARES):
        if getattr(batch, name):
            yield Problem(f"{key}.{name}", f"cannot be set: {a(batch.operation)} has no rows")


def _before(
    key: str, batch: Batch, scenario: Scenario, earlier: Sequence[Batch]
) -> Iterator[Problem]:
    """What a read or a compaction needs of the batches before it, and of the table."""
    where = f"{key}.operation"
    writes = [one for one in earlier if one.writes]
    if not writes:
        yield Problem(where, "needs a table with rows, but nothing was written before it")
        return
    if batch.operation == TableOperation.READ:
        return
    for arm in scenario.arms:
        if scenario.table_of(arm).type != "MERGE_ON_READ":
            yield Problem(where, f"needs table.type MERGE_ON_READ, which arm {arm.name!r} has not")
            return
    if batch.operation != TableOperation.INCREMENTAL:
        return
    if batch.since >= len(writes):
        yield Problem(
            f"{key}.since",
            f"is {batch.since}, but {len(writes)} writes come before it, of which the first makes the files"
            " that the others change",
        )
        return
    if scenario.table.partial_update:
        yield Problem(where, "the lab cannot compute the changes of a table with partial_update")
    first = [number for number, one in enumerate(earlier) if one.writes][-batch.since]
    for one in earlier[first:]:
        if one.operation == TableOperation.COMPACT:
            yield Problem(
                where, "the lab cannot compute changes that a compaction has merged already"
            )
        elif one.writes and one.operation not in ("upsert", "delete"):
            yield Problem(
                where, f"the lab cannot compute the changes of {a(one.operation)}, only of upserts"
            )


def _arm_of_operations(
    arm: Arm, scenario: Scenario, asked: Sequence[tuple[str, Batch]]
) -> Iterator[Problem]:
    """Which arms read and compact tables, and which do nothing else."""
    where = f"arm.{arm.name}"
    if arm.control in READ_CONTROLS:
        if not scenario.only_reads:
            yield Problem(where, f"{arm.control} only reads: every commit must be a read")
        compacts = [key for key, batch in asked if batch.operation == TableOperation.COMPACT]
        if arm.control == "hudi_rs" and compacts:
            yield Problem(where, f"hudi_rs does not compact tables ({compacts[0]})")
    elif arm.control is not None and asked:
        yield Problem(where, f"{arm.control} has no table to read or compact ({asked[0][0]})")


def _refreshes(scenario: Scenario) -> Iterator[Problem]:
    """With `data.refresh` the first batch is the initial load, and each other one a pair RF1 and RF2."""
    for number, (key, batch) in enumerate(scenario.named_batches):
        given = [n for n in ("rows", "share", "path", "partitions", *_SHARES) if getattr(batch, n)]
        if given:
            yield Problem(
                f"{key}.{given[0]}", "cannot be set: data.refresh decides the rows of each batch"
            )
        expected = ("upsert",) if number else _LOADS
        if batch.operation not in expected:
            what = "a refresh" if number else "the initial load"
            yield Problem(
                f"{key}.operation",
                f"is {batch.operation}, but with data.refresh this is {what}: expected"
                f" {comma_separated(expected)}",
            )
    if len(scenario.batches) < 2:
        yield Problem("data.refresh", "needs a batch after the first, which is the initial load")


def _shares(key: str, batch: Batch, first: bool) -> Iterator[Problem]:
    """Shares that the operation cannot have, or that do not add up. `first`: the table is still empty."""
    given = [name for name in _SHARES if getattr(batch, name)]
    if given and (batch.path or batch.operation not in _OF_STORED_KEYS):
        why = (
            "the rows come from `path`"
            if batch.path
            else f"{a(batch.operation)} has no such rows; only {comma_separated(_OF_STORED_KEYS)} have"
        )
        yield Problem(f"{key}.{given[0]}", f"cannot be set: {why}")
        return
    if batch.deletes and batch.operation != "upsert":
        yield Problem(
            f"{key}.deletes",
            f"cannot be set: of the derived batches, only those of upserts have marked rows, not"
            f" {a(batch.operation)}",
        )
    stored = batch.updates * (1 - batch.duplicates)
    if batch.late + batch.deletes > stored + 1e-9:
        yield Problem(
            key,
            f"late + deletes is {batch.late + batch.deletes:g} of the rows, but only {stored:g} of them"
            " (updates * (1 - duplicates)) have stored keys",
        )
    if first and not batch.path and (batch.updates or batch.operation == "delete"):
        asked = "delete" if batch.operation == "delete" else f"updates = {batch.updates:g}"
        yield Problem(
            f"{key}.{'operation' if batch.operation == 'delete' else 'updates'}",
            f"{asked} needs stored keys, but this is the first batch of an empty table",
        )


def _partitions(key: str, batch: Batch, scenario: Scenario, first: bool) -> Iterator[Problem]:
    """A delete_partition names partition paths and has no rows. `first`: it is the first write."""
    if not batch.takes_no_rows:
        yield Problem(f"{key}.partitions", f"is for delete_partition, not for {batch.operation}")
        return
    given = [name for name in ("rows", "share", "path", *_SHARES) if getattr(batch, name)]
    if given:
        yield Problem(f"{key}.{given[0]}", "cannot be set: a delete_partition has no rows")
    if not batch.partitions:
        yield Problem(f"{key}.partitions", "is missing; it lists the partition paths to delete")
    for path in batch.partitions:
        if "," in path:
            yield Problem(
                f"{key}.partitions",
                f"{path!r} has a comma, which separates paths in Hudi's option; use * for that part",
            )
    if not scenario.data.partition:
        yield Problem(f"{key}.operation", "needs data.partition, which is empty")
    if first:
        yield Problem(f"{key}.operation", "needs a table with rows, but this is the first write")


def _prepped(scenario: Scenario) -> Iterator[Problem]:
    """An upsert_prepped needs stored rows: the lab looks up their files before the clock starts."""
    gone = ""
    for key, batch in scenario.named_batches:
        if batch.operation in _REPLACES:
            gone = gone or key
        if batch.operation != "upsert_prepped":
            continue
        if key.startswith("setup"):
            yield Problem(f"{key}.operation", "an upsert_prepped belongs in [[commit]]")
        elif batch.path:
            yield Problem(
                f"{key}.path",
                "cannot be set: the rows of an upsert_prepped are always derived from [data]",
            )
        elif batch.updates != 1:
            yield Problem(
                f"{key}.updates",
                f"is {batch.updates:g}, expected 1: an upsert_prepped only takes stored records",
            )
        elif gone:
            yield Problem(
                f"{key}.operation",
                f"an upsert_prepped needs stored keys, but {gone} before it removed some",
            )


def _size(key: str, batch: Batch, scenario: Scenario) -> Iterator[Problem]:
    given = [name for name in ("rows", "share", "path") if getattr(batch, name) is not None]
    if len(given) > 1:
        yield Problem(key, f"has {' and '.join(given)}, expected at most one of them")
    if batch.path is None:
        return
    if not isinstance(scenario.data, ParquetData):
        yield Problem(f"{key}.path", 'needs [data] source = "parquet"')
    elif scenario.data.keyless:
        return
    elif not scenario.data.ordering and scenario.table.merge_mode == "EVENT_TIME_ORDERING":
        yield Problem(
            f"{key}.path",
            "needs data.ordering, because event_ts is only added to derived rows",
        )
