"""The order in which a collection is rebuilt and put in the place of the one that queries see.

    prepare: a new collection, fed from now on beside the live one
    (scan: indexer.rebuild.rebuild)
    swap: the names change places; the old collection is kept, and kept fed, so that `rollback` loses nothing
    finish: the old one is dropped

Each step may be cut off by kill -9 and is done to its end by the next call. Pure: servers are behind the protocols.
"""

from __future__ import annotations

from typing import Protocol

from cdc.model.errors import UsageError
from indexer.rebuild.rebuild import StateStore
from indexer.rebuild.targets import Targets, TargetStore


class CollectionAdmin(Protocol):
    """Makes and swaps collections (tailorbird.provision.solr_admin). `identity` tells which collection a name leads to
    now.

    `swap` makes `live` lead to what `other` led to; `standby_name` is what the former live one is called afterwards,
    asked before the swap.
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
        """The new collection, made, and fed by every batch answered from now on; or that of a rebuild cut off."""
        self.settle()
        stored = self._state.read()
        if stored is not None and stored["collection"] == self._live:
            raise UsageError(f"{self._live} is still being filled", "run `tailorbird apply` to its end first")
        if stored is None:
            self.finish()
            epoch = self._targets.read().epoch + 1
            new = f"{self._live}_r{epoch}"
            if self._admin.exists(new):  # of an attempt that was cut off before it was noted
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
        """Queries see the new collection from now on; the name of the old one, which stays fed."""
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
        """Queries see again what they saw before the last swap, or a rebuild under way is given up; what was done."""
        self.settle()
        stored = self._state.read()
        if stored is not None and stored["collection"] != self._live:
            new = stored["collection"]
            self._drop(new)
            self._state.clear()
            return f"gave up the rebuild in {new}"
        standby = self._standby()
        if standby is None:
            raise UsageError(f"nothing to go back to: {self._live} has no former collection", "it was finished")
        self.swap(standby)
        return f"{self._live} is again what it was before the last reindex"

    def finish(self) -> str | None:
        """Drop what was kept to go back to; its name, None when there was nothing."""
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
        """Do a swap that was begun to its end; whether there was one.

        Nothing is posted between the two epochs, nor is a batch answered that began before the first and ended behind
        it.
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
