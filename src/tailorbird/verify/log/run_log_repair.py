"""Run the repair of a topic: ask the user, let the capture read the differing rows again, compare them again."""

from __future__ import annotations

from tailorbird.verify.log.kafka_repair import ask_for
from tailorbird.verify.log.topic_comparison import TopicComparison
from tailorbird.verify.request import Request, StageResult, Terminal


def repaired(request: Request, found: TopicComparison, terminal: Terminal) -> StageResult:
    """Let the capture publish the differing rows again, then compare them again."""
    count = len(found.keys)
    plan = f"{count:,} rows of {found.table}: the capture reads them again and publishes what differs"
    if request.dry_run:
        return StageResult(verdict=found.verdict, repair=f"would repair {plan}")
    if not terminal.ask(f"repair {plan}?"):
        return StageResult(verdict=found.verdict, repair="nothing was repaired")
    assert found.look is not None, "it was compared"
    assert found.ledger is not None, "it was compared"
    done = sum(ask_for(request.topology, found.table, found.keys, found.ledger))
    if done < count:
        why = f"repaired {done:,} of {count:,}; the capture has not applied the signal: is it running?"
        return StageResult(verdict=found.verdict, repair=f"{why} It applies the signal as soon as it runs")
    return StageResult(verdict=found.verdict, repair=f"repaired {plan}", repaired=found.look(found.keys))
