"""What the pages of Proof, Dead letters and Fleet list: what checks found, what was refused, which agents capture.

The same that `tailorbird checks`, `status` and `dead-letters list` know; None where Kafka does not tell it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cdc.topology.topology import Check, Source, Topology
from tailorbird.operate.status.dead_letters import DeadLetterRow, Waiting, remedy_of, waits
from tailorbird.verify.checks.check_status import CheckStatus, ago
from tailorbird.verify.checks.runs import Checked

MOST_DEAD_LETTERS = 200
Tone = Literal["good", "bad", "plain"]
_HELD = ("Table or index", "Stage", "Key", "Where it was", "Why", "When", "What helps")
_COMPARED = ("Stage", "Table", "Outcome", "Rows", "Differing", "Moving", "Position", "When", "First difference")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPart:
    """A part of a page: `state` in a word beside its heading, and how it is meant; lines below it, a table (`heads`,
    `rows` of as many cells), and the command that shows more or helps.
    """

    heading: str
    state: str = ""
    tone: Tone = "plain"
    lines: Sequence[str] = ()
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPage:
    """A page: a sentence that says how it stands, whether that is well, and its parts."""

    sentence: str
    well: bool
    parts: Sequence[ListedPart] = ()


def unavailable(topology: Topology, what: str) -> ListedPage:
    """While Kafka does not answer, or has not yet."""
    reported = ListedPart(heading="What to do", command="tailorbird stack status")
    return ListedPage(
        sentence=f"Nothing is heard of Kafka at {topology.log.brokers}: {what}", well=False, parts=[reported]
    )


def proof_page(topology: Topology, statuses: Sequence[CheckStatus] | None, now_ms: int) -> ListedPage:
    """What each check of a topology found when it last ran, by stage and table."""
    now = ListedPart(heading="Compare now", command=f"tailorbird verify {topology.file}")
    if not topology.checks:
        said = "This topology declares no checks: what you see is compared when somebody does."
        lines = ["`checks:` of the topology compares on a schedule; topologies/README.md has its keys."]
        return ListedPage(sentence=said, well=True, parts=[ListedPart(heading="Checks", lines=lines), now])
    if statuses is None:
        return unavailable(topology, "what checks found is not known.")
    parts = [_check(topology.checks[one.check], one, now_ms) for one in statuses]
    return ListedPage(sentence=_proof(statuses), well=all(one.well for one in statuses), parts=[*parts, now])


def _proof(statuses: Sequence[CheckStatus]) -> str:
    by_state = {one.state: [each.check for each in statuses if each.state == one.state] for one in statuses}
    if wrong := by_state.get("DIFFERENT"):
        return f"Not all is right: {', '.join(wrong)} found a difference."
    if late := by_state.get("overdue"):
        return f"{', '.join(late)} should have run long ago."
    open_ = [*by_state.get("waiting", []), *by_state.get("unknown", [])]
    if open_:
        return f"No difference is known; {', '.join(open_)} could not tell all yet."
    return "All that was compared is equal."


def _check(check: Check, status: CheckStatus, now_ms: int) -> ListedPart:
    run = status.run
    every = f"every {ago(1000 * check.every)}"
    if run is None:
        lines = [f"{every}; it has not run yet"]
    else:
        equal = f"last found all equal {ago(now_ms - run.equal_ms)} ago" if run.equal_ms else "never found all equal"
        took = (run.ended_ms - run.began_ms) / 1000
        lines = [f"{every}; began {ago(now_ms - run.began_ms)} ago, took {took:.1f} s; {equal}"]
        lines += [f"could not tell: {run.error}"] if run.error else []
    rows = [_compared(one, now_ms) for one in (run.checked if run else ())]
    tone: Tone = "bad" if not status.well else "good" if status.state == "equal" else "plain"
    return ListedPart(
        heading=check.name, state=status.state, tone=tone, lines=lines, heads=_COMPARED if rows else (), rows=rows,
        command=status.look,
    )  # fmt: skip


def _compared(one: Checked, now_ms: int) -> Sequence[str]:
    first = one.unknown[0] if one.unknown else ""
    for finding in one.findings[:1]:
        key = ", ".join(f"{name}={value}" for name, value in finding.get("key", {}).items())
        first = f"{key} {finding.get('difference', '')}".strip()
    figures = (f"{figure:,}" for figure in (one.rows, one.differing, one.moving))
    return (one.stage, one.table, one.outcome, *figures, one.cut, f"{ago(now_ms - one.at_ms)} ago", first)


def dead_letters_page(
    topology: Topology, waiting: Sequence[Waiting] | None, dead_letters: Sequence[DeadLetterRow], now_ms: int
) -> ListedPage:
    """What waits, counted by table or index; then the newest letters, each with the command that puts it through
    again. `waiting` is None where Kafka does not tell; `dead_letters` may be fewer.
    """
    if waiting is None:
        return unavailable(topology, "what was refused is not known.")
    if not waiting:
        return ListedPage(sentence="No dead letter waits: no row is missing because it was refused.", well=True)
    total = sum(one.dead_letters for one in waiting)
    places = ", ".join(dict.fromkeys(one.of or one.stage for one in waiting))
    counted = ListedPart(
        heading="By table or index",
        heads=("Table or index", "Stage", "How many", "The last one"),
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
    said = f"Rows are missing, or shown as they were, in {places}: {total:,} were refused and wait."
    return ListedPage(sentence=said, well=False, parts=[counted, newest])


def _held(one: DeadLetterRow, file: str, now_ms: int) -> Sequence[str]:
    when = f"{ago(now_ms - one.last_ms)} ago" + (f", {one.count} times" if one.count > 1 else "")
    return one.of, one.stage, one.key, one.position, one.reason, when, remedy_of(one, file).replace("`", "")


def fleet_page(topology: Topology) -> ListedPage:
    """Which agents may capture which source, and the command whose page shows how they are."""
    captured: Mapping[str, Source] = {name: one for name, one in topology.sources.items() if one.agent}
    rows = [(name, _agents(one), one.agent.connection if one.agent else "") for name, one in captured.items()]
    parts = [
        ListedPart(heading="Sources that agents capture", heads=("Source", "Agents", "Connection"), rows=rows),
        ListedPart(
            heading="How they are",
            lines=["The fleet has a page of its own: it asks for a token, and does what that token may."],
            command="tailorbird fleet page",
        ),
    ]
    said = f"Agents of a fleet capture {', '.join(captured)}."
    return ListedPage(sentence=said, well=True, parts=parts)


def _agents(source: Source) -> str:
    choice = source.agent
    if choice is None:
        return ""
    labels = ", ".join(f"{name}={value}" for name, value in choice.labels.items())
    return ", ".join(choice.names) or f"those with {labels}"


def moment(ms: int) -> str:
    """A time as the pages write it."""
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
