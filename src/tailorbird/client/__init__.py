"""A typed client of the API that `tailorbird api` serves.

    from tailorbird.client import Client

    client = Client("https://ops.example.org:7450", token="tb_…", ca="ca.pem")
    for entry in client.status("shop").entries:
        print(entry)
    outcome = client.run("shop", "verify", stage=["index"])
    print(outcome.exit_code)

It needs no other package, and raises `ApiError` with the text that the command line prints."""

from tailorbird.client.http_client import Client
from tailorbird.client.results import (
    Answer,
    ApiError,
    FoundRows,
    OperationOutcome,
    OperationState,
    StreamEvent,
    StreamLine,
)

__all__ = [
    "Answer",
    "ApiError",
    "Client",
    "FoundRows",
    "OperationOutcome",
    "OperationState",
    "StreamEvent",
    "StreamLine",
]
