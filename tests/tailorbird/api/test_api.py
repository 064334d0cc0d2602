"""The API runs the commands of the command line for operators with a role, audits them, and hides what they may not
see."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from cdc.model.errors import UsageError
from tailorbird.client import ApiError, Client, OperationState, StreamLine
from tailorbird.web.api.commands import RIGHTS
from tailorbird.web.api.http_app import MOST_BODY
from tailorbird.web.api.run_api import refuse_plain
from tailorbird.web.dashboard.guard.access import Access
from tests.support.served_api import TOKENS, ServedApi, serving
from tests.support.waiting import wait_for

SHOP = "topologies/shop"


@pytest.fixture(scope="module")
def served() -> Iterator[ServedApi]:
    with serving() as one:
        yield one


@pytest.fixture(autouse=True)
def _empty(served: ServedApi) -> None:
    served.audit.lines.clear()
    served.audit.unavailable = False


def asked(served: ServedApi, path: str, role: str = "admin", **more: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {TOKENS.get(role, role)}"} if role else {}
    return httpx.request(more.pop("method", "GET"), f"{served.url}/v1/{path}", headers=headers, **more)


def problem(answer: httpx.Response) -> Mapping[str, Any]:
    assert answer.headers["content-type"] == "application/problem+json"
    found: Mapping[str, Any] = answer.json()
    assert found["status"] == answer.status_code
    return found


def test_a_token_and_its_role_are_needed(served: ServedApi) -> None:
    """Without a valid token, or with a role that is not sufficient, nothing runs, and the audit says so."""
    for role, path, method, status in (
        ("", f"{SHOP}/status", "GET", 401),
        ("tb_0000000000000000_" + "x" * 43, f"{SHOP}/status", "GET", 401),
        ("", "topologies", "GET", 401),
        ("view", f"{SHOP}/operations/apply", "POST", 403),
        ("operate", f"{SHOP}/explain?table=wide&key=1", "GET", 403),
        ("operate", f"{SHOP}/operations/dead-letters/show", "POST", 403),
    ):
        body: dict[str, Any] = {"json": {}} if method == "POST" else {}
        assert problem(asked(served, path, role, method=method, **body))["status"] == status, path
        assert served.audit.lines[-1]["outcome"] == "refused"
    assert {line["outcome"] for line in served.audit.lines} == {"refused"}
    assert asked(served, "topologies", "view").json() == ["shop"]


def test_unknown_names_and_options_are_refused(served: ServedApi) -> None:
    """A problem says what exists. It has the exit code that the command line has for the error."""
    assert problem(asked(served, "topologies/hop/status"))["detail"] == "no topology hop; one of shop"
    assert problem(asked(served, f"{SHOP}/dashboards/hidden/rows"))["status"] == 404
    assert problem(asked(served, f"{SHOP}/operations/apply", method="POST", json={"mster": 1}))["status"] == 400
    assert problem(asked(served, f"{SHOP}/operations/wait", method="POST", json={}))["status"] == 400
    assert problem(asked(served, f"{SHOP}/fly"))["exit_code"] == 2
    wrong = problem(asked(served, f"{SHOP}/explain?table=wide&key=none"))
    assert (wrong["status"], wrong["exit_code"]) == (400, 2)
    assert wrong["detail"] == "wide has no row none; run `tailorbird wait` first"


def test_lists_have_pages(served: ServedApi) -> None:
    """A page has the entries from an offset, and the header the number of all."""
    answer = asked(served, f"{SHOP}/plan", params={"offset": 20, "limit": 10})
    assert [one["step"] for one in answer.json()["entries"]] == [20, 21, 22, 23, 24]
    assert answer.headers["X-Total-Count"] == "25"
    assert problem(asked(served, f"{SHOP}/plan", params={"limit": 1_000_000}))["status"] == 400
    assert served.client().plan("shop", limit=2).total == 25
    assert asked(served, f"{SHOP}/operations", params={"limit": 1}).json()[0]["command"] == "plan"


def test_long_bodies_are_refused(served: ServedApi) -> None:
    """A body that is too long, or has no length, is not read."""
    body = b" " * (MOST_BODY + 1)
    assert problem(asked(served, f"{SHOP}/operations/apply", method="POST", content=body))["status"] == 413
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc)
    headers = {"Authorization": f"Bearer {TOKENS['admin']}", "Transfer-Encoding": "chunked"}
    connection.request("POST", f"/v1/{SHOP}/operations/apply", iter([b"{}"]), headers, encode_chunked=True)
    assert connection.getresponse().status == 411
    connection.close()


def test_values_are_hidden_below_admin_and_cannot_become_options(served: ServedApi) -> None:
    """A value stays a value, whatever it looks like."""
    options: dict[str, Any] = {"table": ["--repair", "a b"], "stage": ["index"], "threads": 4}
    found = served.client("operate").run("shop", "verify", **options)
    (arguments,) = (one["arguments"] for one in found.entries)
    assert arguments == [
        "verify", "--json", "--stage=index", "--table=--repair", "--table=a b", "--threads=4", "--limit=50",
        "--no-values", "--", "shop.yml",
    ]  # fmt: skip
    assert "--no-values" not in served.client("admin").run("shop", "verify").entries[0]["arguments"]
    status = served.client("view").status("shop", search="--watch")
    assert (status.exit_code, status.messages) == (1, ["one moment"])
    assert status.entries[0]["arguments"] == ["status", "--json", "--search=--watch", "--no-values", "--", "shop.yml"]
    shown = served.client().run("shop", "explain", table="--json", key="-1", column=["a"]).entries[0]["arguments"]
    assert shown == ["explain", "--json", "--column=a", "--", "shop.yml", "--json", "-1"]


def test_commands_are_audited_without_values(served: ServedApi) -> None:
    """Who, what, with which options, and how it ended; never a key, a word or a filter. Reads are not audited."""
    client = served.client()
    client.status("shop")
    assert served.audit.lines == []
    client.run("shop", "explain", table="wide", key='"secret value"')
    client.search("shop", "sales", words="secret words", filter=["name = secret"])
    begun, done, searched = served.audit.lines
    assert (begun["what"], begun["who"], begun["from"], begun["on"], begun["outcome"]) == (
        "api explain", "ann-admin", "127.0.0.1", "shop", "begun",
    )  # fmt: skip
    assert begun["options"] == {"table": "wide", "key": "given"}
    assert (done["outcome"], done["exit_code"]) == ("done", 0)
    assert (searched["what"], searched["on"], searched["outcome"]) == ("api search", "sales", "done")
    assert "secret" not in json.dumps(served.audit.lines)


def test_without_an_audit_line_nothing_begins(served: ServedApi) -> None:
    """While the audit log is unavailable, commands that write are refused; those that read work."""
    served.audit.unavailable = True
    before = len(served.operations.of("shop"))
    answer = asked(served, f"{SHOP}/operations/apply", method="POST", json={})
    assert problem(answer)["status"] == 503
    assert "Retry-After" in answer.headers
    assert len(served.operations.of("shop")) == before
    assert served.client("view").status("shop").exit_code == 1


def test_an_operation_is_cancelled_like_with_ctrl_c(served: ServedApi) -> None:
    """Its process ends, its output stays, and no other operator may see or cancel it."""
    client = served.client("view")
    started = client.start("shop", "wait", source="s", now=True)
    lines = client.follow(started)
    first = next(lines)
    assert isinstance(first, StreamLine)
    assert (first.stream, first.text) == ("err", "waiting for a commit")
    assert client.operation("shop", started.id).progress == "waiting for a commit"
    for method in ("GET", "DELETE"):
        assert problem(asked(served, f"{SHOP}/operations/{started.id}", "operate", method=method))["status"] == 404
    assert served.client("admin").cancel("shop", started.id).state == "cancelled"
    last = next(one for one in lines if isinstance(one, OperationState))
    assert (last.state, last.exit_code) == ("cancelled", 130)
    assert served.audit.lines[-1]["what"] == "api cancel"
    assert problem(asked(served, f"{SHOP}/operations/{started.id}", method="DELETE"))["status"] == 400


def test_the_queue_is_bounded(served: ServedApi) -> None:
    """So many operations run and wait, and further ones are refused; a waiting one can be cancelled."""
    client = served.client("operate")
    started = [client.start("shop", "wait", source="s", now=True) for _ in range(2)]
    wait_for(lambda: all(client.operation("shop", one.id).state == "running" for one in started), "they do not run", 10)
    started += [client.start("shop", "wait", source="s", now=True) for _ in range(2)]
    answer = asked(served, f"{SHOP}/operations/verify", "operate", method="POST", json={})
    assert (problem(answer)["status"], answer.headers["Retry-After"]) == (429, "6")
    assert served.audit.lines[-1]["outcome"] == "refused"
    assert client.operation("shop", started[-1].id).state == "waiting"
    assert client.status("shop").exit_code == 1  # short commands have a queue of their own
    for one in reversed(started):
        assert client.cancel("shop", one.id).state == "cancelled"
    wait_for(lambda: all(client.operation("shop", one.id).ended_ms for one in started), "they do not end", 10)
    assert client.run("shop", "verify").exit_code == 0


def test_rows_show_only_columns_of_the_dashboard(served: ServedApi) -> None:
    """A hidden column can be neither read, nor filtered, nor sorted by, for any role."""
    client = served.client("view")
    found = client.search("shop", "sales", offset=3, limit=5)
    assert found.rows == [{"key": "row-1", "values": {"name": "Ann", "amount": 1.5}}]
    assert (found.total, found.verification["verdict"]) == (1, "equal")
    assert (served.answers.asked[-1]["start"], served.answers.asked[-1]["rows"]) == (3, 5)
    for query in ({"column": ["secret"]}, {"filter": ["secret = 1"]}, {"sort": "secret"}):
        with pytest.raises(ApiError, match="unknown column secret") as refused:
            served.client("admin").search("shop", "sales", **query)
        assert refused.value.status == 400
    with pytest.raises(ApiError, match=r"offset|less than"):
        client.search("shop", "sales", offset=10**6)
    explained = asked(served, f"{SHOP}/dashboards/sales/rows/row-1/explain", "view").json()
    assert [cell["name"] for cell in explained["cells"]] == ["name"]
    assert "hidden value" not in json.dumps(explained)
    assert [one["dashboard"] for one in asked(served, f"{SHOP}/dashboards", "view").json()] == ["sales"]


def test_changes_of_an_index_resume_at_a_position(served: ServedApi) -> None:
    """A client that names its last position gets the rows that changed since, then the new position."""
    path = f"{SHOP}/dashboards/sales/events"
    first = next(served.client("view").events(path))
    assert (first.kind, first.id) == ("cut", "10")
    rows, cut = islice(served.client("view").events(path, "6"), 2)
    assert (rows.kind, rows.id) == ("rows", "")
    row = {"key": "row-1", "values": {"name": "Ann", "amount": 2}}
    assert (rows.data["rows"], rows.data["deleted"]) == ([row], ["row-1"])
    assert (cut.kind, cut.id) == ("cut", "10")
    assert str(served.answers.asked[-1]["fq"]).startswith("['_fence:{7 TO 11]'")
    headers = {"Authorization": f"Bearer {TOKENS['view']}", "Last-Event-ID": "three"}
    assert problem(httpx.get(f"{served.url}/v1/{path}", headers=headers))["status"] == 400


def test_status_and_output_are_streams(served: ServedApi) -> None:
    """A stream of output resumes after a line, and ends with the operation. The status is sent when it changes."""
    client = served.client("operate")
    done = client.run("shop", "verify").operation
    path = f"{SHOP}/operations/{done.id}/events"
    assert [event.kind for event in client.events(path)] == ["line", "line", "ended"]
    resumed = list(client.events(path, "1"))
    assert [(event.kind, event.id) for event in resumed] == [("line", "2"), ("ended", "")]
    assert resumed[-1].data["exit_code"] == 0
    status = next(client.events(f"{SHOP}/status/events"))
    assert (status.kind, status.data["exit_code"]) == ("status", 1)


def test_the_description_has_every_command_with_its_options(served: ServedApi) -> None:
    """`/openapi.json` is made from the options of the command line."""
    found = httpx.get(f"{served.url}/openapi.json").json()
    for name in RIGHTS:
        assert f"/v1/topologies/{{topology}}/operations/{'/'.join(name.split())}" in found["paths"], name
    verify = found["components"]["schemas"]["VerifyOptions"]["properties"]
    assert verify["threads"] == {
        "default": 2, "description": "log: parallel connections per source.", "minimum": 1.0, "title": "Threads",
        "type": "integer",
    }  # fmt: skip
    assert {"stage", "table", "repair", "yes", "text", "all", "no_values"} <= verify.keys()
    assert "as_json" not in verify


def test_tokens_do_not_leave_without_tls() -> None:
    """Neither does the server listen for other machines, nor does the client connect to them, without TLS."""
    refuse_plain("127.0.0.1", Access())
    refuse_plain("0.0.0.0", Access(behind_proxy=True))
    for access in (Access(), Access(certificate="c")):
        with pytest.raises(UsageError):
            refuse_plain("0.0.0.0", access)
    for url in ("http://ops.example.org:7450", "ops.example.org", "https://", "ftp://h", "https://a:b@h"):
        with pytest.raises(UsageError):
            Client(url, token="t")
