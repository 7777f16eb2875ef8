"""What `compare A B` may name."""

from pathlib import Path

import pytest

from serde_lab.errors import RunError, UsageError
from serde_lab.gate.baseline import store as baseline
from serde_lab.gate.compare.rows import Comparison
from serde_lab.gate.compare.verdict import Verdict
from serde_lab.gate.gating import NamedFolders, compare
from serde_lab.runs.directory import load_run
from tests.gate.made_up_sides import STEADY, write_run


@pytest.fixture
def places(tmp_path: Path) -> NamedFolders:
    results = tmp_path / "results"
    write_run(results, "r1", {"avro": STEADY, "arrow": [v / 2 for v in STEADY]})
    write_run(results, "r2", {"avro": [1.3 * v for v in STEADY], "arrow": STEADY})
    found = NamedFolders(results, results / "baselines")
    baseline.save(load_run(results / "smoke" / "r1"), found.baselines, by="ada")
    return found


def verdicts(comparison: Comparison) -> dict[str, Verdict]:
    return {row.arm: row.verdict for row in comparison.rows if row.quantity.metric == "seconds"}


BOTH = {"avro": Verdict.SLOWER, "arrow": Verdict.SLOWER}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("r1", "r2"),
        ("r1", "smoke"),
        ("r1", "latest"),
        ("{results}/smoke/r1", "{results}/smoke/r2/run.json"),
        ("baseline:smoke", "r2"),
        ("baseline:smoke@main", "r2"),
        ("{results}/baselines/linux-x86_64-8c/smoke.json", "r2"),
        ("{results}/baselines/linux-x86_64-8c/smoke.json@main", "r2"),
    ],
)
def test_runs_and_baselines(places: NamedFolders, before: str, after: str) -> None:
    names = (name.format(results=places.results) for name in (before, after))
    assert verdicts(compare(*names, places)) == BOTH


def test_a_baseline_on_the_right(places: NamedFolders) -> None:
    found = verdicts(compare("r2", "baseline:smoke", places))
    assert set(found.values()) == {Verdict.FASTER}


def test_two_arms_of_one_run_are_paired(places: NamedFolders) -> None:
    for comparison in (
        compare("r1#avro", "r1#arrow", places),
        compare("r1#avro", f"{places.results}/smoke/r1#arrow", places),
        compare("r1", "r1", places, arms=("avro", "arrow")),
    ):
        assert verdicts(comparison) == {"avro -> arrow": Verdict.FASTER}
        row = next(row for row in comparison.rows if row.evidence)
        assert row.evidence is not None
        assert row.evidence.paired
        assert row.evidence.ratio == 0.5


def test_one_arm_of_two_runs(places: NamedFolders) -> None:
    assert verdicts(compare("r1", "r2", places, arms=("avro",))) == {"avro": Verdict.SLOWER}
    assert verdicts(compare("r1#avro", "r2", places)) == {"avro": Verdict.SLOWER}
    assert set(verdicts(compare("r1#arrow", "r2#avro", places))) == {"arrow -> avro"}


@pytest.mark.parametrize(
    ("before", "after", "arms", "words"),
    [
        ("r1", "r1", (), "name two of its arms: arrow, avro"),
        ("r1#avr", "r2", (), "no arm 'avr'; known are arrow, avro"),
        ("r1#avro", "r2", ("avro",), "not by both"),
        ("baseline:smoke", "baseline:smoke", (), "by their files"),
        ("baseline:other", "r2", (), "another scenario"),
    ],
)
def test_mistakes(
    places: NamedFolders, before: str, after: str, arms: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        compare(before, after, places, arms=arms)


def test_what_is_not_there(places: NamedFolders) -> None:
    with pytest.raises(RunError, match="r9"):
        compare("r9", "r2", places)
    with pytest.raises(RunError, match="no baseline 'x'"):
        compare("baseline:smoke@x", "r2", places)
