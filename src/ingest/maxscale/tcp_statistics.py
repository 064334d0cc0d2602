"""Statistics of the router, as `maxctrl show service` shows those of MaxScale's avrorouter, for `/metrics`."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from cdc.formats.maxscale import number_of
from cdc.model.event import ChangeEvent
from ingest.maxscale.conversation import (
    CloseRequest,
    DataRequest,
    LoginRequest,
    RegistrationRequest,
    Request,
    TransactionRequest,
)

CLIENTS = Gauge("tailorbird_maxscale_clients", "Open connections")
CONNECTIONS = Counter("tailorbird_maxscale_connections", "Connections so far")
REQUESTS = Counter("tailorbird_maxscale_requests", "Requests of clients", ["request"])
SENT = Counter("tailorbird_maxscale_sent_bytes", "Bytes of schemas and rows sent to clients")
REFUSED = Counter("tailorbird_maxscale_refused", "Connections ended by the server", ["why"])
STALLED = Counter("tailorbird_maxscale_stalls", "Times that a client read nothing for a second")
GTID = Gauge("tailorbird_maxscale_gtid", "GTID of the last row that was read for a client", ["table", "part"])
GTID_TIMESTAMP = Gauge("tailorbird_maxscale_gtid_timestamp_seconds", "Its time, in seconds since 1970", ["table"])


def requested(request: Request) -> None:
    """Count a request."""
    match request:
        case LoginRequest():
            kind = "login"
        case RegistrationRequest():
            kind = "REGISTER"
        case DataRequest():
            kind = "REQUEST-DATA"
        case TransactionRequest():
            kind = "QUERY-TRANSACTION" if request.gtid else "QUERY-LAST-TRANSACTION"
        case CloseRequest():
            kind = "CLOSE"
        case _:
            kind = "invalid"
    REQUESTS.labels(kind).inc()


def delivered(event: ChangeEvent) -> None:
    """Report the last change that was read for a client of its table."""
    table, number = event.source.table_id, number_of(event)
    name = f"{table.database}.{table.table}"
    for part in ("domain", "server_id", "sequence"):
        GTID.labels(name, part).set(getattr(number, part))
    GTID_TIMESTAMP.labels(name).set(event.source.ts_ms / 1000)
