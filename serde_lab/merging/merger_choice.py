"""The choice among implementations of a table's merge strategy.

Owns the names that Hudi's mergers go by, and which of several implementations is taken. Must not know
tables or options other than the one that names implementations. Source: HoodieRecordUtils and
HoodieWriteConfig (RECORD_MERGE_IMPL_CLASSES).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from serde_lab.errors import OptionError
from serde_lab.merging.merger import ANY, PAYLOAD_STRATEGY, RecordMerger
from serde_lab.merging.named_class import named_class

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

    `also`: other ids under which a merger of PAYLOAD_STRATEGY fits. Raises OptionError saying what each
    of them offered.
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
