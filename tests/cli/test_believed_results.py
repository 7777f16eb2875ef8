"""Which results are believed: checked, with their digest, and in one set of words."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest

from serde_lab.cli import console
from serde_lab.gate.decision import WORST_FIRST
from tests.cli.conftest import Call
from tests.gate.made_up_sides import STEADY, write_run

SLOW = [1.3 * value for value in STEADY]


def edit(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "results", "r1", {"avro": STEADY, "arrow": STEADY})


@pytest.mark.parametrize("how", ["delete", "empty", "one arm"])
def test_an_unchecked_run_is_no_result(call: Call, run: Path, how: str) -> None:
    write_run(run.parent.parent, "r0", {"avro": STEADY, "arrow": STEADY})
    assert call("baseline", "save", "r0", "--by", "ada").status == 0
    checks = run / "checks.jsonl"
    lines = checks.read_text().splitlines(keepends=True)
    if how == "delete":
        checks.unlink()
    else:
        checks.write_text("".join(line for line in lines if how == "one arm" and "avro" in line))
    edit(run / "run.json", digests=None, state="complete")
    assert call("seal", "r1").status == 0
    shown = call("show", "r1", "--format", "csv")
    assert shown.status == call("report", "r1", "--format", "md").status == 1
    rows = {row["arm"]: row for row in csv.DictReader(io.StringIO(shown.out))}
    assert (rows["arrow"]["status"], rows["arrow"]["seconds"]) == ("unchecked", "")
    assert bool(rows["avro"]["seconds"]) == (how == "one arm")
    compared = call("compare", "r0", "r1")
    assert compared.status == 1
    assert "! arrow contents: after: no check of contents in rounds 1, 2" in compared.out
    refused = call("baseline", "save", "r1", "--name", "other")
    assert (refused.status, "unchecked: " in refused.sentence) == (2, True)
    gated = call("gate", "r1")
    assert gated.status == 1
    assert "failed: arrow contents: unchecked" in gated.out
    assert "unchecked, not shown" in call("history", "smoke").out


def test_report_exits_as_show_does(call: Call, tmp_path: Path) -> None:
    write_run(tmp_path / "results", "r1", {"avro": STEADY}, failing=["avro"])
    for form in ("md", "csv", "json"):
        assert call("report", "r1", "--format", form).status == 4
    assert call("show", "r1").status == 4


def test_a_report_goes_into_a_pipe_and_leaves_devices_and_links_as_they_are(
    call: Call, tmp_path: Path
) -> None:
    write_run(tmp_path / "results", "r1", {"avro": STEADY})
    kept, link, pipe = (tmp_path / name for name in ("kept.md", "link.md", "pipe"))
    kept.write_text("before")
    link.symlink_to(kept)
    assert call("report", "--format", "md", "--out", link).status == 0
    assert link.is_symlink()
    assert kept.read_text() != "before"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert call("report", "--format", "csv", "--out", pipe).status == 0
    assert os.read(reader, 3) == b"arm"
    os.close(reader)
    assert pipe.is_fifo()
    for folder in (tmp_path, ".", "/"):
        said = call("report", "--format", "md", "--out", folder)
        assert (said.status, "Is a directory" in said.sentence) == (1, True)


def test_without_digest_nothing_is_gated_until_someone_vouches(call: Call, run: Path) -> None:
    edit(run / "run.json", digests=None)
    shown = call("show", "r1")
    assert (shown.status, "has no digest" in shown.messages) == (0, True)
    said = call("baseline", "save", "r1")
    assert (said.status, "has no digest" in said.sentence) == (2, True)
    assert call("seal", "r1").status == 0
    assert call("baseline", "save", "r1").status == call("gate", "r1").status == 0
    edit(run / "run.json", digests=None)
    said = call("gate", "r1")
    assert (said.status, "seal" in said.sentence) == (1, True)


@pytest.mark.slow
def test_a_baseline_that_was_edited_is_refused_and_one_without_digest_is_sealed(
    call: Call, run: Path
) -> None:
    assert call("baseline", "save", "r1").status == 0
    (file,) = Path("results/baselines").glob("*/*.json")
    whole = file.read_text()
    for old, new in (("seconds", "secondz"), ("1.02", "1.03"), ("1.02", "-1.02")):
        assert old in whole
        file.write_text(whole.replace(old, new))
        said = call("gate", "r1")
        assert (said.status, "is damaged: its digest is" in said.sentence) == (1, True)
        assert call("seal", file).status == 1
    document = json.loads(whole)
    digest = document["baselines"]["main"].pop("digest")
    file.write_text(json.dumps(document))
    said = call("gate", "r1")
    assert (said.status, "has no digest" in said.sentence) == (1, True)
    assert "has no digest" in call("compare", "baseline:smoke", "r1").out
    assert call("seal", file).out.strip().endswith("sealed main")
    assert json.loads(file.read_text())["baselines"]["main"]["digest"] == digest
    assert call("gate", "r1").status == 0
    for old, new, why in (
        ("seconds", "secondz", "'secondz' is no metric"),
        (1.02, -1.02, "is -1.02, and a measured value is finite and not negative"),
    ):
        del (record := json.loads(whole))["baselines"]["main"]["digest"]
        file.write_text(json.dumps(record).replace(str(old), str(new)))
        said = call("gate", "r1")
        assert (said.status, why in said.sentence) == (1, True), said.sentence


def test_the_gate_has_one_set_of_words(call: Call, run: Path) -> None:
    write_run(run.parent.parent, "r2", {"avro": SLOW, "arrow": STEADY})
    assert call("baseline", "save", "r1").status == 0
    for form in ("table", "md"):
        out = call("gate", "r2", "--format", form).out
        assert not [word for word in (" worse,", " better,", "slower", " same") if word in out]
    document = json.loads(call("gate", "r2", "--format", "json").out)
    levels = [row["level"] for row in document["comparison"]["rows"]]
    assert {level: levels.count(level) for level in WORST_FIRST} == document["counts"]


def test_the_table_of_a_run_fits_80_columns_and_loses_nothing(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"a_rather_long_name_of_an_arm": [1000 * v for v in STEADY], "arrow": STEADY}
    write_run(tmp_path / "results", "r1", seconds, failing=["arrow"])
    monkeypatch.setattr(console, "WIDTH", 80)
    said = call("show", "r1")
    assert said.status == 4
    lines = said.out.splitlines()
    table = lines[: lines.index("arrow: wrong answer: oracle: row 7 differs in l_tax")]
    assert max(map(len, table)) <= 80
    assert "…" not in said.out
    joined = "".join("".join(line.split()[:1]) for line in table)
    assert "a_rather_long_name_of_an_arm" in joined
    assert "980.0–1020" in said.out
    assert "8 passed" in said.out


def test_strategies_are_listed_with_their_types(call: Call) -> None:
    said = call("list", "--strategies", "--format", "json")
    found = {one["name"]: one for one in json.loads(said.out)}
    assert {"pickle", "avro", "internal_row", "arrow"} <= set(found)
    assert "timestamp with zone" in found["arrow"]["types"]
    assert found["arrow"]["refused"] == found["arrow"]["losses"] == {}
    assert call("list", "--strategies").status == 0
    assert call("list", "--strategies", "--runs").status == 2


def test_a_folder_without_a_table_is_no_table(call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = call("validate", tmp_path / "empty")
    assert (said.status, "is not a Hudi table" in said.sentence) == (1, True)
    (tmp_path / "empty" / ".hoodie").mkdir()
    (tmp_path / "empty" / ".hoodie" / "x").touch()
    said = call("validate", tmp_path / "empty")
    assert (said.status, "rows could be lost or wrong, 1 finding" in said.messages) == (4, True)
