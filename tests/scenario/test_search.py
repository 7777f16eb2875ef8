"""The section `[search]`: what it refuses, and the arms that it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serde_lab.errors import ScenarioError
from serde_lab.lab.plan import check_scenario
from serde_lab.scenario.hudi_options import candidate_arms
from serde_lab.scenario.identity import asked
from serde_lab.scenario.loading import parse_scenario
from serde_lab.scenario.model import Scenario
from tests.lab.small_scenario import content, source

DICTIONARY = {"hoodie.parquet.dictionary.enabled": False}
PAGES = {"hoodie.parquet.page.size": 4096}
PEER = {"name": "peer", "peer": "hudi_spark_tuned"}
OURS = {"name": "ours", "strategy": "arrow", "settings": PAGES}
FLOOR = {"name": "floor", "control": "parquet_floor"}


def candidate(name: str = "dict", arm: str = "peer", **given: Any) -> dict[str, Any]:
    return {"name": name, "arm": arm, "settings": DICTIONARY, **given}


def searching(folder: Path, *candidates: dict[str, Any], **given: Any) -> Scenario:
    changes = {"rounds": 6, **given.pop("measure", {})}
    whole = content(source(folder), [PEER, OURS, FLOOR], exchange="spark", **changes)
    search = {"candidate": list(candidates), **given.pop("search", {})}
    return parse_scenario({**whole, **given, "search": search})


@pytest.mark.parametrize(
    ("candidates", "given", "problem"),
    [
        ([], {}, "search.candidate: is empty"),
        ([candidate(arm="pear")], {}, "search.candidate.dict.arm: there is no arm 'pear'"),
        ([candidate(arm="floor")], {}, "search.candidate.dict.arm: parquet_floor takes no settings"),
        ([candidate(settings={})], {}, "search.candidate.dict.settings"),
        ([candidate(), candidate()], {}, "two arms would be called 'peer-dict'"),
        ([candidate("best")], {}, "two arms would be called 'peer-best'"),
        ([candidate(arm="ours", settings=PAGES)], {}, "changes nothing in arm 'ours'"),
        ([candidate(settings={"hoodie.index.type": "BLOOM"})], {}, "no arm may change this: [table]"),
        ([candidate("a"), candidate("b", settings={**PAGES, **DICTIONARY})], {},
         "is set by factors 'a' and 'b' of arm 'peer'; give both candidates the same factor"),
        ([candidate()], {"measure": {"rounds": 5}}, "measure.rounds: found 5, but a search confirms"),
        ([candidate()], {"search": {"rounds": [1]}}, "search.rounds"),
        ([candidate()], {"sweep": {"key": "table.buckets", "values": [1, 2]}},
         "search: cannot be combined with [sweep]"),
    ],
)  # fmt: skip
def test_a_search_that_cannot_be_made_is_refused_with_the_key(
    tmp_path: Path, candidates: list[dict[str, Any]], given: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ScenarioError) as refused:
        searching(tmp_path, *candidates, **given)
    assert problem in str(refused.value)


def test_what_a_peer_has_anyway_is_no_candidate(tmp_path: Path) -> None:
    direct = candidate(settings={"hoodie.write.markers.type": "DIRECT"})
    found = searching(tmp_path, direct)
    with pytest.raises(ScenarioError, match="hudi_spark_tuned has these settings already"):
        check_scenario(found)


def test_candidates_become_arms_that_differ_from_their_start_in_their_settings(
    tmp_path: Path,
) -> None:
    found = searching(tmp_path, candidate(), candidate(arm="ours", factor="layout"))
    peer, ours = candidate_arms(found, found.arms)
    assert (peer.name, peer.peer, peer.settings) == ("peer-dict", "hudi_spark_tuned", DICTIONARY)
    assert (ours.name, ours.settings) == ("ours-dict", {**PAGES, **DICTIONARY})
    assert candidate_arms(found, [found.arm("ours")]) == (ours,)
    assert found.search is not None
    assert [one.changed_factor for one in found.search.candidates] == ["dict", "layout"]
    assert asked(found)["search"]["rounds"] == [3, 3, 6]
    # a run's own copy of its scenario is a scenario again
    assert parse_scenario(found.to_json()) == found
