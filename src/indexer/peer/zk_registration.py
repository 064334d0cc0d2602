"""Register indexers in ZooKeeper, so that HBase finds them like the region servers of another cluster.

`/sep-<peer>/hbaseid` contains a cluster id. `/sep-<peer>/rs/<host>,<port>,<start code>` is an ephemeral node per
indexer process. HBase ships edits to the servers listed there. Source: hbase-replication HBaseReplicationEndpoint."""

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
from indexer.peer.tcp_refusal import refused

_MAGIC = b"PBUF"
# A session survives short pauses of this process and ends soon after a kill -9, so that HBase stops calling it.
_SESSION_SECONDS = 6.0
# Timeout for a ZooKeeper call that must not block for ever.
ANSWER_SECONDS = 10.0
_CONNECT_SECONDS = 10.0
_CHECK_SECONDS = 1.0
_PORT = 2181
_REMEDY = "is HBase running? `tailorbird stack status`"

log = structlog.get_logger()
Client = KazooClient


def parent_node(peer: str) -> str:
    """Return the ZooKeeper node under which the indexers of a peer announce themselves."""
    return f"/sep-{peer}"


def cluster_key(zookeeper: str, peer: str) -> str:
    """Return the cluster key that HBase's `add_peer` needs: `<hosts>:<port>:<parent node>`."""
    return f"{zookeeper}:{parent_node(peer)}"


@contextlib.contextmanager
def session(zookeeper: str) -> Iterator[KazooClient]:
    """Context manager: yield a connected ZooKeeper client and close it at the end.

    Raises Retriable if ZooKeeper does not answer, and at once if no server listens at its addresses."""
    if refused(zookeeper, _PORT, _CONNECT_SECONDS):  # the client itself would try for ten seconds
        raise Retriable(f"ZooKeeper at {zookeeper} does not answer", _REMEDY)
    client = connect(zookeeper)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def connect(zookeeper: str) -> KazooClient:
    """Return a connected ZooKeeper client, which the caller stops and closes. Raises Retriable if ZooKeeper is
    unavailable."""
    client = KazooClient(zookeeper, timeout=_SESSION_SECONDS)
    try:
        client.start(timeout=_CONNECT_SECONDS)
    except KazooTimeoutError as error:
        client.stop()
        client.close()
        raise Retriable(f"ZooKeeper at {zookeeper} does not answer", _REMEDY) from error
    return client


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Context manager that turns ZooKeeper errors into Retriable. Catch errors about single nodes inside the block."""
    try:
        yield
    except (KazooException, KazooTimeoutError) as error:
        reason = str(error) or type(error).__name__
        raise Retriable(f"ZooKeeper does not answer: {reason}", _REMEDY) from error


def prepare(client: KazooClient, peer: str) -> None:
    """Create a peer's persistent nodes. May be repeated.

    The cluster id must differ from the source cluster's, or HBase refuses the peer. It must also stay the same
    across processes and restarts, or HBase treats the peer as another cluster. So the id derives from the peer's
    name."""
    client.ensure_path(f"{parent_node(peer)}/rs")
    cluster_id = pb.ClusterId(cluster_id=str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{peer}.tailorbird")))
    with contextlib.suppress(NodeExistsError):
        client.create(f"{parent_node(peer)}/hbaseid", _MAGIC + cluster_id.SerializeToString())


def withdraw(client: KazooClient, peer: str) -> None:
    """Remove a peer's nodes after the peer was removed from HBase. May be repeated."""
    with contextlib.suppress(NoNodeError):
        client.delete(parent_node(peer), recursive=True)


def prepare_peer(zookeeper: str, peer: str) -> None:
    """Call `prepare` with its own connection. Raises Retriable if ZooKeeper is unavailable."""
    with session(zookeeper) as client:
        prepare(client, peer)


def withdraw_peer(zookeeper: str, peer: str) -> None:
    """Call `withdraw` with its own connection. Raises Retriable if ZooKeeper is unavailable."""
    with session(zookeeper) as client:
        withdraw(client, peer)


def master_address(zookeeper: str) -> tuple[str, int]:
    """Return host and port of HBase's active master. Raises Retriable while there is none."""
    with session(zookeeper) as client:
        try:
            stored, _ = client.get("/hbase/master")
        except NoNodeError as error:
            raise Retriable(f"ZooKeeper at {zookeeper} knows no active HBase master", _REMEDY) from error
    # the node's bytes start with a length-prefixed id of their writer, then the magic
    server = pb.Master.FromString(stored[stored.index(_MAGIC) + len(_MAGIC) :]).master
    return server.host_name, server.port


def region_servers(client: KazooClient) -> list[str]:
    """Return the host names of HBase's live region servers. Raises Retriable if ZooKeeper does not answer."""
    with answering():
        try:
            return sorted({name.partition(",")[0] for name in client.get_children("/hbase/rs")})
        except NoNodeError:
            return []


class Registration:
    """Keeps an indexer process registered until `close`, even if ZooKeeper sessions are lost or ZooKeeper restarts.

    Create it only once the port listens, because HBase connects at once. HBase must be able to resolve `host`. The
    caller owns `client` (of `connect`) and may use it for other purposes."""

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
            # An earlier session's node would be removed when that session expires, and HBase would find no indexer.
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
        """Remove the node, so that HBase sees at once that this process has ended."""
        self._closing.set()
        self._look.set()
        self._thread.join(timeout=5)
        if not self._client.connected:
            return  # kazoo would hold the call until there is a connection; the node is removed with the session
        # bounded, because the connection may be lost meanwhile
        with contextlib.suppress(KazooException, KazooTimeoutError):
            self._client.delete_async(self._node).get(timeout=ANSWER_SECONDS)
