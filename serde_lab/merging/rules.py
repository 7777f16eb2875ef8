"""Turns the merge settings of `hoodie.properties` into the code that merges.

`MergeRules` holds a table's settings and makes the combiner. This module also chooses one of several
mergers and maps Hudi's class names to the lab's. Source: HoodieRecordUtils and HoodieWriteConfig
(RECORD_MERGE_IMPL_CLASSES).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from serde_lab.errors import OptionError
from serde_lab.merging.combiner import Combiner, MergerCombiner
from serde_lab.merging.delete_markers import DeleteMarkers
from serde_lab.merging.merger import (
    ANY,
    ARROW,
    COMMIT_TIME_STRATEGY,
    CUSTOM_STRATEGY,
    EVENT_TIME_STRATEGY,
    PAYLOAD_STRATEGY,
    CommitTimeMerger,
    EventTimeMerger,
    RecordMerger,
    named_class,
)
from serde_lab.merging.partial_update import PartialUpdate, PartialUpdateCombiner
from serde_lab.merging.survivors import MergeMode
from serde_lab.records.schema import RecordSchema

IMPLEMENTATIONS = "hoodie.write.record.merge.custom.implementation.classes"

_MERGER = "serde_lab.merging.merger"
_HUDIS: Mapping[str, str] = {
    "org.apache.hudi.common.model.HoodieAvroRecordMerger": (
        "serde_lab.merging.payload_bridge:AvroRecordMerger"
    ),
    "org.apache.hudi.common.model.OverwriteWithLatestMerger": f"{_MERGER}:CommitTimeMerger",
    "org.apache.hudi.OverwriteWithLatestSparkRecordMerger": f"{_MERGER}:CommitTimeMerger",
    "org.apache.hudi.common.model.EventTimeAvroRecordMerger": f"{_MERGER}:EventTimeMerger",
    "org.apache.hudi.DefaultSparkRecordMerger": f"{_MERGER}:EventTimeMerger",
}
DEBEZIUM_UNAVAILABLE = "__debezium_unavailable_value"

_STRATEGIES: Mapping[MergeMode, str] = {
    MergeMode.COMMIT_TIME: COMMIT_TIME_STRATEGY,
    MergeMode.EVENT_TIME: EVENT_TIME_STRATEGY,
    MergeMode.CUSTOM: CUSTOM_STRATEGY,
}


@dataclass(frozen=True, slots=True)
class MergeRules:
    """How a table merges. "" and None mean that the table has no such setting.

    `strategy_id` is fixed for the table; implementations (`classes`) may differ from write to write.
    `payload_class` is the class whose rules the payload bridge applies.
    """

    mode: MergeMode = MergeMode.EVENT_TIME
    strategy_id: str = ""
    partial_update: PartialUpdate | None = None
    unavailable: str = ""
    markers: DeleteMarkers = field(default_factory=DeleteMarkers)
    payload_class: str = ""
    classes: tuple[str, ...] = ()

    @property
    def strategy(self) -> str:
        """The merge strategy's UUID: the table's own, else the mode's."""
        return self.strategy_id or _STRATEGIES[self.mode]

    def combiner(
        self,
        schema: RecordSchema,
        record_type: str = ARROW,
        in_log: bool = False,
        partial: bool = False,
    ) -> Combiner | None:
        """The combiner for rows of `schema`; None where choosing one of two rows is enough.

        `in_log`: the entries come from a log; `partial`: some of them lack columns. Raises OptionError if
        no implementation fits.
        """
        if partial and self.mode is not MergeMode.CUSTOM:
            return PartialUpdateCombiner(PartialUpdate.KEEP_VALUES)
        merger = self._merger(record_type)
        if merger is not None:
            return MergerCombiner(merger, schema, self.properties(schema), in_log)
        if self.partial_update is None:
            return None
        return PartialUpdateCombiner(self.partial_update, self.unavailable)

    def check_merger(self, record_type: str = ARROW) -> None:
        """Raises OptionError, naming the strategy, if no implementation fits."""
        self._merger(record_type)

    def _merger(self, record_type: str) -> RecordMerger | None:
        """The implementation that fits; None if its rule is just to choose one of two rows."""
        classes = self.classes
        if self.strategy == PAYLOAD_STRATEGY and not classes:
            classes = ("org.apache.hudi.common.model.HoodieAvroRecordMerger",)
        if self.mode is not MergeMode.CUSTOM and not classes:
            return None
        merger = choose_merger(classes, self.strategy, record_type, tuple(_STRATEGIES.values()))
        native = type(merger) in (CommitTimeMerger, EventTimeMerger)
        return None if native and self.mode is not MergeMode.CUSTOM else merger

    def properties(self, schema: RecordSchema) -> dict[str, str]:
        """The settings that a merger or payload gets besides the schema, under Hudi's names."""
        found = {
            "hoodie.record.merge.mode": str(self.mode),
            "hoodie.table.ordering.fields": ",".join(schema.ordering),
            "hoodie.compaction.payload.class": self.payload_class or self._payload_of_mode(),
        }
        if self.markers.field:
            found["hoodie.payload.delete.field"] = self.markers.field
            found["hoodie.payload.delete.marker"] = self.markers.marker
        return found

    def _payload_of_mode(self) -> str:
        """The payload class with the same rules as the mode. Source: EightToNineUpgradeHandler."""
        by_event = self.mode is MergeMode.EVENT_TIME
        if self.partial_update is PartialUpdate.IGNORE_DEFAULTS:
            return f"{_MODEL}.{_PARTIAL if by_event else _NON_DEFAULTS}"
        if self.partial_update is not None:
            raise OptionError(
                f"no payload class of Hudi's merges by {self.partial_update} alone;"
                " leave the payload bridge out"
            )
        return f"{_MODEL}.{_EVENT if by_event else _LATEST}"


_MODEL = "org.apache.hudi.common.model"
_PARTIAL = "PartialUpdateAvroPayload"
_NON_DEFAULTS = "OverwriteNonDefaultsWithLatestAvroPayload"
_EVENT = "DefaultHoodieRecordPayload"
_LATEST = "OverwriteWithLatestAvroPayload"


def load_merger(text: str) -> RecordMerger:
    """The merger at `package.module:Class`, or one of Hudi's by its Java name. Raises OptionError."""
    where = f"{IMPLEMENTATIONS} names {text!r}"
    kind: type[RecordMerger] = RecordMerger  # type: ignore[type-abstract]
    merger = named_class(_HUDIS.get(text, text), kind, where, _HUDIS)()
    try:
        uuid.UUID(merger.strategy_id)
    except (ValueError, AttributeError) as exc:
        raise OptionError(f"{text}: its strategy_id is no UUID") from exc
    return merger


def choose_merger(
    classes: Sequence[str], strategy_id: str, record_type: str, also: Sequence[str] = ()
) -> RecordMerger:
    """The first of `classes` that fits record type and strategy id.

    `also`: other ids that a merger of PAYLOAD_STRATEGY fits as well. Raises OptionError, which lists what
    each class offers.
    """
    wanted = f"no merger fits the table's strategy {strategy_id} and records of type {record_type}"
    if not classes:
        raise OptionError(
            f"{wanted}: none is given",
            hint=f"{IMPLEMENTATIONS}, or --merger of table compact, names package.module:Class",
        )
    offers = []
    for text in classes:
        merger = load_merger(text)
        types = tuple(merger.record_types)
        fits = merger.strategy_id == strategy_id or (
            merger.strategy_id == PAYLOAD_STRATEGY and strategy_id in also
        )
        if fits and (ANY in types or record_type in types):
            return merger
        offers.append(f"{text} offers {merger.strategy_id} for {', '.join(types)}")
    raise OptionError(f"{wanted}: {'; '.join(offers)}")
