"""Plans the arms of a scenario that need jars: which of them can run here, in which Spark session, with which
options.

A peer needs Apache Hudi's bundle. Without it, the peer is reported as missing. With it, peers share the
other arms' session or get one of their own. A control that writes another table format needs that format's
jars in the same way. Each format has a session of its own: Delta Lake and Hudi both want Spark's catalog.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from serde_lab.errors import ScenarioError, SetupError
from serde_lab.lab.jars import manifest
from serde_lab.lab.jars.manifest import HUDI, by_hand, find_jar, find_jars, how_to_get
from serde_lab.peers import apache_hudi
from serde_lab.peers.apache_hudi import ARMS, HudiArm
from serde_lab.peers.record_classes import RECORD_CLASSES, RecordClass
from serde_lab.peers.table_formats import FORMATS
from serde_lab.scenario.hudi_options import with_settings, write_options
from serde_lab.scenario.model import Arm, Scenario


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """Arms that share one Spark session, and what that session needs for peers."""

    arms: frozenset[str]
    jars: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PeerPlan:
    """The sessions with their arms; `missing` says for each arm that cannot run why.

    `note` is a sentence for the user if the bundle is not the pinned one.
    """

    sessions: tuple[SessionPlan, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    with_peers: bool = False
    isolated: bool = False
    """Whether peers share no session with the other arms, as asked."""
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
    others = [arm for arm in arms if arm.control not in FORMATS]
    apart, missing = _formats([arm for arm in arms if arm.control in FORMATS], required)
    plan = _plan_peers(scenario, others, jar, required, isolated)
    # the first session stays that of our arms, and the last that of isolated peers
    first = plan.sessions[:1] if others or not apart else ()
    sessions = (*first, *apart, *plan.sessions[1:])
    return replace(plan, sessions=sessions, missing={**plan.missing, **missing})


def _formats(arms: Sequence[Arm], required: bool) -> tuple[tuple[SessionPlan, ...], dict[str, str]]:
    """A session for the arms of each table format, and why those are missing whose jars are not here."""
    sessions: list[SessionPlan] = []
    reasons: dict[str, str] = {}
    for control, jars in manifest.FORMATS.items():
        names = frozenset(arm.name for arm in arms if arm.control == control)
        found, lacking = find_jars(jars) if names else ([], [])
        if lacking:
            listed = ", ".join(jar.coordinates for jar in lacking)
            why = f"{jars[0].title} ({listed}) is not on this machine"
            advice = how_to_get(lacking, "--fetch-formats")
            if required:
                raise SetupError(f"{', '.join(sorted(names))}: {why}", hint=advice)
            reasons |= dict.fromkeys(sorted(names), f"{why}: {advice}")
        elif names:
            conf = FORMATS[control].session_conf
            sessions.append(SessionPlan(names, tuple(map(str, found)), conf))
    return tuple(sessions), reasons


def _plan_peers(
    scenario: Scenario, arms: Sequence[Arm], jar: str, required: bool, isolated: bool
) -> PeerPlan:
    names = frozenset(arm.name for arm in arms)
    peers = frozenset(arm.name for arm in arms if arm.kind == "peer")
    if not peers:
        return PeerPlan(_sessions(arms))
    bundle = find_jar(HUDI, jar)
    if bundle is None:
        lacking = f"{HUDI.title} {HUDI.coordinates} is not on this machine"
        advice = f"run `serde-lab doctor --fetch-hudi`, or {by_hand(HUDI)} or in --hudi-jar"
        if required:
            raise SetupError(f"{', '.join(sorted(peers))}: {lacking}", hint=advice)
        reason = f"{lacking}: {advice}"
        others = [arm for arm in arms if arm.name not in peers]
        return PeerPlan(_sessions(others), dict.fromkeys(sorted(peers), reason))
    jars = (str(bundle.path),)
    conf = {**apache_hudi.SESSION_CONF, **session_conf(scenario)}
    if isolated and peers != names:
        ours = _sessions([arm for arm in arms if arm.name not in peers])
        theirs = _sessions([arm for arm in arms if arm.name in peers], jars, conf)
        return PeerPlan((*ours, *theirs), with_peers=True, isolated=True, note=bundle.note)
    return PeerPlan(_sessions(arms, jars, conf), with_peers=True, note=bundle.note)


def _sessions(
    arms: Sequence[Arm], jars: tuple[str, ...] = (), conf: Mapping[str, str] | None = None
) -> tuple[SessionPlan, ...]:
    """One session for the arms without session settings, and one for each set of such settings."""
    by_settings: dict[tuple[tuple[str, str], ...], set[str]] = {(): set()}
    for arm in arms:
        settings = tuple(sorted(session_settings(arm).items()))
        by_settings.setdefault(settings, set()).add(arm.name)
    plans = [
        SessionPlan(frozenset(names), jars, {**(conf or {}), **dict(settings)})
        for settings, names in by_settings.items()
        if names
    ]
    return tuple(plans) or (SessionPlan(frozenset(), jars, conf or {}),)


def session_settings(arm: Arm) -> dict[str, str]:
    """What `arm` fixes when its session starts: the settings of its kind of peer or format, then its own."""
    form = FORMATS.get(arm.control or "")
    if form is not None:
        return dict(form.session_conf)
    kind = ARMS.get(arm.peer or "")
    return ({} if kind is None else kind.session_settings) | arm.session_settings


def recorded_jars(session: SessionPlan) -> tuple[str, ...]:
    """The names of the jars, without their folders, which differ from machine to machine."""
    return tuple(Path(jar).name for jar in session.jars)


def check_candidates(scenario: Scenario) -> None:
    """Raise ScenarioError for a candidate of a search that sets what its peer has anyway."""
    for one in () if scenario.search is None else scenario.search.candidates:
        start = scenario.arm(one.arm)
        tried = with_settings(start, one.arm_name, one.settings)
        if start.peer and handed(scenario, start) == handed(scenario, tried):
            raise ScenarioError(
                f"{scenario.name}: search.candidate.{one.name}.settings: changes nothing: {start.peer} has"
                " these settings already"
            )


def handed(scenario: Scenario, arm: Arm) -> dict[str, str]:
    """Every option of the peer's first commit, under Apache Hudi's own names, and of its session."""
    return options_of_peer(scenario, arm, 1) | session_settings(arm)


STREAMED: Mapping[str, str] = {
    # the sink compacts in another thread by default; the lab compacts within the batch
    "hoodie.datasource.compaction.async.enable": "false",
    # a batch that fails would be tried again, and its time counted twice
    "hoodie.datasource.write.streaming.retry.count": "0",
}
"""What Apache Hudi's streaming sink gets besides the options of a write, so that both sides do the same
work within a batch."""


def options_of_peer(scenario: Scenario, arm: Arm, number: int) -> dict[str, str]:
    """All options that Apache Hudi gets for timed commit `number` (from 1) of `arm`."""
    commit = scenario.commits[number - 1]
    kinds: Mapping[str, HudiArm | RecordClass] = {**ARMS, **RECORD_CLASSES}
    own = kinds[arm.peer or ""].own_options(commit.has_unique_keys)
    streamed = {} if scenario.stream is None else dict(STREAMED)
    return (
        write_options(scenario, arm, commit.write_operation) | own | arm.write_settings | streamed
    )


def session_conf(scenario: Scenario) -> dict[str, str]:
    """What the Spark session needs for peers beyond Apache Hudi's own settings.

    Apache Hudi reads the zstd level from Hadoop's configuration when the session starts. As an option of
    a write, or when set later, it has no effect (tried).
    """
    tables = [scenario.table_of(arm) for arm in scenario.arms if arm.peer]
    level = next((table.level for table in tables if table.codec == "zstd"), None)
    if level is None:
        return {}
    # the scenario's consistency check makes sure that all peers have the same level
    return {"spark.hadoop.parquet.compression.codec.zstd.level": str(level)}
