"""Create the reader of a source's log by its type. Each type imports its client only when it is used."""

from __future__ import annotations

from collections.abc import Callable

from cdc.model.event import Position
from cdc.topology.topology import Source
from ingest.capture.capture_parts import ReadableSource


def server_of(topology: str, source: Source) -> ReadableSource:
    """Return the reader of a source's log and tables; `topology` is the topology's name."""
    if source.type == "postgresql":
        from ingest.postgres.pg_source import PgSource

        return PgSource(source, topology)
    if source.mirror is not None:
        from ingest.mirror.kafka_topics_source import TopicsSource

        return TopicsSource(source, source.mirror)
    if source.listen is not None:
        from ingest.syslog.tcp_syslog_source import SyslogSource

        return SyslogSource(source, source.listen)
    if source.type == "maxscale":
        from ingest.maxscale.tcp_upstream import UpstreamSource

        return UpstreamSource(source)
    from ingest.mysql.mysql_source import MySqlSource

    return MySqlSource(source)


def log_end(source: Source) -> Callable[[], Position]:
    """Return a function that returns the current end of a source's log, without side effects on the server."""
    if source.type == "postgresql":
        from ingest.postgres.pg_schema import end_of

        return lambda: end_of(source)
    if source.mirror is not None:
        from ingest.mirror.kafka_topics_source import TopicsSource

        return TopicsSource(source, source.mirror).end
    if source.listen is not None:
        from ingest.syslog.tcp_syslog_source import SyslogSource

        return SyslogSource(source, source.listen).head
    if source.type == "maxscale":
        from ingest.maxscale.tcp_upstream import UpstreamSource

        return UpstreamSource(source).head
    from ingest.mysql.mysql_source import MySqlSource

    return MySqlSource(source).head
