"""The tables of a scenario: that of `[data]`, then one for each `[[dataset]]`.

Each is a scenario of one table with the same arms, so that whatever works on one table works on each of
them. A `[[dataset]]` shares with the file what is said once for all tables: where rows come from, their
scale, the kind of table, and the writes, if it has none of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serde_lab.measure.metrics import DETAIL_PREFIX
from serde_lab.scenario.model import Scenario, TpchData

OPEN_TABLES = f"{DETAIL_PREFIX}open_tables_s"
"""The metric of opening all tables before the queries: deciding which files are read."""

_SHARED_DATA = ("source", "scale_factor", "input_partitions", "seed")
_OF_COLUMNS = (
    "bucket_fields", "hive_style", "url_encode", "time_folders", "delete_field", "delete_marker",
)  # fmt: skip
"""Keys of `[table]` that depend on a table's columns, and so are not shared."""


def query_metric(query: str) -> str:
    """The metric of a query's seconds, from its text to its last row."""
    return f"{DETAIL_PREFIX}query_{query}_s"


def with_shared_keys(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A document whose datasets have the keys that they share with it; faults are left for the checks."""
    content = dict(raw)
    datasets = content.get("dataset")
    if isinstance(datasets, list):
        content["dataset"] = [
            _complete(one, content) if isinstance(one, Mapping) else one for one in datasets
        ]
    return content


def _complete(dataset: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    whole = dict(dataset)
    data, table = content.get("data"), content.get("table", {})
    own = whole.get("data")
    if isinstance(data, Mapping) and isinstance(own, Mapping):
        alike = own.get("source", data.get("source")) == data.get("source")
        shared = _SHARED_DATA if alike else ("input_partitions", "seed")
        whole["data"] = {key: data[key] for key in shared if key in data} | dict(own)
    own = whole.get("table", {})
    if isinstance(table, Mapping) and isinstance(own, Mapping):
        shared_table = {k: v for k, v in table.items() if k not in _OF_COLUMNS}
        whole["table"] = shared_table | dict(own)
    if "commit" not in whole:
        whole |= {key: content[key] for key in ("setup", "commit") if key in content}
    return whole


def first_table(scenario: Scenario) -> str:
    """The name of the table of `[data]`."""
    return scenario.data.table if isinstance(scenario.data, TpchData) else "data"


def tables_of(scenario: Scenario) -> dict[str, Scenario]:
    """Every table by name, as a scenario of one table, in the order in which cells write them."""
    first = first_table(scenario)
    if not scenario.datasets:
        return {first: scenario}
    alone = scenario.model_copy(update={"datasets": (), "queries": ()})
    found = {first: alone}
    for one in scenario.datasets:
        update = {
            "name": f"{scenario.name}.{one.name}",
            "data": one.data,
            "setups": one.setups,
            "timed": one.timed,
            "table": one.table,
        }
        found[one.name] = alone.model_copy(update=update)
    return found


def writes_several(scenario: Scenario) -> bool:
    """Whether its cells write several tables, or are asked queries."""
    return bool(scenario.datasets or scenario.queries)
