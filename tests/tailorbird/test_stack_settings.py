"""The settings of the local stack: what wins, what is refused, and that a child finds the same stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.model.artefacts import VERSIONS, bundle_folder, cache_folder, spark_connector_folder
from cdc.model.errors import UsageError
from tailorbird.devtools.stack.settings import (
    ALL_SERVICES,
    Ports,
    StackSettings,
    extra_service,
    parse_ports,
    service_name,
)

CWD = Path("/somewhere")
BARE = {"HOME": "/people/ada"}


def test_defaults_are_the_documented_ports_and_folders() -> None:
    """A newcomer who sets nothing gets the ports of the topologies and of docker-compose.yml."""
    settings = StackSettings.from_environ(BARE, CWD)
    assert dict(settings.ports.items()) == {
        "mysql_shop": 3307,
        "mysql_crm": 3308,
        "kafka": 9092,
        "kafka_controller": 9093,
        "zookeeper": 2181,
        "hbase_master": 16000,
        "hbase_region": 16020,
        "thrift": 9090,
        "solr": 8983,
        "postgres": 5433,
        "solrcloud": 8984,
        "opensearch": 9200,
        "opensearch_transport": 9300,
    }
    assert settings.home == Path("/somewhere/.tailorbird")
    assert settings.cache == Path("/people/ada/.cache/tailorbird")
    assert settings.bind == "127.0.0.1"


def test_an_offset_moves_every_port() -> None:
    """Two stacks run side by side without naming nine ports."""
    moved = dict(StackSettings.from_environ(BARE, CWD, port_offset=10_000).ports.items())
    assert moved == {name: port + 10_000 for name, port in Ports().items()}


def test_an_option_wins_over_its_variable_and_both_over_the_offset() -> None:
    """An option has precedence over an environment variable; a single port is used without the offset."""
    environ = {**BARE, "TAILORBIRD_PORT_KAFKA": "19092", "TAILORBIRD_PORT_SOLR": "18983", "TAILORBIRD_PORT_OFFSET": "7"}
    ports = StackSettings.from_environ(environ, CWD, ports={"solr": 28983}).ports
    assert (ports.kafka, ports.solr, ports.thrift) == (19092, 28983, 9097)
    assert StackSettings.from_environ(environ, CWD, port_offset=0).ports.thrift == 9090


def test_a_stack_stays_where_it_was_started() -> None:
    """`stack status` after `stack up --port-offset 3000` looks there; an offset that is asked for wins."""
    former = {**dict(Ports().items()), "kafka": 12092}
    assert StackSettings.from_environ(BARE, CWD, former=former).ports.kafka == 12092
    assert StackSettings.from_environ(BARE, CWD, former=former, port_offset=0).ports.kafka == 9092
    assert StackSettings.from_environ({**BARE, "TAILORBIRD_PORT_OFFSET": "1"}, CWD, former=former).ports.kafka == 9093
    assert StackSettings.from_environ({**BARE, "TAILORBIRD_PORT_KAFKA": "5"}, CWD, former=former).ports.kafka == 5
    assert StackSettings.from_environ(BARE, CWD, former={"kafka": 12092}).ports.solr == 8983


def test_a_child_process_finds_the_same_stack() -> None:
    """The demo starts its processes with these variables, whatever their working folder."""
    mine = StackSettings.from_environ({**BARE, "TAILORBIRD_HOME": "data"}, CWD, port_offset=123)
    child = StackSettings.from_environ({**BARE, **mine.environ()}, Path("/elsewhere"))
    assert child == mine


def test_home_option_wins_over_the_variable() -> None:
    """`--home` is for one command."""
    environ = {**BARE, "TAILORBIRD_HOME": "/data/a"}
    assert StackSettings.from_environ(environ, CWD).home == Path("/data/a")
    assert StackSettings.from_environ(environ, CWD, home=Path("b")).home == Path("/somewhere/b")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["kafak=19092"], "no listener 'kafak'; choose among mysql_shop"),
        (["kafka"], "'' is not a port; write --port kafka=19092"),
        (["kafka=many"], "'many' is not a port"),
    ],
)
def test_a_wrong_port_option_names_the_remedy(options: list[str], said: str) -> None:
    """A mistyped option is refused in one line, not ignored."""
    with pytest.raises(UsageError) as refused:
        parse_ports(options)
    assert said in str(refused.value)
    assert refused.value.exit_code == 2


def test_port_options_take_hyphens() -> None:
    """Services are spelt with hyphens, so listeners may be."""
    assert parse_ports(["mysql-shop=4307", "hbase_master=1600"]) == {"mysql_shop": 4307, "hbase_master": 1600}


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"TAILORBIRD_PORT_KAFKA": "x"}, "TAILORBIRD_PORT_KAFKA='x' is not a number"),
        ({"TAILORBIRD_PORT_KAFKA": "2181"}, "ports kafka and zookeeper are both 2181"),
        ({"TAILORBIRD_PORT_OFFSET": "60000"}, "outside 1–65535"),
        ({"TAILORBIRD_HOME": "/my data"}, "not allowed in a class path"),
        ({"TAILORBIRD_CACHE": "/a:b"}, "not allowed in a class path"),
    ],
)
def test_a_wrong_environment_is_refused(environ: dict[str, str], said: str) -> None:
    """Each of these would otherwise end in a server's stack trace minutes later."""
    with pytest.raises(UsageError) as refused:
        StackSettings.from_environ({**BARE, **environ}, CWD)
    assert said in str(refused.value)


def test_services_and_listeners_belong_together() -> None:
    """Every listener is of one service, every service has one; its first is what its clients use."""
    listeners = [name for service in ALL_SERVICES for name, _ in Ports().of(service)]
    assert sorted(listeners) == sorted(name for name, _ in Ports().items())
    assert [Ports().of(service)[0][0] for service in ALL_SERVICES] == [
        "mysql_shop",
        "mysql_crm",
        "kafka",
        "zookeeper",
        "thrift",
        "solr",
        "postgres",
        "solrcloud",
        "opensearch",
    ]


def test_an_unknown_service_is_refused_with_the_list() -> None:
    """`tailorbird stack logs hbse` lists the services."""
    assert service_name("mysql_shop") == "mysql-shop"
    with pytest.raises(UsageError, match=r"no service 'hbse'; choose among mysql-shop, .*solr"):
        service_name("hbse")


def test_addresses_are_what_clients_are_given() -> None:
    """Solr's is the address of its API, the others host:port."""
    addresses = StackSettings.from_environ(BARE, CWD, port_offset=1).addresses()
    assert addresses["solr"] == "http://127.0.0.1:8984/solr"
    assert addresses["mysql-crm"] == "127.0.0.1:3309"
    assert addresses["zookeeper"] == "127.0.0.1:2182"


def test_the_connector_of_spark_is_found_without_devtools() -> None:
    """joins may not import tailorbird: the folder's name is a word that both share."""
    environ = {"TAILORBIRD_CACHE": "/c"}
    assert (
        spark_connector_folder(environ) == bundle_folder(Path("/c"), "spark") == Path(f"/c/spark-{VERSIONS['spark']}")
    )
    assert cache_folder({"XDG_CACHE_HOME": "/x"}) == Path("/x/tailorbird")


def test_a_server_besides_is_one_that_there_is() -> None:
    """`stack up --with` takes what it does not start anyway."""
    assert extra_service("postgres") == "postgres"
    with pytest.raises(UsageError, match="--with solr: unknown server; choose among postgres"):
        extra_service("solr")
