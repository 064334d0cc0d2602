"""Requests to `tailorbird verify`, and the result of one stage for one table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from cdc.model.errors import UsageError
from cdc.model.schema import TableId
from cdc.topology.topology import COMPARABLE, Topology
from joins.select.parser import tables_of
from tailorbird.verify.findings import Stage, Verdict
from tailorbird.verify.log.load import limits_of

LAST = "last"  # as `since`: the last comparison
STAGES: tuple[Stage, ...] = ("log", "table", "index")  # all stages, in the order of the data flow


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The tables and stages that `tailorbird verify` compares, and whether it repairs differences.

    - `everything`: the user named no table. `reads`: the source tables that each joined table reads.
    - `captured`: those tables and the named source tables, which only the log stage compares.
    - `sample`: compare the values of one in so many rows, in stages that support it. `turn`: which of them (None: it
      changes hourly).
    - `since`, `resume`, `max_load`, `threads`: see `tailorbird.verify.log.topic_comparison.LogStageOptions`. For an
      index, `since` can only be `LAST`: the last comparison (tailorbird.verify.index.routine_stage).
    """

    topology: Topology
    tables: tuple[str, ...]
    stages: tuple[Stage, ...] = STAGES
    everything: bool = True
    reads: Mapping[str, frozenset[TableId]] = field(default_factory=dict)
    captured: frozenset[TableId] = frozenset()
    sample: int = 1
    since: str = ""
    resume: bool = False
    max_load: Mapping[str, int] = field(default_factory=dict)
    threads: int = 2
    turn: int | None = None
    repair: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """A verdict, a description of the repair (done, or with a dry run proposed), and the verdict after the repair."""

    verdict: Verdict
    repair: str = ""
    repaired: Verdict | None = None

    @property
    def last(self) -> Verdict:
        """Return the verdict after the repair, or without a repair the only one."""
        return self.repaired or self.verdict


class Terminal(Protocol):
    """Shows progress to the user and asks for confirmation.

    `ask` returns True at once with `--yes`, `sure` with `--force`. Without a terminal, `sure` returns False."""

    def progress(self, title: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]: ...

    def notify(self, text: str) -> None: ...

    def ask(self, question: str) -> bool: ...

    def sure(self, question: str) -> bool: ...


class SilentTerminal:
    """For programs: shows nothing and confirms nothing, so nothing is repaired."""

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Context manager: yield a function that ignores the numbers of rows."""
        yield lambda rows: None

    def notify(self, text: str) -> None:
        """Ignore the text."""

    def ask(self, question: str) -> bool:
        """Return False."""
        return False

    def sure(self, question: str) -> bool:
        """Return False."""
        return False


def parse_request(
    topology: Topology,
    stages: Sequence[str] | None,
    tables: Sequence[str] | None,
    *,
    sample: str = "",
    since: str = "",
    resume: bool = False,
    max_load: str = "",
    threads: int = 2,
    repair: bool = False,
    dry_run: bool = False,
) -> Request:
    """Build a request from command-line options. Raises UsageError for an unknown stage or table, or an invalid
    query or option."""
    if dry_run and not repair:
        raise UsageError("--dry-run shows what --repair would do", "add --repair")
    _check_since(since, stages or STAGES, sample)
    if since and resume:
        raise UsageError("--resume continues a comparison of all rows", "omit --changed-since")
    for name in stages or ():
        if name not in STAGES:
            raise UsageError(f"no stage {name}", f"choose one of {', '.join(STAGES)}")
    kept = [name for name, one in topology.tables.items() if one.sink in COMPARABLE]
    captured = list[TableId]()
    for name in tables or ():
        if name not in kept and (meant := topology.tables_meant(name) if "log" in (stages or STAGES) else []):
            captured += meant
        elif name not in kept:
            reported = ", ".join(kept) or "no table in HBase or PostgreSQL"
            raise UsageError(f"{topology.file}: no table {name} to compare", f"it has {reported}")
    compared = tuple(name for name in kept if not tables or name in tables)
    reads = {name: tables_of(topology, topology.tables[name]) for name in compared}
    return Request(
        topology=topology,
        tables=compared,
        stages=tuple(one for one in STAGES if not stages or one in stages),
        everything=not tables,
        reads=reads,
        captured=frozenset(captured).union(*reads.values()),
        sample=_sample(sample) if sample else 1,
        since=since,
        resume=resume,
        max_load=limits_of(max_load),
        threads=threads,
        repair=repair,
        dry_run=dry_run,
    )


def _check_since(since: str, stages: Sequence[str], sample: str) -> None:
    if not since:
        return
    if "table" in stages:
        raise UsageError("--changed-since does not apply to the table stage", "add --stage log or --stage index")
    if "index" in stages and since != LAST:
        raise UsageError(f"the index stage compares only changes since its {LAST} comparison", "--changed-since last")
    if "index" in stages and sample:
        raise UsageError("--changed-since and --sample exclude one another", "choose one")


def _sample(text: str) -> int:
    match = re.fullmatch(r"1/([1-9][0-9]{0,5})", text)
    if match is None:
        raise UsageError(f"--sample {text}: not a fraction 1/N", "write e.g. --sample 1/64")
    return int(match[1])
