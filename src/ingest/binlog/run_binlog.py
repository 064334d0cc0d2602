"""Create a transport, a reader or a `Binlog` from a URI."""

from __future__ import annotations

from ingest.binlog.binlog import Binlog
from ingest.binlog.reading.position import BinlogPosition
from ingest.binlog.reading.reader import BinlogReader, Transport
from ingest.binlog.reading.stream import StreamOptions
from ingest.binlog.transports.file_transport import FileTransport
from ingest.binlog.transports.proc_background import BackgroundTransport
from ingest.binlog.transports.uri import FileAddress, parse_uri


def create_transport(uri: str) -> Transport:
    """Return the transport for `mysql://`, `mariadb://`, `file://` or a bare path. A server is connected to at once."""
    address = parse_uri(uri)
    if isinstance(address, FileAddress):
        return FileTransport(address.path)
    from ingest.binlog.transports.mysql_transport import MysqlTransport  # files need no client library

    return MysqlTransport(address)


def open_reader(uri: str, start: BinlogPosition | None = None, options: StreamOptions | None = None) -> BinlogReader:
    """Return the fast reader of the binlog at `uri`, which yields row batches, statements and transaction ends."""
    return BinlogReader(create_transport(uri), start, options)


def open_binlog(uri: str, options: StreamOptions | None = None, *, background: bool = False) -> Binlog:
    """Return the event interface of the binlog at `uri`. With `background`, a thread reads ahead."""
    transport = create_transport(uri)
    return Binlog(BackgroundTransport(transport) if background else transport, options)
