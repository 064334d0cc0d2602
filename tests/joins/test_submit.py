"""The command that runs a join on a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.model.errors import UsageError
from cdc.topology.reader import read_topology
from joins.cluster.submit import Shipped, shown, submit_command

TEXT = """
name: t
sources:
  shop: {type: mysql, hostname: h, username: u, password: "${SECRET}", database: shop, tables: [a], server_id: 1}
log: {bootstrap_servers: "k:9092"}
hbase: {thrift: "h:9090", zookeeper: "h:2181"}
tables:
  wide: {query: "SELECT a.id FROM shop.a a", row_key: [id]}
"""


def command(*more: str, environment: str | None = None) -> list[str]:
    """Return the command for a topology of one table."""
    topology = read_topology(TEXT, file="t.yml", environ={"SECRET": "hunter2"})
    return submit_command(
        topology,
        topology.tables["wide"],
        master="spark://m:7077",
        main=Path("/app/joins/__main__.py"),
        shipped=Shipped(archive=Path("/app/tailorbird.zip"), jars=[Path("/app/k.jar")], environment=environment),
        settings={"spark.ui.enabled": "false"},
        java="-Xss4m",
        python="/opt/python",
        more=more,
    )


def test_options_of_spark_pass_and_win() -> None:
    """Options after `--` come last, so that Spark prefers them to ours."""
    words = command("--executor-memory", "4g", "--conf", "spark.ui.enabled=true")
    assert words.index("--executor-memory") > words.index("spark.ui.enabled=false")
    assert words.index("spark.ui.enabled=true") > words.index("spark.ui.enabled=false")
    assert words[-3:] == ["t.yml", "--table", "wide"]


def test_no_secret_is_on_the_command_line() -> None:
    """Passwords stay in the topology's variables, which the driver reads; `ps` and `--print` do not show them."""
    assert "hunter2" not in shown(command())


def test_a_packed_environment_is_sent_and_used() -> None:
    """Executors run the Python that was shipped, the driver its own."""
    words = command(environment="env.tar.gz")
    assert words[words.index("--archives") + 1] == "env.tar.gz#environment"
    assert "spark.pyspark.python=./environment/bin/python" in words
    assert "spark.pyspark.driver.python=/opt/python" in words
    assert "spark.pyspark.python=/opt/python" in command()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--deploy-mode", "cluster"], "does not run inside the cluster"),
        (["--deploy-mode=cluster"], "does not run inside the cluster"),
        (["--master", "yarn"], "--master cannot be given"),
        (["--py-files=x.zip"], "--py-files cannot be given"),
        (["x.py"], "is no option of spark-submit"),
    ],
)
def test_what_can_not_be_given_is_refused(more: list[str], said: str) -> None:
    """The error has the reason and an alternative."""
    with pytest.raises(UsageError, match=said) as refused:
        command(*more)
    assert refused.value.hint
    assert command("--deploy-mode", "client")
