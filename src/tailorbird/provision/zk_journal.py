"""Store the journal of a topology's applies in ZooKeeper: a versioned node, and an ephemeral node as the lock."""

from __future__ import annotations

import contextlib

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from indexer.peer.zk_registration import ANSWER_SECONDS, answering

_ROOT = "/tailorbird/applies"


class StoredJournal:
    """The journal of one topology. Node `<root>/<topology>` has the entry, `<root>/<topology>/holder` is the lock."""

    def __init__(self, client: KazooClient, topology: str) -> None:
        self._client = client
        self._node = f"{_ROOT}/{topology}"
        self._holder = f"{self._node}/holder"

    def read(self) -> tuple[bytes, int] | None:
        """Return the stored entry and its version, or None. Every write before this call is visible."""
        with answering():
            self._client.sync_async(_ROOT).get(timeout=ANSWER_SECONDS)
            try:
                value, stat = self._client.get_async(self._node).get(timeout=ANSWER_SECONDS)
            except NoNodeError:
                return None
            return value, stat.version

    def put(self, value: bytes, version: int | None) -> int | None:
        """Write the entry if the stored one has `version` (None: there is none). Return the new version, or None."""
        with answering():
            try:
                if version is None:
                    self._client.create_async(self._node, value, makepath=True).get(timeout=ANSWER_SECONDS)
                    return 0
                stat = self._client.set_async(self._node, value, version=version).get(timeout=ANSWER_SECONDS)
            except (BadVersionError, NodeExistsError, NoNodeError):
                return None
            changed: int = stat.version
            return changed

    def held(self) -> bool:
        """Return whether a live session holds the lock."""
        with answering():
            return self._client.exists_async(self._holder).get(timeout=ANSWER_SECONDS) is not None

    def hold(self, token: str) -> None:
        """Take the lock for this session. Replaces the lock of a dead process whose session has not expired."""
        with answering():
            if self._holds(token):
                return
            with contextlib.suppress(NoNodeError):
                self._client.delete_async(self._holder).get(timeout=ANSWER_SECONDS)
            with contextlib.suppress(NodeExistsError):  # another apply was faster; comparing the entry decides
                made = self._client.create_async(self._holder, token.encode(), ephemeral=True)
                made.get(timeout=ANSWER_SECONDS)

    def let_go(self, token: str) -> None:
        """Release the lock. While ZooKeeper is unavailable, it ends with the session."""
        with contextlib.suppress(KazooException, KazooTimeoutError):
            if self._holds(token):
                self._client.delete_async(self._holder).get(timeout=ANSWER_SECONDS)

    def _holds(self, token: str) -> bool:
        """Return whether this apply has the lock in the current session."""
        try:
            value, stat = self._client.get_async(self._holder).get(timeout=ANSWER_SECONDS)
        except NoNodeError:
            return False
        session = self._client.client_id
        return value == token.encode() and session is not None and stat.ephemeralOwner == session[0]
