"""`tailorbird checks`: run comparisons of `verify` on the topology's schedule."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tailorbird.cli.serve.metrics_port import MetricsPort

if TYPE_CHECKING:
    from cdc.topology.topology import Check
    from tailorbird.verify.checks.runs import CheckResult
    from tailorbird.verify.findings import Verdict


def checks(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    once: Annotated[bool, typer.Option("--once", help="Run each check once, now, and exit.")] = False,
    metrics_port: MetricsPort = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a run, for programs.")] = False,
) -> None:
    """Run the `checks:` of a topology when they are due.

    `tailorbird run` includes this command. The results go to the topic `<topology>.checks`; `status`, the dashboard and
    the next start read them from there. Exit code with --once as for verify: 0: all equal; 1: something differs; 3:
    something was not compared.

    Example: tailorbird checks topologies/shop.yml --once
    """
    # imported here: the clients of all servers take half a second
    from cdc.process.file_topology import load_topology
    from cdc.process.proc_log_lines import log_lines
    from tailorbird.verify.checks.check_status import found_text
    from tailorbird.verify.checks.run_checks import run_checks
    from tailorbird.verify.checks.runs import CheckRun
    from tailorbird.verify.findings import DIFFERENT, EQUAL, UNLOGGED
    from tailorbird.verify.request import LAST, SilentTerminal, parse_request
    from tailorbird.verify.run_stages import verify_stages

    topology = load_topology(file)
    log_lines("logfmt")

    def compare(check: Check, turn: int) -> Iterable[CheckResult]:
        stages = [check.stage] if check.stage else None
        sample, since = ("", LAST) if check.changed else (f"1/{check.sample}", "")
        request = parse_request(topology, stages, list(check.tables) or None, sample=sample, since=since)
        return (_checked(one.verdict) for one in verify_stages(replace(request, turn=turn), SilentTerminal()))

    last: dict[str, CheckRun] = {}
    for run in run_checks(topology, compare, once=once, metrics_port=metrics_port):
        last[run.check] = run
        if as_json:
            typer.echo(json.dumps({"kind": "check", "outcome": run.outcome, **run.to_json()}))
            continue
        lines = [found_text(one, run.ended_ms) for one in run.checked]
        lines += [f"not compared: {run.error}"] if run.error else []
        typer.echo("\n".join(f"{run.check}: {line}" for line in lines or ["there was nothing to compare"]))
    outcomes = {run.outcome for run in last.values()}
    raise typer.Exit(DIFFERENT if "different" in outcomes else EQUAL if outcomes == {"equal"} else UNLOGGED)


def _checked(verdict: Verdict) -> CheckResult:
    """Convert a verdict of `verify` to the form that the checks topic stores."""
    from tailorbird.verify.checks.runs import MOST_FINDINGS, CheckResult, shortened

    return CheckResult(
        stage=verdict.stage,
        table=verdict.table,
        outcome=verdict.outcome,
        rows=verdict.rows,
        differing=verdict.differing,
        moving=verdict.moving,
        cut=verdict.cut,
        at_ms=time.time_ns() // 1_000_000,
        seconds=round(verdict.seconds, 3),
        unknown=(*verdict.unknown, *(f"not compared: {name}: {why}" for name, why in verdict.uncompared.items())),
        until=verdict.until,
        findings=tuple(shortened(finding.to_json()) for finding in verdict.findings[:MOST_FINDINGS]),
    )
