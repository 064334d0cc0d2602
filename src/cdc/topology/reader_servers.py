"""Reads `log:`, `hbase:`, `solr:`, `joins:` of a topology file; the rest, and its errors: `cdc.topology.reader`."""

from __future__ import annotations

import re

from cdc.topology.topology import HBase, Isolation, Joins, Log, Solr
from cdc.topology.values import Value
from cdc.words.brokers import Brokers


def read_log(value: Value | None) -> Log:
    """`log:`, or its defaults."""
    if value is None:
        return Log(brokers=Brokers("127.0.0.1:9092"), partitions=2, replication_factor=1, min_compaction_lag=604800.0)
    s = value.section()
    default = read_log(None)
    log = Log(
        brokers=Brokers(s.take("bootstrap_servers", lambda v: v.text(), default.bootstrap_servers)),
        partitions=s.take("partitions", lambda v: v.number(1, 1024), default.partitions),
        replication_factor=s.take("replication_factor", lambda v: v.number(1, 16), default.replication_factor),
        min_compaction_lag=s.take("min_compaction_lag", lambda v: v.duration(), default.min_compaction_lag),
    )
    s.end()
    return log


def read_hbase(value: Value | None) -> HBase:
    """`hbase:`, or its defaults."""
    default = HBase(thrift="127.0.0.1:9090", zookeeper="127.0.0.1:2181")
    if value is None:
        return default
    s = value.section()
    hbase = HBase(
        thrift=s.take("thrift", lambda v: v.address(), default.thrift),
        zookeeper=s.take("zookeeper", lambda v: v.address(), default.zookeeper),
        advertised_host=s.take("advertised_host", lambda v: v.text(), default.advertised_host),
        bind=s.take("bind", lambda v: v.text(), default.bind),
    )
    s.end()
    return hbase


def read_solr(value: Value | None) -> Solr:
    """`solr:`, or its defaults."""
    default = Solr(url="http://127.0.0.1:8983/solr")
    if value is None:
        return default
    s = value.section()

    def url(item: Value) -> str:
        text = item.text().rstrip("/")
        if not re.fullmatch(r"https?://[^/\s]+/solr", text):
            item.fail(repr(text), "a URL such as http://127.0.0.1:8983/solr")
        return text

    solr = Solr(
        url=s.take("url", url, default.url),
        username=s.take("username", lambda v: v.text(), None),
        password=s.take("password", lambda v: v.text(), None),
        ca_file=s.take("ca_file", lambda v: v.text(), None),
    )
    s.end()
    return solr


def read_joins(value: Value | None) -> Joins:
    """`joins:`, or its defaults."""
    if value is None:
        return Joins()
    s = value.section()
    isolation: Isolation = s.take("isolation", lambda v: v.one_of("shared", "process"), "shared")
    s.end()
    return Joins(isolation=isolation)
