"""`python -m ingest TOPOLOGY.yml --source NAME`: capture one source."""

from __future__ import annotations

import argparse
import sys

from cdc.lifetime.garbage import collect_rarely
from cdc.model.errors import TailorbirdError
from cdc.process.file_private import full_disk_named
from cdc.process.file_topology import home
from ingest.run_capture import run


def main() -> None:
    """Run the capture. A known error is printed as one line, with its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m ingest",
        description="Capture one source of a topology into Kafka, each change exactly once.",
        epilog="Example: python -m ingest topologies/shop.yml --source shop",
    )
    parser.add_argument("topology", metavar="TOPOLOGY.yml")
    parser.add_argument("--source", help="source to capture; optional if the topology has only one")
    parser.add_argument("--metrics-port", type=int, default=0, help="port for /metrics and /health (0: off)")
    parser.add_argument("--gateway", action="append", default=[], help="write through this gateway (host:port)")
    parser.add_argument("--identity", default="agent", help="folder with the agent's ca.pem, cert.pem and key.pem")
    arguments = parser.parse_args()
    collect_rarely()
    try:
        with full_disk_named(home()):
            run(
                arguments.topology,
                arguments.source,
                metrics_port=arguments.metrics_port,
                gateways=arguments.gateway,
                identity=arguments.identity,
            )
    except TailorbirdError as error:
        print(f"tailorbird capture: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
