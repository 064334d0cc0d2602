"""Run the command line, for `tailorbird` and `python -m tailorbird`."""

from __future__ import annotations

import logging
import sys

from cdc.model.errors import TailorbirdError
from cdc.model.extras import extras_named
from cdc.process.file_private import full_disk_named
from cdc.process.file_topology import home
from tailorbird.operate.status.selection import cut

_INTERRUPTED = 130  # as in a shell


def main() -> None:
    """Run the command line. An expected error (TailorbirdError) prints one line and sets the exit code."""
    # it logs every attempt to reach an unavailable ZooKeeper; commands report it in one line
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    try:
        # imported here, so that Ctrl-C also works while the commands are loaded
        from tailorbird.cli.app import app

        with full_disk_named(home()), extras_named("console"):
            app(standalone_mode=True)
    except TailorbirdError as error:
        print(f"tailorbird: {cut(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
