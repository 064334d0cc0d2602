"""Error for a statement that the parser does not understand. The parser never guesses."""

from __future__ import annotations

from cdc.model.errors import Skippable

REMEDY = "the table is quarantined until its columns are known again: its next TABLE_MAP, or `tailorbird schema set`"


class DdlNotUnderstood(Skippable):
    """Raised for a statement that may change columns in an unknown way, with the reason.

    The tables that it names go to quarantine; other tables are not affected.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason, REMEDY)
