"""Output of untrusted text in `tailorbird fleet`."""

from __future__ import annotations

import json

import pytest

from tailorbird.cli.fleet.cli_api import report
from tailorbird.cli.fleet.cli_fleet_look import _line


def test_no_one_writes_lines_of_audit_but_the_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    """A path that is asked for without a token, a reason of an agent's, a table's name: one line each, in which
    a line's end and a terminal's commands are seen, and do nothing.
    """
    said = "GET /v1/x\n2026-01-01T00:00:00 anna (10.0.0.1) source rm shop: done\x1b[1A\x1b[2K\u202e"
    reported = {
        "at_ms": 1000,
        "who": None,
        "from": "10.0.0.9",
        "what": said,
        "outcome": "refused",
        "why": "no such token",
    }
    report(reported, False, _line(reported))
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert printed.rstrip("\n").isprintable()
    assert r"\n2026-01-01T00:00:00 anna" in printed
    assert r"\x1b[2K\u202e: refused: no such token" in printed
    report(reported, True, "")
    assert json.loads(capsys.readouterr().out) == reported
