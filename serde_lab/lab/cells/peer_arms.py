"""Decides which peers of a scenario can run here, and in which Spark session each arm runs.

A peer needs Apache Hudi's bundle. Without it, the peer is reported as missing. With it, peers share the
other arms' session or get one of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from serde_lab.errors import SetupError
from serde_lab.lab.cells.peer import session_conf
from serde_lab.lab.jars.manifest import HUDI, by_hand, find_jar
from serde_lab.peers import apache_hudi
from serde_lab.scenario.model import Arm, Scenario


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """Arms that share one Spark session, and what that session needs for peers."""

    arms: frozenset[str]
    jars: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PeerPlan:
    """The sessions with their arms; `missing` says for each peer that cannot run why.

    `note` is a sentence for the user if the bundle is not the pinned one.
    """

    sessions: tuple[SessionPlan, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    with_peers: bool = False
    note: str = ""


def plan_peers(
    scenario: Scenario,
    arms: Sequence[Arm],
    *,
    jar: str = "",
    required: bool = False,
    isolated: bool = False,
) -> PeerPlan:
    """The sessions of `arms`. Raises SetupError for a wrong `jar`, or if a required one is missing."""
    names = frozenset(arm.name for arm in arms)
    peers = frozenset(arm.name for arm in arms if arm.kind == "peer")
    if not peers:
        return PeerPlan((SessionPlan(names),))
    bundle = find_jar(HUDI, jar)
    if bundle is None:
        lacking = f"{HUDI.title} {HUDI.coordinates} is not on this machine"
        advice = f"`serde-lab doctor --fetch-hudi` fetches it; or {by_hand(HUDI)}, or in --hudi-jar"
        if required:
            raise SetupError(f"{', '.join(sorted(peers))}: {lacking}", hint=advice)
        reason = f"{lacking}: {advice}"
        return PeerPlan((SessionPlan(names - peers),), dict.fromkeys(sorted(peers), reason))
    jars = (str(bundle.path),)
    conf = {**apache_hudi.SESSION_CONF, **session_conf(scenario)}
    sessions: tuple[SessionPlan, ...] = (SessionPlan(names, jars, conf),)
    if isolated and peers != names:
        sessions = SessionPlan(names - peers), SessionPlan(peers, jars, conf)
    return PeerPlan(sessions, with_peers=True, note=bundle.note)


def recorded_jars(session: SessionPlan) -> tuple[str, ...]:
    """The names of the jars, without their folders, which differ from machine to machine."""
    return tuple(Path(jar).name for jar in session.jars)
