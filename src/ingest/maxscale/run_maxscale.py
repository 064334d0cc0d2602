"""`tailorbird serve maxscale`: the process that serves tables to clients of MaxScale's CDC protocol."""

from __future__ import annotations

import asyncio
import ipaddress
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from cdc.lifetime.proc_signals import stop_event
from cdc.model.errors import Retriable, TailorbirdError, UsageError
from cdc.process.file_running import announced
from cdc.process.file_topology import load_topology
from cdc.process.http_operation import serve_operation
from cdc.process.proc_log_lines import log_lines
from cdc.process.verdict import HealthTracker
from cdc.topology.topology import Topology
from ingest.changes.kafka_changes import KafkaChanges
from ingest.maxscale.catalogue import ambiguous
from ingest.maxscale.file_users import UsersFile, users_file
from ingest.maxscale.tcp_batches import SharedReads
from ingest.maxscale.tcp_server import CdcServer, ServerLimits
from ingest.maxscale.tcp_tls import SSLContext, tls_context
from ingest.maxscale.users import service_users

_LONGEST_WAIT = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CdcOptions:
    """Address, users file and sources of the server. `certificate` and `key` are PEM files; set both or neither."""

    listen: str = "127.0.0.1:4001"
    users: Path | None = None
    sources: Sequence[str] = ()
    certificate: Path | None = None
    key: Path | None = None
    limits: ServerLimits = field(default_factory=ServerLimits)


def run(file: str, options: CdcOptions, *, metrics_port: int = 0) -> None:
    """Serve until SIGTERM or SIGINT. Waits while Kafka is unavailable.

    Raises UsageError for unknown sources, an invalid or insecure address, or if no user may log in."""
    topology = load_topology(file)
    if unknown := [name for name in options.sources if name not in topology.sources]:
        raise UsageError(f"{file} has no source {unknown[0]}", "--source " + " | ".join(topology.sources))
    host, port = _address(options.listen)
    tls = _tls(options, host)
    served = [source for source in topology.sources.values() if not options.sources or source.name in options.sources]
    users = UsersFile(options.users or users_file(topology.name), service_users(served))
    if not users.users():
        raise UsageError(f"{users.path}: no user", f"tailorbird maxscale-users add NAME {file}")
    log_lines("logfmt")
    if not users.path.exists():
        accounts = sorted(users.users())
        structlog.get_logger().warning("no users file: accounts of the sources may log in", users=accounts)
    stop, standing = stop_event(), HealthTracker()
    with announced(topology.name, "maxscale", metrics_port):
        if metrics_port:
            serve_operation(metrics_port, lambda: (standing.judge(time.monotonic()), {}))
        log = _begun(topology, options.sources, stop, standing)
        if log is None:
            return
        try:
            asyncio.run(_serve(topology, log, users, options.limits, (host, port), tls, stop, standing))
        finally:
            log.close()


def _begun(
    topology: Topology, sources: Sequence[str], stop: threading.Event, standing: HealthTracker
) -> KafkaChanges | None:
    """Open the change topics, waiting until Kafka is available; None if the server was stopped before."""
    pause, logger = 0.0, structlog.get_logger().bind(topology=topology.name)
    while not stop.is_set():
        log = KafkaChanges(topology, sources)
        try:
            log.begin()
        except Retriable as error:
            log.close()
            standing.waits("kafka", str(error), time.monotonic())
            pause = min(max(2 * pause, error.retry_after), _LONGEST_WAIT)
            logger.warning("waiting", reason=str(error), seconds=pause)
            stop.wait(pause)
            continue
        if twice := ambiguous(log.tables()):
            log.close()
            raise UsageError(f"several sources have {twice[0]}", "name the one to serve: --source NAME")
        standing.resumes("kafka")
        return log
    return None


async def _serve(
    topology: Topology, log: KafkaChanges, users: UsersFile, limits: ServerLimits, address: tuple[str, int],
    tls: SSLContext | None, stop: threading.Event, standing: HealthTracker,
) -> None:  # fmt: skip
    reads, loop = SharedReads(log), asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    logger = structlog.get_logger().bind(topology=topology.name)

    def follow() -> None:
        """Notify the loop of each commit until the server stops."""
        failed: TailorbirdError | None = None
        while not stop.is_set() and failed is None:
            try:
                if log.follow(0.2):
                    loop.call_soon_threadsafe(reads.notify)
                standing.resumes("kafka")
            except Retriable as error:
                standing.waits("kafka", str(error), time.monotonic())
                logger.warning("waiting", reason=str(error))
                stop.wait(1.0)
            except TailorbirdError as error:
                failed = error
        loop.call_soon_threadsafe(ended.set_exception, failed) if failed else loop.call_soon_threadsafe(
            ended.set_result, None
        )

    try:
        async with CdcServer(reads, users.users, limits).listening(*address, tls) as (host, port):
            follower = threading.Thread(target=follow, name="positions")
            follower.start()
            standing.ready()
            logger.info("serving", address=f"{host}:{port}", tables=len(log.tables()), tls=tls is not None)
            try:
                await ended
            finally:
                stop.set()
                await loop.run_in_executor(None, follower.join)
    except OSError as error:
        raise UsageError(f"cannot listen on {address[0]}:{address[1]}: {error}", "choose another --listen") from error
    finally:
        reads.close()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--listen {text} is not an address", "use HOST:PORT, such as 127.0.0.1:4001")
    return host.strip("[]"), int(port)


def _tls(options: CdcOptions, host: str) -> SSLContext | None:
    """Return the TLS context; None without a certificate, which is allowed only on loopback addresses."""
    if options.certificate is None and options.key is None:
        try:
            near = ipaddress.ip_address(host).is_loopback
        except ValueError:
            near = host == "localhost"
        if not near:
            why = "a captured login can be replayed"
            raise UsageError(f"--listen {host} without TLS: {why}", "--certificate FILE --key FILE, or 127.0.0.1")
        return None
    if options.certificate is None or options.key is None:
        raise UsageError("TLS needs certificate and key", "pass --certificate FILE and --key FILE")
    return tls_context(options.certificate, options.key)
