"""MaxScale's CDC protocol, byte by byte: requests however they are split, and refusals."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from cdc.model.errors import UsageError
from ingest.maxscale.backoff import BackOff
from ingest.maxscale.conversation import (
    LONGEST,
    CloseRequest,
    Conversation,
    DataRequest,
    InvalidRequest,
    LoginRequest,
    ProtocolFault,
    RegistrationRequest,
    Request,
    TransactionRequest,
)
from ingest.maxscale.users import check_of, is_right, read_users, written_users

# bin2hex("foobar:" + SHA1("foopasswd")); the protocol's own example is wrong
LOGIN = b"666f6f6261723a96c86eb4479c9e3142111cf29d931bcddf248783"
SAID = LoginRequest("foobar", hashlib.sha1(b"foopasswd").digest())


def heard(*parts: bytes | None) -> list[Request]:
    """Return the requests parsed from parts as they arrive; None is a pause."""
    conversation, found = Conversation(), list[Request]()

    def take(requests: Iterator[Request]) -> None:
        for request in requests:
            found.append(request)
            if isinstance(request, LoginRequest):
                conversation.accepted()

    for part in parts:
        take(conversation.quiet() if part is None else conversation.feed(part))
    return found


ALL = LOGIN + b"REGISTER UUID=CDC_CONNECTOR-1.0.0, TYPE=JSON" + b"REQUEST-DATA db.t.000003 0-1-42\nCLOSE"
REPORTED = [
    SAID,
    RegistrationRequest("CDC_CONNECTOR-1.0.0", "JSON"),
    DataRequest("db.t.000003", "0-1-42"),
    CloseRequest(),
]


def test_requests_are_parsed_however_they_are_split() -> None:
    """The protocol has no frames: all at once, byte by byte, and randomly split bytes give the same requests."""
    assert heard(ALL) == REPORTED
    assert heard(*(ALL[at : at + 1] for at in range(len(ALL)))) == REPORTED
    random = Random(1)
    for _ in range(200):
        cuts = sorted({0, len(ALL), *(random.randrange(len(ALL)) for _ in range(4))})
        assert heard(*(ALL[a:b] for a, b in pairwise(cuts))) == REPORTED


def test_line_ends_and_silence_end_requests() -> None:
    """`cdc.py` ends its requests with lines, the connector with silence; login and registration need neither."""
    register = b"register uuid=11ec2300-2e23-11e6-8308-0002a5d5c51b,type=avro\n"
    assert heard(LOGIN + b"\r\n", register, b"REQUEST-DATA db.t", None) == [
        SAID,
        RegistrationRequest("11ec2300-2e23-11e6-8308-0002a5d5c51b", "AVRO"),
        DataRequest("db.t", ""),
    ]
    assert heard(LOGIN, None, b"REGISTER UUID=x, TYPE=", None, b"JSON", b"REQUEST-DATA db.", b"t\n")[1:] == [
        RegistrationRequest("x", "JSON"),
        DataRequest("db.t", ""),
    ]


def test_queries_and_invalid_requests() -> None:
    """An invalid request gets MaxScale's answer, and the connection continues."""
    said = (
        b"QUERY-LAST-TRANSACTION\nQUERY-TRANSACTION 0-14-1245\n"
        b"REQUEST-DATA\nFLY\nREQUEST-DATA a b c\nquery-transaction\n"
    )
    assert heard(LOGIN, b"REGISTER UUID=x, TYPE=JSON", said)[2:] == [
        TransactionRequest(""),
        TransactionRequest("0-14-1245"),
        InvalidRequest("ERR REQUEST-DATA with no data.\n"),
        InvalidRequest("ERR: Unknown command\n"),
        InvalidRequest("ERR: Unknown command\n"),
        InvalidRequest("ERR QUERY-TRANSACTION with no data.\n"),
    ]


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ([b"REGISTER UUID=x, TYPE=JSON"], "ERROR: Authentication failed\n"),
        ([bytes(range(256)) * 4], "ERROR: Authentication failed\n"),
        ([b"66" * 600], "ERROR: Authentication failed\n"),
        ([b"ff3a" + b"00" * 20], "ERROR: Authentication failed\n"),
        ([LOGIN, b"REQUEST-DATA db.t\n"], "ERR, code 12, msg: Registration failed\n"),
        ([LOGIN, b"REGISTER UUID=x, TYPE=XML\n"], "ERR, code 12, msg: Registration failed\n"),
        ([LOGIN, b"REGISTER UUID=x, TYPE=XML"], "ERR, code 12, msg: Registration failed\n"),
        ([LOGIN, b"REGISTER UUID=x, TYPE=JS", b"X"], "ERR, code 12, msg: Registration failed\n"),
        ([LOGIN, b"REGISTER UUID=x, FORM=JSON"], "ERR, code 12, msg: Registration failed\n"),
        ([LOGIN, b"REGISTER ID=x"], "ERR, code 12, msg: Registration failed\n"),
        ([LOGIN, b"REGISTER UUID=" + b"x" * 600], "ERR, code 12, msg: Registration failed\n"),
        ([LOGIN, b"REGISTER UUID=x, TYPE=JSON", b"x" * (LONGEST + 1)], "ERR: Request too long\n"),
    ],
    ids=[
        "no login",
        "noise",
        "a user without end",
        "a name that is no text",
        "unregistered",
        "XML",
        "XML alone",
        "XML in parts",
        "no TYPE",
        "no UUID",
        "long",
        "1 MB",
    ],
)
def test_a_violation_of_the_protocol_ends_the_connection(said: list[bytes], answer: str) -> None:
    """No input is buffered without limit: each gets MaxScale's error."""
    with pytest.raises(ProtocolFault) as fault:
        heard(*said)
    assert fault.value.answer == answer


def test_the_file_of_users_is_maxscales() -> None:
    """The file has `user:` and the upper-case hex of SHA1(SHA1(password)); it is written as it was read."""
    text = "foobar:" + hashlib.sha1(hashlib.sha1(b"foopasswd").digest()).hexdigest().upper() + "\n"
    users = read_users(text, "cdcusers")
    assert written_users({"foobar": check_of("foobar", "foopasswd")}) == written_users(users) == text
    assert is_right(users, "foobar", SAID.digest)
    assert not is_right(users, "foobar", hashlib.sha1(b"other").digest())
    assert not is_right(users, "nobody", SAID.digest)
    assert not is_right({}, "nobody", b"")
    with pytest.raises(UsageError, match="cdcusers:2: not a user"):
        read_users(text + "foobar\n", "cdcusers")
    for name, password in (("a:b", "x"), ("", "x"), ("a b", "x"), ("a", "")):
        with pytest.raises(UsageError):
            check_of(name, password)


def test_failed_logins_wait_longer_each_time() -> None:
    """Half a second, doubled up to half a minute; other users do not wait, and a correct login resets it."""
    waits, who, now = BackOff(), ("10.0.0.1", "foobar"), 100.0
    seen = []
    for _ in range(9):
        waits.wrong(who, now)
        seen.append(waits.wait(who, now))
        now += seen[-1]
    assert seen == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert waits.wait(who, now) == 0
    assert waits.wait(("10.0.0.1", "anna"), now) == 0
    waits.right(who)
    waits.wrong(who, now)
    assert waits.wait(who, now) == 0.5
    for number in range(20_000):
        waits.wrong(("10.0.0.1", str(number)), now)
    assert len(waits._wrong) == 10_000
