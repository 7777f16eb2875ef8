"""Strategies are found by name, installed or not, and what cannot be found is said by name."""

from importlib.metadata import EntryPoint

import pytest

from serde_lab.errors import OptionError, SetupError
from serde_lab.serde import registry
from serde_lab.serde.arrow.records import ArrowStrategy
from serde_lab.serde.internal_row.strategy import InternalRowStrategy


def install(monkeypatch: pytest.MonkeyPatch, **targets: str) -> None:
    """Pretend that distributions with these entry points, and no others, are installed."""
    points = [EntryPoint(name, value, registry.GROUP) for name, value in targets.items()]

    def entry_points(group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == registry.GROUP
        return [p for p in points if name in (None, p.name)]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    monkeypatch.setattr(registry, "_target_on", registry._target_on.__wrapped__)  # nothing kept


def test_built_in_strategies_are_known_without_any_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch)
    assert registry.names() == ("pickle", "pickle_columns", "avro", "internal_row", "arrow")
    assert isinstance(registry.strategy("arrow"), ArrowStrategy)


def test_the_entry_points_of_the_package_are_the_built_in_table() -> None:
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["entry-points"][registry.GROUP] == dict(registry.BUILT_IN)


def test_plug_ins_stand_behind_the_built_in_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, zeta="z:Z", alpha="a:A", arrow=registry.BUILT_IN["arrow"])
    assert registry.names() == (
        "pickle",
        "pickle_columns",
        "avro",
        "internal_row",
        "arrow",
        "alpha",
        "zeta",
    )
    assert isinstance(registry.strategy("arrow"), ArrowStrategy)


def test_an_unknown_name_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, alpha="a:A")
    with pytest.raises(OptionError) as caught:
        registry.strategy("kryo")
    assert str(caught.value) == (
        "unknown strategy 'kryo', expected one of pickle, pickle_columns, avro, internal_row, arrow, alpha"
    )


def test_a_name_that_two_claim_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, arrow="other:Arrow")
    with pytest.raises(OptionError, match="'arrow' is claimed by other:Arrow and by serde_lab"):
        registry.strategy("arrow")


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("no_such_module:X", "cannot be loaded from no_such_module:X"),
        ("serde_lab.serde.arrow.records:NoSuchClass", "cannot be loaded from"),
        ("serde_lab.serde.arrow.records:ArrowRecords", "is not a subclass of Strategy"),
        ("serde_lab.serde.arrow.records:ArrowStrategy", "calls itself 'arrow'"),
    ],
)
def test_an_entry_point_that_leads_nowhere_is_named(
    monkeypatch: pytest.MonkeyPatch, target: str, problem: str
) -> None:
    install(monkeypatch, alpha=target)
    with pytest.raises(SetupError, match=problem) as caught:
        registry.strategy("alpha")
    assert "'alpha'" in str(caught.value)


def test_each_call_gives_a_strategy_of_its_own() -> None:
    assert isinstance(registry.strategy("internal_row"), InternalRowStrategy)
    assert registry.strategy("internal_row") is not registry.strategy("internal_row")
