"""`tailorbird init` without servers: from shapes of databases to topologies that our own reader and compiler take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.model.errors import UsageError
from cdc.model.schema import Column
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from tailorbird.deploy.draft.address import address_of
from tailorbird.deploy.draft.column_names import time_rank
from tailorbird.deploy.draft.draft import Draft, DraftTable
from tailorbird.deploy.draft.guess import guess
from tailorbird.deploy.draft.likely_references import asked, believed, likely, with_references
from tailorbird.deploy.draft.naming import quoted, role, scalar, snake
from tailorbird.deploy.draft.settle import schemas_of, settled
from tailorbird.deploy.draft.shape import FoundServer
from tailorbird.operate.doctor.validate import judged, validate
from tests.support.schemas_made import SHAPES, SampleDatabase, music, rental, trade


def begun(made: SampleDatabase | FoundServer, most: int = 3) -> tuple[Draft, str, Topology]:
    """The draft of a database, its text, and what our reader makes of it."""
    server = made.found(snake(made.name)) if isinstance(made, SampleDatabase) else made
    draft, text = settled(guess(snake(server.database), [server], most), "mine.yml")
    environ = {server.password_env: "secret"}
    return draft, text, read_topology(text, file="mine.yml", environ=environ)


def table(draft: Draft, name: str) -> DraftTable:
    return next(each for each in draft.tables if each.name == name)


def joins(draft: Draft, name: str) -> dict[str, str]:
    """Alias → the table that is joined."""
    return {join.alias: join.table.name for join in table(draft, name).joins[1:]}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("most", [1, 3, 20])
def test_what_is_written_compiles(shape: str, most: int) -> None:
    """Every shape, as many tables as are asked for: read strictly, every name known, every query compiled."""
    draft, _, topology = begun(SHAPES[shape](), most)
    columns = validate(topology)
    assert 1 <= len(columns) <= most
    assert set(judged(topology, schemas_of(draft))) == set(columns)
    for index in topology.indexes.values():
        assert set(index.search) <= set(columns[index.table] or ())


def test_facts_are_what_nothing_refers_to() -> None:
    """A table that refers to others and is referred to by none, or by few; what only others look up is none."""
    assert [each.name for each in begun(rental())[0].tables] == ["payment", "film_category"]
    assert [each.name for each in begun(music())[0].tables] == ["invoice_line", "playlist_track"]
    assert begun(trade())[0].tables[0].name == "select"


def test_each_database_is_read() -> None:
    """Both given databases are read, even with few joined tables; an empty one is reported."""
    bare = SampleDatabase(name="bare", tables={"Notes": "Said TEXT"})
    servers = [made.found(snake(made.name)) for made in (rental(), music(), bare)]
    draft, text = settled(guess("all", servers, 1), "all.yml")
    assert [each.name for each in draft.tables] == ["payment", "invoice_line"]
    assert [each.server.source for each in draft.sources] == ["rental", "music"]
    assert "# bare is omitted: no joined table reads any of its tables" in text


def test_names_lead_where_no_key_does() -> None:
    """Most databases that live apart can have no foreign keys: names are believed where the values agree."""
    shop = SampleDatabase(
        name="shop",
        tables={
            "orders": "id INT PRIMARY KEY, customer_id BIGINT, city_id INT, product_no INT, status_id INT, up_id INT",
            "products": "product_no INT PRIMARY KEY, name VARCHAR(40)",
            "city": "id VARCHAR(9) PRIMARY KEY",
            "statuses": "id INT PRIMARY KEY, label VARCHAR(40)",
        },
        rows={"orders": [{"id": n, "customer_id": n, "product_no": n, "status_id": 90 + n} for n in range(10)]},
    )
    crm = SampleDatabase(name="crm", tables={"customers": "id INT PRIMARY KEY, name VARCHAR(40)"})
    servers = [shop.found(), crm.found()]
    found = {str(each): each for each in likely(servers)}
    # of another type, or of no table's name: not even likely
    assert sorted(found) == ["orders.customer_id", "orders.product_no", "orders.status_id"]
    assert asked(servers, found["orders.customer_id"]) == [str(n) for n in range(10)]
    kept = [believed(each, 10, 9) for each in (found["orders.customer_id"], found["orders.product_no"])]
    assert believed(found["orders.status_id"], 10, 0) is None
    draft, text = settled(guess("both", with_references(servers, [each for each in kept if each]), 1), "both.yml")
    assert [each.name for each in draft.tables] == ["orders"]
    assert joins(draft, "orders") == {"customer": "customers", "product": "products"}
    assert "LEFT JOIN crm.customers customer ON customer.id = orders.customer_id" in text
    assert "orders.customer_id → customers: no foreign key, guessed from its name: 9 of 10 values" in text


def test_joins_follow_the_keys_from_near_to_far() -> None:
    """Each table by the shortest way, once; twice where one row names two of it; a circle ends."""
    draft = begun(rental())[0]
    found = joins(draft, "payment")
    assert found["customer"] == "customer"
    assert found["film"] == "film"
    assert (found["language"], found["original_language"]) == ("language", "language")
    assert "store" not in found  # nothing in it but numbers
    assert list(found.values()).count("address") == 1
    assert any(line.startswith("staff.address_id → address: ") for line in table(draft, "payment").left)


def test_what_no_row_names_is_not_joined() -> None:
    """A join costs state, so one whose column is NULL in every sampled row is reported and omitted."""
    shape = rental()
    films = [{**row, "original_language_id": None} for row in (*shape.rows["film"], *shape.rows["film"])]
    draft = begun(replace(shape, rows={**shape.rows, "film": films}))[0]
    assert "original_language" not in joins(draft, "payment")
    reported = "film.original_language_id → language: NULL in all of 48 rows read"
    assert reported in table(draft, "payment").left


def test_a_reference_to_its_own_table_is_joined_once() -> None:
    """The employee to whom one reports, not the one above."""
    found = joins(begun(music())[0], "invoice_line")
    assert (found["support_rep"], found["reports_to"]) == ("Employee", "Employee")
    assert list(found.values()).count("Employee") == 2


def test_keys_of_two_columns_are_joined_by_both() -> None:
    """Otherwise a join would find many rows. A reference to another unique key is reported and omitted."""
    draft, text, _ = begun(trade())
    assert "ON suppliers.Country = `group`.SupplierCountry AND suppliers.No = `group`.SupplierNo" in text
    assert any("Products.SupplierCode → Suppliers: it refers to Code" in line for line in draft.tables[0].left)


def test_what_cannot_be_captured_is_left_out_with_the_reason() -> None:
    """Views, tables without key or transactions; a name with a space is no reason."""
    _, text, topology = begun(trade())
    captured = {each.table for each in topology.sources["trade_winds"].tables}
    assert captured.isdisjoint({"Alphabetical list", "Notes", "Old"})
    assert "Order Details" in captured
    reported = " ".join(line.strip(" #") for line in text.splitlines())
    for said in (
        "Alphabetical list: a view:", "Notes: has no primary key: ALTER TABLE", "Old: engine MyISAM is not InnoDB",
    ):  # fmt: skip
        assert said in reported
    rules = {t.table: rule for t, rule in begun(rental())[2].sources["rental"].rules.items()}
    assert "location" not in rules["address"].ignored_columns


def test_secrets_and_blobs_stay_at_their_source() -> None:
    """A page for everybody shows no passwords; the file has none either, only the name of a variable."""
    _, text, topology = begun(rental())
    rules = {t.table: rule for t, rule in topology.sources["rental"].rules.items()}
    assert rules["staff"].ignored_columns == ("picture", "password")
    assert topology.sources["rental"].password == "secret"
    assert "password: ${RENTAL_PASSWORD}" in text
    assert "secret" not in text.replace("named like a secret", "")


def test_search_facets_and_time() -> None:
    """Words are searched, what has few values is counted, the row's own time is the time."""
    topology = begun(rental())[2]
    page = topology.dashboards["payment"]
    assert page.time == "payment_date"
    assert {"film_rating", "film_special_features", "customer_active"} <= set(page.facets)
    assert {"film_title", "customer_last_name"} <= set(topology.indexes["payment"].search)
    assert not {"address_phone", "address_postal_code"} & set(topology.indexes["payment"].search)
    orders = begun(music())[2].dashboards["invoice_line"]
    assert orders.time == "invoice_date"  # of the joined table
    assert "customer_country" in orders.facets


def test_cascades_and_folding_keys_are_reported() -> None:
    """The user must know these facts about a topology that `init` has written."""
    assert "payment.rental_id: ON DELETE SET NULL and ON UPDATE CASCADE of rental" in begun(rental())[1]
    assert "Customers.CustomerID (utf8mb4_0900_ai_ci)" in " ".join(begun(trade())[1].split())


def test_a_query_that_does_not_compile_is_made_simpler() -> None:
    """First the join that the message names, then columns; what is written always compiles."""
    server = music().found("music")
    draft = guess("music", [server], 1)
    broken = replace(draft.tables[0].joins[2], by=replace(draft.tables[0].joins[2].by, referenced=("Milliseconds",)))  # type: ignore[type-var]  # it is joined
    spoilt = replace(draft.tables[0], joins=(*draft.tables[0].joins[:2], broken, *draft.tables[0].joins[3:]))
    unknown = replace(spoilt.columns[3], column=Column(name="nowhere", column_type="int"))
    spoilt = replace(spoilt, columns=(*spoilt.columns[:3], unknown, *spoilt.columns[4:]))
    found, text = settled(replace(draft, tables=(spoilt,)), "mine.yml")
    assert validate(read_topology(text, file="mine.yml", environ={"MUSIC_PASSWORD": ""}))
    assert "nowhere" not in [column.column.name for column in found.tables[0].columns]
    assert any("nowhere" in line for line in found.tables[0].left)


def test_nothing_to_capture_is_said() -> None:
    """Exit 2, with what there is and why it does not do."""
    made = trade()
    only = SampleDatabase(name="bare", tables={"Notes": made.tables["Notes"]}, views={"v": "SELECT 1"})
    with pytest.raises(UsageError, match=r"no table that can be captured in bare .*Notes: has no primary key"):
        guess("bare", [only.found()], 3)


def test_addresses() -> None:
    """A URL as everybody writes it; the password is never in a message."""
    server, password = address_of("mysql://me%40home:p%2Fw@db.example:3310/shop")
    assert (server.username, server.hostname, server.port, server.database) == ("me@home", "db.example", 3310, "shop")
    assert password == "p/w"
    assert address_of("mysql://me@db/shop")[1] is None
    for wrong in (
        "oracle://me:hush@db/shop",
        "postgresql://me:hush@db/x?ssl=1",
        "mysql://:hush@db/shop",
        "mysql://me:hush@db:port/shop",
        "shop",
    ):
        with pytest.raises(UsageError) as error:
            address_of(wrong)
        assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CustomerID", "customer_id"), ("HTTPServer", "http_server"), ("Order Details", "order_details"),
        ("naïve$col", "naive_col"), ("2nd", "c_2nd"), ("_hidden", "hidden"), ("名前", "c"), ("x" * 64, "x" * 50),
    ],
)  # fmt: skip
def test_names_are_legal_everywhere(name: str, expected: str) -> None:
    """MySQL takes nearly every name; YAML's names, HBase and Solr do not."""
    assert snake(name) == expected


def test_quotes_and_roles() -> None:
    """SQL's words in back ticks, YAML's in quotes; what a column that leads to a row calls it."""
    assert [quoted(name) for name in ("a", "order", "Ship Name", "a`b")] == ["a", "`order`", "`Ship Name`", "`a``b`"]
    assert [scalar(name) for name in ("a.b", "no", "a: b", "12")] == ["a.b", '"no"', '"a: b"', '"12"']
    assert [role(name) for name in ("customer_id", "SupportRepId", "ShipVia", "id")] == [
        "customer", "support_rep", "ship_via", "id",
    ]  # fmt: skip
    ranked = sorted(["last_update", "birth_date", "order_date", "created_at", "noticed"], key=time_rank)
    assert ranked == ["created_at", "order_date", "noticed", "last_update", "birth_date"]


def test_names_that_look_like_variables_are_not_expanded() -> None:
    """A table or column named `${file:…}` would otherwise insert a local file when the topology is read."""
    evil = "${file:/etc/passwd}"
    shop = SampleDatabase(
        name="shop",
        tables={evil: "id INT PRIMARY KEY, `${HOME}` VARCHAR(40)", "$${x}": "id INT PRIMARY KEY"},
    )
    draft, _, topology = begun(shop, 5)
    assert validate(topology)
    assert {table.table for table in topology.sources["shop"].tables} == {
        each.name for each in draft.captured(draft.sources[0])
    }
    joined = " ".join(one.query for one in topology.tables.values())
    assert f"`{evil}`" in joined
    assert "`${HOME}`" in joined
