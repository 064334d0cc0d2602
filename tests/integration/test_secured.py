"""Clients of a Kafka with SASL_SSL, and their errors when it refuses them.

A whole pipeline over it: test_alive.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in __all__
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition
from kafka.errors import KafkaError

from cdc.model.brokers import Brokers, KafkaSecurity, Mechanism
from cdc.model.errors import UsageError
from cdc.process.kafka_admin import WantedTopic, create_topics
from cdc.process.kafka_login import python_settings
from joins.engine.file_secrets import java_properties
from tailorbird.operate.probes.kafka_probe import kafka_problem
from tests.support.oidc_issuer import SECRET, issuing
from tests.support.secured_kafka import PASSWORD, USER, SecuredKafka, log_of, secured_kafka
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def kafka(secured_kafka_broker: SecuredKafka) -> SecuredKafka:
    return secured_kafka_broker


OTHER_CA = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))


@pytest.mark.parametrize(("password", "trusted"), [("wrong", True), (PASSWORD, False)], ids=["password", "certificate"])
def test_a_refused_connection_is_named(kafka: SecuredKafka, password: str, trusted: bool) -> None:
    """`doctor` names `log.security`, for a wrong password and for a certificate that is not trusted."""
    ca_file = kafka.ca_file if trusted else OTHER_CA
    security = KafkaSecurity(
        protocol="SASL_SSL", mechanism="PLAIN", username=USER, password=password, ca_file=str(ca_file)
    )
    said = kafka_problem(Brokers(kafka.address, security))
    assert said.startswith("log.security: "), said
    assert password not in said


@pytest.mark.parametrize(
    ("password", "trusted"),
    [
        pytest.param("wrong", True, id="password"),
        pytest.param(PASSWORD, False, id="certificate", marks=pytest.mark.matrix),  # named by the test above
    ],
)
def test_a_refused_connection_is_reported_in_one_line(
    kafka: SecuredKafka, unique: Callable[[str], str], tmp_path: Path, password: str, trusted: bool
) -> None:
    """The capture names `log.security` and waits, because the brokers may be corrected, too."""
    ca_file = kafka.ca_file if trusted else OTHER_CA
    name = unique("refused")
    file = tmp_path / "t.yml"
    log = log_of(kafka, tmp_path, password).replace(str(kafka.ca_file), str(ca_file))
    file.write_text(f"""name: {name}
sources:
  s: {{type: mysql, hostname: 127.0.0.1, port: {os.environ["TAILORBIRD_PORT_MYSQL_SHOP"]}, username: cdc, password: cdc,
      database: shop, tables: [nothing], server_id: 77}}
log: {log}
tables: {{t: {{query: SELECT a.id FROM s.nothing a, row_key: [id]}}}}
""")
    reported = tmp_path / "said"
    with reported.open("w") as lines:
        capture = subprocess.Popen([sys.executable, "-m", "ingest", str(file)], stdout=lines, stderr=lines)
        try:
            wait_for(lambda: "correct log.security" in reported.read_text(), "it is not reported", 60)
        finally:
            capture.terminate()
            capture.wait(30)
    assert password not in reported.read_text()
    assert "Traceback" not in reported.read_text()


MECHANISMS: tuple[Mechanism, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.matrix
def test_every_client_speaks_every_mechanism(kafka: SecuredKafka, unique: Callable[[str], str], tmp_path: Path) -> None:
    """SCRAM, and client certificates with a password-protected key. librdkafka writes over each link; kafka-python and
    Java in Spark read over each link all that was written. No client connects with a wrong password or without a
    certificate.
    """
    topic = unique("links")
    links: dict[str, Brokers] = {name: kafka.login(name) for name in MECHANISMS}
    links["mutual"] = kafka.certified()
    quiet = {"log_level": 0}
    # referenced until its future is done, since it is collected otherwise
    admin = AdminClient({**links["PLAIN"].librdkafka(), **quiet})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    for name, brokers in links.items():
        producer = Producer({**brokers.librdkafka(), **quiet})
        producer.produce(topic, value=name.encode())
        assert producer.flush(20) == 0, name
    wrong = {"scram": kafka.login("SCRAM-SHA-512", "wrong"), "no certificate": kafka.uncertified()}
    for brokers in wrong.values():
        assert kafka_problem(brokers).startswith("log.security: ")
        with pytest.raises(KafkaError):
            KafkaConsumer(**brokers.kafka_python(), bootstrap_timeout_ms=2000)
    for name, brokers in links.items():
        assert read_in_python(brokers, topic) == list(links), name
    found = read_in_spark({**links, **wrong}, topic, tmp_path)
    assert {name: found[name] for name in links} == {name: list(links) for name in links}
    assert "Authentication failed" in found["scram"]
    assert isinstance(found["no certificate"], str), "read without a certificate"


@pytest.mark.matrix
def test_every_client_gets_tokens(unique: Callable[[str], str], tmp_path: Path) -> None:
    """The broker checks the tokens with the issuer's keys. A client with a wrong secret gets none."""
    with issuing() as issuer, secured_kafka(tmp_path / "kafka", issuer.url) as kafka:
        right, wrong = (kafka.with_token(issuer.url, secret) for secret in (SECRET, "guess"))
        topic, quiet = unique("tokens"), {"log_level": 0}
        assert create_topics(right, [WantedTopic(name=topic)]) == {}
        producer = Producer({**right.librdkafka(), **quiet})
        producer.produce(topic, value=b"x")
        assert producer.flush(20) == 0
        assert kafka_problem(right) == ""
        refused = kafka_problem(wrong)
        assert "guess" not in refused
        assert refused
        with pytest.raises(UsageError, match="token_url"):
            python_settings(wrong)["sasl_oauth_token_provider"].token()
        assert read_in_python(right, topic) == ["x"]
        found = read_in_spark({"right": right, "wrong": wrong}, topic, tmp_path)
        assert found["right"] == ["x"]
        assert isinstance(found["wrong"], str)
        assert {form["grant_type"] for form in issuer.redeemed} == {"client_credentials"}


def read_in_python(brokers: Brokers, topic: str) -> list[str]:
    """Return what kafka-python reads of a topic's one partition."""
    consumer = KafkaConsumer(**python_settings(brokers))
    try:
        place = PythonPartition(topic, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end, found = consumer.end_offsets([place])[place], list[str]()
        while consumer.position(place) < end:
            found += [record.value.decode() for record in consumer.poll(1000).get(place, [])]
        return found
    finally:
        consumer.close()


def read_in_spark(links: dict[str, Brokers], topic: str, folder: Path) -> dict[str, Any]:
    """Return what Spark reads over each link, or its error."""
    asked = {
        name: {
            **{f"kafka.{option}": value for option, value in java_properties(brokers, folder / "secrets").items()},
            "subscribe": topic,
        }
        for name, brokers in links.items()
    }
    command = [sys.executable, "-m", "tests.support.spark_reads", str(folder / "spark")]
    ran = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_a_missing_certificate_file_is_reported() -> None:
    """librdkafka refuses to create a client at all; this also causes no traceback."""
    security = KafkaSecurity(protocol="SSL", ca_file="/nowhere/ca.pem")
    assert "ssl.ca.location" in kafka_problem(Brokers("127.0.0.1:1", security))
