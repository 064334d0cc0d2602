"""Read a topic in Spark with several sets of options of Kafka's Java client: `python -m tests.support.spark_reads`.

It is a separate process, since a process has one JVM. stdin: a JSON object, name → `kafka.…` options with the topic to
`subscribe` to; stdout: name → the values of the records, or the error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from joins.engine.causes import cause_of
from joins.engine.spark_session import close_session, open_session


def main(scratch: str) -> None:
    """Read all of them in one session."""
    session = open_session("reads", partitions=1, scratch=Path(scratch))
    found: dict[str, list[str] | str] = {}
    for name, options in json.load(sys.stdin).items():
        reader = session.read.format("kafka").options(**options)
        try:
            found[name] = [bytes(row.value).decode() for row in reader.load().select("value").collect()]
        except (PySparkException, Py4JError) as error:
            found[name] = cause_of(error)
    close_session(session)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
