"""A query's name moves from the index of one version of a table to that of another, each fed by a peer of its own.

Both indexes go on being fed, under the names that their collections have then, so that the way back is one more move.
Cut off by kill -9 anywhere, the next call does it to its end. Pure: servers are behind the protocols.
"""

from __future__ import annotations

from cdc.model.errors import UsageError
from indexer.rebuild.rebuild import StateStore
from indexer.rebuild.reindex import CollectionAdmin
from indexer.rebuild.targets import Targets, TargetStore


class NameMove:
    """`live` is the name that queries use; `old` are the targets of the index that has it, `new` of that which gets it.

    The caller holds the locks of both.
    """

    def __init__(
        self, old: TargetStore, new: TargetStore, state: StateStore, admin: CollectionAdmin, *, live: str
    ) -> None:
        self._old, self._new, self._state, self._admin, self._live = old, new, state, admin, live

    def run(self) -> str:
        """Move it; what the former collection is called from now on. `done` must follow once that is noted.

        UsageError while either is being rebuilt, or keeps a former collection.
        """
        moving = self._state.read()
        if moving is None:
            old, new = self._old.read(), self._new.read()
            if len(old.collections) > 1 or len(new.collections) > 1:
                kept = ", ".join(one for targets in (old, new) for one in targets.collections[1:])
                raise UsageError(f"a rebuild has left {kept}", "`tailorbird index reindex … --finish` first")
            (candidate,) = new.collections
            moving = {
                "identity": self._admin.identity(candidate),
                "standby": self._admin.standby_name(self._live, candidate),
                "with": candidate,
            }
            self._state.write(moving)
        # nothing is posted while a name is about to mean another collection
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
        """Whoever starts later knows of the move."""
        self._state.clear()
