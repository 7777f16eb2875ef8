"""The suite gets faster, not smaller: what `counts.toml` says is still there."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import counts


def test_the_suite_is_as_large_as_the_committed_counts(request: pytest.FixtureRequest) -> None:
    items = request.config.stash[counts.COLLECTED]
    if not counts.is_whole(items):
        pytest.skip("a part of the suite was collected, and the counts are of all of it")
    found, committed = counts.counts(items), counts.read()["now"]
    assert {name: n for name, n in found.items() if n < committed[name]} == {}
    before = counts.read()["before"]
    assert all(committed[name] >= before[name] for name in before)


def test_examples_are_those_of_the_settings() -> None:
    @settings(max_examples=7)
    @given(st.none())
    def seven(drawn: None) -> None:
        pass

    @given(st.none())
    def default(drawn: None) -> None:
        pass

    assert counts._examples(seven) == 7
    assert counts._examples(default) == settings.default.max_examples
    assert counts._examples(test_examples_are_those_of_the_settings) == 0
