"""Read `log:`, `hbase:`, `solr:`, `joins:` of a topology file; `cdc.topology.reader` has the rest and the format of
errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cdc.model.brokers import Brokers, KafkaSecurity, Mechanism, Protocol
from cdc.model.errors import MissingSecret, TopologyError
from cdc.topology.roles import ROLES, has_login
from cdc.topology.topology import HBase, Isolation, Joins, Log, Solr
from cdc.topology.values import Section, Value

_LOGIN = ("username", "password")
_FILES = ("ca_file", "certificate_file", "key_file", "key_password")
_PAIRS = (
    ("certificate_file", "key_file"), ("key_file", "certificate_file"), ("key_password", "key_file"),
    ("username", "password"), ("password", "username"),
)  # fmt: skip


def read_log(value: Value | None) -> Log:
    """Read `log:`, or its defaults."""
    if value is None:
        return Log(brokers=Brokers("127.0.0.1:9092"), partitions=2, replication_factor=1, min_compaction_lag=604800.0)
    s = value.section()
    default = read_log(None)
    security = s.take("security", lambda v: read_security(v, of_roles=True), None)
    log = Log(
        brokers=Brokers(s.take("bootstrap_servers", lambda v: v.text(), default.bootstrap_servers), security),
        roles={} if security is None else _read_roles(s.pairs["security"].section(), security),
        partitions=s.take("partitions", lambda v: v.number(1, 1024), default.partitions),
        replication_factor=s.take("replication_factor", lambda v: v.number(1, 16), default.replication_factor),
        min_compaction_lag=s.take("min_compaction_lag", lambda v: v.duration(), default.min_compaction_lag),
    )
    s.end()
    return log


def read_security(value: Value, *, of_roles: bool = False) -> KafkaSecurity:
    """Read the authentication of Kafka clients. With `of_roles` it may have `roles`, and then lack a login for all."""
    s = value.section()
    if of_roles:
        s.known.add("roles")
    protocol: Protocol = s.take("protocol", lambda v: v.one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))
    mechanism: Mechanism | None = s.take(
        "mechanism", lambda v: v.one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), None
    )
    texts = {name: s.take(name, _filled, None) for name in (*_LOGIN, *_FILES)}
    s.end()
    sasl, tls = protocol.startswith("SASL"), protocol.endswith("SSL")
    for name in ("mechanism", *_LOGIN):
        if sasl and name not in s.pairs and not (name in _LOGIN and of_roles and "roles" in s.pairs):
            value.fail(f"{protocol} without {name}", f"{name}: …")
        if not sasl and name in s.pairs:
            s.pairs[name].fail(f"{name} with {protocol}", "protocol: SASL_SSL, or SASL_PLAINTEXT")
    for name in _FILES:
        if not tls and name in s.pairs:
            s.pairs[name].fail(f"{name} with {protocol}", "protocol: SSL, or SASL_SSL")
    _check_pairs(s)
    return KafkaSecurity(protocol=protocol, mechanism=mechanism, **texts)


def _check_pairs(s: Section) -> None:
    for one, other in _PAIRS:
        if one in s.pairs and other not in s.pairs:
            s.pairs[one].fail(f"{one} without {other}", f"{other}: …")


def _read_roles(security: Section, common: KafkaSecurity) -> Mapping[str, KafkaSecurity | TopologyError]:
    """Read the logins of single roles. A role whose secret this host lacks has the error, for a process of that role.

    Everything but the login is as in `common`.
    """
    found = dict[str, KafkaSecurity | TopologyError]()
    for role, value in security.pairs["roles"].pairs().items() if "roles" in security.pairs else ():
        if role not in ROLES:
            value.fail(f"role {role}", "one of " + ", ".join(ROLES))
        try:
            found[role] = _read_role(value, common)
        except MissingSecret as error:
            found[role] = error
    return found


def _read_role(value: Value, common: KafkaSecurity) -> KafkaSecurity:
    s, sasl = value.section(), common.mechanism is not None
    names = _LOGIN if sasl else ("certificate_file", "key_file", "key_password")
    if common.protocol == "PLAINTEXT":
        value.fail("roles with PLAINTEXT", "protocol: SASL_SSL, or SSL")
    texts: dict[str, Any] = {name: s.take(name, _filled, None) for name in names}
    s.end()
    _check_pairs(s)
    made = replace(common, **texts)
    if not has_login(made) or (sasl and made.password is None) or (not sasl and made.certificate_file is None):
        value.fail("an incomplete login", ", ".join(f"{name}: …" for name in names[:2]))
    return made


def _filled(value: Value) -> str:
    text = value.text()
    if not text:
        value.fail("an empty text", "what it is, as in `${file:…}` or `${NAME}`")
    return text


def read_hbase(value: Value | None) -> HBase:
    """Read `hbase:`, or its defaults."""
    default = HBase(thrift="127.0.0.1:9090", zookeeper="127.0.0.1:2181")
    if value is None:
        return default
    s = value.section()
    hbase = HBase(
        thrift=s.take("thrift", lambda v: v.address(), default.thrift),
        zookeeper=s.take("zookeeper", lambda v: v.address(), default.zookeeper),
        advertised_host=s.take("advertised_host", lambda v: v.text(), default.advertised_host),
        bind=s.take("bind", lambda v: v.text(), default.bind),
        region_servers=s.take("region_servers", lambda v: v.texts(), default.region_servers),
        clock_tolerance=s.take("clock_tolerance", lambda v: v.duration(), default.clock_tolerance),
    )
    s.end()
    return hbase


def read_solr(value: Value | None) -> Solr:
    """Read `solr:`, or its defaults."""
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
    """Read `joins:`, or its defaults."""
    if value is None:
        return Joins()
    s = value.section()
    isolation: Isolation = s.take("isolation", lambda v: v.one_of("shared", "process"), "shared")
    s.end()
    return Joins(isolation=isolation)
