"""A ZooKeeper that is unavailable is reported soon, with the remedy."""

from __future__ import annotations

import time

import pytest

from cdc.model.errors import Retriable
from indexer.peer.zk_registration import session
from tests.support.ports import free_port


def test_a_server_that_refuses_connections_is_reported_at_once() -> None:
    """A command does not wait while no server listens, whether the list has one address or several."""
    address = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    for listed in (address, f"{address},127.0.0.1:{free_port()}"):
        with pytest.raises(Retriable, match=f"ZooKeeper at {listed} does not answer"), session(listed):
            pass
    assert time.monotonic() - began < 5
