"""Properties of the DDL parser: no text breaks it, it reports what it does not understand, and rewriting a statement's
spaces, comments and case does not change its meaning."""

from __future__ import annotations

import gzip
import json
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.ddl.catalog import Catalog
from ingest.ddl.dialect import Dialect
from ingest.ddl.lexer import words_of
from ingest.ddl.statements import apply

CASES = Path(__file__).parents[1] / "cases" / "ddl"
DIALECTS = [
    Dialect(server="mysql", version=90700),
    Dialect(server="mysql", version=50700, ansi_quotes=True),
    Dialect(server="mariadb", version=101100),
    Dialect(server="mariadb", version=110400, backslash_escapes=False),
]
_PIECES = """CREATE ALTER DROP RENAME TABLE TEMPORARY
IF NOT EXISTS LIKE SELECT FROM ADD MODIFY CHANGE COLUMN FIRST AFTER TO
CONVERT CHARACTER SET CHARSET COLLATE utf8_bin latin1 binary DEFAULT NULL PRIMARY KEY UNIQUE INDEX CONSTRAINT FOREIGN
REFERENCES CHECK GENERATED ALWAYS AS VIRTUAL COMMENT AUTO_INCREMENT SERIAL INT VARCHAR TEXT ENUM DECIMAL NATIONAL LONG
TIMESTAMP UNSIGNED ZEROFILL PARTITION BY HASH ENGINE = t u d . , , ( ) ( ) ; 'x' "y" `z` 1 10 0.5 -- # /* */ /*!
/*!50000
/*M! ' " ` \\ @ * + - USE DATABASE ORDER DEFINER VIEW USING SYSTEM VERSIONING PERIOD FOR ON UPDATE DELETE""".split()


@cache
def statements() -> list[str]:
    """Return real statements of both test servers."""
    found = []
    for path in sorted(CASES.glob("oracle_*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            found += [json.loads(line)["sql"] for line in lines]
    return sorted(set(found))


def catalog() -> Catalog:
    known = Catalog(default_charset="utf8mb4", databases={"d": "utf8mb4"})
    return apply(
        known, "CREATE TABLE t (x INT PRIMARY KEY, y TEXT, `z` ENUM('a'))", database="d", dialect=DIALECTS[0]
    ).catalog


def answers(sql: str) -> None:
    """Apply a statement in every dialect: expect a result, or an error with unknown tables; and a valid catalog."""
    before = catalog()
    for dialect in DIALECTS:
        applied = apply(before, sql, database="d", dialect=dialect)
        assert (applied.error is not None) or not applied.quarantined
        for name in applied.quarantined:
            assert name not in applied.catalog.tables
            assert name in applied.catalog.unknown
        if applied.error:
            assert not applied.changed
            assert not applied.gone
        for name, table in applied.changed.items():
            assert applied.catalog.tables[name] is table
            assert table.columns
            assert len({c.name.lower() for c in table.columns}) == len(table.columns)
            assert {c.lower() for c in table.primary_key} <= {c.name.lower() for c in table.columns} | {""}


@given(st.text(max_size=80))
@example("\ud800")
@example("\x00CREATE TABLE t")
@example("CREATE TABLE t (a INT(99999999999999999999999))")
@example("CREATE TABLE t (a VARCHAR(٣))")
@example("ALTER TABLE t ADD c INT(²)")
@settings(deadline=None)  # the machine may be busy
def test_any_text_has_an_answer_or_an_error(text: str) -> None:
    """No content of a log makes the parser fail."""
    answers(text)


@given(st.lists(st.sampled_from(_PIECES), max_size=25).map(" ".join))
@settings(max_examples=200, deadline=None)
def test_any_words_have_an_answer_or_an_error(text: str) -> None:
    """Words of DDL in any order do not make it fail."""
    answers("ALTER TABLE t " + text)
    answers("CREATE TABLE v (" + text)
    answers(text)


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_broken_statements_have_an_answer_or_an_error(data: st.DataObject) -> None:
    """Real statements that are cut, doubled, or incomplete do not make it fail."""
    sql = data.draw(st.sampled_from(statements()))
    start = data.draw(st.integers(0, len(sql)))
    end = data.draw(st.integers(start, min(len(sql), start + 12)))
    answers(sql[:start] + data.draw(st.sampled_from(["", " ", *_PIECES])) + sql[end:])


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_spaces_comments_and_case_mean_nothing(data: st.DataObject) -> None:
    """A statement with comments between its words and its keywords in another case creates the same tables."""
    sql = data.draw(st.sampled_from([s for s in statements() if s.upper().startswith("CREATE TABLE")]))
    dialect = DIALECTS[0]
    gap = data.draw(st.sampled_from([" /* ' */ ", "\n-- it's\n", "\t# `\n ", " /*!50000 */ "]))
    out = []
    for word in words_of(sql, dialect):
        text = word.text
        if word.kind == "name":
            text = "`" + text.replace("`", "``") + "`"
        elif word.kind == "string":
            text = "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
        out.append(("" if word.glued else gap) + text)
    before = Catalog(databases={"d": "utf8mb4"})
    plain = apply(before, sql, database="d", dialect=dialect)
    dressed = apply(before, "".join(out), database="d", dialect=dialect)
    assert plain.error == dressed.error or (plain.error and dressed.error)
    assert plain.changed == dressed.changed


@pytest.mark.long
def test_hostile_text_costs_no_more_than_its_length() -> None:
    """Unclosed quotes, deep brackets, endless comments are parsed in linear time and without recursion."""
    began = time.process_time()
    for sql in (
        "ALTER TABLE t ADD a INT DEFAULT '" + "x'" * 10_001 + "'",
        "CREATE TABLE t (a INT DEFAULT " + "(" * 20_000,
        "CREATE TABLE t (a INT CHECK (" + "(" * 10_000 + ")" * 10_000 + "))",
        "/*" * 20_000,
        "/*!" * 20_000 + "CREATE TABLE t (a INT)",
        "ALTER TABLE t " + "ADD a INT," * 5_000,
        "'" * 19_999,
        "\\" * 20_000,
        "CREATE TABLE t (a ENUM('" + "','".join(str(i) for i in range(10_000)) + "'))",
    ):
        apply(catalog(), sql, database="d", dialect=DIALECTS[0])
    assert time.process_time() - began < 10
