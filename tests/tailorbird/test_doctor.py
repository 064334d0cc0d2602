"""`tailorbird doctor`: what is judged, and that every fault comes with its remedy."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from cdc.model.errors import Skippable
from cdc.model.filters import TableRule
from cdc.model.polling import Poll
from cdc.model.schema import Column, TableId, TableSchema
from cdc.topology.topology import Source
from ingest.ddl.catalog import Catalog, ColumnDefinition, Key, TableDefinition
from ingest.ddl.dialect import Dialect
from ingest.events.tables import Tables
from tailorbird.cli.cli_doctor import _source
from tailorbird.operate.doctor.doctor import (
    Checkup,
    ServerInspection,
    TableInspection,
    grants,
    judge,
    judge_queries,
    published_schemas,
    reached,
)
from tests.joins.altering import table_id
from tests.joins.joincase import Case

SOURCE = Source(
    name="shop",
    type="mysql",
    hostname="db",
    port=3306,
    username="cdc",
    password="secret",
    database="shop",
    tables=(TableId(source="shop", database="shop", table="orders"),),
    server_id=7001,
    snapshot_mode="initial",
)
ORDERS = SOURCE.tables[0]
PRIMARY = Key(name="PRIMARY", kind="primary", columns=("code",))
CODE = Column(name="code", column_type="varchar(9)", nullable=False, charset="utf8mb4", collation="utf8mb4_bin")
PLACE = Column(name="place", column_type="int")


def facts_of(*keys: Key, columns: tuple[Column, ...] = (CODE, PLACE), engine: str = "InnoDB") -> TableInspection:
    """Build the server's inspection of a table."""
    primary = next((key.columns for key in keys if key.kind == "primary"), ())
    schema = TableSchema(table_id=ORDERS, version=1, columns=columns, primary_key=primary)
    return TableInspection(name="shop.orders", readable=None, engine=engine, schema=schema, keys=keys)


GOOD = ServerInspection(
    version="8.0.36",
    variables={
        "log_bin": "ON",
        "binlog_format": "ROW",
        "binlog_row_image": "FULL",
        "binlog_row_value_options": "",
        "binlog_row_metadata": "FULL",
        "gtid_mode": "ON",
        "binlog_expire_logs_seconds": "2592000",
        "server_id": "1",
    },
    denied=(),
    replicas=(),
    tables=(facts_of(PRIMARY),),
)

CASE = Case(
    tables={
        "crm.codes": {"key": ["code"], "code": "varchar(9)", "worth": "decimal(9,2)"},
        "shop.lines": {"key": ["id"], "id": "int", "code": "varchar(9)?"},
    },
    query="SELECT l.id, c.worth + 1 AS x FROM shop.lines l LEFT JOIN crm.codes c ON c.code = l.code",
    row_key=["id"],
    history=[],
)


def by_check(log_events: ServerInspection, source: Source = SOURCE) -> dict[str, Checkup]:
    return {finding.check: finding for finding in judge(source, log_events) if finding.status != "ok"}


def with_variable(**changed: str) -> ServerInspection:
    return replace(GOOD, variables={**GOOD.variables, **changed})


def test_a_server_as_needed_has_no_fault() -> None:
    """Nothing is complained of that works."""
    assert by_check(GOOD) == {}
    assert all(finding.remedy == "" for finding in judge(SOURCE, GOOD))


@pytest.mark.parametrize(
    ("log_events", "check", "status", "remedy"),
    [
        (with_variable(log_bin="OFF"), "log_bin", "fault", "my.cnf"),
        (with_variable(binlog_format="MIXED"), "binlog_format", "fault", "SET PERSIST binlog_format = ROW"),
        (with_variable(binlog_row_image="MINIMAL"), "binlog_row_image", "fault", "FULL"),
        (with_variable(binlog_row_value_options="PARTIAL_JSON"), "binlog_row_value_options", "fault", "= ''"),
        (with_variable(binlog_row_metadata="MINIMAL"), "binlog_row_metadata", "warning", "FULL"),
        (with_variable(gtid_mode="OFF"), "gtid_mode", "warning", "ON_PERMISSIVE"),
        (with_variable(binlog_expire_logs_seconds="3600"), "retention", "warning", "= 604800"),
        (with_variable(server_id="7001"), "server_id", "fault", "another server_id"),
        (replace(GOOD, replicas=(3, 7001)), "server_id", "warning", "another server_id"),
        (replace(GOOD, longest=1500), "row versions", "warning", "docs/capture.md"),
        (replace(GOOD, denied=("REPLICATION SLAVE",)), "grants", "fault", "GRANT REPLICATION SLAVE"),
    ],
)
def test_each_fault_has_its_remedy(log_events: ServerInspection, check: str, status: str, remedy: str) -> None:
    """One thing is wrong: exactly that is said, as a fault or a warning, with what to do."""
    found = by_check(log_events)
    assert list(found) == [check]
    assert found[check].status == status
    assert remedy in found[check].remedy


@pytest.mark.parametrize(
    ("table", "said", "remedy"),
    [
        (TableInspection(name="shop.orders", readable="denied", engine=""), "SELECT on shop.orders", "GRANT"),
        (TableInspection(name="shop.orders", readable="x", engine="", absent=True), "does not exist", "`tables:`"),
        (facts_of(PRIMARY, engine="MyISAM"), "MyISAM", "ENGINE = InnoDB"),
        (facts_of(), "no primary", "ADD PRIMARY"),
        (
            facts_of(PRIMARY, columns=(replace(CODE, collation="utf8mb4_0900_ai_ci"), PLACE)),
            "folds case and accents; joins do not",
            "COLLATE utf8mb4_0900_bin",
        ),
    ],
)
def test_each_fault_of_a_table_has_its_remedy(table: TableInspection, said: str, remedy: str) -> None:
    """Tables that cannot be captured, or whose keys surprise, are named."""
    (finding,) = by_check(replace(GOOD, tables=(table,))).values()
    assert said in finding.found
    assert remedy in finding.remedy


UNIQUE = Key(name="u", kind="unique", columns=("code",))
LOOSE = Key(name="v", kind="unique", columns=("place",))
EXPRESSION = Key(name="w", kind="unique", columns=("",))
PLAIN = Key(name="x", kind="plain", columns=("code",))


@pytest.mark.parametrize(
    ("keys", "rule", "key"),
    [
        ((PRIMARY,), TableRule(), ("code",)),
        ((UNIQUE,), TableRule(), ("code",)),
        ((LOOSE, EXPRESSION, UNIQUE), TableRule(), ("code",)),
        ((LOOSE,), TableRule(), None),
        ((EXPRESSION, PLAIN), TableRule(), None),
        ((), TableRule(message_key_columns=("place",)), ("place",)),
        ((PRIMARY,), TableRule(message_key_columns=("place", "code")), ("place", "code")),
        ((PRIMARY,), TableRule(message_key_columns=("gone",)), None),
        ((PRIMARY,), TableRule(masks={"code": "redact"}), None),
        ((PRIMARY,), TableRule(ignored_columns=("code",)), None),
        ((PRIMARY,), TableRule(masks={"place": "redact"}), ("code",)),
    ],
)
def test_a_table_is_faulty_exactly_where_capture_refuses_it(
    keys: tuple[Key, ...], rule: TableRule, key: tuple[str, ...] | None
) -> None:
    """The rule is that of capture: the columns that identify a row, and whether it can be published."""
    source = replace(SOURCE, rules={ORDERS: rule})
    log_events = facts_of(*keys)
    definitions = tuple(
        ColumnDefinition(name=c.name, column_type=c.column_type, nullable=c.nullable, charset=c.charset)
        for c in (CODE, PLACE)
    )
    capture = Tables("shop", ["shop"], lambda *_: True, Dialect(server="mysql", version=80036), rule_of=source.rule_of)
    capture.begin(Catalog(tables={("shop", "orders"): TableDefinition(columns=definitions, keys=keys)}))
    found = [
        finding for finding in judge(source, replace(GOOD, tables=(log_events,))) if finding.check == "shop.orders"
    ]
    published = published_schemas(source, [log_events])
    if key is None:
        with pytest.raises(Skippable) as refused:
            capture.schema(ORDERS)
        assert [(f.status, f.found, f.remedy) for f in found] == [("fault", refused.value.message, refused.value.hint)]
        assert published == {}
        return
    assert [finding.status for finding in found] == ["ok"]
    assert published[ORDERS].primary_key == capture.schema(ORDERS).primary_key == key
    assert [c.column_type for c in published[ORDERS].columns] == [c.column_type for c in capture.schema(ORDERS).columns]


def test_queries_are_judged_by_the_servers_own_columns() -> None:
    """A text key whose collation equates different bytes, and a query that does not fit the columns, are reported."""
    made = CASE.topology()
    schemas = CASE.schemas()
    codes, lines = (table_id(name) for name in CASE.tables)
    code = replace(schemas[codes].columns[0], collation="utf8mb4_general_ci")
    loose = {**schemas, codes: replace(schemas[codes], columns=(code, *schemas[codes].columns[1:]))}
    assert judge_queries(made, schemas) == []
    (finding,) = judge_queries(made, loose)
    assert (finding.subject, finding.check, finding.status) == ("table wide", "collation", "warning")
    assert finding.found.startswith(
        "crm.crm.codes.code compares by utf8mb4_general_ci, which folds case, accents and trailing spaces, and joins "
        "shop.shop.lines.code:"
    )
    assert finding.remedy.endswith("or ALTER TABLE crm.codes MODIFY code … COLLATE utf8mb4_bin")
    wide = replace(schemas[codes].columns[1], column_type="decimal(50,10)")
    (fault,) = judge_queries(made, {**schemas, codes: replace(schemas[codes], columns=(code, wide))})
    assert fault.status == "fault"
    assert "c.worth is decimal(50,10): expressions have at most 38 digits" in fault.found
    assert judge_queries(made, {lines: schemas[lines]}) == [], "an unavailable server is reported elsewhere"


def test_a_polled_source_needs_only_select_and_an_index() -> None:
    """Settings of the log are not checked on a server that is polled."""
    polled = replace(SOURCE, poll=Poll(cursor="updated_at", mode="updated_at", limit=1, interval=1.0, lag=1.0))
    table = replace(GOOD.tables[0], indexed=False)
    found = by_check(replace(with_variable(log_bin="OFF"), tables=(table,)), polled)
    assert list(found) == ["shop.orders"]
    assert "ADD INDEX" in found["shop.orders"].remedy
    assert grants(polled) == ["GRANT SELECT ON `shop`.`orders` TO 'cdc'@'%'"]


def test_mariadb_is_not_asked_for_what_it_does_not_have() -> None:
    """MariaDB has GTIDs always and names its expiry otherwise."""
    variables = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "expire_logs_days": "10"}
    maria = replace(GOOD, version="10.11.6-MariaDB", variables={**variables, "server_id": "1"})
    assert by_check(maria) == {}


def test_grants_are_the_least() -> None:
    """No privilege more than capture uses, and no password in the text."""
    assert grants(SOURCE)[-1] == "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'cdc'@'%'"
    assert "RELOAD" in grants(replace(SOURCE, snapshot_locking_mode="minimal"))[-1]
    assert "secret" not in " ".join(grants(SOURCE))
    assert reached("solr", "x:1", "refused", "start it").status == "fault"
    assert reached("solr", "x:1", "", "start it").remedy == ""


def test_a_server_that_is_away_is_not_a_wrong_password() -> None:
    """A refused connection says nothing of the login, and the remedy does not either."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        (finding,) = _source("shop", replace(SOURCE, hostname="127.0.0.1", port=closed.getsockname()[1]), {})
    assert (finding.status, finding.check) == ("fault", "reachable")
    assert "not reachable" in finding.remedy
    assert "password" not in finding.remedy
