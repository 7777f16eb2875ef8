"""Any text in titles, names, details, paths and scenario values: no traceback, no wrong status, nothing
that steers a terminal. Every command that needs no Spark is called in process, on one small run."""

from __future__ import annotations

import csv
import io
import json
import os
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from serde_lab.cli.app import main
from serde_lab.runs.directory import CHECKS_FILE, RUN_FILE, SAMPLES_FILE
from serde_lab.runs.model import ArmEntry, Check, RunHeader
from serde_lab.runs.writer import RunWriter
from tests.cli.conftest import Said

NASTY = (
    *(
        "[/b]",
        "[red]",
        "[link=x]y[/link]",
        ":x:",
        ":boom:",
        "|",
        "`",
        "a | b",
        "**",
        "<script>",
        "&amp;",
    ),
    *(
        "\x1b[31m",
        "\x1b]0;title\x07",
        "\x9b2J",
        "\u202eevil",
        "\u2066",
        "\ud800",
        "\udc80",
        "\x00",
        "\x7f",
    ),
    *(
        "two\nlines",
        "\r",
        "\t",
        "\u2028",
        "=1+1",
        "-5",
        "@x",
        '"',
        "'",
        "\\",
        "{{7*7}}",
        "{0}",
        "%s",
        "~",
        "",
    ),
    *("../..", "/", ".", "#", "baseline:", "latest", "x.json", "nan", "$(x)", "é", "数", "\ufeff"),
)


def joined(parts: list[str]) -> str:
    """The parts as one text; two halves of a surrogate pair that meet are one character."""
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


TEXTS = st.one_of(
    st.sampled_from(NASTY),
    st.lists(st.sampled_from(NASTY), min_size=2, max_size=3).map(joined),
    st.text(st.characters(codec=None), max_size=12),
)
NAMES = TEXTS.filter(
    lambda text: text.isprintable() and "/" not in text and text not in ("", ".", "..")
)
# an example writes a run and calls dozens of commands: shrinking one would take minutes
PHASES = (Phase.explicit, Phase.generate)
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def said(*arguments: object) -> Said:
    """What a command returned and wrote, which must be plain and no traceback."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main([str(argument) for argument in arguments])
    found = Said(status, out.getvalue(), err.getvalue())
    for text in (found.out, found.messages):
        assert "Traceback" not in text
        assert "internal error" not in text, (arguments, text)
        assert not {unicodedata.category(c) for c in text.replace("\n", "")} & UNSEEN, arguments
        text.encode()
    return found


def write_run(path: Path, title: str, arms: tuple[str, str], detail: str, wrong: bool) -> None:
    """Three rounds of two arms, in the words given."""
    header = RunHeader(
        run=path.name,
        scenario="small",
        arms=tuple(ArmEntry(arm=arm, strategy=arm) for arm in arms),
        scenario_content={"name": title, "title": title, "question": title, "reference": arms[0]},
        machine_class="made-up",
        code_version={"measuring": "m", "git_commit": title},
        environment={"cpu": {"model": title}, title: title},
    )
    for name in (RUN_FILE, SAMPLES_FILE, CHECKS_FILE):
        (path / name).unlink(missing_ok=True)
    if path.exists():
        path.rmdir()
    with RunWriter.create(path.parent.parent, header) as writer:
        for number in range(3):
            for order, arm in enumerate(arms):
                cell = f"r{number:02d}-{arm}"
                writer.cell_begin(
                    cell, arm=arm, round=number, warmup=False, order=order, started_at="t"
                )
                for commit in (1, 2):
                    writer.sample(cell, "seconds", 1.0 + order + 0.01 * number, commit=commit)
                    writer.sample(cell, "rows", 100, commit=commit)
                writer.check(
                    Check(title or "oracle", not (wrong and order), detail, arm, cell, number)
                )
                writer.cell_end(cell, "ok")
        writer.finish("complete")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield tmp_path_factory.mktemp("any-text")


READERS: dict[str, Callable[[str], object]] = {
    "json": json.loads,
    "csv": lambda text: list(csv.reader(io.StringIO(text), strict=True)),
    "md": str,
    "table": str,
}


@pytest.mark.slow
@settings(max_examples=8, phases=PHASES)
@given(
    TEXTS,
    st.lists(TEXTS, min_size=2, max_size=2, unique=True),
    TEXTS,
    st.booleans(),
    st.sampled_from(sorted(READERS)),
)
def test_every_command_on_a_run(
    folder: Path, title: str, arms: list[str], detail: str, wrong: bool, form: str
) -> None:
    results = folder / "results"
    path = results / "small" / "20260101T000000Z"
    write_run(path, title, (arms[0], arms[1]), detail, wrong)
    expected = 4 if wrong else 0
    read = READERS[form]
    for arguments, status in (
        (["show", path], expected),
        (["list", "--runs", "--results", results], 0),
        (["history", "small", "--results", results], 0),
        (["compare", path, path, f"--arm={arms[0]}", f"--arm={arms[1]}"], expected),
    ):
        shown = said(*arguments, "--format", form)
        assert shown.status == status
        read(shown.out)
    if form != "table":
        out = folder / f"report.{form}"
        assert said("report", path, "--format", form, "--out", out).status == expected
        read(out.read_text())
    baselines = folder / "baselines"
    for file in baselines.glob("*/*.json"):
        file.unlink()
    saved = said(
        *("baseline", "save", path, "--baselines", baselines, f"--by={title}"),
        f"--reason={detail}",
    )
    assert saved.status == (2 if wrong else 0)
    assert said("baseline", "list", "--baselines", baselines).status == 0
    for one, reads in ((form, read), ("junit", ElementTree.fromstring)):
        gated = said("gate", path, "--baselines", baselines, "--format", one)
        assert gated.status == (1 if wrong else 0)
        if gated.out:
            reads(gated.out)


def test_a_page_holds_any_text(folder: Path) -> None:
    path = folder / "results" / "small" / "20260101T000000Z"
    text = joined(list(NASTY))
    write_run(path, text, (text, "b" + text), text, wrong=True)
    page = folder / "page.html"
    assert said("report", path, "--out", page).status == 4
    html = page.read_text()
    assert "<script>&amp;" not in html
    assert html.count("<script") == 1
    assert said("compare", f"{path}", f"{path}", "--arm", text, "--arm", "b" + text).status == 4


@pytest.mark.slow
@settings(max_examples=20, phases=PHASES)
@given(TEXTS, st.sampled_from(["show", "report", "compare", "gate", "history", "seal", "validate"]))
def test_a_name_that_nothing_has(folder: Path, name: str, command: str) -> None:
    results = folder / "none"
    more = {"compare": [name], "validate": [], "history": ["--results", results]}
    arguments = [command, *more.get(command, ["--results", results]), "--", name]
    if command == "compare":
        arguments = [command, "--results", results, "--", name, name]
    assert said(*arguments).status in (1, 2)
    assert said("baseline", "show", "--results", results, "--", name).status in (1, 2)


@pytest.mark.slow
@settings(max_examples=8, phases=PHASES)
@given(NAMES, TEXTS)
def test_paths_with_any_name(folder: Path, name: str, machine_class: str) -> None:
    results = folder / "paths" / name
    for command in (["list", "--runs"], ["show"], ["report"], ["baseline", "list"]):
        assert said(*command, "--results", results).status in (0, 1)
    found = said(
        "baseline", "show", "small", "--results", results, f"--machine-class={machine_class}"
    )
    assert found.status in (1, 2)


KEYS = (
    "title",
    "question",
    "reference",
    "name",
    "data.path",
    "data.key",
    "arm.name",
    "arm.strategy",
)
VALUES = st.one_of(TEXTS, st.integers(), st.floats(), st.booleans(), st.lists(TEXTS, max_size=2))


@pytest.mark.slow
@settings(max_examples=20, phases=PHASES)
@given(st.sampled_from([*KEYS, "measure.rounds", "table.index", "table.buckets"]), VALUES, NAMES)
def test_scenario_values(folder: Path, key: str, value: Any, name: str) -> None:
    document: dict[str, Any] = {
        "title": "t",
        "question": "q",
        "data": {"source": "parquet", "path": "nothing/*.parquet", "key": ["k"]},
        "commit": [{"operation": "upsert"}],
        "arm": [{"name": "arrow", "strategy": "arrow"}],
    }
    *tables, last = key.split(".")
    at: Any = document
    for table in tables:
        at = at.setdefault(table, {})
        at = at[0] if isinstance(at, list) else at
    at[last] = value
    scenarios = folder / "scenarios"
    scenarios.mkdir(exist_ok=True)
    for file in scenarios.glob("*.toml"):
        file.unlink()
    file = scenarios / f"{name}.toml"
    file.write_text(_toml(document), encoding="utf-8", errors="surrogatepass")
    assert said("validate", f"{file}").status in (0, 1, 2)
    assert said("list", "--scenarios", scenarios).status in (0, 2)
    if isinstance(value, str):
        assert said("validate", "smoke", f"--set={key}={value}").status in (0, 1, 2)


def _toml(document: dict[str, Any]) -> str:
    lines: list[str] = []
    tables = {k: v for k, v in document.items() if isinstance(v, dict)}
    lists = {
        k: v for k, v in document.items() if isinstance(v, list) and v and isinstance(v[0], dict)
    }
    plain = {k: v for k, v in document.items() if k not in tables and k not in lists}
    lines += [f"{k} = {_value(v)}" for k, v in plain.items()]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{k} = {_value(v)}" for k, v in table.items())]
    for name, members in lists.items():
        for member in members:
            lines += [f"[[{name}]]", *(f"{k} = {_value(v)}" for k, v in member.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """JSON's strings are TOML's, but for what TOML cannot say; floats that JSON cannot say are named."""
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value).replace("\\/", "/")
