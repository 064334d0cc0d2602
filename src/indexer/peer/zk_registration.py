"""How an indexer is found: the ZooKeeper nodes by which HBase takes it for another cluster.

`/sep-<peer>/hbaseid` holds a cluster id, `/sep-<peer>/rs/<host>,<port>,<start code>` (ephemeral) one node per indexer
process. HBase ships edits to the servers listed there. Source: hbase-replication HBaseReplicationEndpoint.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator

import structlog
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from cdc.model.errors import Retriable
from indexer.peer import wire_pb2 as pb

_MAGIC = b"PBUF"
# A session outlives short pauses of this process and ends soon after a kill -9, so that HBase stops calling it.
_SESSION_SECONDS = 6.0
# How long a call may wait for ZooKeeper, that must not wait for ever.
ANSWER_SECONDS = 10.0
_CONNECT_SECONDS = 10.0
_CHECK_SECONDS = 1.0

log = structlog.get_logger()
Client = KazooClient


def parent_node(peer: str) -> str:
    """The ZooKeeper node under which the indexers of a peer announce themselves."""
    return f"/sep-{peer}"


def cluster_key(zookeeper: str, peer: str) -> str:
    """The address by which HBase knows a peer: `<hosts>:<port>:<parent node>`."""
    return f"{zookeeper}:{parent_node(peer)}"


@contextlib.contextmanager
def session(zookeeper: str) -> Iterator[KazooClient]:
    """A client for the time of a `with`; Retriable when ZooKeeper does not answer."""
    client = connect(zookeeper)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def connect(zookeeper: str) -> KazooClient:
    """A started client; Retriable when ZooKeeper does not answer. The caller stops and closes it."""
    client = KazooClient(zookeeper, timeout=_SESSION_SECONDS)
    try:
        client.start(timeout=_CONNECT_SECONDS)
    except KazooTimeoutError as error:
        client.stop()
        client.close()
        raise Retriable(
            f"ZooKeeper at {zookeeper} does not answer", "is HBase running? `tailorbird stack status`"
        ) from error
    return client


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """What ZooKeeper raises inside becomes Retriable; what one asks about a node must be caught inside."""
    try:
        yield
    except (KazooException, KazooTimeoutError) as error:
        reason = str(error) or type(error).__name__
        raise Retriable(
            f"ZooKeeper does not answer: {reason}", "is HBase running? `tailorbird stack status`"
        ) from error


def prepare(client: KazooClient, peer: str) -> None:
    """Make a peer's persistent nodes; idempotent.

    The id must differ from the source cluster's, or HBase refuses the peer, and be the same for every process and
    every restart, or HBase takes the peer for yet another cluster: so it derives from the name.
    """
    client.ensure_path(f"{parent_node(peer)}/rs")
    cluster_id = pb.ClusterId(cluster_id=str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{peer}.tailorbird")))
    with contextlib.suppress(NodeExistsError):
        client.create(f"{parent_node(peer)}/hbaseid", _MAGIC + cluster_id.SerializeToString())


def withdraw(client: KazooClient, peer: str) -> None:
    """Remove a peer's nodes, when the peer itself is gone from HBase; idempotent."""
    with contextlib.suppress(NoNodeError):
        client.delete(parent_node(peer), recursive=True)


def prepare_peer(zookeeper: str, peer: str) -> None:
    """`prepare` by a connection of its own; Retriable when ZooKeeper is away."""
    with session(zookeeper) as client:
        prepare(client, peer)


def withdraw_peer(zookeeper: str, peer: str) -> None:
    """`withdraw` by a connection of its own; Retriable when ZooKeeper is away."""
    with session(zookeeper) as client:
        withdraw(client, peer)


def master_address(zookeeper: str) -> tuple[str, int]:
    """Host and port of HBase's active master; Retriable while there is none."""
    hint = "is HBase running? `tailorbird stack status`"
    with session(zookeeper) as client:
        try:
            stored, _ = client.get("/hbase/master")
        except NoNodeError as error:
            raise Retriable(f"ZooKeeper at {zookeeper} knows no active HBase master", hint) from error
    # the node's bytes begin with a length-prefixed id of their writer, then the magic
    server = pb.Master.FromString(stored[stored.index(_MAGIC) + len(_MAGIC) :]).master
    return server.host_name, server.port


class Registration:
    """Keeps one indexer process announced, through lost sessions and restarts of ZooKeeper, until `close`.

    Announce only once the port listens: HBase connects at once. HBase resolves `host`. `client` (of `connect`) is the
    caller's, who may use it for other things.
    """

    def __init__(self, client: KazooClient, peer: str, *, host: str, port: int, start_code: int) -> None:
        self._node = f"{parent_node(peer)}/rs/{host},{port},{start_code}"
        self._peer = peer
        self._closing = threading.Event()
        self._look = threading.Event()
        self._client = client
        self._announce()
        self._client.add_listener(self._on_state)
        self._thread = threading.Thread(target=self._keep, name="registration", daemon=True)
        self._thread.start()

    def _announce(self) -> None:
        prepare(self._client, self._peer)
        found = self._client.exists(self._node)
        if found is not None and found.ephemeralOwner != self._client.client_id[0]:
            # An earlier session's node would vanish when that session expires, and HBase would see nobody.
            with contextlib.suppress(NoNodeError):
                self._client.delete(self._node)
            found = None
        if found is None:
            self._client.create(self._node, b"", ephemeral=True)
            log.info("announced", node=self._node)

    def _on_state(self, state: str) -> None:
        # Runs in kazoo's own thread, where a blocking call would deadlock: only wake the keeper.
        if state != KazooState.CONNECTED and not self._closing.is_set():
            log.warning("zookeeper_away", state=state)
        self._look.set()

    def _keep(self) -> None:
        while not self._closing.is_set():
            self._look.wait(_CHECK_SECONDS)
            self._look.clear()
            if self._closing.is_set() or not self._client.connected:
                continue
            try:
                self._announce()
            except (KazooException, KazooTimeoutError) as error:
                log.warning("announce_failed", reason=str(error) or type(error).__name__)

    def close(self) -> None:
        """Withdraw: HBase sees at once that this process is gone."""
        self._closing.set()
        self._look.set()
        self._thread.join(timeout=5)
        # Bounded: without a connection kazoo would keep the call, and this process, until there is one again. The node
        # goes with the session then.
        with contextlib.suppress(KazooException, KazooTimeoutError):
            self._client.delete_async(self._node).get(timeout=ANSWER_SECONDS)
