"""What a person asks of `tailorbird verify`, and what it answers of one stage of one table."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from cdc.model.errors import UsageError
from cdc.model.schema import TableId
from cdc.topology.topology import Topology
from tailorbird.verify.findings import Stage, Verdict

STAGES: tuple[Stage, ...] = ("log", "table", "index")  # those that there are, in the order of the data's flow


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be compared, and whether differences are mended; `everything` where the person named no table;
    `captured`: source tables that were named, for the log stage alone; `sample`: of how many rows one is compared by
    value, where a stage can do so; `turn`: which of them (None: other ones each hour). `since`, `resume`,
    `max_load`, `threads`: of the log stage, see `tailorbird.verify.log.run_log_stage.Ways`.
    """

    topology: Topology
    tables: tuple[str, ...]
    stages: tuple[Stage, ...] = STAGES
    everything: bool = True
    captured: tuple[TableId, ...] = ()
    sample: int = 1
    since: str = ""
    resume: bool = False
    max_load: str = ""
    threads: int = 2
    turn: int | None = None
    repair: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A verdict; what was done or would be done about it; and, after a repair, how those rows stand now."""

    verdict: Verdict
    repair: str = ""
    repaired: Verdict | None = None

    @property
    def last(self) -> Verdict:
        """What holds now."""
        return self.repaired or self.verdict


class Terminal(Protocol):
    """Where progress is shown and a question is asked. `ask` is True at once where the person said `--yes`, `sure`
    where it was `--force`; without a terminal `sure` is False.
    """

    def progress(self, title: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]: ...
    def ask(self, question: str) -> bool: ...
    def sure(self, question: str) -> bool: ...


def wanted(
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
    """The request; UsageError for a stage or table that there is not, or a sample that is none."""
    if dry_run and not repair:
        raise UsageError("--dry-run says what --repair would do", "add --repair")
    if since and list(stages or ()) != ["log"]:
        raise UsageError("--changed-since is of the log stage", "add --stage log, and no other")
    if since and resume:
        raise UsageError("--resume goes on with a comparison of all rows", "leave --changed-since out")
    for name in stages or ():
        if name not in STAGES:
            raise UsageError(f"no stage {name}", f"there is {', '.join(STAGES)}")
    kept = [name for name, one in topology.tables.items() if one.sink == "hbase"]
    captured = list[TableId]()
    for name in tables or ():
        if name not in kept and (meant := topology.tables_meant(name) if "log" in (stages or STAGES) else []):
            captured += meant
        elif name not in kept:
            reported = ", ".join(kept) or "none that is kept in HBase"
            raise UsageError(f"{topology.file}: no table {name} to compare", f"it has {reported}")
    return Request(
        topology=topology,
        tables=tuple(name for name in kept if not tables or name in tables),
        stages=tuple(one for one in STAGES if not stages or one in stages),
        everything=not tables,
        captured=tuple(captured),
        sample=_sample(sample) if sample else 1,
        since=since,
        resume=resume,
        max_load=max_load,
        threads=threads,
        repair=repair,
        dry_run=dry_run,
    )


def _sample(text: str) -> int:
    match = re.fullmatch(r"1/([1-9][0-9]{0,5})", text)
    if match is None:
        raise UsageError(f"--sample {text}: no part of a whole", "write e.g. --sample 1/64")
    return int(match[1])
