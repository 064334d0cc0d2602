"""The journal of a topology's applies in ZooKeeper: a node whose version is compared, and one that ends with its
session."""

from __future__ import annotations

import contextlib

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from indexer.peer.zk_registration import ANSWER_SECONDS, answering

_ROOT = "/tailorbird/applies"


class StoredJournal:
    """`<root>/<topology>` has the entry, `<root>/<topology>/holder` is there as long as a session holds it."""

    def __init__(self, client: KazooClient, topology: str) -> None:
        self._client = client
        self._node = f"{_ROOT}/{topology}"
        self._holder = f"{self._node}/holder"

    def read(self) -> tuple[bytes, int] | None:
        """As `JournalPlace` says; what a write before this call has left."""
        with answering():
            self._client.sync_async(_ROOT).get(timeout=ANSWER_SECONDS)
            try:
                value, stat = self._client.get_async(self._node).get(timeout=ANSWER_SECONDS)
            except NoNodeError:
                return None
            return value, stat.version

    def put(self, value: bytes, version: int | None) -> int | None:
        """As `JournalPlace` says."""
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
        """As `JournalPlace` says."""
        with answering():
            return self._client.exists_async(self._holder).get(timeout=ANSWER_SECONDS) is not None

    def hold(self, token: str) -> None:
        """As `JournalPlace` says; a holder that is dead, and not forgotten yet, makes room."""
        with answering():
            if self._holds(token):
                return
            with contextlib.suppress(NoNodeError):
                self._client.delete_async(self._holder).get(timeout=ANSWER_SECONDS)
            with contextlib.suppress(NodeExistsError):  # whoever was faster took over, or is overtaken: the entry tells
                made = self._client.create_async(self._holder, token.encode(), ephemeral=True)
                made.get(timeout=ANSWER_SECONDS)

    def let_go(self, token: str) -> None:
        """As `JournalPlace` says; where ZooKeeper is away, the session's end does it."""
        with contextlib.suppress(KazooException, KazooTimeoutError):
            if self._holds(token):
                self._client.delete_async(self._holder).get(timeout=ANSWER_SECONDS)

    def _holds(self, token: str) -> bool:
        """Whether the holder is this apply, in the session of now."""
        try:
            value, stat = self._client.get_async(self._holder).get(timeout=ANSWER_SECONDS)
        except NoNodeError:
            return False
        session = self._client.client_id
        return value == token.encode() and session is not None and stat.ephemeralOwner == session[0]
