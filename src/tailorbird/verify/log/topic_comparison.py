"""Options of the log stage, and the result of comparing one source table with its topic."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from cdc.model.schema import TableId
from ingest.ledger.run_ledger import Ledger
from tailorbird.verify.findings import Until, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStageOptions:
    """Options of the log stage.

    - `since`: compare only rows that changed after this position. `LAST` means where the table was last equal.
    - `resume`: continue an interrupted comparison.
    - `max_load`: limits of status variables of the source. While one is exceeded, the comparison waits.
    - `threads`: parallel connections per source.
    - `reported`, `waits`: receive the number of compared rows of a table, and the reason of each wait."""

    since: str = ""
    resume: bool = False
    max_load: Mapping[str, int] = field(default_factory=dict)
    threads: int = 2
    reported: Callable[[TableId, int], object] = lambda table, rows: None
    waits: Callable[[str], object] = lambda why: None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicComparison:
    """The verdict of a table, and what a repair needs. Valid until the next table is requested.

    `keys`: the keys of all differing rows. `look` compares rows again. `ledger`: the open ledger of the topology.
    """

    table: TableId
    verdict: Verdict
    keys: Collection[bytes] = ()
    look: Callable[[Collection[bytes]], Verdict] | None = None
    ledger: Ledger | None = None


def incomparable(table: TableId, why: str, until: Until = "") -> TopicComparison:
    """Return the result for a table that is not compared, with the reason, and what must change before it can be."""
    verdict = Verdict(stage="log", table=str(table), cut="", unknown=(why,), until=until)
    return TopicComparison(table=table, verdict=verdict)
