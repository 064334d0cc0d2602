"""`tailorbird stack mysql` splits its input into statements like MySQL's own client."""

from __future__ import annotations

import pytest

from tailorbird.devtools.stack.statements import Statements


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("SELECT 1; SELECT 2;\n", ["SELECT 1", "SELECT 2"]),
        ("SELECT\n 1\n;\n", ["SELECT\n 1"]),
        ("SELECT ';', \"a;''b\", `;`, 'it''s \\'; x';", ["SELECT ';', \"a;''b\", `;`, 'it''s \\'; x'"]),
        ("SELECT 'two\nlines;';", ["SELECT 'two\nlines;'"]),
        ("-- all; of it\n# this; too\n/* and; this\n; */ SELECT 1;", ["/* and; this\n; */ SELECT 1"]),
        ("/*!40101 SET NAMES utf8 */;\n", ["/*!40101 SET NAMES utf8 */"]),
        ("SELECT 1 - 1", ["SELECT 1 - 1"]),
        ("DELIMITER //\nCREATE TRIGGER x BEGIN a; b; END//\ndelimiter ;\nSELECT 1;", [
            "CREATE TRIGGER x BEGIN a; b; END", "SELECT 1"]),
        (";;\n ;", []),
        ("-- nothing\n", []),
    ],
)  # fmt: skip
def test_statements_end_where_they_end(text: str, parts: list[str]) -> None:
    """Delimiters within quotes and comments end nothing, `DELIMITER` is obeyed, a last statement needs none."""
    statements = Statements()
    found = [part for line in text.splitlines(keepends=True) for part in statements.take(line)]
    rest = statements.rest()
    assert [*found, *([rest] if rest else [])] == parts
    assert statements.rest() == ""
