"""Webhooks: an event when a condition begins and one when it ends, signed, at least once, to the declared host only."""

from __future__ import annotations

import base64
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from cdc.model.errors import Retriable, Skippable, TopologyError
from cdc.process.verdict import HealthTracker
from cdc.topology.hooks.webhook import WEBHOOK_EVENTS, Webhook
from cdc.topology.reader import read_topology
from tailorbird.notify import run_notify
from tailorbird.notify.conditions import (
    NotifyCondition,
    SteadyConditions,
    differences,
    exceeded_slot,
    incomplete_tables,
    stopped_sources,
)
from tailorbird.notify.file_outbox import load_outbox, store_outbox
from tailorbird.notify.http_webhook import post
from tailorbird.notify.outbox import MOST, Outbox
from tailorbird.notify.run_notify import EventSender
from tailorbird.operate.status.dead_letters import LEFT_OUT, OpenDeadLetters
from tailorbird.operate.status.full_reread import RereadSource
from tailorbird.operate.status.part_status import PartStatus
from tailorbird.verify.checks.runs import CheckResult, CheckRun
from tests.support.webhook_receiver import receiver

SLOT = NotifyCondition(kind="slot_exceeded", subject="source/pg", data={"kept_bytes": 9})
STOP = NotifyCondition(kind="source_stopped", subject="source/shop", data={"reason": "killed"})
HOOK = Webhook(name="ops", url="http://127.0.0.1:1/x", secret="s")
ALL = set(WEBHOOK_EVENTS)


def types(outbox: Outbox) -> list[str]:
    return [one.event["type"] for one in outbox.waiting]


def test_a_condition_has_two_events() -> None:
    """One when it begins, one when it ends, and none while it lasts; a later occurrence has other ids."""
    outbox, hooks = Outbox("t"), {"ops": HOOK}
    assert outbox.observe([SLOT], ALL, hooks, 1000)
    assert not outbox.observe([SLOT], ALL, hooks, 2000)
    assert outbox.observe([], ALL, hooks, 3000)
    assert outbox.observe([SLOT], ALL, hooks, 4000)
    assert types(outbox) == [f"io.tailorbird.slot_exceeded.{state}" for state in ("began", "ended", "began")]
    assert len({one.event["id"] for one in outbox.waiting}) == 3
    first = outbox.waiting[0].event
    assert (first["specversion"], first["source"], first["subject"]) == ("1.0", "/tailorbird/t", "source/pg")
    assert first["time"] == "1970-01-01T00:00:01.000+00:00"
    assert first["data"] == {"kept_bytes": 9, "since": "1970-01-01T00:00:01.000+00:00"}


def test_what_could_not_be_determined_has_not_ended() -> None:
    """While Kafka is unavailable, an incomplete table stays incomplete."""
    outbox, hooks = Outbox("t"), {"ops": HOOK}
    outbox.observe([SLOT, STOP], ALL, hooks, 1)
    assert outbox.observe([], {"source_stopped"}, hooks, 2)
    assert types(outbox)[2:] == ["io.tailorbird.source_stopped.ended"]


def test_a_webhook_receives_the_events_that_it_names() -> None:
    """In order, each until it is done; others do not wait for it."""
    hooks = {"ops": HOOK, "slots": Webhook(name="slots", url="https://h/x", events=("slot_exceeded",))}
    outbox = Outbox("t")
    outbox.observe([STOP, SLOT], ALL, hooks, 1)
    assert (outbox.lacking("ops"), outbox.lacking("slots")) == (2, 1)
    event = outbox.next_of("slots")
    assert event is not None
    assert event["type"] == "io.tailorbird.slot_exceeded.began"
    outbox.done("slots", event["id"])
    assert (outbox.lacking("ops"), outbox.next_of("slots")) == (2, None)


def test_the_outbox_survives_a_restart_and_is_bounded(tmp_path: Path) -> None:
    """Neither are events forgotten, nor is a condition that still holds reported again."""
    outbox, hooks = load_outbox(tmp_path, "t", ["ops"]), {"ops": HOOK}
    outbox.observe([STOP], ALL, hooks, 1)
    store_outbox(tmp_path, outbox)
    again = load_outbox(tmp_path, "t", ["ops"])
    assert (again.to_json(), (tmp_path / "webhooks" / "t.json").stat().st_mode & 0o777) == (outbox.to_json(), 0o600)
    assert not again.observe([STOP], ALL, hooks, 2)
    assert load_outbox(tmp_path, "t", ["other"]).waiting == []
    for number in range(MOST):
        again.observe([SLOT] if number % 2 else [STOP], ALL, hooks, number)
    assert (len(again.waiting), again.dropped > 0) == (MOST, True)


def test_conditions_are_read_from_what_status_knows() -> None:
    """Captures, dead letters, tables that are read again, checks and slots. No reason with values of rows is sent."""
    named = {"pid": None, "seconds": None, "error": "", "remedy": "r", "reason": "x"}
    parts = [
        PartStatus(part=part, state=state, **named)  # type: ignore[arg-type]  # of one mapping
        for part, state in (
            ("capture a", "down"),
            ("capture b", "elsewhere"),
            ("capture c", "moving"),
            ("join t", "down"),
        )
    ]
    assert [one.subject for one in stopped_sources(parts)] == ["source/a"]
    letters = [
        OpenDeadLetters(stage="join", of="wide", dead_letters=2, reason="value 'secret' is no number"),
        OpenDeadLetters(stage=LEFT_OUT, of="shop.d.t", dead_letters=1, reason="no key"),
    ]
    found = list(incomplete_tables(letters, [RereadSource(source="s", why="purged", seconds=1.0, tables=3)]))
    assert [one.subject for one in found] == ["join/wide", "left-out/shop.d.t", "reread/s"]
    assert "secret" not in str(found)
    assert "no key" in str(found)
    base = {"rows": 5, "moving": 0, "cut": "", "at_ms": 1, "seconds": 1.0}
    checked = tuple(
        CheckResult(stage="index", table=name, outcome=outcome, differing=1, findings=({"key": "secret"},), **base)  # type: ignore[arg-type]  # of one mapping
        for name, outcome in (("a", "different"), ("b", "equal"))
    )
    [one] = differences([CheckRun(check="c", began_ms=0, ended_ms=1, turn=0, checked=checked)])
    assert (one.subject, "secret" in str(one)) == ("check/c/index/a", False)
    assert [bool(list(exceeded_slot("pg", kept, 10))) for kept in (10, 11)] == [False, True]


def test_a_source_that_restarts_at_once_is_not_reported() -> None:
    """`run` starts a process again within seconds."""
    steady = SteadyConditions(6.0)
    assert steady.steady([STOP], 0.0) == []
    assert steady.steady([], 3.0) == []
    assert steady.steady([STOP], 6.0) == []
    assert steady.steady([STOP], 12.0) == [STOP]


@pytest.mark.parametrize(("secret", "key"), [("s3cret", b"s3cret"), ("whsec_AAEC", b"\x00\x01\x02"), ("", b"")])
def test_a_request_is_a_signed_cloud_event(secret: str, key: bytes) -> None:
    """Structured JSON; the signature covers id, time and body, so that a receiver can refuse old requests."""
    event = {"specversion": "1.0", "id": "7", "type": "t", "source": "/s", "data": {"name": "ä"}}
    with receiver() as kept:
        post(Webhook(name="ops", url=kept.url, secret=secret), event)
    [(path, headers, body)] = kept.requests
    assert (path, json.loads(body)) == ("/hook", event)
    assert headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    named = {name.lower(): value for name, value in headers.items()}
    if not secret:
        assert "webhook-signature" not in named
        return
    expected = hmac.digest(key, f"7.{named['webhook-timestamp']}.".encode() + body, "sha256")
    assert named["webhook-signature"] == f"v1,{base64.b64encode(expected).decode()}"
    assert named["webhook-id"] == "7"


@pytest.mark.parametrize(("status", "error"), [(500, Retriable), (429, Retriable), (404, Skippable), (307, Skippable)])
def test_answers_decide_about_another_attempt(status: int, error: type[Exception]) -> None:
    """A redirect is not followed: its target is not what the topology names."""
    with receiver(status) as kept, pytest.raises(error, match=rf"webhook ops.*{status}"):
        post(Webhook(name="ops", url=kept.url), {"id": "7"})
    assert len(kept.requests) == 1


def test_an_event_is_sent_until_it_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause that grows. A rejected event does not block the next one."""
    monkeypatch.setattr(run_notify, "_FIRST_PAUSE", 0.01)
    with receiver(503, 503, 400) as kept:
        hooks, outbox = {"ops": Webhook(name="ops", url=kept.url)}, Outbox("t")
        outbox.observe([STOP, SLOT], ALL, hooks, 1)
        sender = EventSender(hooks, outbox, tmp_path, HealthTracker())
        sender.send()
        assert (len(kept.requests), outbox.lacking("ops")) == (1, 2)
        while outbox.waiting:
            sender.send()
    ids = [json.loads(body)["id"] for _, _, body in kept.requests]
    assert (len(ids), len(set(ids[:3])), len(set(ids))) == (4, 1, 2)
    assert load_outbox(tmp_path, "t", hooks).waiting == []


def topology(webhook: str) -> Any:
    text = f"""
name: t
sources: {{s: {{type: mysql, hostname: h, username: u, password: p, database: d, tables: [a], server_id: 1}}}}
webhooks: {{ops: {webhook}}}
"""
    return read_topology(text, file="t.yml", environ={"KEY": "hidden"})


def test_a_webhook_is_declared_with_a_secret_from_elsewhere() -> None:
    """Neither the URL, which may contain a token, nor the secret is in `repr`."""
    found = topology('{url: "https://h/token", secret: "${KEY}", events: [source_stopped]}').webhooks["ops"]
    assert (found.url, found.secret, found.events) == ("https://h/token", "hidden", ("source_stopped",))
    assert "hidden" not in repr(found)
    assert "token" not in repr(found)
    assert topology('{url: "http://127.0.0.1:80/x"}').webhooks["ops"].events == WEBHOOK_EVENTS


@pytest.mark.parametrize(
    "wrong",
    [
        '{url: "http://h/x"}', '{url: "https://u:p@h/x"}', '{url: "ftp://h/x"}', '{url: "https://"}',
        '{url: "https://h:99999/x"}', '{url: "https://h/x", events: []}', '{url: "https://h/x", events: [all]}',
        "{secret: x}",
    ],
)  # fmt: skip
def test_what_is_no_webhook_is_refused(wrong: str) -> None:
    """An unencrypted URL of another host would send names of tables in the clear."""
    with pytest.raises(TopologyError, match=r"webhooks\.ops"):
        topology(wrong)
