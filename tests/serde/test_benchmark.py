"""The benchmark covers every strategy, execution and kind, and sets what was expected beside it."""

import itertools
import json
from types import SimpleNamespace

import pyarrow as pa
import pytest

from serde_lab.records.types import check_supported
from serde_lab.serde import benchmark, registry
from serde_lab.serde.interface import SerdeOptions

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU time by how often it is asked for: a few rows may take less than a tick of a machine's clock."""
    ticks = itertools.count(step=1000)
    monkeypatch.setattr(benchmark, "time", SimpleNamespace(process_time_ns=lambda: next(ticks)))


def run(capsys: pytest.CaptureFixture[str], arguments: str) -> str:
    assert benchmark.main(arguments.split()) == 0
    return capsys.readouterr().out


def test_every_strategy_execution_and_kind_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "--rows 30 --repeats 1 --format json"))
    seen = {(c["strategy"], c["execution"], c["kind"]) for c in found["costs"]}
    assert seen == {
        (name, execution, kind)
        for name in registry.names()
        for execution in registry.strategy(name).executions
        for kind in ("record", *benchmark.KINDS)
    }
    for cost in found["costs"]:
        assert cost["expected_bytes"] is not None, cost
        assert cost["expected_ns"] is not None, cost
        assert set(cost["verb_ns"]) == set(benchmark.VERBS)
    assert {b["strategy"] for b in found["over_bare"]} == {"pickle", "avro"}
    assert all(b["bare_ns"] > 0 and b["encode_ns"] > 0 for b in found["over_bare"])


def test_bytes_are_those_of_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    """They are exact, whatever the clock says: the typed row's slots are 8 bytes, and a null bit."""
    asked = "--rows 500 --repeats 1 --strategy internal_row --kind int64 --kind string"
    costs = json.loads(run(capsys, f"{asked} --format json"))["costs"]
    found = {c["kind"]: c["bytes"] for c in costs if c["execution"] == "batch"}
    assert found["int64"] == pytest.approx(8.125)
    assert found["string"] == pytest.approx(16.125)


def test_the_table_has_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "--rows 20 --repeats 1 --strategy pickle --kind bool").splitlines()
    assert lines[0].split()[:3] == ["strategy", "execution", "kind"]
    assert [line.split()[2] for line in lines[1:3]] == ["record", "bool"]
    assert "pickle.dumps(tuple, 5)" in lines[-1]
    assert lines[-1].endswith("1.25")


def test_an_unknown_strategy_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        benchmark.main(["--strategy", "kryo"])
    assert caught.value.code == 2
    assert "invalid choice: 'kryo'" in capsys.readouterr().err


@pytest.mark.parametrize("kind", benchmark.KINDS)
def test_values_are_of_a_supported_type_and_vary(kind: str) -> None:
    values = benchmark.values_of(kind, 50, 1)
    check_supported(pa.schema([pa.field("c", values.type)]))
    values.validate(full=True)
    assert values.null_count == 0
    assert len({str(v) for v in values}) > (1 if kind == "bool" else 20)
    schema, batch = benchmark.batch_of([values], 50)
    bound = registry.bind("internal_row", schema, SerdeOptions())
    assert bound.from_arrow(batch).to_arrow().equals(batch)
