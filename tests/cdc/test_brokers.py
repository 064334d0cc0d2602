"""`log.security`: the settings of each Kafka client, and the secrecy of passwords."""

from __future__ import annotations

import re

import pytest

from cdc.model.brokers import Brokers
from cdc.model.errors import TopologyError
from cdc.topology.reader import read_topology

LOGIN = "mechanism: SCRAM-SHA-512, username: cdc, password: 'op\"en\\sesame'"
TLS = "ca_file: ca.pem, certificate_file: c.pem, key_file: k.pem, key_password: hush"


def brokers(security: str) -> Brokers:
    """Return the brokers of a topology with this `security` block."""
    text = f"name: t\nlog:\n  bootstrap_servers: k:9\n  security: {{{security}}}\n"
    text += (
        "sources: {s: {type: mysql, hostname: h, username: u, password: p, database: d, server_id: 7, tables: [a]}}\n"
    )
    text += "tables: {w: {query: 'SELECT id FROM s.a', row_key: [id]}}\n"
    return read_topology(text, file="t.yml", environ={}).log.brokers


def test_without_security_nothing_is_said_of_it() -> None:
    """Without `security`, clients connect as before: in plain text, with the addresses alone."""
    plain = Brokers("k:9")
    assert plain.librdkafka() == plain.java() == {"bootstrap.servers": "k:9"}
    assert plain.kafka_python() == {"bootstrap_servers": "k:9"}
    assert plain.java_secrets() == {}


def test_a_reader_reads_committed_records_and_commits_nothing() -> None:
    """All consumers without a group have the same settings, with the credentials; each may change single ones."""
    found = brokers(f"protocol: SASL_SSL, {LOGIN}")
    assert found.reader("tailorbird-x", auto_offset_reset="error", fetch_wait_max_ms=10) == {
        **found.librdkafka(),
        "group.id": "tailorbird-x",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "log_level": 0,
        "fetch.wait.max.ms": 10,
    }


def test_each_client_is_given_all_of_it_in_its_own_words() -> None:
    """One block of YAML secures librdkafka, kafka-python and Java's clients alike."""
    found = brokers(f"protocol: SASL_SSL, {LOGIN}, {TLS}")
    assert found.librdkafka() == {
        "bootstrap.servers": "k:9",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "cdc",
        "sasl.password": 'op"en\\sesame',
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "c.pem",
        "ssl.key.location": "k.pem",
        "ssl.key.password": "hush",
    }
    assert found.kafka_python() == {
        "bootstrap_servers": "k:9",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "cdc",
        "sasl_plain_password": 'op"en\\sesame',
        "ssl_cafile": "ca.pem",
        "ssl_certfile": "c.pem",
        "ssl_keyfile": "k.pem",
        "ssl_password": "hush",
    }
    java = found.java("/run/x")
    assert java["sasl.jaas.config"] == "${file:/run/x:sasl.jaas.config}"
    assert java["ssl.truststore.location"] == "ca.pem"
    login = found.java_secrets("chain", "key")["sasl.jaas.config"]
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    assert login == rf'{module} username="cdc" password="op\"en\\sesame";'


def test_no_text_of_it_has_a_secret() -> None:
    """Brokers appear in messages, plans and logs: only their addresses, without any secret."""
    found = brokers(f"protocol: SASL_SSL, {LOGIN}, {TLS}")
    reported = f"{found} {found!r} {found.security!r} {found.java('/run/x')}"
    assert str(found) == "k:9"
    assert "sesame" not in reported
    assert "hush" not in reported


@pytest.mark.parametrize(
    ("security", "what"),
    [
        ("mechanism: PLAIN", "key protocol is missing"),
        ("protocol: TLS", "'TLS', expected one of PLAINTEXT, SSL"),
        ("protocol: SASL_SSL, mechanism: GSSAPI", "'GSSAPI', expected one of PLAIN"),
        ("protocol: SASL_SSL, username: a, password: b", "SASL_SSL without mechanism"),
        ("protocol: SASL_SSL, mechanism: PLAIN, password: b", "SASL_SSL without username"),
        ("protocol: SASL_SSL, mechanism: PLAIN, username: a, password: ''", "an empty text"),
        ("protocol: SSL, mechanism: PLAIN", "mechanism with SSL"),
        ("protocol: SASL_PLAINTEXT, mechanism: PLAIN, username: a, password: b, ca_file: c", "ca_file with SASL_PLAIN"),
        ("protocol: SSL, certificate_file: c", "certificate_file without key_file"),
        ("protocol: SSL, key_password: c", "key_password without key_file"),
        ("protocol: SSL, cafile: c", "unknown key cafile"),
    ],
)
def test_a_block_that_can_not_work_is_refused_at_its_line(security: str, what: str) -> None:
    """A connection that should be secured is never opened otherwise: a missing or misspelt key is an error."""
    with pytest.raises(TopologyError, match=r"t\.yml:4: log\.security.*" + re.escape(what)):
        brokers(security)


def test_tokens_are_of_a_client_that_each_kafka_client_knows() -> None:
    """With OAUTHBEARER, username and password are the id and secret of a client of the token server."""
    token = "token_url: 'https://id/token', scope: kafka, token_ca_file: id.pem"
    found = brokers(f"protocol: SASL_SSL, mechanism: OAUTHBEARER, username: cdc, password: 'se\"same', {token}")
    assert found.librdkafka() == {
        "bootstrap.servers": "k:9",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "cdc",
        "sasl.oauthbearer.client.secret": 'se"same',
        "sasl.oauthbearer.token.endpoint.url": "https://id/token",
        "sasl.oauthbearer.scope": "kafka",
        "https.ca.location": "id.pem",
    }
    assert found.kafka_python() == {
        "bootstrap_servers": "k:9",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
    }
    java = found.java("secrets")
    assert java["sasl.oauthbearer.token.endpoint.url"] == "https://id/token"
    assert java["sasl.login.callback.handler.class"].endswith("OAuthBearerLoginCallbackHandler")
    assert "same" not in repr(found) + repr(java) + repr(found.security)
    assert found.java_secrets()["sasl.jaas.config"].endswith(
        'OAuthBearerLoginModule required clientId="cdc" clientSecret="se\\"same" scope="kafka" '
        'ssl.truststore.type="PEM" ssl.truststore.location="id.pem";'
    )


@pytest.mark.parametrize(
    ("mechanism", "token", "message"),
    [
        ("OAUTHBEARER", "", "key token_url is missing"),
        ("OAUTHBEARER", ", token_url: 'https://cdc:sesame@id/token'", "not the URL of a token endpoint"),
        ("PLAIN", ", token_url: 'https://id/token'", "token_url with PLAIN"),
    ],
)
def test_tokens_need_a_token_endpoint(mechanism: str, token: str, message: str) -> None:
    """Only OAUTHBEARER has one; its URL has no login."""
    with pytest.raises(TopologyError, match=message) as refused:
        brokers(f"protocol: SASL_SSL, mechanism: {mechanism}, username: u, password: p{token}")
    assert "sesame" not in str(refused.value)
