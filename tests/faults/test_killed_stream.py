"""The short form of the killed stream: one life of it for each way to end that no other test has, and the lab
and Apache Hudi's sink, each of which takes over from the other's dead."""

from __future__ import annotations

from pathlib import Path

import pytest

from serde_lab.table.table import HoodieTable
from tests.faults.fault_table import Fault, markdown, with_section
from tests.faults.killed_stream import COMPACTING, HUDI, RETURNED, WORKER, Kill, KilledStream
from tests.faults.misbehaving_s3 import DELAYED, LOST, REFUSED, MisbehavingS3

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_stream_is_killed_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    course = KilledStream(tmp_path)
    course.live([Kill(0, WORKER, 1, 0.0), Kill(1, RETURNED, 4, 0.0)], per_commit=3)
    assert course.stored() == 4
    course.live([Kill(2, COMPACTING, 6, 0.0)], per_commit=1)
    timeline = HoodieTable.open(course.stream.storage).timeline()
    assert [one.action for one in timeline.pending()] == ["compaction"]
    course.live((), per_commit=3)
    course.check_end()


@pytest.mark.hudi
def test_a_killed_stream_is_taken_over_by_the_other_writer(
    tmp_path: Path, hudi_bundle: Path
) -> None:
    course = KilledStream(tmp_path, margin=2)
    course.live([Kill(0, HUDI, 1, 0.3)], per_commit=1, by_hudi=True)
    course.live([Kill(1, RETURNED, 3, 0.0)], per_commit=1)
    assert course.stored() == 3
    course.live((), per_commit=1, by_hudi=True)
    course.check_end()


def test_a_stream_into_a_misbehaving_object_store_is_killed_and_goes_on_from_its_checkpoint(
    tmp_path: Path,
) -> None:
    with MisbehavingS3(0.02) as store:
        course = KilledStream(tmp_path, margin=2, store=store)
        kills = [Kill(0, WORKER, 1, 0.0), Kill(1, RETURNED, 3, 0.0)]
        assert any(course.live(kills, per_commit=3) for _ in range(5))
        assert any(course.live((), per_commit=1) for _ in range(5))
        course.check_end()
        assert store.done.keys() == {REFUSED, DELAYED, LOST}


def test_the_section_of_the_stream_is_written_once() -> None:
    saw = {"rows": 3, "lost": 1, "doubled": 0, "wrong": 0}
    looks = [{**saw, "reader": "hudi-rs"}, {**saw, "reader": "hudi-rs", "lost": 0}]
    fault = Fault.of(True, {"title": "a stream", "step": "kill 1", "looks": looks})
    other = Fault.of(False, {"title": "other", "step": "a | b", "looks": []})
    document = markdown([other])
    assert "Faults made: 1, of which 0 held. Right looks: hudi-rs 0 of 0," in document
    once = with_section(document, "a stream", [fault])
    assert once.count("kill 1") == 1
    assert "Faults made: 2, of which 1 held. Right looks: hudi-rs 1 of 2," in once
    assert "Rows lost: 1; doubled: 0." in once
    assert once.index("## Other\n") < once.index("## A stream\n")
    assert with_section(once, "a stream", [fault]) == once
