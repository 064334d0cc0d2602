"""Shrink the statements of a failure to fewer tables, statements and rows that still reproduce it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from tests.databases.cases import Case, Line


def shrunk(case: Case, fails: Callable[[Case], bool], seconds: float = 90) -> Case:
    """Return the smallest case found within so many seconds for which `fails` is true; it must be true of the case
    itself.

    Halves of the lines are removed, then quarters, down to single lines; then rows of an INSERT.
    """
    deadline = time.monotonic() + seconds
    part = max(1, len(case.lines) // 2)
    while time.monotonic() < deadline:
        at, smaller = 0, False
        while at < len(case.lines) and time.monotonic() < deadline:
            gone = [n for n in range(at, min(at + part, len(case.lines))) if case.lines[n].mark != "capture"]
            fewer = case.without(gone)
            if gone and fails(fewer):
                case, smaller = fewer, True
            else:
                at += part
        if part == 1 and not smaller:
            break
        part = max(1, part // 2) if not smaller or part > 1 else 1
    return _fewer_rows(case, fails, deadline)


def _fewer_rows(case: Case, fails: Callable[[Case], bool], deadline: float) -> Case:
    for number, line in enumerate(case.lines):
        head, values, rows = line.sql.partition(" VALUES ")
        parts = rows.split("), (")
        if not values or len(parts) < 2 or time.monotonic() > deadline:
            continue
        for kept in range(len(parts)):
            row = parts[kept].removeprefix("(").removesuffix(")")
            one = Line(line.session, f"{head} VALUES ({row})")
            fewer = replace(case, lines=(*case.lines[:number], one, *case.lines[number + 1 :]))
            if fails(fewer):
                case = fewer
                break
    return case
