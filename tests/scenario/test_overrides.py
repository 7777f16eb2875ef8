"""`--set`: every key can be reached, values are TOML, and a key that leads nowhere is said."""

from __future__ import annotations

from typing import Any

import pytest

from serde_lab.errors import ScenarioError
from serde_lab.scenario.loading import load_scenario, parse_scenario
from serde_lab.scenario.sweep import apply_overrides, parse_override


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=3", 3),
        ("a = 0.5", 0.5),
        ("a=true", True),
        ("a='x y'", "x y"),
        ('a="x=y"', "x=y"),
        ("a=['x', 'y']", ["x", "y"]),
        ("a={ b = 1 }", {"b": 1}),
        ("a=MERGE_ON_READ", "MERGE_ON_READ"),
        ("a=data/*.parquet", "data/*.parquet"),
        ("a=1_000", 1000),
    ],
)
def test_values(text: str, value: object) -> None:
    assert parse_override(text) == ("a", value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a", "--set a: expected KEY=VALUE"),
        ("=1", "--set =1: expected KEY=VALUE"),
        ("a=", "--set a=: expected KEY=VALUE"),
        ("a=[1", "--set a: '\\[1' is not a TOML value"),
        ("a=x y", "--set a: 'x y' is not a TOML value"),
        ("a=1\nb=2", "--set a: expected one value, found several lines"),
    ],
)
def test_values_that_cannot_be(text: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        parse_override(text)


RAW: dict[str, Any] = {
    "top": 1,
    "arm": [{"name": "x", "options": {"a": 1}}, {"name": "y"}],
    "commit": [{"rows": 1}, {"rows": 2}],
}


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("top", lambda raw: raw["top"]),
        ("new.table.key", lambda raw: raw["new"]["table"]["key"]),
        ("arm.x.options.a", lambda raw: raw["arm"][0]["options"]["a"]),
        ("arm.y.options.b", lambda raw: raw["arm"][1]["options"]["b"]),
        ("arm.2.name", lambda raw: raw["arm"][1]["name"]),
        ("commit.1.rows", lambda raw: raw["commit"][0]["rows"]),
        ("commit.2", lambda raw: raw["commit"][1]),
    ],
)
def test_keys(key: str, found: Any) -> None:
    assert found(apply_overrides(RAW, [(key, 99)])) == 99
    assert RAW["commit"] == [{"rows": 1}, {"rows": 2}], "the file's own content stays"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("arm.z.options.a", "there is no 'z', only 1 to 2 or x, y"),
        ("arm.0.name", "there is no '0', only 1 to 2"),
        ("commit.3.rows", "--set commit.3.rows: there is no '3', only 1 to 2"),
        ("top.x", "--set top.x: top is 1 and has no keys"),
        ("commit.1.rows.x", "commit.1.rows is 1 and has no keys"),
    ],
)
def test_keys_that_lead_nowhere(key: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        apply_overrides(RAW, [(key, 1)])


def test_later_ones_win() -> None:
    assert apply_overrides({}, [("a", 1), ("a", 2)]) == {"a": 2}


def test_overrides_are_checked_like_the_file() -> None:
    with pytest.raises(
        ScenarioError, match=r"smoke.toml: measure.round: is an unknown key; known keys are r"
    ):
        load_scenario("smoke", ["measure.round=3"])


def test_every_value_of_a_scenario_can_be_set() -> None:
    scenario = load_scenario("smoke")
    content = scenario.to_json()
    keys = []

    def walk(value: object, key: str) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(inner, f"{key}.{name}".lstrip("."))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for number, inner in enumerate(value, 1):
                walk(inner, f"{key}.{number}")
        elif value is not None:
            keys.append((key, value))

    walk(content, "")
    assert len(keys) > 60
    for key, value in keys:
        assert parse_scenario(apply_overrides(content, [(key, value)])) == scenario
