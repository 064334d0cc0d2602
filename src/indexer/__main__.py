"""`python -m indexer TOPOLOGY [--index NAME] [--metrics-port N]`: the process of one index."""

from __future__ import annotations

import argparse
import sys

from cdc.model.errors import TailorbirdError
from cdc.model.extras import extras_named
from cdc.process.file_private import full_disk_named
from cdc.process.file_topology import home, load_topology
from cdc.process.proc_log_lines import log_lines


def main(arguments: list[str] | None = None) -> int:
    """Run one index until it is stopped. Return the exit code: 0 stopped, 1 failed, 2 usage error."""
    parser = argparse.ArgumentParser(
        prog="python -m indexer",
        description="Index a joined table's changes into Solr, as a replication peer of HBase.",
        epilog="Example: python -m indexer topologies/shop.yml --index orders",
    )
    parser.add_argument("topology", help="the topology's YAML file")
    parser.add_argument("--index", help="the index; optional if there is only one")
    parser.add_argument("--metrics-port", type=int, default=0, help="port for /metrics and /health (0: off)")
    options = parser.parse_args(arguments)
    log_lines("logfmt")
    try:
        with full_disk_named(home()), extras_named("indexer"):
            from indexer.run_indexer import run_index

            run_index(load_topology(options.topology, "indexer"), options.index, metrics_port=options.metrics_port)
    except TailorbirdError as error:
        print(f"tailorbird index: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
