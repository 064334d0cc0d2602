"""Topologies as users might write them: every kind of source, table, index and page, valid and invalid names."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Draw = st.DrawFn
GOOD = ("orders", "wide", "customers", "shop", "t")
CONTROL = ("positions", "schemas", "history", "deadletters", "quarantine", "signals", "layouts")
ODD = ("or.ders", "a.b", 'qu"ote', "it's", "`tick`", "ord er", "Wide", "Bücher", "a-b", "no", "1:30", "_", "select", "")
# MySQL's valid table names, with those that Kafka does not distinguish
LISTED = (*GOOD, *CONTROL, "a_b", "a.b", "sales.a_b", "sales.a.b", "Orders", "order-lines", "order items", 'qu"ote')
COLUMNS = ("id", "name", "at", "amount")

# most of a topology is valid, so that an error is alone
right = st.sampled_from([*GOOD * 4, *CONTROL])
odd = st.sampled_from([*GOOD * 6, *ODD])


def mostly(good: Any, *others: Any) -> st.SearchStrategy[Any]:
    """Generate a value that is valid nineteen times out of twenty."""
    return st.sampled_from([*[good] * 19 * len(others), *others])


_column = st.sampled_from([*["id"] * 9, *COLUMNS * 2, "x", "gone", "a b"])
_fitting = [{"source": "row", "type": "string"}, {"source": "d:x", "type": "int64"}, {"source": "d:y*", "type": "json"}]
_field = st.sampled_from([*_fitting * 19, {"source": "d", "type": "string"}, {"source": "d:z", "type": "char"}])


@st.composite
def _source(draw: Draw) -> dict[str, Any]:
    kind = draw(st.sampled_from(["mysql", "mysql", "mariadb", "sql"]))
    polled = kind == "sql" or draw(st.integers(0, 3)) == 0
    listed = draw(
        st.lists(st.sampled_from([*GOOD * 4, *LISTED]), min_size=1, max_size=3, unique=draw(mostly(True, False)))
    )
    said: dict[str, Any] = {
        "type": kind,
        "database": draw(st.sampled_from(["shop"] * 8 + ["a.b", "sales", ""])),
        "tables": listed,
    }
    if draw(st.booleans()):
        rules = st.sampled_from([{}, {"message_key_columns": ["name"]}, {"mask": {"name": "redact"}}])
        said["tables"] = {table: draw(rules) for table in listed}
    if kind == "sql":
        said["url"] = draw(mostly("sqlite:///x", "no url"))
    else:
        said |= {"hostname": "h", "username": "u", "password": "p"}
    if polled:
        said |= {"capture": "poll", "mode": draw(st.sampled_from(["updated_at", "feed"])), "cursor": "at"}
    else:
        said["server_id"] = draw(st.integers(1, 99))
        said["filter_policy"] = draw(st.sampled_from(["drop", "drop", "accept"]))
    return said


@st.composite
def _query(draw: Draw, tables: list[str]) -> str:
    def quoted(table: str) -> str:
        return ".".join("`" + part.replace("`", "``") + "`" for part in table.split(".", 2))

    one, other = draw(st.sampled_from(tables)), draw(st.sampled_from(tables))
    columns = draw(
        st.sampled_from(
            ["a.id, a.name, a.at", "a.id, a.at, a.amount, a.name", "a.*", "a.id, b.name, a.amount", "a.gone AS id"]
        )
    )
    joined = f" LEFT JOIN {quoted(other)} b ON b.id = a.amount" if "b." in columns or draw(st.booleans()) else ""
    return f"SELECT {columns} FROM {quoted(one)} a{joined}"


@st.composite
def _foreign(draw: Draw) -> dict[str, Any]:
    said = {name: draw(_field) for name in COLUMNS if draw(mostly(True, False))}
    return {
        "table": draw(st.sampled_from(["theirs", "sales:orders"] * 4 + ["t:layouts", "t:wide"])),
        "mapping": draw(st.sampled_from(["row", "column"])),
        "fields": {"x": {"source": "d:x", "type": "string"}, **said},
    }


@st.composite
def _page(draw: Draw, indexes: list[str]) -> dict[str, Any]:
    return {
        "index": draw(st.sampled_from([*indexes * 19, "nowhere"])),
        "facets": draw(st.lists(_column, max_size=1)),
        "columns": draw(st.lists(_column, max_size=2)),
        **draw(st.sampled_from([{}, {}, {"time": "at"}, {"time": "name"}])),
    }


@st.composite
def _check(draw: Draw, tables: list[str]) -> dict[str, Any]:
    return {
        "every": draw(mostly("1h", "90s", "0s")),
        **draw(st.sampled_from([{}, {}, {"stage": "log"}, {"stage": "index"}, {"stage": "table"}, {"sample": "1/64"}])),
        **draw(st.sampled_from([{}, {}, {"tables": tables[:1]}, {"tables": ["nowhere"]}])),
    }


@st.composite
def topologies(draw: Draw) -> dict[str, Any]:
    """Generate the content of a topology's YAML file."""
    names = draw(st.sampled_from([right, right, right, odd]))
    said: dict[str, Any] = {"name": draw(mostly("t", "shop", "positions", "T.t"))}
    sources = draw(st.dictionaries(names, _source(), min_size=0 if draw(st.booleans()) else 1, max_size=2))
    # under accept, values listed without a description are omitted
    readable = [
        f"{name}.{table}"
        for name, source in sources.items()
        for table in (["anything"] if source.get("filter_policy") == "accept" else source["tables"])
    ]
    if sources:
        said["sources"] = sources
        made: dict[str, Any] = {}
        for name in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
            reads = [*readable * 4, *made]
            made[name] = {
                "query": draw(_query(reads)),
                "row_key": ["id"],
                "sink": draw(st.sampled_from(["hbase", "hbase", "hbase", "kafka"])),
            }
        if draw(st.integers(0, 3)) == 0:
            made |= {f"{name}.*": {} for name in sources}
        said["tables"] = made
        if draw(st.booleans()):
            said["joins"] = {"isolation": draw(mostly("shared", "process", "thread"))}
    if not sources or draw(st.booleans()):
        said["foreign_tables"] = {draw(st.one_of(st.just("theirs"), names)): draw(_foreign())}
    known = [*said.get("tables", {}), *said.get("foreign_tables", {})]
    if draw(st.integers(0, 3)):
        said["indexes"] = {
            name: {
                "table": draw(st.sampled_from([*known * 19, "nowhere"])),
                "search": draw(st.lists(_column, max_size=1)),
            }
            for name in draw(st.lists(names, min_size=1, max_size=2, unique=True))
        }
        if draw(st.booleans()):
            said["dashboards"] = {draw(names): draw(_page([*said["indexes"]]))}
    if sources and draw(st.integers(0, 3)) == 0:
        said["checks"] = {draw(names): draw(_check([*said["tables"], *readable]))}
    return said
