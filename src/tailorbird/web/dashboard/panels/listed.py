"""Build the content of the pages Proof, Dead letters and Fleet.

The data is that of `tailorbird checks`, `status` and `dead-letters list`. It is None if Kafka does not answer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cdc.topology.topology import Check, Source, Topology
from tailorbird.operate.status.dead_letters import DeadLetterRow, OpenDeadLetters, remedy_of, waits
from tailorbird.verify.checks.check_status import CheckStatus, ago
from tailorbird.verify.checks.runs import CheckResult

MOST_DEAD_LETTERS = 200
Tone = Literal["good", "bad", "plain"]
_HELD = ("Table or index", "Stage", "Key", "Origin", "Reason", "Time", "Remedy")
_COMPARED = ("Stage", "Table", "Outcome", "Rows", "Differing", "Moving", "Position", "When", "First difference")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPart:
    """A section of a page: text lines, a table (`heads` and `rows`), and a command that shows more or helps.

    `state` is a word next to the heading, `tone` its colour."""

    heading: str
    state: str = ""
    tone: Tone = "plain"
    lines: Sequence[str] = ()
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPage:
    """A page: a sentence about the state, whether all is well, and the sections."""

    sentence: str
    well: bool
    parts: Sequence[ListedPart] = ()


def unavailable(topology: Topology, what: str) -> ListedPage:
    """Return the page to show while Kafka does not answer. `what` says what is missing."""
    reported = ListedPart(heading="What to do", command="tailorbird stack status")
    return ListedPage(sentence=f"Kafka at {topology.log.brokers} does not answer: {what}", well=False, parts=[reported])


def proof_page(topology: Topology, statuses: Sequence[CheckStatus] | None, now_ms: int) -> ListedPage:
    """Return the page with the last result of each check, by stage and table."""
    now = ListedPart(heading="Compare now", command=f"tailorbird verify {topology.file}")
    if not topology.checks:
        sentence = "This topology declares no checks: nothing is compared automatically."
        lines = ["Add `checks:` to the topology to compare on a schedule; topologies/README.md lists its keys."]
        return ListedPage(sentence=sentence, well=True, parts=[ListedPart(heading="Checks", lines=lines), now])
    if statuses is None:
        return unavailable(topology, "results of checks are unknown.")
    parts = [_check(topology.checks[one.check], one, now_ms) for one in statuses]
    return ListedPage(sentence=_proof(statuses), well=all(one.well for one in statuses), parts=[*parts, now])


def _proof(statuses: Sequence[CheckStatus]) -> str:
    by_state = {one.state: [each.check for each in statuses if each.state == one.state] for one in statuses}
    if wrong := by_state.get("DIFFERENT"):
        return f"Check found a difference: {', '.join(wrong)}."
    if late := by_state.get("overdue"):
        return f"Check is overdue: {', '.join(late)}."
    open_ = [*by_state.get("waiting", []), *by_state.get("unknown", [])]
    if open_:
        return f"No difference is known; check is incomplete: {', '.join(open_)}."
    return "All compared rows are equal."


def _check(check: Check, status: CheckStatus, now_ms: int) -> ListedPart:
    run = status.run
    every = f"every {ago(1000 * check.every)}"
    if run is None:
        lines = [f"{every}; it has not run yet"]
    else:
        equal = f"last equal {ago(now_ms - run.equal_ms)} ago" if run.equal_ms else "never equal so far"
        took = (run.ended_ms - run.began_ms) / 1000
        lines = [f"{every}; started {ago(now_ms - run.began_ms)} ago, took {took:.1f} s; {equal}"]
        lines += [f"failed: {run.error}"] if run.error else []
    rows = [_compared(one, now_ms) for one in (run.checked if run else ())]
    tone: Tone = "bad" if not status.well else "good" if status.state == "equal" else "plain"
    return ListedPart(
        heading=check.name, state=status.state, tone=tone, lines=lines, heads=_COMPARED if rows else (), rows=rows,
        command=status.look,
    )  # fmt: skip


def _compared(one: CheckResult, now_ms: int) -> Sequence[str]:
    first = one.unknown[0] if one.unknown else ""
    for finding in one.findings[:1]:
        key = ", ".join(f"{name}={value}" for name, value in finding.get("key", {}).items())
        first = f"{key} {finding.get('difference', '')}".strip()
    figures = (f"{figure:,}" for figure in (one.rows, one.differing, one.moving))
    return (one.stage, one.table, one.outcome, *figures, one.cut, f"{ago(now_ms - one.at_ms)} ago", first)


def dead_letters_page(
    topology: Topology, waiting: Sequence[OpenDeadLetters] | None, dead_letters: Sequence[DeadLetterRow], now_ms: int
) -> ListedPage:
    """Return the page with the numbers of dead letters by table or index, and the newest ones.

    Each has the command that replays it. `waiting` is None if Kafka does not answer. `dead_letters` may be fewer
    than `waiting` counts."""
    if waiting is None:
        return unavailable(topology, "dead letters are unknown.")
    if not waiting:
        return ListedPage(sentence="There are no dead letters: no row is missing because it was refused.", well=True)
    total = sum(one.dead_letters for one in waiting)
    places = ", ".join(dict.fromkeys(one.of or one.stage for one in waiting))
    counted = ListedPart(
        heading="By table or index",
        heads=("Table or index", "Stage", "Count", "Newest"),
        rows=[(one.of, one.stage, waits(one), one.reason) for one in waiting],
        command=f"tailorbird dead-letters replay {topology.file} --all",
    )
    newest = ListedPart(
        heading="The newest",
        lines=[
            f"{len(dead_letters)} of {total}"
            if len(dead_letters) < len(waiting) or total > len(dead_letters)
            else f"{total}"
        ],
        heads=_HELD,
        rows=[_held(one, topology.file, now_ms) for one in dead_letters[:MOST_DEAD_LETTERS]],
        command=f"tailorbird dead-letters show {topology.file} {dead_letters[0].id}" if dead_letters else "",
    )
    sentence = f"Rows are missing or out of date in {places}: {total:,} changes were refused."
    return ListedPage(sentence=sentence, well=False, parts=[counted, newest])


def _held(one: DeadLetterRow, file: str, now_ms: int) -> Sequence[str]:
    when = f"{ago(now_ms - one.last_ms)} ago" + (f", {one.count} times" if one.count > 1 else "")
    return one.of, one.stage, one.key, one.position, one.reason, when, remedy_of(one, file).replace("`", "")


def fleet_page(topology: Topology) -> ListedPage:
    """Return the page that lists which agents may capture which source, and the command for the fleet's page."""
    captured: Mapping[str, Source] = {name: one for name, one in topology.sources.items() if one.agent}
    rows = [(name, _agents(one), one.agent.connection if one.agent else "") for name, one in captured.items()]
    parts = [
        ListedPart(heading="Sources that agents capture", heads=("Source", "Agents", "Connection"), rows=rows),
        ListedPart(
            heading="State of the agents",
            lines=["The fleet has its own page. It requires a token, whose role decides what the page may do."],
            command="tailorbird fleet page",
        ),
    ]
    sentence = f"Agents of a fleet capture {', '.join(captured)}."
    return ListedPage(sentence=sentence, well=True, parts=parts)


def _agents(source: Source) -> str:
    choice = source.agent
    if choice is None:
        return ""
    labels = ", ".join(f"{name}={value}" for name, value in choice.labels.items())
    return ", ".join(choice.names) or f"those with {labels}"


def moment(ms: int) -> str:
    """Format a time for the pages."""
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
