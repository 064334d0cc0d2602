"""Read the TLS settings of a database server and the address of its replica; part of `cdc.topology.reader`.

Policies of agents use it, too.
"""

from __future__ import annotations

from typing import get_args

from cdc.model.tls import SecuredAddress, Tls, TlsMode, default_mode
from cdc.topology.values import Section, Value


def read_tls(s: Section, hostname: str) -> Tls:
    """Read `ssl_mode`, `ssl_ca`, `ssl_cert` and `ssl_key` of a server.

    Without `ssl_mode`, a server on another machine must prove its identity (`verify_identity`). Raises TopologyError
    for settings that contradict each other.
    """
    given = s.pairs.get("ssl_mode")
    mode: TlsMode = s.take("ssl_mode", lambda v: v.one_of(*get_args(TlsMode)), default_mode(hostname))
    files = {key: s.pairs.get(key) for key in ("ssl_ca", "ssl_cert", "ssl_key")}
    tls = Tls(mode=mode, **{key.removeprefix("ssl_"): s.take(key, Value.text, "") for key in files})
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
    return s.take("snapshot", lambda value: _replica(value, port), None)


def _replica(value: Value, port: int) -> SecuredAddress:
    s = value.section()
    hostname = s.take("hostname", Value.text)
    found = SecuredAddress(
        hostname=hostname, port=s.take("port", lambda v: v.number(1, 65535), port), tls=read_tls(s, hostname)
    )  # fmt: skip
    s.end()
    return found
