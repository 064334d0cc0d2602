"""The steps that rebuild a collection and replace the one that queries see.

    prepare: create a new collection, which the live feed fills from now on, like the old one
    (scan: fill it with the existing rows, see indexer.rebuild.rebuild)
    swap: exchange the names; the old collection is kept and fed, so that `rollback` loses nothing
    finish: drop the old one

If kill -9 interrupts a step, the next call completes it. Servers are accessed through protocols."""

from __future__ import annotations

from pathlib import PurePath
from typing import Protocol

from cdc.model.errors import UsageError
from indexer.rebuild.rebuild import StateStore
from indexer.rebuild.targets import Targets, TargetStore


class CollectionAdmin(Protocol):
    """Creates and swaps collections (tailorbird.provision.solr_admin).

    - `identity` returns the physical collection of a name.
    - `swap` makes the name `live` refer to the collection of `other`.
    - `standby_name` returns the name that the former live collection will have after the swap. Call it before the
      swap."""

    def exists(self, collection: str) -> bool: ...
    def create(self, collection: str, *, shards: int = 1) -> None: ...
    def remove(self, collection: str) -> None: ...
    def identity(self, collection: str) -> str: ...
    def standby_name(self, live: str, other: str) -> str: ...
    def swap(self, live: str, other: str) -> None: ...


class Reindex:
    """Runs the steps for one index. `live` is the collection name that queries use, `shards` the number of shards of
    a new collection. The caller holds the lock of `state`."""

    def __init__(
        self, targets: TargetStore, state: StateStore, admin: CollectionAdmin, *, live: str, shards: int = 1
    ) -> None:
        self._targets, self._state, self._admin, self._live, self._shards = targets, state, admin, live, shards

    def prepare(self) -> str:
        """Create the new collection and let the live feed fill it too. Return its name.

        If an interrupted rebuild has created a collection, that one is used again. Raises UsageError while the live
        collection itself is still being filled."""
        self.settle()
        stored = self._state.read()
        if stored is not None and stored["collection"] == self._live:
            raise UsageError(f"{self._live} is still being filled", "run `tailorbird apply` to its end first")
        if stored is None:
            self.finish()
            new = self._new_name()
            if self._admin.exists(new):  # of an attempt that was interrupted before it was recorded
                self._admin.remove(new)
            self._admin.create(new, shards=self._shards)
            self._state.write({"collection": new, "buckets": {}})
        else:
            new = stored["collection"]
        before = self._targets.read()
        if new not in before.collections:
            self._targets.write(Targets(epoch=before.epoch + 1, collections=(self._live, new)))
        return new

    def _new_name(self) -> str:
        """Return a name for a new collection.

        After a loss of ZooKeeper the epochs begin again, and a former name may be that of
        the collection that serves."""
        epoch, serving = self._targets.read().epoch + 1, PurePath(self._admin.identity(self._live)).name
        while serving == f"{self._live}_r{epoch}":
            epoch += 1
        return f"{self._live}_r{epoch}"

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
        """Restore what queries saw before the last swap, or cancel a running rebuild. Return what was done.

        Raises UsageError if there is nothing to roll back to."""
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
        """Complete a swap that was interrupted. Return whether there was one.

        The epoch of the targets is increased before the swap and after it, and nothing is posted in between. So no
        batch that started before the swap is acknowledged after it."""
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
