"""What a profile makes of the samples of py-spy and of JFR."""

from __future__ import annotations

from tests.profiled import Profile, jvm_profiles, python_profiles

RAW = """\
process 7:"python -m serde_lab run";main (serde_lab/cli/app.py:10);run (serde_lab/lab/runner.py:20) 3
process 9:"python -m daemon";manager (pyspark/daemon.py:5);decode (serde_lab/frames.py:7) 5
process 9:"python -m daemon";manager (pyspark/daemon.py:5);decode (serde_lab/frames.py:7);<lambda> (x.py:1) 2
"""


def test_samples_of_workers_and_driver_are_told_apart() -> None:
    workers, driver = python_profiles(RAW)
    assert (workers.samples, driver.samples) == (7, 3)
    assert workers.own == {"decode (serde_lab/frames.py)": 5, "<lambda> (x.py)": 2}
    assert workers.inclusive["decode (serde_lab/frames.py)"] == 7
    assert [*workers.table("function", only="(serde_lab/")][2:] == [
        "| `decode (serde_lab/frames.py)` | 71.4 % | 100.0 % |"
    ]


def test_a_function_that_calls_itself_is_on_the_stack_once() -> None:
    profile = Profile()
    profile.add(["a", "b", "a"], 4)
    assert (profile.own, profile.inclusive) == ({"a": 4}, {"a": 4, "b": 4})


def test_samples_of_the_jvm_are_told_apart_by_thread() -> None:
    def event(thread: str, *methods: str) -> dict[str, object]:
        # JFR names the innermost first
        frames = [{"method": {"type": {"name": "a/B"}, "name": name}} for name in methods]
        return {"values": {"sampledThread": {"javaName": thread}, "stackTrace": {"frames": frames}}}

    found = jvm_profiles(
        [
            event("Executor task launch worker for task 1.0", "inner", "outer"),
            event("main", "only"),
            {"values": {"sampledThread": None, "stackTrace": None}},
        ]
    )
    assert found["tasks"].own == {"a.B.inner": 1}
    assert found["tasks"].inclusive == {"a.B.outer": 1, "a.B.inner": 1}
    assert found["other threads"].samples == 1
