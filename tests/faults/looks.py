"""What readers saw after a fault: noted by the checks, shown in the fault table.

Owns the count of what was lost and doubled; must not know what was done to the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Look:
    """One reader's look at a table. `lost`: keys that should be there and are not; `doubled`: rows whose
    key stands there already; `wrong`: keys that should not be there, or not with this value."""

    reader: str
    rows: int
    lost: int
    doubled: int
    wrong: int

    @property
    def is_right(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


LOOKS: list[Look] = []
"""Of the test that runs."""


def look(
    reader: str, table: pa.Table, names: list[str], expected: Mapping[Any, tuple[Any, ...]]
) -> None:
    """Note what `reader` saw, and fail unless it is `expected`: the values by key, which are the first
    two columns of `names`."""
    found = [tuple(row[name] for name in names) for row in table.select(names).to_pylist()]
    seen = {row[:2]: row[2:] for row in found}
    keys = Counter(row[:2] for row in found)
    LOOKS.append(
        Look(
            reader,
            len(found),
            lost=len(expected.keys() - seen.keys()),
            doubled=sum(keys.values()) - len(keys),
            wrong=sum(row[2:] != expected.get(row[:2]) for row in found),
        )
    )
    assert seen == dict(expected), reader
    assert LOOKS[-1].is_right, LOOKS[-1]
