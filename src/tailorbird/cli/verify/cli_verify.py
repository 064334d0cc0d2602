"""`tailorbird verify`: is the far end what the near end says? Row by row, beside live traffic."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cdc.model.errors import TailorbirdError, UsageError
from cdc.process.file_topology import load_topology
from tailorbird.verify.findings import DIFFERENT, UNLOGGED, Verdict, exit_code
from tailorbird.verify.request import STAGES, Request, Said, Terminal, wanted
from tailorbird.verify.verdict_text import lines_of

_Load = Annotated[
    str, typer.Option(metavar="Threads_running=25", help="log: pause while a source has more to do than this.")
]
_Threads = Annotated[int, typer.Option(min=1, max=16, help="log: connections that digest a source's rows at a time.")]

_Force = Annotated[
    bool, typer.Option("--force", help="table: also delete rows of which the join cannot be asked (groups).")
]


def verify(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    stage: Annotated[
        list[str] | None, typer.Option("--stage", help=f"Only this stage, of: {', '.join(STAGES)}. May be repeated.")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", help="Only this table, or source table of the log.")
    ] = None,
    sample: Annotated[
        str,
        typer.Option(
            metavar="1/64",
            help="Of an index, compare the versions of all rows, but the values of one in so many: others each hour.",
        ),
    ] = "",
    changed_since: Annotated[
        str, typer.Option(metavar="CUT", help="log: only rows that it names behind `last` equal cut, or a GTID set.")
    ] = "",
    resume: Annotated[bool, typer.Option("--resume", help="log: go on with what was interrupted.")] = False,
    max_load: _Load = "",
    threads: _Threads = 2,
    deep: Annotated[bool, typer.Option("--all", "--deep", help="All values of all rows; so it is anyway.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what differs, then look at it again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --repair: say what it would do.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --repair: do not ask.")] = False,
    force: _Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")] = False,
) -> None:
    """Compare source, log, table and index row by row, while traffic flows.

    A row that changes while it is looked at is looked at again, at a later cut: it is never called different for that.
    Reads only, but for --repair. Exit code 0: equal; 1: something differs; 3: something was not
    compared, as when a server is away.

    Example: tailorbird verify topologies/shop.yml --stage index --table orders_wide
    """
    # imported here: what writes log lines costs every other command a tenth of a second
    from cdc.process.proc_log_lines import log_lines

    said: list[Said] = []
    try:
        if sample and deep:
            raise UsageError("--sample and --all exclude one another", "choose one")
        log_lines("logfmt")  # on standard error: what is asked for goes to the other one
        asked = wanted(
            load_topology(file), stage, table, sample=sample, since=changed_since, resume=resume, max_load=max_load,
            threads=threads, repair=repair, dry_run=dry_run,
        )  # fmt: skip
        if repair and not dry_run and not yes and not sys.stdin.isatty():
            raise UsageError("--repair writes, and there is no terminal to ask on", "add --yes, or --dry-run")
        for one in said_of(asked, _Terminal(yes=yes, force=force)):
            said.append(one)
            _report(one, as_json=as_json)
        if not said:
            raise UsageError(f"{file}: nothing to compare", "tables in HBase with an index over them")
    except (TailorbirdError, KeyboardInterrupt) as error:
        reported = str(error) or "interrupted: --resume goes on with the log stage"
        typer.echo(f"tailorbird: {reported}", err=True)
        raise typer.Exit(DIFFERENT if any(one.last.differing for one in said) else UNLOGGED) from error
    raise typer.Exit(exit_code(one.last for one in said))


def said_of(asked: Request, terminal: Terminal) -> Iterator[Said]:
    """What each stage says of each table, one after the other. Retriable while a server is away."""
    # imported here: the clients of the servers cost what `--help` should not
    from tailorbird.cli.verify.cli_verify_index import verified_indexes
    from tailorbird.cli.verify.cli_verify_log import verified_log
    from tailorbird.cli.verify.cli_verify_table import verified_tables

    if "log" in asked.stages:
        yield from verified_log(asked, terminal)
    if "table" in asked.stages:
        yield from verified_tables(asked, terminal)
    if "index" in asked.stages:
        yield from verified_indexes(asked, terminal)


class _Terminal:
    """Bars and questions on standard error, where it is a terminal."""

    def __init__(self, *, yes: bool, force: bool) -> None:
        self._yes, self._force = yes, force

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """A listener for numbers of rows: a bar on a terminal, and nothing elsewhere."""
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        times = (TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, *times, console=console, disable=not console.is_terminal, transient=True) as bars:
            task = bars.add_task(title, total=total)
            yield lambda rows: bars.advance(task, rows)

    def ask(self, question: str) -> bool:
        """Whether the person says yes, now or on the command line."""
        return self._yes or typer.confirm(question, err=True)

    def sure(self, question: str) -> bool:
        """Whether the person insists, now or by `--force`; nobody does where there is no terminal."""
        return self._force or (sys.stdin.isatty() and typer.confirm(question, err=True))


def _report(said: Said, *, as_json: bool) -> None:
    _report_verdict(said.verdict, as_json=as_json)
    if said.repair:
        typer.echo(json.dumps({"kind": "repair", "done": said.repair}) if as_json else f"       {said.repair}")
    if said.repaired is not None:
        _report_verdict(said.repaired, as_json=as_json)


def _report_verdict(verdict: Verdict, *, as_json: bool) -> None:
    if as_json:
        for reported in (*(finding.to_json() for finding in verdict.findings), verdict.to_json()):
            typer.echo(json.dumps(reported))
    else:
        typer.echo("\n".join(lines_of(verdict)))
