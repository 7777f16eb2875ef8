"""Tables that documents quote from runs: remade where asked, refused with a sentence where they cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from serde_lab.errors import UsageError
from serde_lab.report.quotation import requoted
from serde_lab.report.render import render_quotations
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


QUOTING = {"README.md": 1, "DEVELOPERS.md": 1, "docs/results.md": 10, "docs/hudi.md": 3}
"""Documents that quote runs, with the least number of quotations in each."""


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
