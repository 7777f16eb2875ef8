"""The Avro forms of a clean: HoodieCleanerPlan and HoodieCleanMetadata.

Owns these two schemas as Hudi's writers have them; must not know what is cleaned.
"""

from __future__ import annotations

from typing import Any

from serde_lab.table.rollback_schema import NAMESPACE, STRING, optional


def _map(values: object) -> dict[str, Any]:
    return {"type": "map", "values": values, "avro.java.string": "String"}


def _strings() -> dict[str, Any]:
    return {"type": "array", "items": STRING}


PLAN_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieCleanerPlan",
    "namespace": NAMESPACE,
    "fields": [
        optional(
            "earliestInstantToRetain",
            {
                "type": "record",
                "name": "HoodieActionInstant",
                "fields": [
                    {"name": "timestamp", "type": STRING},
                    {"name": "action", "type": STRING},
                    {"name": "state", "type": STRING},
                ],
            },
        ),
        {"name": "lastCompletedCommitTimestamp", "type": STRING, "default": ""},
        {"name": "policy", "type": STRING},
        optional("filesToBeDeletedPerPartition", _map(_strings())),
        {"name": "version", "type": ["int", "null"], "default": 1},
        optional(
            "filePathsToBeDeletedPerPartition",
            _map(
                {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "HoodieCleanFileInfo",
                        "fields": [
                            optional("filePath", STRING),
                            optional("isBootstrapBaseFile", "boolean"),
                        ],
                    },
                }
            ),
        ),
        optional("partitionsToBeDeleted", _strings()),
    ],
}

_PARTITION: dict[str, Any] = {
    "type": "record",
    "name": "HoodieCleanPartitionMetadata",
    "fields": [
        {"name": "partitionPath", "type": STRING},
        {"name": "policy", "type": STRING},
        {"name": "deletePathPatterns", "type": _strings()},
        {"name": "successDeleteFiles", "type": _strings()},
        {"name": "failedDeleteFiles", "type": _strings()},
        optional("isPartitionDeleted", "boolean"),
    ],
}

METADATA_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieCleanMetadata",
    "namespace": NAMESPACE,
    "fields": [
        {"name": "startCleanTime", "type": STRING},
        {"name": "timeTakenInMillis", "type": "long"},
        {"name": "totalFilesDeleted", "type": "int"},
        {"name": "earliestCommitToRetain", "type": STRING},
        {"name": "lastCompletedCommitTimestamp", "type": STRING, "default": ""},
        {"name": "partitionMetadata", "type": _map(_PARTITION)},
        {"name": "version", "type": ["int", "null"], "default": 1},
        optional("bootstrapPartitionMetadata", _map("HoodieCleanPartitionMetadata")),
    ],
}
