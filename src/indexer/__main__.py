"""`python -m indexer TOPOLOGY [--index NAME] [--metrics-port N]`: one index's process."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import structlog

from cdc.topology.reader import read_topology
from cdc.words.errors import TailorbirdError, UsageError
from cdc.words.extras import extras_named


def main(arguments: list[str] | None = None) -> int:
    """Run one index until it is stopped; the exit code: 0 stopped, 1 failed, 2 used wrongly."""
    parser = argparse.ArgumentParser(
        prog="python -m indexer",
        description="Index a joined table's changes into Solr, as a replication peer of HBase.",
        epilog="Example: python -m indexer topologies/shop.yml --index orders",
    )
    parser.add_argument("topology", help="the topology's YAML file")
    parser.add_argument("--index", help="which index; not needed where there is one")
    parser.add_argument("--metrics-port", type=int, default=0, help="serve Prometheus on 127.0.0.1 (0 = not)")
    options = parser.parse_args(arguments)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        try:
            text = Path(options.topology).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{options.topology}: {error}", "name a topology, e.g. topologies/shop.yml") from error
        topology = read_topology(text, file=options.topology, environ=os.environ)
        with extras_named():
            from indexer.run import run_index

            run_index(topology, options.index, metrics_port=options.metrics_port)
    except TailorbirdError as error:
        print(f"tailorbird index: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
