"""Tables that documents quote from runs: remade where asked, refused with a sentence where they cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from serde_lab.analysis.drift import other_work
from serde_lab.cli.references import quoted
from serde_lab.errors import UsageError
from serde_lab.measure.code_version import CLOCK, PROCESSES, instruments
from serde_lab.report.quotations import quote_instead, render_quotations, requoted
from serde_lab.report.run.run_page import run_page
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import MeasuredCell
from tests.report.made_up_run import make_run

ROOT = Path(__file__).parents[2]
END = "<!-- serde_lab: end -->"


@pytest.fixture
def document(tmp_path: Path) -> Path:
    run = make_run(tmp_path / "results")
    path = tmp_path / "document.md"
    asked = f"<!-- serde_lab: {run.relative_to(tmp_path)} arms arm,seconds -->"
    path.write_text(f"Before.\n\n{asked}\nstale\n{END}\n\nAfter.\n")
    return path


def test_a_quotation_is_remade_and_the_rest_stays(document: Path) -> None:
    render_quotations(document)
    text = document.read_text()
    assert text.startswith("Before.\n\n<!-- serde_lab: ")
    assert text.endswith(f"\n{END}\n\nAfter.\n")
    assert "stale" not in text
    assert "| arm | seconds |\n| --- | ---: |\n| **pickle**" in text
    assert requoted(document) == text


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (" arms ", " limbs ", "has no table 'limbs'; known are arms"),
        ("arm,seconds", "arm,weeks", "has no column 'weeks'; known are arm, seconds"),
        (" arms arm,seconds", "", "needs a run, a table"),
        (END, "<!-- serde_lab: results/other arms -->", "needs a run, a table"),
    ],
)
def test_what_cannot_be_quoted_is_named(document: Path, old: str, new: str, words: str) -> None:
    document.write_text(document.read_text().replace(old, new))
    with pytest.raises(UsageError, match=words):
        requoted(document)


def test_a_row_without_a_figure_in_the_quoted_columns_is_left_out(document: Path) -> None:
    template = document.read_text()

    def phases(arms: str) -> str:
        document.write_text(template.replace("arms arm,seconds", f"phase-seconds phase,{arms}"))
        return requoted(document)

    assert "| **map.route** | – |" in phases("pickle,arrow")
    assert "map.route" not in phases("pickle,avro")


def quoting(run: Path, what: str = "arms arm,seconds") -> Path:
    """A document beside `results` that quotes a run."""
    path = run.parents[2] / "quoting.md"
    path.write_text(f"<!-- serde_lab: {run.relative_to(path.parent)} {what} -->\n{END}\n")
    return path


def test_a_run_of_todays_instruments_is_quoted_without_a_mark(tmp_path: Path) -> None:
    run = make_run(tmp_path / "results", instruments=instruments("spark"))
    assert "Older measuring code" not in requoted(quoting(run))


def test_a_table_is_marked_by_the_instruments_of_its_columns_alone(tmp_path: Path) -> None:
    found = {**instruments("spark"), PROCESSES: "another"}
    run = make_run(tmp_path / "results", instruments=found)
    assert "Older measuring code" not in requoted(quoting(run))
    assert "\n\nOlder measuring code: process tree.\n" in requoted(
        quoting(run, "arms arm,seconds,tree_cpu_s")
    )
    assert "Older measuring code" not in requoted(quoting(run, "phase-seconds"))


def test_a_run_that_records_no_instruments_is_marked(document: Path) -> None:
    assert f"\n\nOlder measuring code.\n{END}" in requoted(document)


@pytest.mark.parametrize(
    ("disturbed", "words"),
    [
        ({"others_share": lambda _: 0.3}, "other processes took 30% of the cores"),
        ({"spin_s": lambda place: 0.05 if place % 3 else 0.09}, "the spin was off its median"),
    ],
)
def test_a_run_beside_other_work_is_not_quoted(
    tmp_path: Path, disturbed: dict[str, Callable[[int], float]], words: str
) -> None:
    run = make_run(tmp_path / "results", disturbed=disturbed)
    with pytest.raises(
        UsageError, match=f"cannot be quoted, since .* beside other work: .*{words}"
    ):
        requoted(quoting(run))
    # but it is shown, and says so
    answer = run_page(load_run(run)).answer
    assert answer is not None
    assert any("made beside other work" in one.text for one in answer.sentences)
    (stale,) = quoted([quoting(run)])
    assert words in stale.stale


def test_other_work_beside_one_arm_alone_is_told(tmp_path: Path) -> None:
    """As of a strategy whose work is done by processes that are not its run's."""
    run = load_run(make_run(tmp_path / "results", disturbed={"others_share": lambda _: 0.01}))
    assert other_work(run) == ()

    def with_helpers(cell: MeasuredCell) -> MeasuredCell:
        samples = (
            replace(one, value=0.4) if one.metric == "others_share" else one for one in cell.samples
        )
        return replace(cell, samples=tuple(samples))

    cells = (with_helpers(cell) if cell.arm == "arrow" else cell for cell in run.cells)
    (sign,) = other_work(replace(run, cells=tuple(cells)))
    assert sign == "other processes took 40% of the cores during the cells of arrow (median)"


def test_another_run_is_quoted_with_its_own_figures_or_not_at_all(tmp_path: Path) -> None:
    busy = {"others_share": lambda _: 0.3}
    old, disturbed = (make_run(tmp_path / "results", run_id=f"r{n}", disturbed=busy) for n in "12")
    new = make_run(tmp_path / "results", run_id="r3", noise=0.3)
    path = quoting(disturbed)
    beside = path.read_text()
    path.write_text(f"See {old.name}.\n\n" + quoting(old).read_text() + beside)
    before = path.read_text()
    # a run that cannot be quoted changes nothing, not even the name
    with pytest.raises(UsageError, match="beside other work"):
        quote_instead(path, f"/{old.name}", f"/{disturbed.name}")
    assert path.read_text() == before
    # one that can is quoted, although the document quotes another that cannot
    quote_instead(path, f"/{old.name}", f"/{new.name}")
    text = path.read_text()
    assert text.endswith(beside)
    assert text.startswith(f"See {old.name}.\n\n" + requoted(quoting(new)))


@pytest.mark.slow
def test_what_is_stale_is_told_with_its_minutes(tmp_path: Path) -> None:
    fresh, moved = (
        make_run(tmp_path / "results", run_id=f"2025010{n}T120000Z", instruments=found)
        for n, found in enumerate((instruments("spark"), {**instruments("spark"), CLOCK: "x"}), 1)
    )
    for run in (fresh, moved):
        path = quoting(run)
        (found,) = quoted([path])
        assert found.run == path.parent / run.relative_to(path.parent)
        assert ("clock of a commit" in found.stale) == (run == moved)
        # from 12:00 to the last of 30 cells, and one cell more
        assert found.minutes == 31


@pytest.mark.slow
def test_a_run_that_documents_of_two_folders_quote_is_remade_once(tmp_path: Path) -> None:
    run = make_run(tmp_path / "results", instruments={**instruments("spark"), CLOCK: "x"})
    above = quoting(run)
    below = tmp_path / "docs" / "page.md"
    below.parent.mkdir()
    below.write_text(above.read_text().replace("serde_lab: results", "serde_lab: ../results"))
    (found,) = quoted([above, below])
    assert found.run == run
    assert found.stale


@pytest.mark.slow
def test_a_scenario_that_asks_for_more_takes_more_minutes(tmp_path: Path) -> None:
    # a run of 31 minutes, of a scenario that has grown to four arms of 60 million rows
    run = make_run(tmp_path / "results", scenario={"name": "rfc84"})
    (found,) = quoted([quoting(run)])
    assert "its scenario changed" in found.stale
    assert found.minutes > 45


@pytest.mark.slow
def test_references_may_be_those_of_one_scenario(tmp_path: Path) -> None:
    first, other = (
        make_run(tmp_path / "results", scenario={"name": name}) for name in ("smoke", "codec")
    )
    text = quoting(first).read_text()
    path = quoting(other)
    path.write_text(path.read_text() + text)
    assert [one.run for one in quoted([path])] == [other, first]
    assert [one.run for one in quoted([path], ["smoke"])] == [first]
    with pytest.raises(UsageError, match="no run of scale is quoted; quoted are codec, smoke"):
        quoted([path], ["smoke", "scale"])


QUOTING = {
    "README.md": 1,
    "docs/results.md": 10,
    "docs/hudi.md": 6,
    "docs/shapes.md": 1,
}
"""Documents that quote runs, with the least number of quotations in each."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), QUOTING.items())
def test_a_document_says_what_its_runs_say(name: str, least: int) -> None:
    text = (ROOT / name).read_text()
    assert text.count("results/reference/") >= least
    assert text.count("<!-- serde_lab: end -->") >= least
    assert requoted(ROOT / name) == text


def test_no_other_document_quotes_runs() -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    quoting = {str(d.relative_to(ROOT)) for d in documents if END in d.read_text()}
    assert quoting == QUOTING.keys()
