"""`tailorbird` and `python -m console`: run the command line; an error on purpose is one line and an exit code."""

from __future__ import annotations

import logging
import sys

from cdc.model.errors import TailorbirdError
from cdc.model.extras import extras_named

_INTERRUPTED = 130  # as a shell has it


def main() -> None:
    """Run the command line; a TailorbirdError is printed without a stack trace and becomes its exit code."""
    # it logs every attempt to reach a ZooKeeper that is away; commands say so in one line
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    try:
        # imported here: Ctrl-C comes before the commands are loaded, too
        from tailorbird.cli.app import app

        with extras_named("console"):
            app(standalone_mode=True)
    except TailorbirdError as error:
        print(f"tailorbird: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
