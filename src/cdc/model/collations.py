"""Differences between texts (case, accents, trailing spaces) that a MySQL or MariaDB collation ignores, by its name."""

from __future__ import annotations

from typing import Literal

Fold = Literal["case", "accents", "trailing spaces"]


def folds(collation: str | None) -> tuple[Fold, ...]:
    """Return the differences between texts that the collation ignores; empty for None and `binary`.

    A name without an accent suffix ignores accents if it ignores case.
    """
    parts = (collation or "binary").lower().split("_")
    if parts == ["binary"]:
        return ()
    found: list[Fold] = []
    if "bin" not in parts:
        if "ci" in parts:
            found.append("case")
        if "ai" in parts or ("ci" in parts and "as" not in parts):
            found.append("accents")
    if "0900" not in parts and "nopad" not in parts:
        found.append("trailing spaces")
    return tuple(found)


def listed(found: tuple[Fold, ...]) -> str:
    """Join differences into a text for people: `case, accents and trailing spaces`."""
    *most, last = found
    return f"{', '.join(most)} and {last}" if most else last


def exact_collation(collation: str) -> str:
    """Return the collation of the same character set that compares texts by code points (`utf8mb4_bin` for
    `utf8mb4_…`)."""
    charset = collation.lower().partition("_")[0]
    if charset == "uca1400":  # MariaDB's, which is valid for several character sets
        charset = "utf8mb4"
    return "utf8mb4_0900_bin" if charset == "utf8mb4" and "_0900_" in collation else f"{charset}_bin"
