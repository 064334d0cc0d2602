"""Order of steps in which a collection is rebuilt and replaces the one that queries see.

    prepare: a new collection, fed from now on together with the live one
    (scan: indexer.rebuild.rebuild)
    swap: the names are exchanged; the old collection is kept and fed, so that `rollback` loses nothing
    finish: the old one is dropped

If kill -9 interrupts a step, the next call completes it. Servers are accessed through protocols.
"""

from __future__ import annotations

from typing import Protocol

from cdc.model.errors import UsageError
from indexer.rebuild.rebuild import StateStore
from indexer.rebuild.targets import Targets, TargetStore


class CollectionAdmin(Protocol):
    """Creates and swaps collections (tailorbird.provision.solr_admin). `identity` returns the collection to which a
    name currently leads.

    `swap` makes `live` lead to the collection of `other`. `standby_name` is the name of the former live one after the
    swap; it is called before the swap.
    """

    def exists(self, collection: str) -> bool: ...
    def create(self, collection: str) -> None: ...
    def remove(self, collection: str) -> None: ...
    def identity(self, collection: str) -> str: ...
    def standby_name(self, live: str, other: str) -> str: ...
    def swap(self, live: str, other: str) -> None: ...


class Reindex:
    """The steps for one index; `live` is the name that queries use. The caller holds the lock of `state`."""

    def __init__(self, targets: TargetStore, state: StateStore, admin: CollectionAdmin, *, live: str) -> None:
        self._targets, self._state, self._admin, self._live = targets, state, admin, live

    def prepare(self) -> str:
        """Return the new collection, which is created and fed by every batch answered from now on; or that of an
        interrupted rebuild."""
        self.settle()
        stored = self._state.read()
        if stored is not None and stored["collection"] == self._live:
            raise UsageError(f"{self._live} is still being filled", "run `tailorbird apply` to its end first")
        if stored is None:
            self.finish()
            epoch = self._targets.read().epoch + 1
            new = f"{self._live}_r{epoch}"
            if self._admin.exists(new):  # of an attempt that was interrupted before it was recorded
                self._admin.remove(new)
            self._admin.create(new)
            self._state.write({"collection": new, "buckets": {}})
        else:
            new = stored["collection"]
        before = self._targets.read()
        if new not in before.collections:
            self._targets.write(Targets(epoch=before.epoch + 1, collections=(self._live, new)))
        return new

    def swap(self, new: str) -> str:
        """Make the new collection visible to queries. Return the name of the old one, which continues to be fed."""
        standby = self._admin.standby_name(self._live, new)
        self._state.write(
            {
                "collection": new,
                "buckets": {},
                "swap": {"identity": self._admin.identity(new), "standby": standby, "with": new},
            }
        )
        self.settle()
        return standby

    def rollback(self) -> str:
        """Restore what queries saw before the last swap, or cancel a running rebuild. Return what was done."""
        self.settle()
        stored = self._state.read()
        if stored is not None and stored["collection"] != self._live:
            new = stored["collection"]
            self._drop(new)
            self._state.clear()
            return f"cancelled the rebuild in {new}"
        standby = self._standby()
        if standby is None:
            raise UsageError(
                f"cannot roll back: {self._live} has no former collection",
                "`--finish` has dropped it, or there was none",
            )
        self.swap(standby)
        return f"{self._live} is restored to its state before the last reindex"

    def finish(self) -> str | None:
        """Drop the former collection. Return its name, or None if there was none."""
        self.settle()
        if (standby := self._standby()) is not None and self._state.read() is None:
            self._drop(standby)
            return standby
        return None

    def _standby(self) -> str | None:
        return next((name for name in self._targets.read().collections if name != self._live), None)

    def _drop(self, collection: str) -> None:
        before = self._targets.read()
        kept = tuple(name for name in before.collections if name != collection)
        self._targets.write(Targets(epoch=before.epoch + 1, collections=kept))
        if self._admin.exists(collection):
            self._admin.remove(collection)

    def settle(self) -> bool:
        """Complete an interrupted swap. Return whether there was one.

        Nothing is posted between the two epochs. No batch is answered that started before the first and ended after it.
        """
        stored = self._state.read()
        if stored is None or "swap" not in stored:
            return False
        swap = stored["swap"]
        before = self._targets.read()
        self._targets.write(Targets(epoch=before.epoch + 1, collections=before.collections, changing=True))
        if self._admin.identity(self._live) != swap["identity"]:
            self._admin.swap(self._live, swap["with"])
        self._targets.write(Targets(epoch=before.epoch + 2, collections=(self._live, swap["standby"])))
        self._state.clear()
        return True
