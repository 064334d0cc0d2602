"""Find a row of a joined table by the values of its key: the common part of the stores' readers."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping

from cdc.model.errors import UsageError
from cdc.model.types import Canonical
from cdc.stored.cells import RowCodec
from cdc.stored.layout import Layout
from tailorbird.verify.explain.explanation import TracedRow


class TracedRows(ABC):
    """Reads rows of one joined table with their traces. `layout` is the newest one."""

    name: str
    layout: Layout

    def row(self, key: Mapping[str, Canonical]) -> TracedRow | None:
        """Return the row with this key, or None. Raises UsageError for an invalid key."""
        try:
            row_key = RowCodec(self.layout).row_key(key)
        except (ValueError, TypeError, AttributeError, struct.error) as error:
            what = f"{dict(key)} is not a key of {self.name}: {error}"
            raise UsageError(what, "give the values of its row_key columns") from error
        return self.row_at(row_key)

    @abstractmethod
    def row_at(self, row_key: bytes) -> TracedRow | None:
        """Return the row at a row key, which includes the salt byte, or None."""
