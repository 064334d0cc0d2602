"""A case of the random databases: a readable list of statements, each with the session that runs it.

    # what went wrong
    server: mysql-8.0
    0: CREATE TABLE t (id INT PRIMARY KEY)
    1: XA START 'x'
    --- capture
    1: XA END 'x'
    --- kill

`--- capture` starts the capture there, `--- kill` lets its process die, `--- caught up` waits until it has caught up. A
statement is on one line; a line feed in it is written as `\\n`, a backslash as `\\\\`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

Mark = Literal["capture", "kill", "caught up"]
MARKS: tuple[Mark, ...] = ("capture", "kill", "caught up")


class Line(NamedTuple):
    """One statement and the session that runs it, or what happens to the capture (`mark`)."""

    session: int
    sql: str
    mark: Mark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Statements for one server; `why` describes the failure they show."""

    server: str
    lines: tuple[Line, ...]
    why: str = ""

    def without(self, gone: Iterable[int]) -> Case:
        """Return the case without some of its lines."""
        left = set(gone)
        return replace(self, lines=tuple(line for number, line in enumerate(self.lines) if number not in left))


def written(case: Case) -> str:
    """Return the text of a case's file; inverse of `read`."""
    why = "".join(f"# {line}\n" for line in case.why.splitlines())
    return f"{why}server: {case.server}\n" + "".join(_line(line) for line in case.lines)


def _line(line: Line) -> str:
    if line.mark is not None:
        return f"--- {line.mark}\n"
    sql = line.sql.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{line.session}: {sql}\n"


def read(text: str) -> Case:
    """Read the text of a case's file; raise ValueError if it is invalid."""
    why, server, lines = list[str](), "", list[Line]()
    for number, one in enumerate(text.split("\n"), 1):
        if one.startswith("#"):
            why.append(one[1:].strip())
        elif one.startswith("server: "):
            server = one.removeprefix("server: ").strip()
        elif one.startswith("--- "):
            found = [mark for mark in MARKS if one.removeprefix("--- ").strip() == mark]
            if not found:
                raise ValueError(f"line {number}: {one} is none of {', '.join(MARKS)}")
            lines.append(Line(0, "", found[0]))
        elif one.strip():
            session, _, sql = one.partition(": ")
            lines.append(Line(int(session), _unescaped(sql)))
    if not server:
        raise ValueError("the case names no server")
    return Case(server=server, lines=tuple(lines), why="\n".join(why))


def _unescaped(sql: str) -> str:
    meaning = {"n": "\n", "r": "\r", "\\": "\\"}
    parts, at = list[str](), 0
    while (found := sql.find("\\", at)) >= 0:
        parts += [sql[at:found], meaning[sql[found + 1]]]
        at = found + 2
    return "".join(parts) + sql[at:]
