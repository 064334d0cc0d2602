"""Event interface of a binlog, like `Binary_log` of MySQL's replication listener: connect, wait for the next event.

Content handlers may change or consume events, and inject others.
"""

from __future__ import annotations

from collections.abc import Iterator

from cdc.model.errors import TailorbirdError
from ingest.binlog.reading import events as e
from ingest.binlog.reading.handlers import HandlerChain
from ingest.binlog.reading.position import BinlogPosition
from ingest.binlog.reading.reader import BinlogReader, Transport
from ingest.binlog.reading.stream import StreamOptions


class Binlog:
    """A binlog as a sequence of typed events; iterate it, or call `wait_for_next_event`.

    An error of the reader becomes a last event `Incident` with origin "reader", which contains the error. `position()`
    is always where to resume after the events returned so far.
    """

    def __init__(self, transport: Transport, options: StreamOptions | None = None) -> None:
        self._transport = transport
        self._options = options
        self._start = BinlogPosition()
        self._reader: BinlogReader | None = None
        self._events: Iterator[e.Event] = iter(())
        self.content_handlers = HandlerChain()

    def connect(self) -> None:
        """Start to read at the set position, or at the transport's beginning. May be called again after
        `disconnect`."""
        self._reader = BinlogReader(self._transport, self._start, self._options)
        self._events = self._read(self._reader)

    def disconnect(self) -> None:
        """Stop reading. The position is kept, so that `connect` resumes there."""
        if self._reader is not None:
            self._start = self.position()
            self._reader.close()
            self._reader = None
        self._events = iter(())

    def position(self) -> BinlogPosition:
        """Return the position at which reading resumes."""
        return self._start if self._reader is None else self._reader.checkpoint

    def set_position(self, position: BinlogPosition) -> None:
        """Continue at another position with the next event. A position without a file is one in the current file."""
        if not position.file and position.gtids is None:
            position = BinlogPosition(file=self.position().file, position=position.position)
        connected = self._reader is not None
        self.disconnect()
        self._start = position
        if connected:
            self.connect()

    def wait_for_next_event(self) -> e.Event | None:
        """Return the next event that no handler consumed, or None at the end. Blocks."""
        pipeline = self.content_handlers
        while True:
            event = pipeline.injection.popleft() if pipeline.injection else next(self._events, None)
            if event is None:
                return None
            result = pipeline.run(event)
            if result is not None:
                return result

    def __iter__(self) -> Iterator[e.Event]:
        while (event := self.wait_for_next_event()) is not None:
            yield event

    def _read(self, reader: BinlogReader) -> Iterator[e.Event]:
        try:
            for raw in reader.raw_events():
                yield reader.stream.typed(raw)
        except TailorbirdError as error:
            header = e.EventHeader(timestamp=0, type_code=26, server_id=0, event_length=0, next_position=0, flags=0)
            yield e.Incident(header=header, kind=1, message=str(error), origin="reader", error=error)
