"""Under `filter_policy: accept` of a host's policy, every table leaves except for the exceptions, which fail closed."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.model.errors import TopologyError, UsageError
from cdc.model.event import Position
from cdc.model.filters import shape_of
from cdc.model.history import SchemaChange, TableState
from cdc.model.schema import Column, TableSchema
from ingest.agent.policy import NarrowedSource, refused_signal
from ingest.agent.policy_check import PolicyFinding, ServerDatabase, findings, request_verdict
from ingest.capture.checked_signals import checked_conditions
from ingest.events.restricted import restriction_of
from ingest.fleet.reported import effective_hash
from tests.ingest.agent.test_policy import KEY, policy, run, table

ACCEPT = """
dumps: true
connections:
  shop-db:
    hostname: 10.0.0.5
    username: cdc
    password: cdc
    databases:
      shop:
        filter_policy: accept
        ignored_columns: [iban]
        mask: {phone: redact}
        tables:
          users: {ignored_columns: [mail], mask: {phone: truncate(2)}}
          cards: {columns: [id]}
          whole: {ignored_columns: []}
          salaries: {}
          wages:
          masked: {mask: {}}
      listed: {tables: {orders: {}}}
"""
PLAIN = ACCEPT.replace("        ignored_columns: [iban]\n        mask: {phone: redact}\n", "")
EVERY: dict[str, Any] = {"filter_policy": "accept"}


def shown(effective: NarrowedSource, name: str) -> set[str]:
    """Return the columns of a table of which the values leave unchanged."""
    row: dict[str, Any] = {"id": "1", "mail": "m@x", "iban": "DE1", "phone": "0123", "added_later": "a"}
    before = dict(row)
    rule = effective.source.rule_of(table(name))
    if rule is not None and (shape := shape_of(rule)) is not None:
        shape(row)
    return {column for column, value in row.items() if value == before[column]}


def test_new_tables_leave_and_exceptions_do_not() -> None:
    """One hidden column needs one line: no other table is listed."""
    effective = run(EVERY, PLAIN)
    captured = {name for name in ("users", "cards", "whole", "salaries", "wages", "masked", "new") if
                effective.source.captures(table(name))}  # fmt: skip
    assert captured == {"users", "cards", "whole", "new"}
    every = {"id", "mail", "iban", "phone", "added_later"}
    assert {name: shown(effective, name) for name in sorted(captured)} == {
        "users": every - {"mail", "phone"}, "cards": {"id"}, "whole": every, "new": every,
    }  # fmt: skip


def test_a_column_is_hidden_in_every_table() -> None:
    """Also in tables that exist later, such as a copy that a tool makes to change a table. A table can hide more."""
    effective = run(EVERY, ACCEPT)
    for name in ("new", "_users_gho", "whole"):
        assert shown(effective, name) == {"id", "mail", "added_later"}
        assert (rule := effective.source.rule_of(table(name))) is not None
        assert rule.by_name, "its rows may only be decoded by names in the log"
    assert shown(effective, "users") == {"id", "added_later"}
    assert shown(effective, "cards") == {"id"}
    rule = effective.source.rule_of(table("users"))
    assert rule is not None
    assert rule.masks == {"phone": "truncate(2)"}, "the mask of the table takes precedence"


@pytest.mark.parametrize("name", ["Users", "USERS", "Salaries", "usErs", "wageſ", "WAGES"])
def test_another_case_of_a_listed_name_does_not_leave(name: str) -> None:
    """Whether it is the same table depends on the server. So the default does not apply to it."""
    effective = run(EVERY, PLAIN)
    leaves = effective.source.captures(table(name))
    assert leaves is (name == "wageſ"), "no server takes ſ for s in a table's name"
    if not leaves:
        with pytest.raises(UsageError, match="may not leave"):
            run({**EVERY, "tables": {name: {"mask": {"id": "redact"}}}}, PLAIN)


def test_a_configuration_can_exclude_more() -> None:
    """It lists a table without options, as in a topology. What the policy hides stays hidden."""
    effective = run({**EVERY, "tables": {"users": {}, "new": {}, "cards": {"ignored_columns": []}}}, PLAIN)
    assert [effective.source.captures(table(name)) for name in ("users", "new", "cards", "other")] == [
        False, False, True, True,
    ]  # fmt: skip
    assert shown(effective, "cards") == {"id"}
    for name in ("salaries", "wages"):
        with pytest.raises(UsageError, match=rf"table shop\.{name} may not leave"):
            run({**EVERY, "tables": {name: {"ignored_columns": []}}}, PLAIN)
    with pytest.raises(UsageError, match="not all tables of listed may leave"):
        run({"filter_policy": "accept", "database": "listed"}, PLAIN)


def test_the_policy_hides_values_of_tables_that_a_configuration_excludes() -> None:
    """Their definitions leave, so that they can be captured later: without labels and defaults of hidden columns."""
    names = ("users", "cards", "new")
    source = run({**EVERY, "tables": {name: {} for name in names}}, ACCEPT).source
    limit = restriction_of(source)
    assert limit is not None
    columns = tuple(
        Column(name=name, column_type="enum('gold')", default="gold", default_known=True) for name in ("iban", "phone")
    )
    for name in names:
        assert not source.captures(table(name))
        assert [column.column_type for column in limit.columns(table(name), columns)] == ["enum('')"] * 2
        schema = TableSchema(table_id=table(name), version=1, columns=columns, primary_key=())
        state = TableState(table_id=table(name), schema=schema, version=1)
        [state] = limit.stored(
            SchemaChange(position=Position(file="f", pos=4, gtid_set="", sequence=1), ddl="", tables=(state,))
        ).tables
        assert state.schema is not None
        assert [column.default for column in state.schema.columns] == [None, None]
        with pytest.raises(UsageError, match="must not use column phone"):
            checked_conditions(source, {f"shop.{name}": "phone = '1'"})


def test_listed_tables_of_a_configuration_have_the_exceptions() -> None:
    """A configuration that lists its tables is restricted as under `drop`."""
    effective = run({"tables": {"users": {}, "new": {}}}, ACCEPT)
    assert (shown(effective, "users"), shown(effective, "new")) == (
        {"id", "added_later"},
        {"id", "mail", "added_later"},
    )
    assert not effective.source.captures(table("other"))
    with pytest.raises(UsageError, match=r"table shop\.salaries may not leave"):
        run({"tables": {"salaries": {}}}, ACCEPT)


def test_conditions_signals_and_histories_know_the_exceptions() -> None:
    """They concern tables that no configuration lists."""
    effective = run(EVERY, ACCEPT)
    source, local = effective.source, effective.local
    assert source.conditions is not None
    for name, column in (("users", "mail"), ("users", "phone"), ("new", "iban"), ("new", "phone")):
        with pytest.raises(UsageError, match=f"must not use column {column}"):
            source.conditions(table(name), f"{column} = '1'")
        with pytest.raises(UsageError, match=f"must not use column {column}"):
            checked_conditions(source, {f"shop.{name}": f"{column} = '1'"})
    assert source.conditions(table("new"), "mail = '1'") == "mail = '1'"
    for kind, name, why in (
        ("schema-set", "new", "hides columns, so its schema must come from the server"),
        ("execute-snapshot", "salaries", "may not leave"),
        ("execute-snapshot", "new", ""),
    ):
        assert why in refused_signal(policy(ACCEPT), local, source, kind, (table(name),))
    assert (limit := restriction_of(source)) is not None
    assert [limit.keeps(("shop", name)) for name in ("new", "users", "salaries")] == [True, True, False]


def test_restrictions_name_no_table_that_must_not_leave() -> None:
    """A gateway receives them."""
    restrictions = run(EVERY, ACCEPT).restrictions
    assert "shop.users: columns mail, iban do not leave" in restrictions
    assert "every table of shop: columns phone leave masked" in restrictions
    assert "shop: 3 of its tables may not leave" in restrictions
    assert not any("salaries" in sentence or "wages" in sentence for sentence in restrictions)


def test_another_exception_is_another_configuration() -> None:
    """Otherwise a narrower policy would not restart the session."""
    one, other = run(EVERY, PLAIN), run(EVERY, PLAIN.replace("[mail]", "[mail, name]"))
    assert one == run(EVERY, PLAIN)
    assert one != other
    hashes = {effective_hash(each.source, KEY, each.accepted) for each in (one, other, run(EVERY, PLAIN))}
    assert len(hashes) == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("filter_policy: accept", "filter_policy: allow"), "one of accept, drop"),
        (("listed: {tables", "listed: {filter_polcy: accept, tables"), "unknown key filter_polcy"),
        (("filter_policy: accept", "filter_policy: drop"), "wages"),
        (("users: {ignored_columns", "users: {ignored_column"), "unknown key ignored_column"),
        (("[iban]", "[iban, IBAN]"), "column IBAN twice"),
        (("{phone: redact}", "{phone: reveal}"), "none of"),
        (("listed: {tables: {orders: {}}}", "listed: {ignored_columns: [a]}"), "key tables is missing"),
    ],
)
def test_it_is_read_strictly(change: tuple[str, str], why: str) -> None:
    """A misspelt key could let data leave."""
    assert change[0] in ACCEPT
    with pytest.raises(TopologyError, match=why):
        policy(ACCEPT.replace(*change))


def found(text: str, *, names: bool | None = True) -> dict[str, PolicyFinding]:
    """Return what the check says about a server's tables."""
    columns = ("id", "Mail", "iban", "phone")
    server = ServerDatabase(
        name="shop", tables=dict.fromkeys(("users", "Cards", "whole", "wages", "new"), columns),
        names_columns=names,
    )  # fmt: skip
    return {one.table.partition(".")[2]: one for one in findings(policy(text).connections["shop-db"], server)}


def test_the_check_says_what_leaves() -> None:
    """It names the columns, and what the policy and the server call differently."""
    seen = found(ACCEPT)
    assert {name: one.leaves for name, one in seen.items()} == {
        "users": True, "Cards": False, "cards": False, "whole": True, "salaries": False, "wages": False, "new": True,
        "masked": False,
    }  # fmt: skip
    assert (seen["users"].plain, seen["users"].masked, seen["users"].hidden) == (("id",), ("phone",), ("Mail", "iban"))
    assert str(seen["users"]) == "shop-db shop.users: leaves; plain id; masked phone; hidden Mail, iban"
    assert "the policy names it cards" in seen["Cards"].why
    assert "no such table" in seen["salaries"].why
    assert "lists it without options" in seen["wages"].why
    assert str(found(PLAIN)["new"]) == "shop-db shop.new: leaves"
    misspelt = found(PLAIN.replace("[mail]", "[mails]"))["users"]
    assert "no column mails" in misspelt.why
    assert "misspelt" in misspelt.why


def test_the_check_reports_a_misspelt_column_of_the_database() -> None:
    """It is not expected in each table, but in one. Otherwise the column that was meant would leave."""
    assert "*" not in found(ACCEPT)
    for right, wrong in (("[iban]", "[ibann]"), ("{phone: redact}", "{fone: redact}")):
        one = found(ACCEPT.replace(right, wrong))["*"]
        column = wrong.strip("[{}]").partition(":")[0]
        assert str(one) == (
            f"shop-db shop.*: leaves; no table has a column {column}: check the policy for a misspelt name"
        )


def test_the_check_knows_whether_the_log_names_columns() -> None:
    """Tables with hidden columns are left out otherwise, and the check says how to change that."""
    for names, remedy in ((False, "binlog_row_metadata = FULL"), (None, "upgrade the server")):
        seen = found(PLAIN, names=names)
        assert (seen["users"].leaves, seen["new"].leaves) == (False, True)
        assert remedy in seen["users"].why


def test_the_check_says_why_a_request_is_refused() -> None:
    """As the agent would, from a configuration or from what `fleet config show` prints."""
    base = {"agents": ["a1"], "connection": "shop-db", "database": "shop"}
    refused = request_verdict(policy(PLAIN), {**base, "tables": {"salaries": {}}})
    assert refused.refused
    assert "table shop.salaries may not leave shop-db" in refused.sentences[0]
    shown = {"source": "shop", "version": 3, "spec": {**base, **EVERY}, "versions": []}
    accepted = request_verdict(policy(PLAIN), shown)
    assert (accepted.refused, accepted.sentences[0]) == (False, "accepted")
    assert "shop.users: columns mail do not leave" in accepted.sentences
    assert request_verdict(policy(PLAIN), {"tables": {"users": {}}}).refused
