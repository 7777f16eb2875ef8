"""Apache Hudi's three arms: the writes that `hudi_avro`, `hudi_spark` and `hudi_spark_tuned` mean.

Owns which options an arm has beyond those that make its table equal to the lab's. Must not know
Spark sessions, scenarios or clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from serde_lab.peers.hudi_options import HudiWrite, Operation, RecordType

LogBlocks = Literal["avro", "parquet"]


@dataclass(frozen=True, slots=True)
class HudiArm:
    """One way to set Apache Hudi up; `tuned` are options that its best advocate would add."""

    name: str
    about: str
    record_type: RecordType
    tuned: Mapping[str, str] = field(default_factory=dict)

    def write(
        self,
        operation: Operation,
        *,
        parallelism: int,
        codec: str,
        log_blocks: LogBlocks,
        unique: bool,
    ) -> HudiWrite:
        """One write of this arm; `unique` says that no key comes twice in the batch.

        Log blocks of the AVRO record type are Avro whatever the table asks for: it is what that type
        is for.
        """
        return HudiWrite(
            operation=operation,
            record_type=self.record_type,
            log_block=log_blocks if self.record_type == "SPARK" else "avro",
            parallelism=parallelism,
            codec=codec,
            combine_before_upsert=not (self.tuned and unique),
            extra=self.tuned,
        )


TUNED: Mapping[str, str] = {
    "hoodie.parquet.bloom.filter.enabled": "false",
}

ARMS: Mapping[str, HudiArm] = {
    arm.name: arm
    for arm in (
        HudiArm("hudi_avro", "Apache Hudi with its AVRO record type", "AVRO"),
        HudiArm("hudi_spark", "Apache Hudi with its SPARK record type", "SPARK"),
        HudiArm(
            "hudi_spark_tuned",
            "Apache Hudi with its SPARK record type, as its best advocate would set it",
            "SPARK",
            TUNED,
        ),
    )
}
"""The arms by the names that a scenario's `peer` takes."""
