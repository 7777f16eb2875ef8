import pytest

from serde_lab.errors import RunError
from serde_lab.measure import phases
from serde_lab.measure.metrics import METRICS, metric


def test_names_are_unique() -> None:
    assert len({one.name for one in METRICS}) == len(METRICS)


@pytest.mark.parametrize(
    ("name", "unit", "kind", "gated"),
    [
        ("frame_bytes", "B", "exact", True),
        ("shuffle_bytes", "B", "compressed", True),
        ("seconds", "s", "time", True),
        ("spark.gc_s", "s", "time", False),
        ("spark.spilled_bytes", "B", "compressed", False),
        ("spark.execution_peak_bytes", "B", "memory", False),
        ("spark.tasks", "1", "exact", False),
    ],
)
def test_a_metric_says_how_it_may_be_compared(name: str, unit: str, kind: str, gated: bool) -> None:
    found = metric(name)
    assert (found.unit, found.kind, found.gated) == (unit, kind, gated)


def test_an_unknown_metric_is_refused_with_the_known_names() -> None:
    with pytest.raises(RunError, match=r"'second' is no metric .*seconds"):
        metric("second")


def test_serde_is_the_four_verbs_and_route_in_any_stage() -> None:
    names = ["map.from_arrow", "map.route", "map.encode", "assign.decode", "reduce.to_arrow"]
    assert all(phases.is_serde(name) for name in names)
    others = ["map.keygen", "reduce.write", "map.input_wait", "idle.driver", "unattributed"]
    assert not any(phases.is_serde(name) for name in others)
    assert phases.group("reduce.shuffle_files") == "pipeline"
    assert phases.group("idle.driver") == "idle"


def test_phases_sort_by_stage_then_by_the_order_of_work() -> None:
    names = ["unattributed", "reduce.decode", "idle.driver", "map.encode", "map.from_arrow"]
    assert sorted(names, key=phases.order) == [
        "map.from_arrow",
        "map.encode",
        "reduce.decode",
        "idle.driver",
        "unattributed",
    ]
