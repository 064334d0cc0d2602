"""Read the servers and `joins:` of a topology file; `cdc.topology.reader` has the rest and the format of errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from cdc.grammar.forms import ADDRESS, DURATION, FILLED, NAMED, TEXT, TEXTS, chosen, mapping, matching, number, one_of
from cdc.grammar.keys import DeclaredKey, Keys, Section, section
from cdc.grammar.values import Value
from cdc.model.brokers import TOKEN, Brokers, KafkaSecurity, Mechanism, Protocol
from cdc.model.errors import MissingSecret, TopologyError
from cdc.model.naming import TopicRouting
from cdc.model.tls import PostgresServer
from cdc.stored.lakehouse import IcebergCatalog
from cdc.topology.reader_tls import TLS, read_tls
from cdc.topology.roles import ROLES, has_login
from cdc.topology.topology import HBase, Isolation, Joins, Log, OpenSearch, Solr

_LOGIN = ("username", "password")
_FILES = ("ca_file", "certificate_file", "key_file", "key_password")
_PAIRS = (
    ("certificate_file", "key_file"), ("key_file", "certificate_file"), ("key_password", "key_file"),
    ("username", "password"), ("password", "username"),
)  # fmt: skip
_OF_TOKEN = ("token_url", "scope", "token_ca_file")


def _solr_url(value: Value) -> str:
    text = value.text().rstrip("/")
    if not re.fullmatch(r"https?://[^/\s]+/solr", text):
        value.fail(repr(text), "a URL such as http://127.0.0.1:8983/solr")
    return text


def _opensearch_url(value: Value) -> str:
    text = value.text().rstrip("/")
    if not re.fullmatch(r"https?://[^/\s]+", text):
        value.fail(repr(text), "a URL such as http://127.0.0.1:9200")
    return text


def _token_url(value: Value) -> str:
    text = value.text()
    if not re.fullmatch(r"https?://[^/\s@]+/\S*", text):
        value.fail(
            "not the URL of a token endpoint", "a URL without a login, such as https://id.example.com/oauth2/token"
        )
    return text


_SASL = {"protocol": ("SASL_PLAINTEXT", "SASL_SSL")}
_TOKEN = {**_SASL, "mechanism": (TOKEN,)}
_TLS = {"protocol": ("SSL", "SASL_SSL")}
_SECURED = {"protocol": ("SSL", "SASL_PLAINTEXT", "SASL_SSL")}
_ROLE: Keys = {
    "username": DeclaredKey(form=FILLED, about="The role's user name."),
    "password": DeclaredKey(form=FILLED, about="The role's password; take it from a variable."),
    "certificate_file": DeclaredKey(form=FILLED, about="The role's certificate (PEM), with `protocol: SSL`."),
    "key_file": DeclaredKey(form=FILLED, about="The key of the role's certificate (PEM)."),
    "key_password": DeclaredKey(form=FILLED, about="The password of an encrypted key."),
}
SECURITY: Keys = {
    "protocol": DeclaredKey(form=one_of(*get_args(Protocol)), about="The protocol of all clients.", required=True),
    "mechanism": DeclaredKey(
        form=one_of(*get_args(Mechanism)), about="The SASL mechanism; required with SASL.", required=True, only=_SASL
    ),
    "username": DeclaredKey(form=FILLED, about="The login, with SASL; with OAUTHBEARER the client's id.", only=_SASL),
    "password": DeclaredKey(
        form=FILLED, about="The password, or the client's secret, with SASL; take it from a variable.", only=_SASL
    ),
    "token_url": DeclaredKey(
        form=matching(r"https?://[^/\s@]+/\S*", _token_url),
        about="The token endpoint of an OAuth 2.0 server.",
        required=True,
        only=_TOKEN,
    ),
    "scope": DeclaredKey(form=FILLED, about="The scope of the tokens.", only=_TOKEN),
    "token_ca_file": DeclaredKey(
        form=FILLED, about="Trusted certificates (PEM) for `token_url`. Default: the system's.", only=_TOKEN
    ),
    "ca_file": DeclaredKey(form=FILLED, about="Trusted certificates (PEM). Default: the system's.", only=_TLS),
    "certificate_file": DeclaredKey(
        form=FILLED, about="The client's certificate (PEM), if brokers require one.", only=_TLS
    ),
    "key_file": DeclaredKey(form=FILLED, about="The key of the client's certificate (PEM).", only=_TLS),
    "key_password": DeclaredKey(form=FILLED, about="The password of an encrypted key.", only=_TLS),
}
LOG_SECURITY: Keys = {
    **SECURITY,
    "roles": DeclaredKey(form=chosen(ROLES, section(_ROLE)), about="Logins of single roles.", only=_SECURED),
}
LOG: Keys = {
    "bootstrap_servers": DeclaredKey(form=TEXT, about="The brokers.", default="127.0.0.1:9092"),
    "security": DeclaredKey(form=section(LOG_SECURITY), about="Authentication of Kafka clients. Default: plain text."),
    "partitions": DeclaredKey(
        form=number(1, 1024), about="Partitions of each change topic; fixed when the topic is created.", default="2"
    ),
    "replication_factor": DeclaredKey(form=number(1, 16), about="Replicas of each topic.", default="1"),
    "min_compaction_lag": DeclaredKey(
        form=DURATION,
        about="`min.compaction.lag.ms` of the change topics. A join that was stopped for longer must be rebuilt.",
        default="7d",
    ),
    "topics": DeclaredKey(
        form=one_of(*get_args(TopicRouting)),
        about="The tables that share a topic: none, those of a database (schema), or those of a source.",
        default="per_table",
    ),
}
HBASE: Keys = {
    "thrift": DeclaredKey(form=ADDRESS, about="Thrift server: reads and writes of rows.", default="127.0.0.1:9090"),
    "zookeeper": DeclaredKey(
        form=ADDRESS, about="ZooKeeper: administration and replication.", default="127.0.0.1:2181"
    ),
    "advertised_host": DeclaredKey(
        form=TEXT, about="The host name by which HBase's region servers reach the indexers.", default="localhost"
    ),
    "bind": DeclaredKey(form=TEXT, about="The address on which indexers listen for HBase.", default="127.0.0.1"),
    "region_servers": DeclaredKey(
        form=TEXTS, about="Hosts, addresses or networks of clients that may send changes. Default: from ZooKeeper."
    ),
    "clock_tolerance": DeclaredKey(
        form=DURATION, about="A row whose HBase timestamp is further in the future is a dead letter.", default="1h"
    ),
}
SOLR: Keys = {
    "url": DeclaredKey(
        form=matching(r"https?://[^/\s]+/solr/*", _solr_url),
        about="A standalone Solr or a node of a SolrCloud; `https://` for TLS.",
        default="http://127.0.0.1:8983/solr",
    ),
    "username": DeclaredKey(form=TEXT, about="User of basic authentication."),
    "password": DeclaredKey(form=TEXT, about="Password of basic authentication; take it from a variable."),
    "ca_file": DeclaredKey(form=TEXT, about="Trusted certificates (PEM) for `https://`. Default: the system's."),
}
OPENSEARCH: Keys = {
    "url": DeclaredKey(
        form=matching(r"https?://[^/\s]+/*", _opensearch_url),
        about="A node of an OpenSearch cluster; `https://` for TLS.",
        default="http://127.0.0.1:9200",
    ),
    "username": DeclaredKey(form=TEXT, about="User of basic authentication."),
    "password": DeclaredKey(form=TEXT, about="Password of basic authentication; take it from a variable."),
    "ca_file": DeclaredKey(form=TEXT, about="Trusted certificates (PEM) for `https://`. Default: the system's."),
}
POSTGRES: Keys = {
    "hostname": DeclaredKey(form=TEXT, about="The server's host.", required=True),
    "port": DeclaredKey(form=number(1, 65535), about="The server's port.", default="5432"),
    "username": DeclaredKey(form=TEXT, about="The login. It owns the tables.", required=True),
    "password": DeclaredKey(form=TEXT, about="The password; take it from a variable.", required=True),
    "dbname": DeclaredKey(form=TEXT, about="The database.", required=True),
    "schema": DeclaredKey(form=NAMED, about="The schema of the joined tables. Default: the topology's name."),
    **TLS,
}
ICEBERG: Keys = {
    "uri": DeclaredKey(
        form=FILLED, about="The catalog's database, as a URL of SQLAlchemy; take a password from a variable.",
        required=True,
    ),
    "warehouse": DeclaredKey(form=FILLED, about="The folder of the files: a path or a URL (s3://…).", required=True),
    "namespace": DeclaredKey(form=NAMED, about="The namespace of the joined tables. Default: the topology's name."),
    "interval": DeclaredKey(form=DURATION, about="The shortest time between two commits of a table.", default="10s"),
    "retain": DeclaredKey(form=DURATION, about="Replaced files are deleted after this time.", default="1h"),
    "properties": DeclaredKey(form=mapping(TEXT), about="Properties of PyIceberg, e.g. s3.endpoint."),
}  # fmt: skip
JOINS: Keys = {
    "isolation": DeclaredKey(
        form=one_of(*get_args(Isolation)),
        about="Under `tailorbird run`: all tables in one Spark application, or each in its own process and JVM.",
        default="shared",
    ),
}


def read_log(value: Value) -> Log:
    """Read `log:`."""
    s = Section(value, LOG)
    security = s.take("security", read=lambda v: read_security(v, of_roles=True))
    log = Log(
        brokers=Brokers(s.take("bootstrap_servers"), security),
        roles={} if security is None else _read_roles(s.pairs["security"], security),
        partitions=s.take("partitions"),
        replication_factor=s.take("replication_factor"),
        min_compaction_lag=s.take("min_compaction_lag"),
        topics=s.take("topics"),
    )
    s.end()
    return log


def read_security(value: Value, *, of_roles: bool = False) -> KafkaSecurity:
    """Read the authentication of Kafka clients. With `of_roles` it may have `roles`, and then lack a login for all."""
    s = Section(value, LOG_SECURITY if of_roles else SECURITY)
    protocol: Protocol = s.take("protocol")
    sasl, tls = protocol.startswith("SASL"), protocol.endswith("SSL")
    if protocol == "PLAINTEXT" and "roles" in s.pairs:
        s.pairs["roles"].fail("roles with PLAINTEXT", "protocol: SASL_SSL, or SSL")
    for name in ("mechanism", *_LOGIN):
        if not sasl and name in s.pairs:
            s.pairs[name].fail(f"{name} with {protocol}", "protocol: SASL_SSL, or SASL_PLAINTEXT")
    for name in _FILES:
        if not tls and name in s.pairs:
            s.pairs[name].fail(f"{name} with {protocol}", "protocol: SSL, or SASL_SSL")
    if sasl and "mechanism" not in s.pairs:
        value.fail(f"{protocol} without mechanism", "mechanism: …")
    mechanism: Mechanism | None = s.take("mechanism")
    for name in _OF_TOKEN:
        if mechanism != TOKEN and name in s.pairs:
            s.pairs[name].fail(f"{name} with {mechanism or protocol}", f"mechanism: {TOKEN}")
    texts = {name: s.take(name) for name in (*_LOGIN, *_FILES, *_OF_TOKEN)}
    if of_roles:
        s.take("roles", read=lambda v: None)  # `_read_roles` reads them, with the login for all
    s.end()
    for name in _LOGIN:
        if sasl and name not in s.pairs and not (of_roles and "roles" in s.pairs):
            value.fail(f"{protocol} without {name}", f"{name}: …")
    _check_pairs(s)
    return KafkaSecurity(protocol=protocol, mechanism=mechanism, **texts)


def _check_pairs(s: Section) -> None:
    for one, other in _PAIRS:
        if one in s.pairs and other not in s.pairs:
            s.pairs[one].fail(f"{one} without {other}", f"{other}: …")


def _read_roles(security: Value, common: KafkaSecurity) -> Mapping[str, KafkaSecurity | TopologyError]:
    """Read the logins of single roles. A role whose secret this host lacks has the error, for a process of that role.

    Everything but the login is as in `common`.
    """
    found, pairs = dict[str, KafkaSecurity | TopologyError](), security.pairs()
    for role, value in pairs["roles"].pairs().items() if "roles" in pairs else ():
        if role not in ROLES:
            value.fail(f"role {role}", "one of " + ", ".join(ROLES))
        try:
            found[role] = _read_role(value, common)
        except MissingSecret as error:
            found[role] = error
    return found


def _read_role(value: Value, common: KafkaSecurity) -> KafkaSecurity:
    s, sasl = Section(value, _ROLE), common.mechanism is not None
    names = _LOGIN if sasl else ("certificate_file", "key_file", "key_password")
    texts: dict[str, Any] = {name: s.take(name) for name in names}
    s.end()
    _check_pairs(s)
    made = replace(common, **texts)
    if not has_login(made) or (sasl and made.password is None) or (not sasl and made.certificate_file is None):
        value.fail("an incomplete login", ", ".join(f"{name}: …" for name in names[:2]))
    return made


def read_hbase(value: Value) -> HBase:
    """Read `hbase:`."""
    s = Section(value, HBASE)
    hbase = HBase(
        thrift=s.take("thrift"),
        zookeeper=s.take("zookeeper"),
        advertised_host=s.take("advertised_host"),
        bind=s.take("bind"),
        region_servers=s.take("region_servers", ()),
        clock_tolerance=s.take("clock_tolerance"),
    )
    s.end()
    return hbase


def read_solr(value: Value) -> Solr:
    """Read `solr:`."""
    s = Section(value, SOLR)
    solr = Solr(
        url=s.take("url"), username=s.take("username"), password=s.take("password"), ca_file=s.take("ca_file")
    )  # fmt: skip
    s.end()
    return solr


def read_opensearch(value: Value) -> OpenSearch:
    """Read `opensearch:`."""
    s = Section(value, OPENSEARCH)
    found = OpenSearch(
        url=s.take("url"), username=s.take("username"), password=s.take("password"), ca_file=s.take("ca_file")
    )  # fmt: skip
    s.end()
    return found


def read_postgres_server(value: Value, topology: str) -> PostgresServer:
    """Read `postgres:`, the server of tables with `sink: postgres`. The schema is called like the topology by
    default."""
    s = Section(value, POSTGRES)
    hostname = s.take("hostname")
    found = PostgresServer(
        hostname=hostname,
        port=s.take("port"),
        tls=read_tls(s, hostname),
        username=s.take("username"),
        password=s.take("password"),
        dbname=s.take("dbname"),
        schema=s.take("schema", topology),
    )
    s.end()
    return found


def read_iceberg(value: Value, topology: str) -> IcebergCatalog:
    """Read `iceberg:`, the catalog of tables with `sink: iceberg`. The namespace has the topology's name by default."""
    s = Section(value, ICEBERG)
    found = IcebergCatalog(
        uri=s.take("uri"),
        warehouse=s.take("warehouse"),
        namespace=s.take("namespace", topology),
        interval=s.take("interval"),
        retain=s.take("retain"),
        properties=tuple(s.take("properties", {}).items()),
    )
    s.end()
    return found


def read_joins(value: Value) -> Joins:
    """Read `joins:`."""
    s = Section(value, JOINS)
    isolation: Isolation = s.take("isolation")
    s.end()
    return Joins(isolation=isolation)
