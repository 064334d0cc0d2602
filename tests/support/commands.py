"""Run `tailorbird` in the test's own process.

A new process would load the servers' clients again, which takes two seconds of CPU, longer than most commands do.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess
from typing import Any
from unittest.mock import patch

from tailorbird.__main__ import main


def tailorbird(*words: str, environ: Mapping[str, str] | None = None, given: str = "") -> CompletedProcess[str]:
    """Return the output of a command and its exit code; `environ` is added to the environment while it runs, `given`
    is its standard input."""
    code: object = 0
    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with (
        patch.object(sys, "argv", ["tailorbird", *words]),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode()), encoding="utf-8")),
        patch.dict(os.environ, environ or {}),
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    assert isinstance(code, int), code
    return CompletedProcess(words, code, _written(output), _written(errors))


def objects(*words: str, environ: Mapping[str, str] | None = None) -> tuple[int, list[dict[str, Any]], str]:
    """Return the exit code of a command with --json, the objects that it printed, and its errors."""
    done = tailorbird(*words, "--json", environ=environ)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, [json.loads(one) for one in done.stdout.splitlines() if one[:1] == "{"], done.stderr


def verified(file: str, *words: str, environ: Mapping[str, str] | None = None) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the verdicts of `verify`, by stage and table."""
    _, said, errors = objects("verify", file, *words, environ=environ)
    found = {(one["stage"], one["table"]): one for one in said if one["kind"] == "verdict"}
    assert found, errors
    return found


def _written(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
