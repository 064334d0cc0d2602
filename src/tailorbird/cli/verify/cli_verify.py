"""`tailorbird verify`: parse the request, run the stages, print the results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cdc.model.errors import TailorbirdError, UsageError
from cdc.process.file_topology import load_topology
from cdc.topology.roles import KafkaRole
from tailorbird.operate.status.hidden_values import HIDDEN
from tailorbird.operate.status.selection import MOST, cut
from tailorbird.verify.findings import Verdict, exit_code
from tailorbird.verify.request import STAGES, StageResult, parse_request
from tailorbird.verify.verdict_text import VerdictLines

_Load = Annotated[
    str, typer.Option(metavar="Threads_running=25", help="log: pause while a source has a higher load than this.")
]
_Threads = Annotated[int, typer.Option(min=1, max=16, help="log: parallel connections per source.")]
_Sample = Annotated[
    str, typer.Option(metavar="1/64", help="index: compare all versions, and the values of a sample, changing hourly.")
]
_Since = Annotated[
    str, typer.Option(metavar="CUT", help="log, index: only rows changed since `last`; log: or since a GTID set.")
]
_Limit = Annotated[int, typer.Option("--limit", min=1, help="Print at most this many tables of each outcome.")]
_INTERRUPTED = "interrupted: --resume continues the log stage"
_Force = Annotated[bool, typer.Option("--force", help="table: also delete extra rows of grouped tables.")]


def verify(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    stage: Annotated[
        list[str] | None, typer.Option("--stage", help=f"Only this stage, of: {', '.join(STAGES)}. May be repeated.")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", help="Only this joined table or source table. May be repeated.")
    ] = None,
    sample: _Sample = "",
    changed_since: _Since = "",
    resume: Annotated[bool, typer.Option("--resume", help="log: continue an interrupted comparison.")] = False,
    max_load: _Load = "",
    threads: _Threads = 2,
    deep: Annotated[bool, typer.Option("--all", "--deep", help="Compare every value (default).")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what differs, then compare it again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --repair: show what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --repair: do not ask for confirmation.")] = False,
    force: _Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")] = False,
    limit: _Limit = MOST,
    no_values: Annotated[bool, typer.Option("--no-values", help="Hide keys and values of rows that differ.")] = False,
) -> None:
    """Compare source, log, table and index row by row, while traffic flows.

    A row that changes during the comparison is compared again at a later cut. It is never reported as different for
    that reason. Only --repair writes. Exit code 0: equal; 1: something differs; 2: usage error; 3: something was not
    compared, for example because a server is unavailable.

    Example: tailorbird verify topologies/shop.yml --stage index --table orders_wide

    Example: tailorbird verify topologies/shop.yml --stage index --changed-since last
    """
    # imported here: logging and the clients of all servers slow down every other command
    from cdc.process.kafka_grants import granted
    from cdc.process.proc_log_lines import log_lines
    from tailorbird.verify.run_stages import verify_stages

    results, terminal = list[StageResult](), _Terminal(yes=yes, force=force)
    lines = None if as_json else VerdictLines(limit)
    try:
        _check_options(deep, sample, changed_since, repair and not dry_run, yes)
        log_lines("logfmt")  # on standard error: standard output is for the results
        role: KafkaRole = "operator" if repair and not dry_run else "console"
        topology = granted(load_topology(file, role), role)
        request = parse_request(
            topology, stage, table, sample=sample, since=changed_since, resume=resume, max_load=max_load,
            threads=threads, repair=repair, dry_run=dry_run,
        )  # fmt: skip
        for one in verify_stages(request, terminal):
            results.append(one)
            _report(one, lines, no_values)
        if not results:
            raise UsageError(f"{file}: nothing to compare", "tables in HBase with an index over them")
    except (TailorbirdError, KeyboardInterrupt) as error:
        typer.echo("".join(f"{line}\n" for line in lines.totals()) if lines else "", nl=False)
        code = exit_code((one.last for one in results), error)
        typer.echo(f"tailorbird: {cut(str(error) or _INTERRUPTED)}", err=True)
        raise typer.Exit(code) from error
    typer.echo("".join(f"{line}\n" for line in lines.totals()) if lines else "", nl=False)
    raise typer.Exit(exit_code(one.last for one in results))


def _check_options(deep: bool, sample: str, since: str, writes: bool, yes: bool) -> None:
    if deep and (sample or since):
        option = "--sample" if sample else "--changed-since"
        raise UsageError(f"{option} and --all exclude one another", "choose one")
    if writes and not yes and not sys.stdin.isatty():
        raise UsageError("--repair writes, and there is no terminal to ask for confirmation", "add --yes or --dry-run")


class _Terminal:
    """Shows progress bars and asks questions on standard error."""

    def __init__(self, *, yes: bool, force: bool) -> None:
        self._yes, self._force = yes, force

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Context manager: yield a function that takes numbers of processed rows. A terminal shows a progress bar."""
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        times = (TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, *times, console=console, disable=not console.is_terminal, transient=True) as bars:
            task = bars.add_task(title, total=total)
            yield lambda rows: bars.advance(task, rows)

    def notify(self, text: str) -> None:
        """Print a line."""
        typer.echo(text, err=True)

    def ask(self, question: str) -> bool:
        """Return whether the user confirms. `--yes` confirms without asking."""
        return self._yes or typer.confirm(question, err=True)

    def sure(self, question: str) -> bool:
        """Return whether the user confirms. `--force` confirms without asking; without a terminal the answer is no."""
        return self._force or (sys.stdin.isatty() and typer.confirm(question, err=True))


def _report(result: StageResult, lines: VerdictLines | None, no_values: bool) -> None:
    """Print a result as text with `lines`, or as JSON; with `no_values`, only the names of keys and columns of rows."""
    shown = _without_values if no_values else lambda verdict: verdict
    _report_verdict(shown(result.verdict), lines)
    if result.repair:
        typer.echo(f"       {result.repair}" if lines else json.dumps({"kind": "repair", "done": result.repair}))
    if result.repaired is not None:
        _report_verdict(shown(result.repaired), lines)


def _without_values(verdict: Verdict) -> Verdict:
    return replace(
        verdict,
        findings=tuple(
            replace(one, key=dict.fromkeys(one.key, HIDDEN), columns=dict.fromkeys(one.columns, (HIDDEN, HIDDEN)))
            for one in verdict.findings
        ),
    )


def _report_verdict(verdict: Verdict, lines: VerdictLines | None) -> None:
    if lines is not None:
        for line in lines.add(verdict):
            typer.echo(line)
        return
    for reported in (*(finding.to_json() for finding in verdict.findings), verdict.to_json()):
        typer.echo(json.dumps(reported))
