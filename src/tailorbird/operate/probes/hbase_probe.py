"""Probe HBase: its master, the meta region, and the regions of every enabled table."""

from __future__ import annotations

import happybase
from thriftpy2.thrift import TException

from cdc.model.errors import Fatal, Retriable
from tailorbird.provision.hbase_admin import HBaseAdmin


def master_problem(*, zookeeper: str, thrift: str) -> str:
    """Return the reason why HBase's master is not ready, or an empty text if it is.

    A master is ready once the meta region is online and it accepts requests."""
    try:
        with HBaseAdmin(zookeeper=zookeeper, thrift=thrift) as admin:
            admin.namespaces()
    except (Retriable, Fatal) as error:
        return error.message
    return ""


def regions_problem(host: str, port: int, *, timeout_ms: int = 3000) -> str:
    """Return the reason why some table cannot be read through Thrift, or an empty text if all can.

    After `kill -9` the regions return seconds later than the ports. So the probe reads one row of every region. A
    read of an offline region times out."""
    try:
        connection = happybase.Connection(host, port, timeout=timeout_ms)
    except (TException, OSError) as error:
        return str(error)
    try:
        for name in connection.tables():
            if not connection.is_table_enabled(name):
                continue
            table = connection.table(name)
            for region in table.regions():
                for _ in table.scan(row_start=region["start_key"] or None, limit=1, batch_size=1):
                    break
    except (TException, OSError) as error:
        return str(error) or type(error).__name__
    finally:
        connection.close()
    return ""
