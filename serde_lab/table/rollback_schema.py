"""The Avro forms of a rollback: HoodieRollbackPlan and HoodieRollbackMetadata.

Owns these two schemas as Hudi's writers have them; must not know how a rollback is done.
"""

from __future__ import annotations

from typing import Any

STRING = {"type": "string", "avro.java.string": "String"}
NAMESPACE = "org.apache.hudi.avro.model"


def optional(name: str, kind: object) -> dict[str, Any]:
    """A field that may be null and is so by default."""
    return {"name": name, "type": ["null", kind], "default": None}


def _strings(name: str) -> dict[str, Any]:
    return {"name": name, "type": {"type": "array", "items": STRING}}


_SIZES = {"type": "map", "values": "long", "avro.java.string": "String"}
_INSTANT_INFO = {
    "type": "record",
    "name": "HoodieInstantInfo",
    "fields": [{"name": "commitTime", "type": STRING}, {"name": "action", "type": STRING}],
}
_REQUEST = {
    "type": "record",
    "name": "HoodieRollbackRequest",
    "fields": [
        {"name": "partitionPath", "type": STRING},
        optional("fileId", STRING),
        optional("latestBaseInstant", STRING),
        {
            "name": "filesToBeDeleted",
            "type": {"type": "array", "items": STRING, "default": []},
            "default": [],
        },
        optional("logBlocksToBeDeleted", _SIZES),
    ],
}
_PARTITION = {
    "type": "record",
    "name": "HoodieRollbackPartitionMetadata",
    "fields": [
        {"name": "partitionPath", "type": STRING},
        _strings("successDeleteFiles"),
        _strings("failedDeleteFiles"),
        optional("rollbackLogFiles", _SIZES),
        optional("logFilesFromFailedCommit", _SIZES),
    ],
}

PLAN_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieRollbackPlan",
    "namespace": NAMESPACE,
    "fields": [
        optional("instantToRollback", _INSTANT_INFO),
        optional("RollbackRequests", {"type": "array", "items": _REQUEST}),
        {"name": "version", "type": ["int", "null"], "default": 1},
    ],
}

METADATA_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieRollbackMetadata",
    "namespace": NAMESPACE,
    "fields": [
        {"name": "startRollbackTime", "type": STRING},
        {"name": "timeTakenInMillis", "type": "long"},
        {"name": "totalFilesDeleted", "type": "int"},
        _strings("commitsRollback"),
        {
            "name": "partitionMetadata",
            "type": {"type": "map", "values": _PARTITION, "avro.java.string": "String"},
        },
        {"name": "version", "type": ["int", "null"], "default": 1},
        {
            "name": "instantsRollback",
            "type": {"type": "array", "items": _INSTANT_INFO, "default": []},
            "default": [],
        },
    ],
}
