"""The times of the four verbs in one case of a codec run, and the samples that a cell stores of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from serde_lab.measure.metrics import Sample

COME_BACK = "records_come_back"
"""The check that what was decoded equals what was encoded."""
STAGE = "codec"
VERBS = ("from_arrow", "encode", "decode", "to_arrow")


@dataclass(frozen=True, slots=True)
class VerbTime:
    """Nanoseconds per pass, from the loop with the least CPU time."""

    wall_ns: float
    cpu_ns: float


@dataclass(frozen=True, slots=True)
class CaseTimes:
    """What one case measured: the time of each verb, and the bytes of the frames."""

    rows: int
    verbs: Mapping[str, VerbTime]
    frame_bytes: int

    @property
    def wall_ns(self) -> float:
        """All verbs together."""
        return sum(found.wall_ns for found in self.verbs.values())

    def samples(self, number: int) -> Iterator[Sample]:
        """The samples of case `number`, from 1."""
        yield Sample("seconds", self.wall_ns / 1e9, number)
        yield Sample("rows", self.rows, number)
        yield Sample("frame_bytes", self.frame_bytes, number)
        for verb, found in self.verbs.items():
            phase = f"{STAGE}.{verb}"
            yield Sample("phase_wall_s", found.wall_ns / 1e9, number, phase)
            yield Sample("phase_cpu_s", found.cpu_ns / 1e9, number, phase)


def cell_samples(cases: Mapping[int, CaseTimes]) -> tuple[Sample, ...]:
    """The samples of a whole cell, whose cases are numbered from 1."""
    samples = [sample for number, case in cases.items() for sample in case.samples(number)]
    samples.append(Sample("seconds", sum(case.wall_ns for case in cases.values()) / 1e9))
    samples.append(Sample("slots", 1))
    return tuple(samples)
