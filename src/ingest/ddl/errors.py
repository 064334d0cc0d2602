"""Why a statement could not be read: the reason, never a guess."""

from __future__ import annotations

from cdc.model.errors import Skippable

REMEDY = "the table is quarantined until its columns are known again: its next TABLE_MAP, or `tailorbird schema set`"


class DdlNotUnderstood(Skippable):
    """A statement that may change columns in a way that is not known; what it names is quarantined, the rest flows."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, REMEDY)
