"""Store the journal of a topology's applies in ZooKeeper: a versioned node, and an ephemeral node of the holder."""

from __future__ import annotations

import contextlib

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from indexer.peer.zk_registration import ANSWER_SECONDS, answering

_ROOT = "/tailorbird/applies"


class StoredJournal:
    """Node `<root>/<topology>` has the entry. `<root>/<topology>/holder` exists while a session holds the topology."""

    def __init__(self, client: KazooClient, topology: str) -> None:
        self._client = client
        self._node = f"{_ROOT}/{topology}"
        self._holder = f"{self._node}/holder"

    def read(self) -> tuple[bytes, int] | None:
        """See `JournalPlace`. Returns at least the last write before this call."""
        with answering():
            self._client.sync_async(_ROOT).get(timeout=ANSWER_SECONDS)
            try:
                value, stat = self._client.get_async(self._node).get(timeout=ANSWER_SECONDS)
            except NoNodeError:
                return None
            return value, stat.version

    def put(self, value: bytes, version: int | None) -> int | None:
        """See `JournalPlace`."""
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
        """See `JournalPlace`."""
        with answering():
            return self._client.exists_async(self._holder).get(timeout=ANSWER_SECONDS) is not None

    def hold(self, token: str) -> None:
        """See `JournalPlace`. Replaces the node of a dead holder that has not expired yet."""
        with answering():
            if self._holds(token):
                return
            with contextlib.suppress(NoNodeError):
                self._client.delete_async(self._holder).get(timeout=ANSWER_SECONDS)
            with contextlib.suppress(NodeExistsError):  # another apply was faster; comparing the entry decides
                made = self._client.create_async(self._holder, token.encode(), ephemeral=True)
                made.get(timeout=ANSWER_SECONDS)

    def let_go(self, token: str) -> None:
        """See `JournalPlace`. While ZooKeeper is unavailable, the end of the session releases it."""
        with contextlib.suppress(KazooException, KazooTimeoutError):
            if self._holds(token):
                self._client.delete_async(self._holder).get(timeout=ANSWER_SECONDS)

    def _holds(self, token: str) -> bool:
        """Return whether this apply holds the topology in the current session."""
        try:
            value, stat = self._client.get_async(self._holder).get(timeout=ANSWER_SECONDS)
        except NoNodeError:
            return False
        session = self._client.client_id
        return value == token.encode() and session is not None and stat.ephemeralOwner == session[0]
