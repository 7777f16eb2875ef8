"""The Avro form of a plan to replace file groups: HoodieRequestedReplaceMetadata, with a clustering plan.

Owns this schema as Hudi's writers have it; must not know what is replaced or why.
"""

from __future__ import annotations

from typing import Any

from serde_lab.table.rollback_schema import NAMESPACE, STRING, optional


def _map(values: object) -> dict[str, Any]:
    return {"type": "map", "values": values, "avro.java.string": "String"}


def _array(items: object) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


_VERSION = {"name": "version", "type": ["int", "null"], "default": 1}

_SLICE = _record(
    "HoodieSliceInfo",
    optional("dataFilePath", STRING),
    optional("deltaFilePaths", _array(STRING)),
    {"name": "fileId", "type": ["null", STRING]},
    optional("partitionPath", STRING),
    optional("bootstrapFilePath", STRING),
    _VERSION,
)
_GROUP = _record(
    "HoodieClusteringGroup",
    optional("slices", _array(_SLICE)),
    optional("metrics", _map("double")),
    {"name": "numOutputFileGroups", "type": ["int", "null"], "default": 1},
    optional("extraMetadata", _map(STRING)),
    _VERSION,
)
_STRATEGY = _record(
    "HoodieClusteringStrategy",
    optional("strategyClassName", STRING),
    optional("strategyParams", _map(STRING)),
    _VERSION,
)
_PLAN = _record(
    "HoodieClusteringPlan",
    optional("inputGroups", _array(_GROUP)),
    optional("strategy", _STRATEGY),
    optional("extraMetadata", _map(STRING)),
    _VERSION,
    optional("preserveHoodieMetadata", "boolean"),
    optional("missingSchedulePartitions", _array(STRING)),
)

REQUESTED_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieRequestedReplaceMetadata",
    "namespace": NAMESPACE,
    "fields": [
        optional("operationType", STRING),
        optional("clusteringPlan", _PLAN),
        optional("extraMetadata", _map(STRING)),
        _VERSION,
    ],
}
