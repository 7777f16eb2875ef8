"""Checks `[[setup]]` and `[[commit]]`: operations, shares, and the order of batches."""

from __future__ import annotations

from collections.abc import Iterator

from serde_lab.scenario.consistency.wording import a
from serde_lab.scenario.model import Batch, ParquetData, Scenario
from serde_lab.scenario.problems import Problem

_SHARES = ("updates", "duplicates", "late", "deletes")
# operations that handle stored keys and duplicates within a batch correctly
_OF_STORED_KEYS = ("upsert", "upsert_prepped", "insert_overwrite", "insert_overwrite_table")
_REPLACES = ("insert_overwrite", "insert_overwrite_table", "delete_partition")


def check(scenario: Scenario) -> Iterator[Problem]:
    """Problems of `[[setup]]` and `[[commit]]`."""
    yield from _not_yet(scenario)
    own = ""
    for number, (key, batch) in enumerate(scenario.named_batches):
        if batch.takes_no_rows or batch.partitions:
            yield from _partitions(key, batch, scenario, first=not number)
            continue
        yield from _size(key, batch, scenario)
        if own and not batch.path:
            yield Problem(
                key,
                f"is derived from [data], but {own} before it has its own `path`: which keys are "
                "stored by then is not known",
            )
        own = own or (key if batch.path else "")
        yield from _shares(key, batch, first=not number)
    yield from _prepped(scenario)
    strategies = [arm.name for arm in scenario.arms if arm.kind == "strategy"]
    for number, batch in enumerate(scenario.commits, 1):
        if batch.operation == "bulk_insert" and strategies:
            yield Problem(
                f"commit.{number}.operation",
                "a bulk_insert makes no records, so that no strategy would be measured; "
                "put it into [[setup]]",
            )
    if all(batch.takes_no_rows for batch in scenario.commits):
        yield Problem("commit", "has no rows in any of them, so that nothing would be measured")


def _not_yet(scenario: Scenario) -> Iterator[Problem]:
    """Problems of valid keys whose meaning is not implemented yet."""
    for key, batch in scenario.named_batches:
        if batch.deletes:
            yield Problem(f"{key}.deletes", "delete markers are not supported yet")
        if batch.takes_no_rows or batch.operation == "upsert_prepped":
            for arm in scenario.arms:
                if arm.kind != "strategy":
                    yield Problem(
                        f"{key}.operation",
                        f"{arm.subject}, arm {arm.name!r}, does not carry out {batch.operation} yet;"
                        " take one of them out",
                    )


def _shares(key: str, batch: Batch, first: bool) -> Iterator[Problem]:
    """Shares that the operation cannot have, or that do not add up. `first`: the table is still empty."""
    given = [name for name in _SHARES if getattr(batch, name)]
    if given and (batch.path or batch.operation not in _OF_STORED_KEYS):
        why = (
            "its rows are those of `path`"
            if batch.path
            else f"{a(batch.operation)} has none, only an upsert"
        )
        yield Problem(f"{key}.{given[0]}", f"cannot be asked for: {why}")
        return
    stored = batch.updates * (1 - batch.duplicates)
    if batch.late + batch.deletes > stored + 1e-9:
        yield Problem(
            key,
            f"late and deletes ask for {batch.late + batch.deletes:g} of the rows, but only "
            f"{stored:g} of them, updates * (1 - duplicates), are of stored keys",
        )
    if first and not batch.path and (batch.updates or batch.operation == "delete"):
        asked = "delete" if batch.operation == "delete" else f"updates = {batch.updates:g}"
        yield Problem(
            f"{key}.{'operation' if batch.operation == 'delete' else 'updates'}",
            f"{asked} needs stored keys, and this is the first batch of an empty table",
        )


def _partitions(key: str, batch: Batch, scenario: Scenario, first: bool) -> Iterator[Problem]:
    """A delete_partition names partition paths and has no rows. `first`: it is the first write."""
    if not batch.takes_no_rows:
        yield Problem(f"{key}.partitions", f"is for delete_partition, not for {batch.operation}")
        return
    given = [name for name in ("rows", "share", "path", *_SHARES) if getattr(batch, name)]
    if given:
        yield Problem(f"{key}.{given[0]}", "cannot be asked for: a delete_partition has no rows")
    if not batch.partitions:
        yield Problem(f"{key}.partitions", "is missing: it names what delete_partition deletes")
    if not scenario.data.partition:
        yield Problem(f"{key}.operation", "needs data.partition, which names no column")
    if first:
        yield Problem(f"{key}.operation", "needs a table, and this is the first of its writes")


def _prepped(scenario: Scenario) -> Iterator[Problem]:
    """An upsert_prepped needs stored rows: the lab looks up their files before the clock starts."""
    gone = ""
    for key, batch in scenario.named_batches:
        if batch.operation in _REPLACES:
            gone = gone or key
        if batch.operation != "upsert_prepped":
            continue
        if key.startswith("setup"):
            yield Problem(f"{key}.operation", "an upsert_prepped is measured: it is for [[commit]]")
        elif batch.path:
            yield Problem(
                f"{key}.path", "cannot be asked for: the rows of an upsert_prepped are derived"
            )
        elif batch.updates != 1:
            yield Problem(
                f"{key}.updates",
                f"is {batch.updates:g}, expected 1: an upsert_prepped is for records that are stored",
            )
        elif gone:
            yield Problem(
                f"{key}.operation",
                f"an upsert_prepped needs stored keys, and {gone} before it took some away",
            )


def _size(key: str, batch: Batch, scenario: Scenario) -> Iterator[Problem]:
    given = [name for name in ("rows", "share", "path") if getattr(batch, name) is not None]
    if len(given) > 1:
        yield Problem(key, f"has {' and '.join(given)}, expected one of them at most")
    if batch.path is None:
        return
    if not isinstance(scenario.data, ParquetData):
        yield Problem(f"{key}.path", 'needs [data] source = "parquet", since files have a schema')
    elif scenario.data.keyless:
        return
    elif not scenario.data.ordering and scenario.table.merge_mode == "EVENT_TIME_ORDERING":
        yield Problem(
            f"{key}.path",
            "needs data.ordering: times can be added to derived rows only, not to your own",
        )
