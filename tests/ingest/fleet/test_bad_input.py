"""Input that no valid agent sends is refused with its gRPC status and one audit line, and nothing is written.

The session of a valid agent continues at the same time.
"""

from __future__ import annotations

import queue
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, cast

import grpc
import pytest
import structlog

from cdc.compression import zstd
from ingest.fleet.certificate import RevokedCertificate, certified
from ingest.fleet.fleet_pb2 import (
    Assign,
    Commit,
    Control_Config,
    Control_Heartbeat,
    Control_Lease,
    Control_Map,
    Control_MSSQLClient,
    Control_MySQLBinlog,
    Control_MySQLClient,
    Control_Report,
    Data_Log,
    Empty,
    Header,
    Hello,
    LogCall,
    MapPart,
    MapPlace,
    Ready,
    Records,
    Report,
    RequestType,
    StreamRequest,
)
from ingest.fleet.frames import PIECE, FrameWriter
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.request_types import typed
from ingest.fleet.state import revoked_record, token_record
from ingest.fleet.tokens import AGENT, Token, hashed, written
from ingest.fleet.wire import FIRST, MESSAGE, METHOD, PROTOCOL, hello
from ingest.gateway.proc_handshakes import handshakes
from ingest.gateway_client.gateway_log import GatewayLog
from ingest.gateway_client.grpc_stream import Credentials, GrpcStream
from tests.ingest.fleet.test_session_handler import AT, TOPIC, Log, records
from tests.support.gateways import TENANT
from tests.support.strangers import (
    GatewayWorld,
    agent,
    called,
    expired,
    gateways,
    own_signer,
    revoked,
    stranger,
    without,
)
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(120)
Status = grpc.StatusCode
SECRET = "s" * 43
NAMES = {
    "a slash": "s/x", "dots": "../s", "NUL": "s\0", "300 characters": "s" * 300, "a look-alike": "ѕ", "capitals": "S",
}  # fmt: skip
FOREIGN = "other.s.d.t"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayWorld]:
    structlog.reset_defaults()
    with ExitStack() as exit:
        yield GatewayWorld(tmp_path_factory.mktemp("bad"), exit)


def speaks(
    address: str, shown: grpc.ChannelCredentials, said: Sequence[StreamRequest | bytes], bearer: str = ""
) -> Any:
    """Return the gateway's last reply to an arbitrary client, or the error with which it refused the client."""
    with grpc.secure_channel(address, shown) as channel:
        outgoing: queue.Queue[bytes | None] = queue.Queue()
        for one in said:
            outgoing.put(one if isinstance(one, bytes) else typed(one).SerializeToString())
        metadata = (("authorization", f"Bearer {bearer}"),) if bearer else ()
        connect: Any = channel.stream_stream(METHOD, response_deserializer=StreamRequest.FromString)
        call = connect(iter(outgoing.get, None), timeout=20, metadata=metadata)
        try:
            for reply in call:
                if reply.HasField("unsupported") or reply.log_reply.HasField("failure"):
                    return reply
        except grpc.RpcError as error:
            return error
        finally:
            outgoing.put(None)
    raise AssertionError("the gateway ended the stream without a reason")


@dataclass(frozen=True)
class Bad:
    """Messages of a client, its credentials, the expected status (None: the channel fails) and the audit line."""

    what: str
    code: grpc.StatusCode | None
    why: str
    said: Sequence[StreamRequest | bytes] = ()
    shown: Callable[[GatewayWorld], grpc.ChannelCredentials] = agent
    begun: bool = True  # it sends hello first
    held: bool = False  # the log accepts nothing


def log_call(source: str = "s", **what: Any) -> StreamRequest:
    return StreamRequest(header=Header(source=source), log_call=LogCall(channel=1, **what))


RECOVER = log_call(call=1, recover=Empty())


def framed(topic: str, key: bytes = b"1") -> Records:
    writer = FrameWriter()
    pieces = [*writer.write([records(1, topic)[0]._replace(key=key)]), *writer.rest()]
    return Records(frames=zstd.compress(pieces[0]), size=len(pieces[0]))


def without_credit() -> Iterator[StreamRequest]:
    """Small records that claim to be large, and exceed the credit."""
    writer = FrameWriter()
    for record in records(FIRST // PIECE + 4):
        for piece in [*writer.write([record]), *writer.rest()]:
            yield log_call(records=Records(frames=zstd.compress(piece), size=PIECE))


def half() -> Records:
    whole = zstd.decompress(framed(TOPIC).frames)
    return Records(frames=zstd.compress(whole[:-3]), size=len(whole) - 3)


def bad_names() -> Iterator[Bad]:
    """Invalid names, in every place where an agent sends one."""
    for what, name in NAMES.items():
        yield Bad(
            f"a source: {what}",
            Status.INVALID_ARGUMENT,
            "is not a valid source name",
            [log_call(name, recover=Empty())],
        )
        yield Bad(
            f"a topic: {what}", None, "may not write topic", [RECOVER, log_call(call=2, ensure_topic=f"t.s.d.{name}")]
        )
        ready = StreamRequest(ready=Ready(places=[MapPlace(connection=name + "!", database="d")]))
        yield Bad(f"a connection: {what}", Status.INVALID_ARGUMENT, "is not a valid connection alias", [ready])
        report = StreamRequest(report=Report(source=name))
        yield Bad(f"a report: {what}", Status.INVALID_ARGUMENT, "is not a valid source name", [report])
        if what in ("NUL", "300 characters"):
            ready = StreamRequest(ready=Ready(places=[MapPlace(connection="c", database=name)]))
            yield Bad(f"a database: {what}", Status.INVALID_ARGUMENT, "is not a valid database name", [ready])


def labelled(key: int, request: StreamRequest) -> bytes:
    """Return a message with the type of another payload."""
    made = StreamRequest()
    made.CopyFrom(request)
    made.type = cast(RequestType, key)
    return made.SerializeToString()


def mislabelled() -> Iterator[Bad]:
    """Messages whose payload belongs to another type are refused, with or without a plugin for that type."""
    hello_again = StreamRequest(hello=Hello(protocol=PROTOCOL))
    for key, before, request, owner in (
        (Control_MSSQLClient, [], RECOVER, Data_Log),
        (Control_MySQLClient, [], RECOVER, Data_Log),
        (Control_Config, [], RECOVER, Data_Log),  # as an agent of the previous release, whose hello says so
        (Control_Report, [RECOVER], log_call(call=2, commit=Commit(records=0)), Data_Log),
        (Data_Log, [], StreamRequest(heartbeat=Empty()), Control_Heartbeat),
        (Data_Log, [], SEATED, Control_Config),
        (Control_Map, [SEATED], StreamRequest(report=Report(source="s")), Control_Report),
        (Control_Lease, [], hello_again, Control_Config),
        (999, [], RECOVER, Data_Log),
    ):
        what = request.WhichOneof("payload")
        name = f"{RequestType.Name(key)} ({key})" if key in RequestType.values() else str(key)
        yield Bad(
            f"{what} as {name}",
            Status.INVALID_ARGUMENT,
            f"a message of type {name} contains {what}, which belongs to {RequestType.Name(owner)} ({owner})",
            [*before, labelled(key, request)],
        )
    yield Bad(
        "map_part as Control_MySQLBinlog (11)",
        Status.INVALID_ARGUMENT,
        "contains map_part, which belongs to Control_MySQLClient (10) or Control_PgSQLClient (13)",
        [SEATED, labelled(Control_MySQLBinlog, MAP)],
    )
    yield Bad(
        "hello as Data_Log",
        Status.INVALID_ARGUMENT,
        "contains hello, which belongs to Control_Config (0)",
        [labelled(Data_Log, hello("9"))],
        begun=False,
    )


HUGE = StreamRequest(log_call=LogCall(channel=1, records=Records(frames=b"x" * (64 * MESSAGE))))
SEATED = StreamRequest(ready=Ready(places=[MapPlace(connection="c", database="d")]))
MAP = StreamRequest(map_part=MapPart(connection="c", database="d"))
NO_CREDIT = [RECOVER, *without_credit()]
BAD = [
    Bad("signed by itself", Status.UNAVAILABLE, "CERTIFICATE_VERIFY_FAILED", shown=own_signer),
    Bad("another fleet's", Status.UNAVAILABLE, "unable to get local issuer", shown=stranger),
    Bad("expired", Status.UNAVAILABLE, "certificate has expired", shown=expired),
    Bad("no certificate", Status.UNAVAILABLE, "PEER_DID_NOT_RETURN_A_CERTIFICATE", shown=without),
    Bad("a gateway's", Status.UNAVAILABLE, "certificate", shown=gateways),
    Bad("revoked", Status.UNAUTHENTICATED, "was revoked", shown=revoked),
    *(
        Bad(f"called {what}", Status.UNAUTHENTICATED, "not the certificate of an agent", shown=called(name))
        for what, name in NAMES.items()
        if name.isascii() and "\0" not in name and len(name) <= 64
    ),
    Bad(
        "another tenant's header",
        Status.PERMISSION_DENIED,
        "its header names 'other/'",
        [StreamRequest(header=Header(tenant="other"), hello=Hello(protocol=PROTOCOL))],
        begun=False,
    ),
    Bad(
        "another agent's header",
        Status.PERMISSION_DENIED,
        "its header names '/a2'",
        [StreamRequest(header=Header(agent="a2"), hello=Hello(protocol=PROTOCOL))],
        begun=False,
    ),
    *(
        Bad(f"{whose} header {when}", Status.PERMISSION_DENIED, f"its header names {name!r}", said)
        for whose, name, header in (
            ("another tenant's", "other/", Header(tenant="other", source="s")),
            ("another agent's", "/a2", Header(agent="a2", source="s")),
        )
        for when, said in (
            (
                "when it opens a session",
                [StreamRequest(header=header, log_call=LogCall(channel=1, call=1, recover=Empty()))],
            ),
            ("in an open session", [RECOVER, StreamRequest(header=header, log_call=LogCall(channel=1, abort=Empty()))]),
            ("of a sign of life", [StreamRequest(header=header, heartbeat=Empty())]),
            ("of a report", [SEATED, StreamRequest(header=header, report=Report(source="s"))]),
            ("of an unknown message", [StreamRequest(header=header, type=Control_MSSQLClient)]),
        )
    ),
    Bad(
        "another source on an open session",
        Status.PERMISSION_DENIED,
        "channel 1 belongs to source 's', but a message names 'crm'",
        [RECOVER, log_call("crm", abort=Empty())],
    ),
    Bad(
        "an older protocol",
        Status.FAILED_PRECONDITION,
        "protocol 0; this gateway uses 1",
        [StreamRequest(hello=Hello(protocol=PROTOCOL - 1))],
        begun=False,
    ),
    Bad("no hello", Status.FAILED_PRECONDITION, "its first message is not hello", [RECOVER], begun=False),
    Bad(
        "another tenant's source",
        Status.PERMISSION_DENIED,
        "this agent may not capture source 'crm'",
        [log_call("crm", recover=Empty())],
    ),
    Bad(
        "another tenant's topic",
        None,
        f"may not write topic {FOREIGN}",
        [RECOVER, log_call(call=2, ensure_topic=FOREIGN)],
    ),
    Bad(
        "a record of another tenant's",
        None,
        f"a record of topic {FOREIGN}",
        [RECOVER, log_call(records=framed(FOREIGN))],
    ),
    Bad(
        "another source's key",
        None,
        "a record of topic t.schemas",
        [RECOVER, log_call(records=framed("t.schemas", b"x.d.t"))],
    ),
    Bad("64 MiB", Status.RESOURCE_EXHAUSTED, "or sent more than 1048576 bytes", [HUGE]),
    Bad("half a message", Status.INVALID_ARGUMENT, "not a complete message", [RECOVER.SerializeToString()[:-1]]),
    Bad(
        "half a record",
        None,
        "and one is incomplete",
        [RECOVER, log_call(records=half()), log_call(call=2, commit=Commit(records=1))],
    ),
    Bad("no records", None, "are not records", [RECOVER, log_call(records=Records(frames=b"noise", size=5))]),
    Bad(
        "invalid position",
        None,
        "a commit has an invalid position",
        [RECOVER, log_call(call=2, commit=Commit(checkpoint=b"{}"))],
    ),
    Bad("an unknown search", None, "there is no search 7", [RECOVER, log_call(stop_search=7)]),
    Bad("a flood of records", Status.RESOURCE_EXHAUSTED, "records without credit", NO_CREDIT, held=True),
    Bad("a flood of messages", Status.RESOURCE_EXHAUSTED, "too many messages", [SEATED, *([MAP] * 700)]),
    Bad(
        "the catalog of a database that it did not announce",
        Status.INVALID_ARGUMENT,
        "did not announce",
        [StreamRequest(ready=Ready()), MAP],
    ),
    *(
        Bad(f"{what} without a plugin", None, f"a message of type {name}", [one] * 3)
        for what, name, one in (
            ("a type", "Control_MSSQLClient (17)", StreamRequest(type=Control_MSSQLClient)),
            ("an unknown type", "999", labelled(999, StreamRequest())),
            ("a type without its payload", "Data_Log (100)", StreamRequest(type=Data_Log)),
            ("an assignment of an agent", "Control_MySQLBinlog (11)", StreamRequest(assign=Assign(source="s"))),
        )
    ),
    *mislabelled(),
    *bad_names(),
]


def unharmed(world: GatewayWorld, before: Sequence[Any]) -> None:
    """Check that the valid agent's session continues and that nothing else was written."""
    world.honest.extend(records(1))
    world.honest.commit(AT)
    assert world.source.broker.records == [*before, *records(1)]
    assert not world.beside.broker.records
    assert not world.beside.broker.checkpoints


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.what)
def test_bad_input(world: GatewayWorld, bad: Bad) -> None:
    """Each is refused with its status and one audit line with the identity and the reason."""
    credentials = bad.shown(world)
    lines, state, before = len(world.audit.lines), world.topic.state, list(world.source.broker.records)
    said = [hello("9"), *bad.said] if bad.begun else bad.said
    if bad.held:
        Log.waits.clear()
    with handshakes(world.runtime.handshake_failed):  # inside the test, because pytest also captures standard error
        answer = speaks(world.address, credentials, said)
    Log.waits.set()
    if bad.code is None:
        assert isinstance(answer, StreamRequest), answer
    else:
        assert answer.code() is bad.code, answer
    wait_for(lambda: len(world.audit.lines) > lines, "cannot write to the audit log", seconds=10)
    unharmed(world, before)
    [line] = [one for one in world.audit.lines[lines:] if one["why"] != _WENT or bad.why in _WENT]
    assert bad.why in line["why"]
    assert line["outcome"] != "done"
    fleet = (world.topic.state.maps, world.topic.state.reported, world.topic.state.leases)
    assert fleet == (state.maps, state.reported, state.leases)


_WENT = f"the agent disconnected without closing, or sent more than {MESSAGE} bytes at once"


def test_a_stream_that_is_open_is_cut(world: GatewayWorld) -> None:
    """Revoking its certificate ends it within seconds. Other streams continue."""
    folder = world.made("cut", FleetIdentity(TENANT, "agents", "a3"))
    stream = GrpcStream(world.address, Credentials.of(folder))
    before = list(world.source.broker.records)
    serial = certified((folder / "cert.pem").read_bytes()).serial
    world.topic.write(revoked_record(RevokedCertificate(serial=serial, by="anna")))
    wait_for(lambda: not stream.open, "it is still open", seconds=10)
    with pytest.raises(Exception, match=f"certificate {serial} was revoked"):
        stream.report(StreamRequest())
    assert [one for one in world.audit.lines if one["why"] == f"certificate {serial} was revoked"] == [
        one for one in world.audit.lines if serial in one["why"] and one["outcome"] == "turned away"
    ]
    unharmed(world, before)


def token(number: int, **said: Any) -> Token:
    whole: dict[str, Any] = {"name": "t1", "role": AGENT, "sha256": hashed(SECRET), "issued_ms": 0, "expires_ms": 2**53}
    return Token(id=f"{number:016x}", **{**whole, **said})


def test_tokens_of_agents(world: GatewayWorld) -> None:
    """A valid token identifies its agent until it is revoked. Wrong, expired, revoked and operators' tokens are
    refused.

    Of a hundred guesses, ten are audited. Then wrong tokens of the address are refused, and valid ones still work.
    """
    plain = grpc.ssl_channel_credentials((world.folder / "authority" / "ca.pem").read_bytes())
    right = token(1)
    for one in (right, token(2, expires_ms=1), token(3, revoked=True), token(4, role="admin")):
        world.topic.write(token_record(one))
    folder = world.folder / "token"
    folder.mkdir()
    shutil.copy(world.folder / "authority" / "ca.pem", folder)
    (folder / "token").write_text(written(right.id, SECRET) + "\n")
    stream = GrpcStream(world.tokens, Credentials.of(folder))
    log = GatewayLog(stream, "s")
    log.recover()
    lines, before = len(world.audit.lines), list(world.source.broker.records)
    for number, why in ((2, "has expired"), (3, "was revoked"), (4, "is not an agent's"), (9, "no such token")):
        refused = speaks(world.tokens, plain, [hello("9")], written(f"{number:016x}", SECRET))
        assert (refused.code(), why in refused.details()) == (Status.UNAUTHENTICATED, True)
    assert len(world.audit.lines) == lines + 4
    with grpc.secure_channel(world.tokens, plain) as channel:
        codes = [_guess(channel, number) for number in range(100)]
    assert codes == [Status.UNAUTHENTICATED] * 6 + [Status.RESOURCE_EXHAUSTED] * 94
    assert len(world.audit.lines) == lines + 10
    assert "refused for a while" in world.audit.lines[-1]["why"]
    another = GrpcStream(world.tokens, Credentials.of(folder))
    assert another.open
    another.close()
    unharmed(world, before)
    world.topic.write(token_record(replace(right, revoked=True)))
    wait_for(lambda: not stream.open, "a revoked token's stream is still open", seconds=10)
    stream.close()


def _guess(channel: grpc.Channel, number: int) -> Any:
    connect: Any = channel.stream_stream(METHOD)
    call = connect(
        iter([hello("9").SerializeToString()]), timeout=20,
        metadata=(("authorization", f"Bearer {written(f'{number:016x}', 'x' * 43)}"),),
    )  # fmt: skip
    with pytest.raises(grpc.RpcError) as refused:
        next(call)
    return refused.value.code()


def test_a_flood_of_strangers_has_few_lines(world: GatewayWorld) -> None:
    """Clients without a certificate cannot fill the audit log."""
    lines = len(world.audit.lines)
    for _ in range(200):
        world.runtime.handshake_failed("CERTIFICATE_VERIFY_FAILED")
    reported_now: list[Mapping[str, Any]] = world.audit.lines[lines:]
    assert len(reported_now) <= 60
    assert "are not audited for a while" in reported_now[-1]["why"]
