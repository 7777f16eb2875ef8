"""`ab`: two commits, or two option sets, measured in turns; in one process each, no Spark.

Commits measure by clocks that count, so that what is the same takes the same time on any machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from serde_lab.errors import RunError, UsageError
from serde_lab.lab.ab.variants import SharedSettings, Variant, Variants, variant_environment
from tests.cli.conftest import Call, call  # noqa: F401 (a fixture)
from tests.gate.copied_package import copy_checkout
from tests.lab.small_scenario import content, source, toml

pytestmark = pytest.mark.slow

GIT = ("user.name=a", "user.email=a@b", "commit.gpgsign=false")
_BUSY = """

def _busy(encode):
    from serde_lab import counted_clock

    def encode_late(self, records, bounds):
        counted_clock.pass_ns(500_000_000)
        return encode(self, records, bounds)

    return encode_late


BoundArrow.encode = _busy(BoundArrow.encode)
"""


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *(word for one in GIT for word in ("-c", one)), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code as it is, as a commit; a second commit makes `arrow` slower."""
    folder = tmp_path_factory.mktemp("repository")
    kept = ["serde_lab", "tpch", "scenarios", "pyproject.toml", "requirements.lock"]
    copy_checkout(folder, kept)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "as it is")
    strategy = folder / "serde_lab" / "serde" / "arrow" / "records.py"
    strategy.write_text(strategy.read_text() + _BUSY)
    git(folder, "commit", "-q", "-a", "-m", "slower")
    return folder


@pytest.fixture
def small(tmp_path: Path) -> Path:
    document = content(source(tmp_path / "own"), [{"name": "arrow", "strategy": "arrow"}])
    # of the code as it is, whose clocks are the machine's, any time may double by chance
    document["gate"] = {"metrics": ["frame_bytes", "frames"]}
    file = tmp_path / "small.toml"
    file.write_text(toml(document))
    return file


@pytest.fixture
def in_repository(call: Call, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:  # noqa: F811
    monkeypatch.chdir(repository)
    yield call
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def measured(call: Call, small: Path, *arguments: object, rounds: int = 6) -> Any:  # noqa: F811
    folder = small.parent
    kept = ("--results", folder / "results", "--cache", folder / "cache")
    return call("ab", *arguments, "--scenario", small, "--rounds", rounds, *kept)


def test_a_commit_against_itself_and_against_a_slower_one(in_repository: Call, small: Path) -> None:
    document = tomllib.loads(small.read_text())
    document["gate"] = {"relative": 1.0, "absolute": 0.2, "metrics": ["seconds", "frame_bytes"]}
    small.write_text(toml(document))
    same = measured(in_repository, small, "HEAD~1", "HEAD~1", "--format", "json")
    assert same.status == 0, same.messages
    rows = json.loads(same.out)["comparison"]["rows"]
    verdicts = {one["metric"]: one["verdict"] for one in rows}
    assert verdicts == {"contents": "same", "seconds": "same", "frame_bytes": "same"}
    slow = measured(
        in_repository,
        small,
        "HEAD~1",
        "HEAD",
        "--format",
        "junit",
        "--report",
        small.parent / "ab.html",
    )
    assert slow.status == 3, slow.messages
    suite = ElementTree.fromstring(slow.out)
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["seconds"]
    assert "A/A of arrow" in slow.out
    assert (small.parent / "ab.html").read_text().startswith("<!")


def test_option_sets_of_the_code_as_it_is(call: Call, small: Path) -> None:  # noqa: F811
    options = ("--b-set", "arm.arrow.options.rows_per_frame=1", "--arm", "arrow")
    said = measured(call, small, *options, "--format", "json", rounds=3)
    assert said.status == 3, said.messages
    (row,) = [
        one for one in json.loads(said.out)["comparison"]["rows"] if one["metric"] == "frame_bytes"
    ]
    assert (row["verdict"], row["test"]) == ("slower", None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("no-such-commit",), "'no-such-commit' is not a commit"),
        (("gone.whl",), "gone.whl: there is no such wheel"),
        (("--arm", "gone"), "no arm 'gone'; it has arrow"),
        (("--a-set", "table.buckets=0"), "table.buckets"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    in_repository: Call, small: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    said = measured(in_repository, small, *arguments)
    assert (said.status, said.out) == (2, "")
    assert sentence in said.sentence


def test_a_side_that_cannot_go_on_says_why_and_nothing_is_left(
    repository: Path, small: Path, tmp_path: Path
) -> None:
    shared = SharedSettings(small, tmp_path / "sitting", tmp_path / "cache")
    heard: list[str] = []
    with variant_environment("HEAD", tmp_path / "w", tmp_path, heard.append, repository) as code:
        assert code.root.is_dir()
        sides = [Variant("before", code), Variant("after", code, ("commit.1.share=-1",))]
        with (
            pytest.raises(UsageError, match=r"after \(HEAD .*commit\.1\.share"),
            Variants(sides, shared, lambda label, event: None) as running,
        ):
            running.measure(3, ())
    assert not code.root.exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_ctrl_c_between_two_cells_leaves_nothing(
    repository: Path, small: Path, tmp_path: Path
) -> None:
    shared = SharedSettings(small, tmp_path / "sitting", tmp_path / "cache")
    turns: list[str] = []

    def heard(label: str, event: Any) -> None:
        if event["event"] == "cell":
            turns.append(label)
            if len(turns) == 4:
                raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        variant_environment("HEAD", tmp_path / "w", tmp_path, print, repository) as code,
        Variants([Variant("before", code), Variant("after", code)], shared, heard) as running,
    ):
        running.measure(9, ())
    # each side has its turn in each round, one after the other
    assert sorted(turns[:2]) == sorted(turns[2:]) == ["after", "before"]
    assert not code.root.exists()
    states = [
        json.loads(file.read_text())["state"] for file in (tmp_path / "sitting").rglob("run.json")
    ]
    assert states == ["interrupted", "interrupted"]


def test_code_from_elsewhere_is_not_measured_by_mistake(small: Path, tmp_path: Path) -> None:
    from serde_lab.lab.ab.variants import VariantEnvironment

    elsewhere = VariantEnvironment("x", sys.executable, (), tmp_path / "tree")
    shared = SharedSettings(small, tmp_path / "sitting", None)
    with (
        pytest.raises(RunError, match="imports serde_lab from"),
        Variants([Variant("before", elsewhere)], shared, lambda label, event: None),
    ):
        pass


def test_a_side_that_is_ending_is_not_interrupted_once_more() -> None:
    # its input ends, and a signal comes: whichever is second must not break into what the first began
    code = """
import os, signal
from serde_lab.lab.ab.variant import _interrupt
signal.signal(signal.SIGINT, _interrupt)
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGINT)
    print("ended in good order")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ended in good order\n"), done.stderr


def test_a_scenario_that_is_edited_meanwhile(small: Path, tmp_path: Path) -> None:
    shared = SharedSettings(small, tmp_path / "sitting", tmp_path / "cache")
    text = small.read_text()

    def edit(label: str, event: Any) -> None:
        if event["event"] == "cell":
            small.write_text(text.replace('strategy = "arrow"', 'strategy = "avro"'))

    with (
        variant_environment(".", tmp_path / "w", tmp_path, print) as code,
        Variants([Variant("before", code)], shared, edit) as running,
    ):
        running.measure(1, ())
        with pytest.raises(RunError, match=r"its scenario changed: arm was .*'arrow', .*'avro', "):
            running.measure(2, ())
