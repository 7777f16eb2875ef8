"""The options of the table services that follow a write: compaction, cleaning, archiving.

The defaults are Hudi's own. Values that contradict each other are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from serde_lab.errors import OptionError
from serde_lab.pipeline.options.reader import OptionReader
from serde_lab.table.config import TableConfig

_RETAINED, _RETAINED_OLDER = "hoodie.clean.commits.retained", "hoodie.cleaner.commits.retained"

MEANING: Mapping[str, str] = {
    "hoodie.compact.inline": "true: compact after the write if there are enough deltacommits",
    "hoodie.compact.inline.max.delta.commits": "compact after this many deltacommits (5)",
    "hoodie.clean.automatic": "false: do not remove old file slices after the write",
    "hoodie.clean.policy": "KEEP_LATEST_COMMITS",
    _RETAINED: "number of commits whose file slices are kept (10)",
    _RETAINED_OLDER: f"older name of {_RETAINED}",
    "hoodie.archive.automatic": "false: do not archive instants after the write",
    "hoodie.keep.min.commits": "number of commits that archiving leaves on the active timeline (20)",
    "hoodie.keep.max.commits": "archive when the active timeline has more commits than this (30)",
}


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Which services run after a write. Each number counts commits; `compact_after` counts deltacommits."""

    compact: bool = False
    compact_after: int = 5
    clean: bool = True
    commits_retained: int = 10
    archive: bool = True
    keep_min: int = 20
    keep_max: int = 30

    def __post_init__(self) -> None:
        if self.archive and self.keep_max <= self.keep_min:
            raise OptionError(
                f"hoodie.keep.max.commits is {self.keep_max}; it must be greater than"
                f" hoodie.keep.min.commits, which is {self.keep_min}"
            )
        if self.archive and self.clean and self.keep_min <= self.commits_retained:
            raise OptionError(
                f"hoodie.keep.min.commits is {self.keep_min}; it must be greater than {_RETAINED}, which is"
                f" {self.commits_retained}, because instants are cleaned before they are archived"
            )


NO_SERVICES = ServiceOptions(clean=False, archive=False)


def service_options(reader: OptionReader, table: TableConfig) -> ServiceOptions:
    """The services that `reader` asks for. Raises OptionError for numbers that contradict each other, and
    for a service that `table` does not support.
    """
    compact, archive = reader.flag("hoodie.compact.inline"), reader.flag("hoodie.archive.automatic")
    if compact and not table.is_mor:
        raise OptionError(
            f"hoodie.compact.inline is true, but the table {table.name} is {table.table_type}: it has"
            " no log files"
        )
    if archive and table.layout_version == 1:
        raise OptionError(
            f"hoodie.archive.automatic is true, but the table {table.name} has version {table.version},"
            " which the lab does not archive"
        )
    reader.only("hoodie.clean.policy", ("KEEP_LATEST_COMMITS",))
    default = ServiceOptions()
    retained = reader.given(_RETAINED, _RETAINED_OLDER) or _RETAINED
    retain = reader.number(retained, default.commits_retained, least=1)
    # a caller that keeps more file slices than the default timeline covers needs a longer timeline, too
    keep_min = reader.number("hoodie.keep.min.commits", max(default.keep_min, retain + 10), 1)
    keep_max = reader.number("hoodie.keep.max.commits", max(default.keep_max, keep_min + 10), 1)
    return ServiceOptions(
        compact=compact or False,
        compact_after=reader.number(
            "hoodie.compact.inline.max.delta.commits", default.compact_after, least=1
        ),
        clean=reader.flag("hoodie.clean.automatic") is not False,
        commits_retained=retain,
        archive=archive is not False and table.layout_version == 2,
        keep_min=keep_min,
        keep_max=keep_max,
    )
