"""Move the collection name that queries use from one index to another, when a new version of a table goes live.

Each index has its own replication peer, and both continue to be fed. So a rollback is one more move in the other
direction. If kill -9 interrupts a move, the next call completes it. Servers are accessed through protocols."""

from __future__ import annotations

from cdc.model.errors import UsageError
from indexer.rebuild.rebuild import StateStore
from indexer.rebuild.reindex import CollectionAdmin
from indexer.rebuild.targets import Targets, TargetStore


class NameMove:
    """Moves the name `live`, which queries use, from the index of `old` to the index of `new`.

    `old` and `new` store the target collections of the two indexes. The caller holds the rebuild locks of both."""

    def __init__(
        self, old: TargetStore, new: TargetStore, state: StateStore, admin: CollectionAdmin, *, live: str
    ) -> None:
        self._old, self._new, self._state, self._admin, self._live = old, new, state, admin, live

    def run(self) -> str:
        """Move the name. Return the new name of the collection that had it. Store that name, then call `done`.

        Raises UsageError while either index is being rebuilt, or still keeps a former collection."""
        moving = self._state.read()
        if moving is None:
            old, new = self._old.read(), self._new.read()
            if len(old.collections) > 1 or len(new.collections) > 1:
                kept = ", ".join(one for targets in (old, new) for one in targets.collections[1:])
                raise UsageError(f"a rebuild has kept {kept}", "`tailorbird index reindex … --finish` first")
            (candidate,) = new.collections
            moving = {
                "identity": self._admin.identity(candidate),
                "standby": self._admin.standby_name(self._live, candidate),
                "with": candidate,
            }
            self._state.write(moving)
        # nothing is posted while a name is about to change its meaning
        for store in (self._old, self._new):
            before = store.read()
            store.write(Targets(epoch=before.epoch + 1, collections=before.collections, changing=True))
        if self._admin.identity(self._live) != moving["identity"]:
            self._admin.swap(self._live, moving["with"])
        standby: str = moving["standby"]
        for store, name in ((self._old, standby), (self._new, self._live)):
            store.write(Targets(epoch=store.read().epoch + 1, collections=(name,)))
        return standby

    def done(self) -> None:
        """Delete the record of the move. Until then, the next `run` would complete this move again."""
        self._state.clear()
