"""Compare names of columns, tables and databases as MySQL and MariaDB compare them."""

from __future__ import annotations

from cdc.model.schema import TableId


def fold_identifier(name: str) -> str:
    """Return the lower-case form under which MySQL looks up a column, index or folded table name.

    MySQL lowers each character by itself, with the tables of `utf8mb3_general_ci`. Unlike `str.lower`, it lowers
    `İ` (U+0130) to `i`, and `Σ` to `σ` at the end of a word, too. So `emaİl` names the column `email`. Python also
    lowers letters that Unicode added after version 3.1, which MySQL leaves as they are. Names that differ only in the
    case of such a letter are equal here: a rule hides both columns.
    """
    if name.isascii():
        return name.lower()
    return "".join("i" if letter == "İ" else letter.lower() for letter in name)


def fold_table(table: TableId) -> tuple[str, str]:
    """Return a table's database and name as a server with `lower_case_table_names` folds them."""
    return fold_identifier(table.database), fold_identifier(table.table)
