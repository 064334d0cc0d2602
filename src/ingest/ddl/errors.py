"""Error for statements that could not be parsed: it states the reason, never a guess."""

from __future__ import annotations

from cdc.model.errors import Skippable

REMEDY = "the table is quarantined until its columns are known again: its next TABLE_MAP, or `tailorbird schema set`"


class DdlNotUnderstood(Skippable):
    """A statement that may change columns in an unknown way.

    The tables that it names are quarantined; others continue.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason, REMEDY)
