"""Find the rows of a joined table that were written or deleted since a timestamp, without reading the others.

Each region is scanned with a time range over HBase's own RPC, because the Thrift server offers none. The scan also
returns delete markers (a raw scan). HBase skips store files that are completely older. A major compaction drops
delete markers, so a region that may have had one since the last scan is reported as `unknown`: its rows must be counted
again. A major compaction replaces all files of a region, so there was none while one of the earlier files remains. The
time that a region reports of its last one would not do: it is 0 again once a minor compaction merged that file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import happybase
from thriftpy2.thrift import TException

from cdc.model.errors import Fatal, Retriable
from cdc.model.naming import hbase_table
from cdc.stored.cells import is_barrier
from cdc.topology.topology import Table, Topology
from indexer.peer import wire_pb2 as pb
from indexer.table.hbase_rpc import HBaseRpc

_ROWS_PER_CALL = 1000
_FOREVER = (1 << 63) - 1
_ALL_VERSIONS = (1 << 31) - 1
_NO_EXPIRY = {0, -1, (1 << 31) - 1}
# A firewall may drop the packets to a region server, which costs no comparison more than this.
_REACH = 5.0
_SERVER = "HBase's region server"
_KEYS_ONLY = pb.Filter(name="org.apache.hadoop.hbase.filter.KeyOnlyFilter", serialized_filter=b"\x08\x00")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionRange:
    """One region of a table: its name, its row keys from `start` to `stop` (excluded; None: no end), its server."""

    name: bytes
    start: bytes
    stop: bytes | None
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChanges:
    """The row keys that were written or deleted, and the regions that do not show all deletes.

    `store_files`: the names of each region's files, from before the scan."""

    keys: frozenset[bytes]
    unknown: tuple[RegionRange, ...]
    store_files: Mapping[str, Sequence[str]]


class ChangedRows:
    """Scans one joined table for changes."""

    def __init__(self, topology: Topology, table: Table) -> None:
        self._thrift, self._name = topology.hbase.thrift, hbase_table(topology.name, table.name)
        self._family = table.family.encode()

    def expiry(self) -> int:
        """Return after how many seconds cells expire, or 0 if they never do."""
        with self._by_thrift() as connection:
            families = connection.table(self._name).families()
        seconds = {name.rstrip(b":"): int(found["time_to_live"]) for name, found in families.items()}[self._family]
        return 0 if seconds in _NO_EXPIRY else seconds

    def store_files(self) -> Mapping[str, Sequence[str]]:
        """Return the names of each region's files."""
        return self._store_files(self._regions())

    def since(self, timestamp: int, known: Mapping[str, Sequence[str]]) -> TableChanges:
        """Return the changes whose HBase timestamp is `timestamp` or later. `known`: `store_files` of the last scan.

        Raises Retriable while a server is unavailable or a region moves, Fatal if HBase refuses a call, for example
        because it requires Kerberos."""
        regions = self._regions()
        before = self._store_files(regions)
        keys: set[bytes] = set()
        for region in regions:
            if has_all_deletes(known.get(_text(region)), before.get(_text(region))):
                keys.update(self._changed(region, timestamp))
        # a major compaction during the scan may have dropped markers before the scan reached them
        after = self._store_files(regions)
        unknown = [
            one
            for one, name in zip(regions, map(_text, regions), strict=True)
            if not has_all_deletes(known.get(name), before.get(name))
            or not has_all_deletes(before.get(name), after.get(name))
        ]
        return TableChanges(
            keys=frozenset(key for key in keys if not is_barrier(key)), unknown=tuple(unknown), store_files=before
        )

    def _changed(self, region: RegionRange, timestamp: int) -> Iterator[bytes]:
        scan = pb.Scan(
            column=[pb.Column(family=self._family)],
            attribute=[pb.NameBytesPair(name="_raw_", value=b"\xff")],
            filter=_KEYS_ONLY,
            time_range=pb.TimeRange(to=_FOREVER, **{"from": timestamp}),
            max_versions=_ALL_VERSIONS,
            cache_blocks=False,
        )
        with HBaseRpc(region.host, region.port, "ClientService", name=_SERVER, reach=_REACH) as server:
            request = pb.ScanRequest(region=_specifier(region), scan=scan)
            calls = 0
            while True:
                request.number_of_rows = _ROWS_PER_CALL
                request.client_handles_partials = request.client_handles_heartbeats = True
                answer = server.call("Scan", request, pb.ScanResponse)
                for result in answer.results:
                    yield from (cell.row for cell in result.cell)
                if not answer.more_results_in_region or not answer.more_results:
                    break
                request = pb.ScanRequest(scanner_id=answer.scanner_id, next_call_seq=calls)
                calls += 1
            closing = pb.ScanRequest(scanner_id=answer.scanner_id, close_scanner=True)
            with contextlib.suppress(Fatal, Retriable):  # the server closes a scanner at the region's end
                server.call("Scan", closing, pb.ScanResponse)

    def _store_files(self, regions: list[RegionRange]) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for host, port in sorted({(region.host, region.port) for region in regions}):
            with HBaseRpc(host, port, "AdminService", name=_SERVER, reach=_REACH) as server:
                for region in regions:
                    if (region.host, region.port) == (host, port):
                        request = pb.GetStoreFileRequest(region=_specifier(region), family=[self._family])
                        answer = server.call("GetStoreFile", request, pb.GetStoreFileResponse)
                        found[_text(region)] = tuple(answer.store_file)
        return found

    def _regions(self) -> list[RegionRange]:
        with self._by_thrift() as connection:
            found: list[dict[str, Any]] = connection.table(self._name).regions()
        return [
            RegionRange(
                name=one["name"],
                start=one["start_key"],
                stop=one["end_key"] or None,
                host=_decoded(one["server_name"]),
                port=one["port"],
            )
            for one in found
        ]

    @contextlib.contextmanager
    def _by_thrift(self) -> Iterator[happybase.Connection]:
        host, _, port = self._thrift.rpartition(":")
        try:
            with contextlib.closing(happybase.Connection(host, int(port), timeout=60_000)) as connection:
                yield connection
        except (TException, OSError) as error:
            raise Retriable(
                f"HBase's Thrift server at {self._thrift} does not answer: {error}", "`tailorbird stack status`"
            ) from error


def has_all_deletes(before: Sequence[str] | None, now: Sequence[str] | None) -> bool:
    """Return whether a region had no major compaction between two states of its files (None: unknown).

    Without any file at both times there was none either: each compaction leaves a file, if cells do not expire."""
    if before is None or now is None:
        return False
    return not set(before).isdisjoint(now) or not (before or now)


def _text(region: RegionRange) -> str:
    return region.name.decode("latin-1")


def _decoded(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _specifier(region: RegionRange) -> pb.RegionSpecifier:
    return pb.RegionSpecifier(type=pb.RegionSpecifier.REGION_NAME, value=region.name)
