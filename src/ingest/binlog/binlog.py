"""An interface like `Binary_log` of MySQL's replication listener: connect, wait for the next event, set the position.

It supports content handlers and injected events.
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

    Errors of the reader become one `Incident` with origin "reader" and the error in it; after it the sequence ends.
    `position()` is always the next thing to read, after every event that was handed out.
    """

    def __init__(self, transport: Transport, options: StreamOptions | None = None) -> None:
        self._transport = transport
        self._options = options
        self._start = BinlogPosition()
        self._reader: BinlogReader | None = None
        self._events: Iterator[e.Event] = iter(())
        self.content_handlers = HandlerChain()

    def connect(self) -> None:
        """Start reading at the configured position, or at the transport's beginning; also after `disconnect`."""
        self._reader = BinlogReader(self._transport, self._start, self._options)
        self._events = self._read(self._reader)

    def disconnect(self) -> None:
        """Stop reading; the position stays, and `connect` resumes there."""
        if self._reader is not None:
            self._start = self.position()
            self._reader.close()
            self._reader = None
        self._events = iter(())

    def position(self) -> BinlogPosition:
        """Return the position where reading resumes."""
        return self._start if self._reader is None else self._reader.checkpoint

    def set_position(self, position: BinlogPosition) -> None:
        """Continue at another position from the next event on. A bare position refers to the current file."""
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
