"""Run joins: `python -m joins TOPOLOGY [--table NAME]…`, or `spark-submit src/joins/__main__.py TOPOLOGY …`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
# spark-submit runs this file as a script, so its own folder is first on the path instead of the one above it
sys.path[:] = [str(_HERE.parent), *(entry for entry in sys.path if Path(entry or ".").resolve() != _HERE)]

from cdc.model.errors import TailorbirdError  # noqa: E402  # as above
from cdc.model.extras import extras_named  # noqa: E402  # as above
from cdc.process.file_private import full_disk_named  # noqa: E402  # as above
from cdc.process.file_topology import home  # noqa: E402  # as above
from cdc.process.proc_log_lines import log_lines  # noqa: E402  # after the path is right


def main(arguments: list[str] | None = None) -> int:
    """Run joins until they are stopped. Return the exit code: 0 stopped, 1 failed, 2 wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m joins",
        description="Keep joined tables of HBase equal to their SELECTs over the sources, in one Spark application.",
        epilog="Example: python -m joins topologies/shop.yml --table orders_wide",
    )
    parser.add_argument("topology", help="the topology's YAML file")
    parser.add_argument("--table", action="append", default=[], help="a table to join; repeatable (default: all)")
    parser.add_argument("--rebuild", action="store_true", help="discard the state and read the log from its beginning")
    parser.add_argument(
        "--metrics-port",
        type=int,
        action="append",
        default=[],
        help="serve /metrics and /health on this port, one per table (0: off)",
    )
    options = parser.parse_args(arguments)
    log_lines("logfmt")
    try:
        with full_disk_named(home()), extras_named("joins"):
            from joins.run_join import run

            run(options.topology, options.table, rebuild=options.rebuild, ports=options.metrics_port)
    except TailorbirdError as error:
        print(f"tailorbird join: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
