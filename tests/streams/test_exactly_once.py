"""Which batch is written, which is stored, and which is refused, with the sentence that says why."""

from __future__ import annotations

import pytest

from serde_lab.errors import LabError, OptionError, TableError
from serde_lab.streams.options import OPERATION, StreamOptions, known_options, parse_stream_options
from serde_lab.streams.stream_writer import MicroBatch, is_stored
from serde_lab.table.timeline.checkpoints import Checkpoint

OURS = Checkpoint(4, "one", "upsert")
HUDI = Checkpoint(4)
PLAIN = StreamOptions({})
TAKES_OVER = StreamOptions({}, takes_over=True)


@pytest.mark.parametrize("options", [PLAIN, TAKES_OVER], ids=["plain", "takes-over"])
@pytest.mark.parametrize(("number", "stored"), [(0, True), (3, True), (4, True), (5, False)])
def test_a_query_goes_on_after_its_last_batch(
    number: int, stored: bool, options: StreamOptions
) -> None:
    assert is_stored(MicroBatch("one", number), options, OURS) is stored


def test_a_new_identifier_begins_at_0() -> None:
    assert not is_stored(MicroBatch("one", 0), PLAIN, None)
    assert not is_stored(MicroBatch("one", 7), TAKES_OVER, None)


@pytest.mark.parametrize(("earlier", "written"), [(None, False), (6, True)])
def test_what_nobody_can_have_stored_is_not_taken_over(earlier: int | None, written: bool) -> None:
    """In a table that was never written, or where this run had stored the batch before."""
    with pytest.raises(TableError, match="comes first to this table") as refused:
        is_stored(MicroBatch("one", 7, earlier), TAKES_OVER, None, written)
    assert "takes_over" not in str(refused.value)


@pytest.mark.parametrize("last", [OURS, HUDI], ids=["ours", "hudi"])
def test_a_run_finds_only_its_first_batch_stored(last: Checkpoint) -> None:
    assert not is_stored(MicroBatch("one", 5, earlier=4), TAKES_OVER, last)
    assert is_stored(MicroBatch("one", 4), TAKES_OVER, last)
    with pytest.raises(OptionError, match="gave batch 3, another run has stored batch 4"):
        is_stored(MicroBatch("one", 4, earlier=3), TAKES_OVER, last)


@pytest.mark.parametrize("number", [0, 4, 5, 6])
@pytest.mark.parametrize("options", [PLAIN, TAKES_OVER], ids=["plain", "takes-over"])
def test_another_query_is_refused_whatever_its_batch(number: int, options: StreamOptions) -> None:
    said = (
        f"^batch {number} of query two is refused: in this table the identifier default_single_writer"
        " belongs to query one, which stored batch 4"
    )
    with pytest.raises(OptionError, match=said):
        is_stored(MicroBatch("two", number), options, OURS)


@pytest.mark.parametrize(("number", "stored"), [(4, True), (5, False)])
def test_a_stream_goes_on_after_hudi(number: int, stored: bool) -> None:
    assert is_stored(MicroBatch("one", number), TAKES_OVER, HUDI) is stored


CASES = {
    "no batch of it": (
        7,
        PLAIN,
        None,
        TableError,
        r"comes first to this table: .*batches before 7",
    ),
    "one missing": (6, PLAIN, OURS, TableError, "so batch 5 is missing"),
    "several missing": (9, TAKES_OVER, OURS, TableError, "so batches 5 to 8 are missing"),
    "missing after Hudi": (6, TAKES_OVER, HUDI, TableError, "so batch 5 is missing"),
    "unknown if it is Hudi's": (4, PLAIN, HUDI, OptionError, "does not say for which query"),
    "low after Hudi": (0, PLAIN, HUDI, OptionError, "Apache Hudi's sink stored batch 4"),
    "low, taking over": (3, TAKES_OVER, HUDI, OptionError, "Apache Hudi's sink stored batch 4"),
    "another operation": (
        *(5, StreamOptions({"hoodie.datasource.write.operation": "insert"}), OURS),
        *(OptionError, "operation is insert, but query one began with upsert"),
    ),
}


@pytest.mark.parametrize(
    ("number", "options", "last", "kind", "said"), CASES.values(), ids=[*CASES]
)
def test_what_cannot_be_promised_is_refused(
    number: int,
    options: StreamOptions,
    last: Checkpoint | None,
    kind: type[LabError],
    said: str,
) -> None:
    with pytest.raises(kind, match=said):
        is_stored(MicroBatch("one", number), options, last)


def test_options_of_a_stream_are_kept_from_those_of_its_writes() -> None:
    given = {
        "hoodie.datasource.write.streaming.checkpoint.identifier": "orders",
        "serde_lab.stream.takes_over": True,
        "hoodie.write.lock.wait_time_ms": 5,
        "serde_lab.stream.batches_per_commit": 10,
        "serde_lab.stream.commit_interval_ms": "1000",
        "serde_lab.stream.commit_bytes": 4096,
        "hoodie.table.name": "t",
    }
    parsed = parse_stream_options(given)
    assert parsed == StreamOptions({"hoodie.table.name": "t"}, "orders", True, 5, 10, 1000, 4096)
    assert given.keys() - {"hoodie.table.name"} == known_options().keys()
    assert parse_stream_options({}) == StreamOptions({})
    assert parse_stream_options({}).operation == "upsert"


BAD = {
    "operation": (
        "hoodie.datasource.write.operation",
        "insert_overwrite",
        "a stream takes upsert, ",
    ),
    "identifier": (
        "hoodie.datasource.write.streaming.checkpoint.identifier",
        " ",
        "empty, expected a name",
    ),
    "flag": ("serde_lab.stream.takes_over", "yes", "expected true or false"),
    "wait": ("hoodie.write.lock.wait_time_ms", "-1", "expected an integer from 0"),
    "batches": ("serde_lab.stream.batches_per_commit", "0", "expected an integer from 1"),
    "interval": ("serde_lab.stream.commit_interval_ms", "1.5", "expected an integer from 1"),
    "bytes": ("serde_lab.stream.commit_bytes", "1k", "expected an integer from 1"),
}


@pytest.mark.parametrize(("name", "value", "said"), BAD.values(), ids=[*BAD])
def test_bad_options_are_refused_by_name(name: str, value: str, said: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is .*{said}"):
        parse_stream_options({name: value})


def test_batches_share_commits_if_there_is_a_limit() -> None:
    name = "serde_lab.stream."
    assert not parse_stream_options({}).shares
    assert not parse_stream_options({f"{name}batches_per_commit": 1}).shares
    assert parse_stream_options({f"{name}batches_per_commit": 2}).shares
    by_time = parse_stream_options({f"{name}commit_interval_ms": 50})
    assert by_time.shares
    assert by_time.batches_per_commit is None
    both = {f"{name}commit_bytes": 1, f"{name}batches_per_commit": 1}
    assert not parse_stream_options(both).shares
    with pytest.raises(OptionError, match="is bulk_insert, and batches that share a commit take"):
        parse_stream_options({f"{name}commit_bytes": 1, OPERATION: "bulk_insert"})
