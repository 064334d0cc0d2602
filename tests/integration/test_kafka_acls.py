"""Kafka with access control: the documented grants of each role suffice, and each one that is removed is reported.

`cdc.process.grants` is the list that `tailorbird acls` prints, that each process checks at its start, and that these
tests give to the users of a real broker.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cdc.model.brokers import Brokers
from cdc.model.errors import TailorbirdError, UsageError
from cdc.process.file_topology import load_topology
from cdc.process.grants import Grant, Operation, grants
from cdc.process.kafka_admin import allow
from cdc.topology.roles import ROLES, KafkaRole
from cdc.topology.topology import Topology
from tailorbird.cli.app import app
from tests.support.kafka_work import WORK
from tests.support.secured_kafka import PASSWORD, SecuredKafka, log_of
from tests.support.waiting import wait_for

# without the mark `kafka`: the other tests of the secured broker are in the worker of all servers
pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@dataclass(frozen=True, slots=True)
class Secured:
    """A topology with one user per role on a broker with access control; all grants are given."""

    kafka: SecuredKafka
    file: Path

    def topology(self, role: KafkaRole) -> Topology:
        return load_topology(str(self.file), role)

    def user(self, role: KafkaRole) -> str:
        return f"{self.topology(role).name}-{role}"

    def work(self, role: KafkaRole) -> TailorbirdError | None:
        """Do what a role does in Kafka; return the error that its process would report."""
        try:
            WORK[role](self.topology(role))
        except TailorbirdError as error:
            return error
        return None

    def works(self, role: KafkaRole) -> None:
        """Wait until the broker knows all grants."""
        found: list[TailorbirdError | None] = [None]

        def done() -> bool:
            found[0] = self.work(role)
            return found[0] is None

        try:
            wait_for(done, f"role {role} cannot work", 20)
        except AssertionError as error:
            error.add_note(str(found[0]))
            raise

    def refusal(self, role: KafkaRole, grant: Grant, operation: Operation) -> TailorbirdError:
        """Remove one operation, return the first error of the role's work, and give it back."""
        self.kafka.forbid(self.user(role), grant, operation)
        try:
            deadline = time.monotonic() + 20
            while (error := self.work(role)) is None:
                assert time.monotonic() < deadline, f"{role} works without {operation} on {grant.name}"
            return error
        finally:
            self.kafka.allow(self.user(role), grant, operation)


@pytest.fixture(scope="module")
def secured(secured_kafka_broker: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> Secured:
    folder, name = tmp_path_factory.mktemp("acls"), f"acl{time.time_ns() % 10**9}"
    file = folder / "t.yml"
    (folder / "password").write_text(PASSWORD, encoding="utf-8")
    logins = "\n".join(
        f"      {role}: {{username: {name}-{role}, password: '${{file:password}}'}}" for role in ROLES
    )  # fmt: skip
    file.write_text(
        f"""name: {name}
sources:
  shop: {{type: mysql, hostname: 127.0.0.1, username: cdc, password: cdc, database: d, tables: [orders], server_id: 77}}
tables:
  wide: {{query: SELECT o.id FROM shop.orders o, row_key: [id]}}
  topic: {{query: SELECT o.id FROM shop.orders o, row_key: [id], sink: kafka}}
log:
  bootstrap_servers: {secured_kafka_broker.address}
  security:
    protocol: SASL_SSL
    mechanism: SCRAM-SHA-512
    ca_file: {secured_kafka_broker.ca_file}
    roles:
{logins}
""",
        encoding="utf-8",
    )
    made = Secured(secured_kafka_broker, file)
    for role in ROLES:
        made.kafka.user(made.user(role))
        allow(Brokers(made.kafka.plain), f"User:{made.user(role)}", grants(made.topology(role), role))
    return made


def test_the_documented_grants_suffice(secured: Secured) -> None:
    """Capture, gateway, join, indexer, console and operator do all their work in Kafka, on an empty cluster too."""
    for role in ROLES:
        secured.works(role)


def test_grants_are_given_by_a_command(secured: Secured, tmp_path: Path) -> None:
    """`tailorbird acls --apply` gives a role exactly what `tailorbird acls` prints."""
    file = tmp_path / "administrator.yml"
    text = secured.file.read_text(encoding="utf-8")
    log = log_of(secured.kafka, tmp_path).replace(
        "username:", "roles: {indexer: {username: i, password: p}}, username:"
    )
    file.write_text(f"{text[: text.index('log:')]}log: {log}\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["acls", str(file), "--role", "indexer", "--apply"])
    assert done.exit_code == 0, done.output
    assert "granted to User:i, " in done.stdout
    wanted = {
        (grant.name, grant.prefixed, operation)
        for grant in grants(load_topology(str(file)), "indexer") for operation in grant.operations
    }  # fmt: skip
    wait_for(lambda: secured.kafka.rules("i") == wanted, "the grants are not there")


def removals(topology: Callable[[KafkaRole], Topology]) -> Iterator[tuple[KafkaRole, Grant, Operation]]:
    for role in ROLES:
        for grant in grants(topology(role), role):
            for operation in grant.operations:
                yield role, grant, operation


def test_a_missing_grant_is_one_clear_error(secured: Secured) -> None:
    """It names principal, role, operation, resource and the command that prints the remedy; one grant of each kind."""
    kinds = dict[tuple[str, Operation], tuple[KafkaRole, Grant, Operation]]()
    for role, grant, operation in removals(secured.topology):
        kinds.setdefault((grant.resource, operation), (role, grant, operation))
    secured.works("capture")
    refused(secured, kinds.values())


@pytest.mark.matrix
def test_each_missing_grant_is_one_clear_error(secured: Secured) -> None:
    """The same for every operation of every grant of every role."""
    for role in ROLES:
        secured.works(role)
    every = list(removals(secured.topology))
    assert len(every) > 40, "the matrix is smaller than the documented table"
    refused(secured, every)


def refused(secured: Secured, some: Iterable[tuple[KafkaRole, Grant, Operation]]) -> None:
    for role, grant, operation in some:
        error = secured.refusal(role, grant, operation)
        shown = f"{role}: {operation} on {grant.resource} {grant.name}: {error!r}"
        assert isinstance(error, UsageError), shown
        resource = grant.name if grant.resource != "topic" or not grant.prefixed else grant.name.rstrip(".")
        assert f"User:{secured.user(role)}" in error.message, shown
        assert f"{operation} on {grant.resource} {resource}" in error.message, shown
        assert f"tailorbird acls {secured.file}" in error.hint, shown
        assert "\n" not in str(error), shown
        assert PASSWORD not in str(error), shown


def test_a_process_without_a_grant_ends_with_one_line(secured: Secured) -> None:
    """A capture exits with 2, as for every wrong configuration, and without a stack trace."""
    secured.works("capture")
    grant = next(one for one in grants(secured.topology("capture"), "capture") if one.name.endswith(".signals"))
    secured.kafka.forbid(secured.user("capture"), grant, "READ")
    try:
        wait_for(lambda: secured.work("capture") is not None, "the broker still allows it", 20)
        command = [sys.executable, "-m", "ingest", str(secured.file), "--source", "shop"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    finally:
        secured.kafka.allow(secured.user("capture"), grant, "READ")
    assert ran.returncode == 2, ran.stderr
    said: Any = [line for line in ran.stderr.splitlines() if "denies" in line]
    assert len(said) == 1, ran.stderr
    assert f"READ on topic {grant.name}" in said[0]
    assert "Traceback" not in ran.stderr + ran.stdout
