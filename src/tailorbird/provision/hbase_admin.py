"""Call HBase's master for namespaces, tables with replication, and replication peers, which happybase cannot.

Every call waits until the master's procedure ends. Raises Retriable while HBase is unavailable or starting, and
Fatal, with the master's message, if the master refuses a call."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TypeVar

import happybase
from google.protobuf.message import Message
from thriftpy2.thrift import TException

from cdc.model.errors import Fatal, Retriable
from cdc.stored.cells import is_barrier
from indexer.peer import wire_pb2 as pb
from indexer.peer import zk_registration
from indexer.table.hbase_rpc import HBaseRpc
from tailorbird.provision.stores import FamilySpec, PeerSpec, TableSpec

M = TypeVar("M", bound=Message)

_TIMEOUT = 60.0
_PROCEDURE_TIMEOUT = 120.0
_UNAVAILABLE = "is HBase running? `tailorbird stack status`"
_UNSPLITTABLE: Mapping[str, str] = {
    "SPLIT_POLICY": "org.apache.hadoop.hbase.regionserver.DisabledRegionSplitPolicy",
    "SPLIT_ENABLED": "false",
    "MERGE_ENABLED": "false",
    "NORMALIZATION_ENABLED": "false",
}


class HBaseAdmin:
    """One connection to the active master, and Thrift connections for reads of tables.

    `thrift` and `zookeeper` are addresses `host:port`. Use this class as a context manager, from one thread.
    """

    def __init__(self, *, zookeeper: str, thrift: str) -> None:
        self._zookeeper, self._thrift = zookeeper, thrift
        host, port = zk_registration.master_address(zookeeper)
        self._master = HBaseRpc(host, port, "MasterService", name="HBase's master")

    def __enter__(self) -> HBaseAdmin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._master.close()

    def namespaces(self) -> set[str]:
        """Return the names of all namespaces."""
        answer = self.call(
            "ListNamespaceDescriptors", pb.ListNamespaceDescriptorsRequest(), pb.ListNamespaceDescriptorsResponse
        )
        return {found.name.decode() for found in answer.namespaceDescriptor}

    def create_namespace(self, name: str) -> None:
        """Create a namespace."""
        descriptor = pb.NamespaceDescriptor(name=name.encode())
        self.run("CreateNamespace", pb.CreateNamespaceRequest(namespaceDescriptor=descriptor))

    def drop_namespace(self, name: str) -> None:
        """Remove an empty namespace."""
        self.run("DeleteNamespace", pb.DeleteNamespaceRequest(namespaceName=name))

    def tables(self, namespace: str) -> dict[str, tuple[FamilySpec, ...]]:
        """Return the tables of a namespace, `namespace:name` → families."""
        request = pb.GetTableDescriptorsRequest(namespace=namespace, regex=".*")
        answer = self.call("GetTableDescriptors", request, pb.GetTableDescriptorsResponse)
        return {
            f"{found.table_name.namespace.decode()}:{found.table_name.qualifier.decode()}": tuple(
                FamilySpec(
                    name=family.name.decode(),
                    replicated=any(a.first == b"REPLICATION_SCOPE" and a.second == b"1" for a in family.attributes),
                )
                for family in found.column_families
            )
            for found in answer.table_schema
        }

    def create_table(self, table: TableSpec) -> None:
        """Create a table with fixed splits, one version per cell, uncompressed."""
        schema = pb.TableSchema(table_name=_table_name(table.name))
        for name, value in _UNSPLITTABLE.items():
            schema.attributes.add(first=name.encode(), second=value.encode())
        schema.column_families.append(_family_schema(table.family))
        self.run("CreateTable", pb.CreateTableRequest(table_schema=schema, split_keys=list(table.splits)))

    def replicate(self, table: str, family: FamilySpec) -> None:
        """Enable replication for a family of an existing table, or disable it if `family.replicated` is False.

        Other settings of the family remain unchanged."""
        wanted = pb.GetTableDescriptorsRequest(table_names=[_table_name(table)])
        answer = self.call("GetTableDescriptors", wanted, pb.GetTableDescriptorsResponse)
        for found in answer.table_schema[0].column_families:
            if found.name == family.name.encode():
                kept = [each for each in found.attributes if each.first != b"REPLICATION_SCOPE"]
                del found.attributes[:]
                found.attributes.extend(kept)
                found.attributes.add(first=b"REPLICATION_SCOPE", second=b"1" if family.replicated else b"0")
                self.run("ModifyColumn", pb.ModifyColumnRequest(table_name=_table_name(table), column_families=found))

    def drop_table(self, name: str) -> None:
        """Drop a table with its data."""
        with contextlib.suppress(Fatal):  # HBase refuses to disable a disabled table
            self.run("DisableTable", pb.DisableTableRequest(table_name=_table_name(name)))
        self.run("DeleteTable", pb.DeleteTableRequest(table_name=_table_name(name)))

    def peers(self) -> dict[str, PeerSpec]:
        """Return the replication peers by id."""
        answer = self.call("ListReplicationPeers", pb.ListReplicationPeersRequest(), pb.ListReplicationPeersResponse)
        return {
            peer.id: PeerSpec(
                id=peer.id,
                cluster_key=peer.config.clusterkey,
                tables=tuple(
                    f"{t.table_name.namespace.decode()}:{t.table_name.qualifier.decode()}"
                    for t in peer.config.table_cfs
                ),
                serial=peer.config.serial,
                enabled=peer.state.state == pb.ReplicationState.ENABLED,
            )
            for peer in answer.peer_desc
        }

    def add_peer(self, peer: PeerSpec) -> None:
        """Create a peer. HBase ships the complete current write-ahead logs to it, then all later writes.

        Takes 1–2 s, because HBase reopens the regions of a serial peer's tables.
        """
        zk_registration.prepare_peer(self._zookeeper, peer.id)
        config = pb.ReplicationPeer(clusterkey=peer.cluster_key, replicate_all=False, serial=peer.serial)
        for table in peer.tables:
            config.table_cfs.add(table_name=_table_name(table))
        state = pb.ReplicationState(state=pb.ReplicationState.ENABLED)
        self.run(
            "AddReplicationPeer", pb.AddReplicationPeerRequest(peer_id=peer.id, peer_config=config, peer_state=state)
        )

    def remove_peer(self, peer: str) -> None:
        """Remove a peer and its ZooKeeper nodes. Its name must never be used again."""
        self.run("RemoveReplicationPeer", pb.RemoveReplicationPeerRequest(peer_id=peer))
        zk_registration.withdraw_peer(self._zookeeper, peer)

    def has_rows(self, table: str) -> bool:
        """Return whether a table has any row apart from barriers."""
        with self._by_thrift() as connection:
            return any(not is_barrier(key) for key, _ in connection.table(table).scan(limit=300, batch_size=300))

    def regions(self, table: str) -> int:
        """Return the number of regions of a table."""
        with self._by_thrift() as connection:
            return len(connection.table(table).regions())

    @contextlib.contextmanager
    def _by_thrift(self) -> Iterator[happybase.Connection]:
        host, _, port = self._thrift.rpartition(":")
        try:
            connection = happybase.Connection(host, int(port), timeout=int(_TIMEOUT * 1000))
            try:
                yield connection
            finally:
                connection.close()
        except (TException, OSError) as error:
            raise Retriable(
                f"HBase's Thrift server at {self._thrift} does not answer: {error}", _UNAVAILABLE
            ) from error

    def run(self, method: str, request: Message) -> None:
        """Call a method of the master that starts a procedure, and wait until the procedure ends.

        Raises Fatal, with HBase's reason, if HBase refuses it."""
        started = self.call(method, request, pb.ProcedureStarted)
        if not started.HasField("proc_id"):
            return
        poll = pb.GetProcedureResultRequest(proc_id=started.proc_id)
        give_up = time.monotonic() + _PROCEDURE_TIMEOUT
        while time.monotonic() < give_up:
            result = self.call("getProcedureResult", poll, pb.GetProcedureResultResponse)
            if result.HasField("exception"):
                reason = result.exception.generic_exception
                raise Fatal(f"HBase refused {method}: {reason.class_name}: {reason.message}")
            if result.state != pb.GetProcedureResultResponse.RUNNING:
                return
            time.sleep(0.05)
        raise Retriable(f"HBase does not finish {method}", "see `tailorbird stack logs hbase`, then try again")

    def call(self, method: str, request: Message, answer: type[M]) -> M:
        """Call a method of MasterService and return its answer.

        Raises Retriable if HBase's master becomes unavailable, or the error that it answers.
        """
        return self._master.call(method, request, answer)


def _table_name(name: str) -> pb.TableName:
    namespace, _, qualifier = name.rpartition(":")
    return pb.TableName(namespace=(namespace or "default").encode(), qualifier=qualifier.encode())


def _family_schema(family: FamilySpec) -> pb.ColumnFamilySchema:
    schema = pb.ColumnFamilySchema(name=family.name.encode())
    # With one version, a row delete's marker hides everything older, and whole-row puts replace the previous row.
    for name, value in {
        "VERSIONS": "1",
        "MIN_VERSIONS": "0",
        "KEEP_DELETED_CELLS": "FALSE",
        "COMPRESSION": "NONE",
        "REPLICATION_SCOPE": "1" if family.replicated else "0",
    }.items():
        schema.attributes.add(first=name.encode(), second=value.encode())
    return schema
