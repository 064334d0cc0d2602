"""`tailorbird ddl`: the protocol that other projects' tests use."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from tailorbird.cli.app import app


def ask(*lines: object, raw: bytes = b"") -> list[dict[str, Any]]:
    """Return the answers to requests, and to raw bytes after them."""
    text = "".join(json.dumps(line) + "\n" for line in lines).encode() + raw
    result = CliRunner().invoke(app, ["ddl"], input=text)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_answers_have_the_documented_format() -> None:
    """A reset has no answer; each statement has one, with the columns of changed tables and the names of dropped
    ones."""
    answers = ask(
        {"reset": True, "dialect": "mariadb", "db": "d", "charset": "latin1"},
        {"id": 7, "sql": "CREATE TABLE t (col INT UNSIGNED, `ü` TEXT NOT NULL)"},
        {"id": 8, "sql": "RENAME TABLE t TO d.u"},
        {"id": 9, "sql": "SELECT 1"},
        {"id": "x", "sql": "ALTER TABLE u FROBNICATE"},
        {"reset": True, "dialect": "mysql", "db": "e", "charset": "utf8mb4"},
        {"id": 10, "sql": "CREATE TABLE u (a INT(11), b CHAR)"},
        {"id": 11, "sql": "USE x"},
        {"id": 12, "sql": 'CREATE TABLE "q" ("a\\" INT)', "sql_mode": "ANSI_QUOTES"},
    )
    columns = [["col", "int(10) unsigned", True, None], ["ü", "text", False, "latin1"]]
    assert answers[:3] == [
        {"id": 7, "tables": {"d.t": columns}, "gone": []},
        {"id": 8, "tables": {"d.u": columns}, "gone": ["d.t"]},
        {"id": 9, "tables": {}, "gone": []},
    ]
    assert answers[3]["id"] == "x"
    assert set(answers[3]) == {"id", "error"}
    assert answers[4:] == [
        {"id": 10, "tables": {"e.u": [["a", "int", True, None], ["b", "char(1)", True, "utf8mb4"]]}, "gone": []},
        {"id": 11, "tables": {}, "gone": []},
        {"id": 12, "tables": {"x.q": [["a\\", "int", True, None]]}, "gone": []},
    ]


def test_an_invalid_line_does_not_stop_it() -> None:
    """Invalid lines are answered with an error, and the next ones as usual."""
    answers = ask({"id": 1}, [], {"id": 2, "sql": "\ud800`"}, raw=b'\xff\xfe\n{"id": 3, "sql": "BEGIN"}\n\n{"id": 4')
    assert ["error" in answer for answer in answers] == [True, True, True, True, False, True]
    assert answers[4] == {"id": 3, "tables": {}, "gone": []}


def test_a_reset_to_an_unknown_server_is_refused() -> None:
    """An unknown dialect or character set is a usage error: it exits with 2 instead of using another one."""
    for wrong in ({"dialect": "oracle"}, {"dialect": "mysql", "charset": "klingon"}):
        result = CliRunner().invoke(app, ["ddl"], input=json.dumps({"reset": True, **wrong}))
        assert getattr(result.exception, "exit_code", None) == 2
