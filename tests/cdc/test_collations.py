"""Differences that collations ignore, by their names."""

from __future__ import annotations

import pytest

from cdc.model.collations import Fold, exact_collation, folds, listed

ALL: tuple[Fold, ...] = ("case", "accents", "trailing spaces")


@pytest.mark.parametrize(
    ("collation", "wanted"),
    [
        (None, ()),
        ("binary", ()),
        ("utf8mb4_bin", ("trailing spaces",)),
        ("utf8mb4_0900_bin", ()),
        ("utf8mb4_0900_ai_ci", ("case", "accents")),
        ("utf8mb4_0900_as_ci", ("case",)),
        ("utf8mb4_0900_as_cs", ()),
        ("utf8mb4_de_pb_0900_ai_ci", ("case", "accents")),
        ("utf8mb4_ja_0900_as_cs_ks", ()),
        ("utf8mb4_general_ci", ALL),
        ("utf8mb4_unicode_520_ci", ALL),
        ("UTF8_GENERAL_CI", ALL),
        ("latin1_swedish_ci", ALL),
        ("latin1_general_cs", ("trailing spaces",)),
        ("utf8mb4_general_nopad_ci", ("case", "accents")),
        ("utf8mb4_nopad_bin", ()),
        ("uca1400_ai_ci", ALL),
        ("utf8mb4_uca1400_nopad_as_ci", ("case",)),
    ],
)
def test_a_collations_name_reports_what_it_folds(collation: str | None, wanted: tuple[Fold, ...]) -> None:
    """A collation's name shows whether it ignores case, accents and trailing spaces, in MySQL and MariaDB."""
    assert folds(collation) == wanted


def test_it_is_reported_in_words_with_its_remedy() -> None:
    """The differences have a readable text, and the exact collation is named as the remedy."""
    assert [listed(ALL[:n]) for n in (1, 2, 3)] == ["case", "case and accents", "case, accents and trailing spaces"]
    assert exact_collation("utf8mb4_0900_ai_ci") == "utf8mb4_0900_bin"
    assert exact_collation("latin1_swedish_ci") == "latin1_bin"
    assert exact_collation("uca1400_ai_ci") == "utf8mb4_bin"
