"""Names are folded as MySQL folds them, so that no spelling of a hidden column escapes its rule."""

from __future__ import annotations

import pytest

from cdc.model.filters import TableRule
from cdc.model.identifiers import fold_identifier

# Names of one column, and of two, to MySQL; tests/ingest/binlog/test_folded_names.py compares with a server.
SAME = [("email", "emaİl"), ("KILO", "\u212ailo"), ("ÅR", "år"), ("ΜΑΣ", "μασ"), ("Straße", "STRAßE"), ("Дом", "дОМ")]
DIFFERENT = [("pin", "pın"), ("mas", "maſ"), ("ΜΑΣ", "μας"), ("e", "é"), ("strasse", "straße")]


@pytest.mark.parametrize(("name", "other"), SAME)
def test_spellings_of_one_column_are_equal(name: str, other: str) -> None:
    assert fold_identifier(name) == fold_identifier(other)
    rule = TableRule(ignored_columns=(name,), masks={name: "redact"})
    assert (rule.leaves_out(other), rule.mask_of(other)) == (True, "redact")


@pytest.mark.parametrize(("name", "other"), DIFFERENT)
def test_names_of_two_columns_differ(name: str, other: str) -> None:
    assert fold_identifier(name) != fold_identifier(other)
    rule = TableRule(ignored_columns=(name,), masks={name: "redact"})
    assert (rule.leaves_out(other), rule.mask_of(other)) == (False, None)
