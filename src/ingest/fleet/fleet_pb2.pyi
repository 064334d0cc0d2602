from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RequestType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    Control_Config: _ClassVar[RequestType]
    Control_Heartbeat: _ClassVar[RequestType]
    Control_MySQLClient: _ClassVar[RequestType]
    Control_MySQLBinlog: _ClassVar[RequestType]
    Control_Syslog: _ClassVar[RequestType]
    Control_PgSQLClient: _ClassVar[RequestType]
    Control_PgSQLWal: _ClassVar[RequestType]
    Control_PgSQLLogDec: _ClassVar[RequestType]
    Control_Kafka: _ClassVar[RequestType]
    Control_MSSQLClient: _ClassVar[RequestType]
    Control_MaxScale: _ClassVar[RequestType]
    Data_Log: _ClassVar[RequestType]
    Control_Lease: _ClassVar[RequestType]
    Control_Report: _ClassVar[RequestType]
    Control_Map: _ClassVar[RequestType]

class Progress(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    APPLYING: _ClassVar[Progress]
    APPLIED: _ClassVar[Progress]
    FAILED: _ClassVar[Progress]

class FailureKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RETRIABLE: _ClassVar[FailureKind]
    FATAL: _ClassVar[FailureKind]
    USAGE: _ClassVar[FailureKind]
Control_Config: RequestType
Control_Heartbeat: RequestType
Control_MySQLClient: RequestType
Control_MySQLBinlog: RequestType
Control_Syslog: RequestType
Control_PgSQLClient: RequestType
Control_PgSQLWal: RequestType
Control_PgSQLLogDec: RequestType
Control_Kafka: RequestType
Control_MSSQLClient: RequestType
Control_MaxScale: RequestType
Data_Log: RequestType
Control_Lease: RequestType
Control_Report: RequestType
Control_Map: RequestType
APPLYING: Progress
APPLIED: Progress
FAILED: Progress
RETRIABLE: FailureKind
FATAL: FailureKind
USAGE: FailureKind

class Header(_message.Message):
    __slots__ = ("tenant", "agent", "source", "epoch")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    agent: str
    source: str
    epoch: int
    def __init__(self, tenant: _Optional[str] = ..., agent: _Optional[str] = ..., source: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class StreamRequest(_message.Message):
    __slots__ = ("header", "type", "hello", "unsupported", "heartbeat", "log_call", "log_reply", "ready", "assign", "withdraw", "report", "map_part")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    UNSUPPORTED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LOG_CALL_FIELD_NUMBER: _ClassVar[int]
    LOG_REPLY_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    ASSIGN_FIELD_NUMBER: _ClassVar[int]
    WITHDRAW_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    MAP_PART_FIELD_NUMBER: _ClassVar[int]
    header: Header
    type: RequestType
    hello: Hello
    unsupported: Unsupported
    heartbeat: Empty
    log_call: LogCall
    log_reply: LogReply
    ready: Ready
    assign: Assign
    withdraw: Withdraw
    report: Report
    map_part: MapPart
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., type: _Optional[_Union[RequestType, str]] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., unsupported: _Optional[_Union[Unsupported, _Mapping]] = ..., heartbeat: _Optional[_Union[Empty, _Mapping]] = ..., log_call: _Optional[_Union[LogCall, _Mapping]] = ..., log_reply: _Optional[_Union[LogReply, _Mapping]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ..., assign: _Optional[_Union[Assign, _Mapping]] = ..., withdraw: _Optional[_Union[Withdraw, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., map_part: _Optional[_Union[MapPart, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "version", "features")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    version: str
    features: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, protocol: _Optional[int] = ..., version: _Optional[str] = ..., features: _Optional[_Iterable[str]] = ...) -> None: ...

class Unsupported(_message.Message):
    __slots__ = ("type", "what")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    type: RequestType
    what: str
    def __init__(self, type: _Optional[_Union[RequestType, str]] = ..., what: _Optional[str] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ("labels", "places")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.ScalarMap[str, str]
    places: _containers.RepeatedCompositeFieldContainer[MapPlace]
    def __init__(self, labels: _Optional[_Mapping[str, str]] = ..., places: _Optional[_Iterable[_Union[MapPlace, _Mapping]]] = ...) -> None: ...

class MapPlace(_message.Message):
    __slots__ = ("connection", "database")
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    connection: str
    database: str
    def __init__(self, connection: _Optional[str] = ..., database: _Optional[str] = ...) -> None: ...

class Assign(_message.Message):
    __slots__ = ("source", "epoch", "version", "spec", "topology")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    source: str
    epoch: int
    version: int
    spec: bytes
    topology: str
    def __init__(self, source: _Optional[str] = ..., epoch: _Optional[int] = ..., version: _Optional[int] = ..., spec: _Optional[bytes] = ..., topology: _Optional[str] = ...) -> None: ...

class Withdraw(_message.Message):
    __slots__ = ("source", "epoch", "why")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    source: str
    epoch: int
    why: str
    def __init__(self, source: _Optional[str] = ..., epoch: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("source", "epoch", "version", "progress", "reason", "hash", "narrowed", "position")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    NARROWED_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    source: str
    epoch: int
    version: int
    progress: Progress
    reason: str
    hash: str
    narrowed: bool
    position: bytes
    def __init__(self, source: _Optional[str] = ..., epoch: _Optional[int] = ..., version: _Optional[int] = ..., progress: _Optional[_Union[Progress, str]] = ..., reason: _Optional[str] = ..., hash: _Optional[str] = ..., narrowed: _Optional[bool] = ..., position: _Optional[bytes] = ...) -> None: ...

class MapPart(_message.Message):
    __slots__ = ("connection", "database", "content", "last", "gone")
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    connection: str
    database: str
    content: bytes
    last: bool
    gone: bool
    def __init__(self, connection: _Optional[str] = ..., database: _Optional[str] = ..., content: _Optional[bytes] = ..., last: _Optional[bool] = ..., gone: _Optional[bool] = ...) -> None: ...

class LogCall(_message.Message):
    __slots__ = ("channel", "call", "recover", "records", "commit", "restate", "history", "kept", "ensure_topic", "signals", "search", "stop_search", "abort", "close", "recover_records", "history_records")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    RECOVER_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    RESTATE_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    ENSURE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    STOP_SEARCH_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    RECOVER_RECORDS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_RECORDS_FIELD_NUMBER: _ClassVar[int]
    channel: int
    call: int
    recover: Empty
    records: Records
    commit: Commit
    restate: Empty
    history: Empty
    kept: Empty
    ensure_topic: str
    signals: Signals
    search: Search
    stop_search: int
    abort: Empty
    close: Empty
    recover_records: Empty
    history_records: Empty
    def __init__(self, channel: _Optional[int] = ..., call: _Optional[int] = ..., recover: _Optional[_Union[Empty, _Mapping]] = ..., records: _Optional[_Union[Records, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., restate: _Optional[_Union[Empty, _Mapping]] = ..., history: _Optional[_Union[Empty, _Mapping]] = ..., kept: _Optional[_Union[Empty, _Mapping]] = ..., ensure_topic: _Optional[str] = ..., signals: _Optional[_Union[Signals, _Mapping]] = ..., search: _Optional[_Union[Search, _Mapping]] = ..., stop_search: _Optional[int] = ..., abort: _Optional[_Union[Empty, _Mapping]] = ..., close: _Optional[_Union[Empty, _Mapping]] = ..., recover_records: _Optional[_Union[Empty, _Mapping]] = ..., history_records: _Optional[_Union[Empty, _Mapping]] = ...) -> None: ...

class LogReply(_message.Message):
    __slots__ = ("channel", "call", "part", "failure", "credit", "found", "search_end", "records")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    SEARCH_END_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    channel: int
    call: int
    part: Part
    failure: Failure
    credit: int
    found: Found
    search_end: SearchEnd
    records: Records
    def __init__(self, channel: _Optional[int] = ..., call: _Optional[int] = ..., part: _Optional[_Union[Part, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., credit: _Optional[int] = ..., found: _Optional[_Union[Found, _Mapping]] = ..., search_end: _Optional[_Union[SearchEnd, _Mapping]] = ..., records: _Optional[_Union[Records, _Mapping]] = ...) -> None: ...

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Records(_message.Message):
    __slots__ = ("frames", "size")
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    frames: bytes
    size: int
    def __init__(self, frames: _Optional[bytes] = ..., size: _Optional[int] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("records", "checkpoint", "more", "changes")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    records: int
    checkpoint: bytes
    more: bool
    changes: bool
    def __init__(self, records: _Optional[int] = ..., checkpoint: _Optional[bytes] = ..., more: _Optional[bool] = ..., changes: _Optional[bool] = ...) -> None: ...

class Signals(_message.Message):
    __slots__ = ("start",)
    START_FIELD_NUMBER: _ClassVar[int]
    start: int
    def __init__(self, start: _Optional[int] = ...) -> None: ...

class Search(_message.Message):
    __slots__ = ("number", "topic", "begin")
    class BeginEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    number: int
    topic: str
    begin: _containers.ScalarMap[int, int]
    def __init__(self, number: _Optional[int] = ..., topic: _Optional[str] = ..., begin: _Optional[_Mapping[int, int]] = ...) -> None: ...

class Found(_message.Message):
    __slots__ = ("search", "records")
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    search: int
    records: _containers.RepeatedCompositeFieldContainer[FoundRecord]
    def __init__(self, search: _Optional[int] = ..., records: _Optional[_Iterable[_Union[FoundRecord, _Mapping]]] = ...) -> None: ...

class FoundRecord(_message.Message):
    __slots__ = ("partition", "key", "value", "more")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    key: bytes
    value: bytes
    more: bool
    def __init__(self, partition: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., more: _Optional[bool] = ...) -> None: ...

class SearchEnd(_message.Message):
    __slots__ = ("search", "begin", "failure")
    class BeginEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    search: int
    begin: _containers.ScalarMap[int, int]
    failure: Failure
    def __init__(self, search: _Optional[int] = ..., begin: _Optional[_Mapping[int, int]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("content", "last")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    last: bool
    def __init__(self, content: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("kind", "message", "hint", "retry_after")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    kind: FailureKind
    message: str
    hint: str
    retry_after: float
    def __init__(self, kind: _Optional[_Union[FailureKind, str]] = ..., message: _Optional[str] = ..., hint: _Optional[str] = ..., retry_after: _Optional[float] = ...) -> None: ...
