"""Which peers of a scenario can run here, and the sessions that arms run in.

Owns the meeting of a scenario's peers with Apache Hudi's bundle: found, missing, or isolated in a
session of their own. Must not know cells or samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from serde_lab.errors import SetupError
from serde_lab.lab.peer_cells import session_conf
from serde_lab.peers import apache_hudi
from serde_lab.scenario.model import Arm, Scenario

HOW_TO_GET_IT = (
    "`serde-lab doctor --fetch-hudi` fetches it by the Maven client; or name the jar with --hudi-jar"
    f" or {apache_hudi.JAR_VARIABLE}"
)


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """Arms that share one Spark session, with what that session needs for peers."""

    arms: frozenset[str]
    jars: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PeerPlan:
    """What becomes of the arms: `missing` says why one cannot run; each of `sessions` has arms of its own."""

    sessions: tuple[SessionPlan, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    with_peers: bool = False


def plan_peers(
    scenario: Scenario,
    arms: Sequence[Arm],
    *,
    jar: str = "",
    required: bool = False,
    isolated: bool = False,
) -> PeerPlan:
    """The sessions of `arms`. Raises SetupError for a wrong `jar`, or where a required one is missing."""
    names = frozenset(arm.name for arm in arms)
    peers = frozenset(arm.name for arm in arms if arm.kind == "peer")
    if not peers:
        return PeerPlan((SessionPlan(names),))
    bundle = apache_hudi.find_bundle(jar)
    if bundle is None:
        lacking = f"Apache Hudi's bundle {apache_hudi.COORDINATES} is not on this machine"
        if required:
            raise SetupError(f"{', '.join(sorted(peers))}: {lacking}", hint=HOW_TO_GET_IT)
        reason = f"{lacking}: {HOW_TO_GET_IT}"
        return PeerPlan((SessionPlan(names - peers),), dict.fromkeys(sorted(peers), reason))
    conf = {**apache_hudi.SESSION_CONF, **session_conf(scenario)}
    if not isolated or peers == names:
        return PeerPlan((SessionPlan(names, (str(bundle),), conf),), with_peers=True)
    apart = (SessionPlan(names - peers), SessionPlan(peers, (str(bundle),), conf))
    return PeerPlan(apart, with_peers=True)


def recorded_jars(session: SessionPlan) -> tuple[str, ...]:
    """The jars by name alone: where they lie is the machine's affair."""
    return tuple(Path(jar).name for jar in session.jars)
