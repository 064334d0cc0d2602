"""Read the TLS settings of a database server and the address of its replica; part of `cdc.topology.reader`.

Policies of agents use it, too.
"""

from __future__ import annotations

from typing import get_args

from cdc.grammar.forms import TEXT, number, one_of
from cdc.grammar.keys import DeclaredKey, Keys, Section
from cdc.grammar.values import Value
from cdc.model.tls import SecuredAddress, Tls, TlsMode, default_mode

TLS: Keys = {
    "ssl_mode": DeclaredKey(
        form=one_of(*get_args(TlsMode)),
        about="TLS to the server. Default: `preferred` on this machine, else `verify_identity`.",
    ),
    "ssl_ca": DeclaredKey(
        form=TEXT, about="PEM file of the trusted authorities. Default: those of the operating system."
    ),
    "ssl_cert": DeclaredKey(form=TEXT, about="PEM file of the client's own certificate, if the server asks for one."),
    "ssl_key": DeclaredKey(form=TEXT, about="PEM file of the key of the client's certificate."),
}
REPLICA: Keys = {
    "hostname": DeclaredKey(form=TEXT, about="The replica's host.", required=True),
    "port": DeclaredKey(form=number(1, 65535), about="The replica's port. Default: 3306."),
    **TLS,
}


def read_tls(s: Section, hostname: str) -> Tls:
    """Read `ssl_mode`, `ssl_ca`, `ssl_cert` and `ssl_key` of a server.

    Without `ssl_mode`, a server on another machine must prove its identity (`verify_identity`). Raises TopologyError
    for settings that contradict each other.
    """
    given = s.pairs.get("ssl_mode")
    mode: TlsMode = s.take("ssl_mode", default_mode(hostname))
    files = {key: s.pairs.get(key) for key in ("ssl_ca", "ssl_cert", "ssl_key")}
    tls = Tls(mode=mode, **{key.removeprefix("ssl_"): s.take(key, "") for key in files})
    needs_one = "`ssl_mode: verify_ca` or `verify_identity`"
    if files["ssl_ca"] is not None and not tls.verifies:
        files["ssl_ca"].fail(f"it is not used with `ssl_mode: {mode}`", needs_one)
    if given is not None and mode == "verify_ca" and not tls.ca:
        given.fail("no authority to trust", "`ssl_ca` with the path of its certificate, or `ssl_mode: verify_identity`")
    own = files["ssl_cert"] or files["ssl_key"]
    if own is not None and not (tls.cert and tls.key):
        own.fail("half of a client certificate", "both `ssl_cert` and `ssl_key`, or neither")
    if own is not None and mode == "disabled":
        own.fail("it is not used with `ssl_mode: disabled`", needs_one)
    return tls


def read_replica(s: Section, port: int, *, supported: bool) -> SecuredAddress | None:
    """Read `snapshot: {hostname, port, ssl_…}`, the replica from which tables are read; None if it is missing.

    `supported`: the source is captured from the log of a MySQL server. Raises TopologyError for any other.
    """
    if "snapshot" in s.pairs and not supported:
        s.pairs["snapshot"].fail("a replica for snapshots", "no `snapshot:`: only MySQL with GTIDs supports it")
    found: SecuredAddress | None = s.take("snapshot", read=lambda value: _replica(value, port))
    return found


def _replica(value: Value, port: int) -> SecuredAddress:
    s = Section(value, REPLICA)
    hostname = s.take("hostname")
    found = SecuredAddress(
        hostname=hostname, port=s.take("port", port), tls=read_tls(s, hostname)
    )  # fmt: skip
    s.end()
    return found
