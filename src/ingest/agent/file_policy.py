"""Read the policy file of an agent from the disk of its host."""

from __future__ import annotations

import os
from pathlib import Path

from cdc.model.errors import UsageError
from ingest.agent.policy import Policy
from ingest.agent.policy_reader import read_policy


def load_policy(file: str) -> Policy:
    """Read the policy in `file`. Raises TopologyError or UsageError (exit 2) if it is missing or wrong.

    The path in `${file:path}` is relative to the policy's folder. The last newline of such a file is dropped.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{file}: {why}", "--policy policy.yml, as in docs/fleet.md") from error

    def content(path: str) -> str:
        return Path(file).parent.joinpath(path).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")

    return read_policy(text, file=file, environ=os.environ, content=content)
