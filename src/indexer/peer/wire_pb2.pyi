from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UserInformation(_message.Message):
    __slots__ = ("effective_user",)
    EFFECTIVE_USER_FIELD_NUMBER: _ClassVar[int]
    effective_user: str
    def __init__(self, effective_user: _Optional[str] = ...) -> None: ...

class ConnectionHeader(_message.Message):
    __slots__ = ("user_info", "service_name", "cell_block_codec_class", "cell_block_compressor_class")
    USER_INFO_FIELD_NUMBER: _ClassVar[int]
    SERVICE_NAME_FIELD_NUMBER: _ClassVar[int]
    CELL_BLOCK_CODEC_CLASS_FIELD_NUMBER: _ClassVar[int]
    CELL_BLOCK_COMPRESSOR_CLASS_FIELD_NUMBER: _ClassVar[int]
    user_info: UserInformation
    service_name: str
    cell_block_codec_class: str
    cell_block_compressor_class: str
    def __init__(self, user_info: _Optional[_Union[UserInformation, _Mapping]] = ..., service_name: _Optional[str] = ..., cell_block_codec_class: _Optional[str] = ..., cell_block_compressor_class: _Optional[str] = ...) -> None: ...

class CellBlockMeta(_message.Message):
    __slots__ = ("length",)
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    length: int
    def __init__(self, length: _Optional[int] = ...) -> None: ...

class ExceptionResponse(_message.Message):
    __slots__ = ("exception_class_name", "stack_trace", "do_not_retry")
    EXCEPTION_CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    STACK_TRACE_FIELD_NUMBER: _ClassVar[int]
    DO_NOT_RETRY_FIELD_NUMBER: _ClassVar[int]
    exception_class_name: str
    stack_trace: str
    do_not_retry: bool
    def __init__(self, exception_class_name: _Optional[str] = ..., stack_trace: _Optional[str] = ..., do_not_retry: _Optional[bool] = ...) -> None: ...

class RequestHeader(_message.Message):
    __slots__ = ("call_id", "method_name", "request_param", "cell_block_meta", "priority", "timeout")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_NAME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_PARAM_FIELD_NUMBER: _ClassVar[int]
    CELL_BLOCK_META_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    method_name: str
    request_param: bool
    cell_block_meta: CellBlockMeta
    priority: int
    timeout: int
    def __init__(self, call_id: _Optional[int] = ..., method_name: _Optional[str] = ..., request_param: _Optional[bool] = ..., cell_block_meta: _Optional[_Union[CellBlockMeta, _Mapping]] = ..., priority: _Optional[int] = ..., timeout: _Optional[int] = ...) -> None: ...

class ResponseHeader(_message.Message):
    __slots__ = ("call_id", "exception", "cell_block_meta")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    CELL_BLOCK_META_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    exception: ExceptionResponse
    cell_block_meta: CellBlockMeta
    def __init__(self, call_id: _Optional[int] = ..., exception: _Optional[_Union[ExceptionResponse, _Mapping]] = ..., cell_block_meta: _Optional[_Union[CellBlockMeta, _Mapping]] = ...) -> None: ...

class WALKey(_message.Message):
    __slots__ = ("encoded_region_name", "table_name", "log_sequence_number", "write_time")
    ENCODED_REGION_NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    LOG_SEQUENCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    WRITE_TIME_FIELD_NUMBER: _ClassVar[int]
    encoded_region_name: bytes
    table_name: bytes
    log_sequence_number: int
    write_time: int
    def __init__(self, encoded_region_name: _Optional[bytes] = ..., table_name: _Optional[bytes] = ..., log_sequence_number: _Optional[int] = ..., write_time: _Optional[int] = ...) -> None: ...

class WALEntry(_message.Message):
    __slots__ = ("key", "associated_cell_count")
    KEY_FIELD_NUMBER: _ClassVar[int]
    ASSOCIATED_CELL_COUNT_FIELD_NUMBER: _ClassVar[int]
    key: WALKey
    associated_cell_count: int
    def __init__(self, key: _Optional[_Union[WALKey, _Mapping]] = ..., associated_cell_count: _Optional[int] = ...) -> None: ...

class ReplicateWALEntryRequest(_message.Message):
    __slots__ = ("entry",)
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    entry: _containers.RepeatedCompositeFieldContainer[WALEntry]
    def __init__(self, entry: _Optional[_Iterable[_Union[WALEntry, _Mapping]]] = ...) -> None: ...

class ReplicateWALEntryResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClusterId(_message.Message):
    __slots__ = ("cluster_id",)
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    def __init__(self, cluster_id: _Optional[str] = ...) -> None: ...

class ServerName(_message.Message):
    __slots__ = ("host_name", "port", "start_code")
    HOST_NAME_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    START_CODE_FIELD_NUMBER: _ClassVar[int]
    host_name: str
    port: int
    start_code: int
    def __init__(self, host_name: _Optional[str] = ..., port: _Optional[int] = ..., start_code: _Optional[int] = ...) -> None: ...

class Master(_message.Message):
    __slots__ = ("master",)
    MASTER_FIELD_NUMBER: _ClassVar[int]
    master: ServerName
    def __init__(self, master: _Optional[_Union[ServerName, _Mapping]] = ...) -> None: ...

class NameStringPair(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class BytesBytesPair(_message.Message):
    __slots__ = ("first", "second")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SECOND_FIELD_NUMBER: _ClassVar[int]
    first: bytes
    second: bytes
    def __init__(self, first: _Optional[bytes] = ..., second: _Optional[bytes] = ...) -> None: ...

class TableName(_message.Message):
    __slots__ = ("namespace", "qualifier")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUALIFIER_FIELD_NUMBER: _ClassVar[int]
    namespace: bytes
    qualifier: bytes
    def __init__(self, namespace: _Optional[bytes] = ..., qualifier: _Optional[bytes] = ...) -> None: ...

class ColumnFamilySchema(_message.Message):
    __slots__ = ("name", "attributes", "configuration")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    attributes: _containers.RepeatedCompositeFieldContainer[BytesBytesPair]
    configuration: _containers.RepeatedCompositeFieldContainer[NameStringPair]
    def __init__(self, name: _Optional[bytes] = ..., attributes: _Optional[_Iterable[_Union[BytesBytesPair, _Mapping]]] = ..., configuration: _Optional[_Iterable[_Union[NameStringPair, _Mapping]]] = ...) -> None: ...

class TableSchema(_message.Message):
    __slots__ = ("table_name", "attributes", "column_families", "configuration")
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FAMILIES_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    table_name: TableName
    attributes: _containers.RepeatedCompositeFieldContainer[BytesBytesPair]
    column_families: _containers.RepeatedCompositeFieldContainer[ColumnFamilySchema]
    configuration: _containers.RepeatedCompositeFieldContainer[NameStringPair]
    def __init__(self, table_name: _Optional[_Union[TableName, _Mapping]] = ..., attributes: _Optional[_Iterable[_Union[BytesBytesPair, _Mapping]]] = ..., column_families: _Optional[_Iterable[_Union[ColumnFamilySchema, _Mapping]]] = ..., configuration: _Optional[_Iterable[_Union[NameStringPair, _Mapping]]] = ...) -> None: ...

class NamespaceDescriptor(_message.Message):
    __slots__ = ("name", "configuration")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    configuration: _containers.RepeatedCompositeFieldContainer[NameStringPair]
    def __init__(self, name: _Optional[bytes] = ..., configuration: _Optional[_Iterable[_Union[NameStringPair, _Mapping]]] = ...) -> None: ...

class ForeignExceptionMessage(_message.Message):
    __slots__ = ("generic_exception",)
    GENERIC_EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    generic_exception: GenericExceptionMessage
    def __init__(self, generic_exception: _Optional[_Union[GenericExceptionMessage, _Mapping]] = ...) -> None: ...

class GenericExceptionMessage(_message.Message):
    __slots__ = ("class_name", "message")
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    class_name: str
    message: str
    def __init__(self, class_name: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class CreateNamespaceRequest(_message.Message):
    __slots__ = ("namespaceDescriptor",)
    NAMESPACEDESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    namespaceDescriptor: NamespaceDescriptor
    def __init__(self, namespaceDescriptor: _Optional[_Union[NamespaceDescriptor, _Mapping]] = ...) -> None: ...

class DeleteNamespaceRequest(_message.Message):
    __slots__ = ("namespaceName",)
    NAMESPACENAME_FIELD_NUMBER: _ClassVar[int]
    namespaceName: str
    def __init__(self, namespaceName: _Optional[str] = ...) -> None: ...

class ListNamespaceDescriptorsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNamespaceDescriptorsResponse(_message.Message):
    __slots__ = ("namespaceDescriptor",)
    NAMESPACEDESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    namespaceDescriptor: _containers.RepeatedCompositeFieldContainer[NamespaceDescriptor]
    def __init__(self, namespaceDescriptor: _Optional[_Iterable[_Union[NamespaceDescriptor, _Mapping]]] = ...) -> None: ...

class CreateTableRequest(_message.Message):
    __slots__ = ("table_schema", "split_keys")
    TABLE_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SPLIT_KEYS_FIELD_NUMBER: _ClassVar[int]
    table_schema: TableSchema
    split_keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, table_schema: _Optional[_Union[TableSchema, _Mapping]] = ..., split_keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ModifyColumnRequest(_message.Message):
    __slots__ = ("table_name", "column_families")
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FAMILIES_FIELD_NUMBER: _ClassVar[int]
    table_name: TableName
    column_families: ColumnFamilySchema
    def __init__(self, table_name: _Optional[_Union[TableName, _Mapping]] = ..., column_families: _Optional[_Union[ColumnFamilySchema, _Mapping]] = ...) -> None: ...

class DisableTableRequest(_message.Message):
    __slots__ = ("table_name",)
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    table_name: TableName
    def __init__(self, table_name: _Optional[_Union[TableName, _Mapping]] = ...) -> None: ...

class DeleteTableRequest(_message.Message):
    __slots__ = ("table_name",)
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    table_name: TableName
    def __init__(self, table_name: _Optional[_Union[TableName, _Mapping]] = ...) -> None: ...

class GetTableDescriptorsRequest(_message.Message):
    __slots__ = ("table_names", "regex", "include_sys_tables", "namespace")
    TABLE_NAMES_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_SYS_TABLES_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    table_names: _containers.RepeatedCompositeFieldContainer[TableName]
    regex: str
    include_sys_tables: bool
    namespace: str
    def __init__(self, table_names: _Optional[_Iterable[_Union[TableName, _Mapping]]] = ..., regex: _Optional[str] = ..., include_sys_tables: _Optional[bool] = ..., namespace: _Optional[str] = ...) -> None: ...

class GetTableDescriptorsResponse(_message.Message):
    __slots__ = ("table_schema",)
    TABLE_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    table_schema: _containers.RepeatedCompositeFieldContainer[TableSchema]
    def __init__(self, table_schema: _Optional[_Iterable[_Union[TableSchema, _Mapping]]] = ...) -> None: ...

class ProcedureStarted(_message.Message):
    __slots__ = ("proc_id",)
    PROC_ID_FIELD_NUMBER: _ClassVar[int]
    proc_id: int
    def __init__(self, proc_id: _Optional[int] = ...) -> None: ...

class GetProcedureResultRequest(_message.Message):
    __slots__ = ("proc_id",)
    PROC_ID_FIELD_NUMBER: _ClassVar[int]
    proc_id: int
    def __init__(self, proc_id: _Optional[int] = ...) -> None: ...

class GetProcedureResultResponse(_message.Message):
    __slots__ = ("state", "exception")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NOT_FOUND: _ClassVar[GetProcedureResultResponse.State]
        RUNNING: _ClassVar[GetProcedureResultResponse.State]
        FINISHED: _ClassVar[GetProcedureResultResponse.State]
    NOT_FOUND: GetProcedureResultResponse.State
    RUNNING: GetProcedureResultResponse.State
    FINISHED: GetProcedureResultResponse.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    state: GetProcedureResultResponse.State
    exception: ForeignExceptionMessage
    def __init__(self, state: _Optional[_Union[GetProcedureResultResponse.State, str]] = ..., exception: _Optional[_Union[ForeignExceptionMessage, _Mapping]] = ...) -> None: ...

class RegionSpecifier(_message.Message):
    __slots__ = ("type", "value")
    class RegionSpecifierType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REGION_NAME: _ClassVar[RegionSpecifier.RegionSpecifierType]
        ENCODED_REGION_NAME: _ClassVar[RegionSpecifier.RegionSpecifierType]
    REGION_NAME: RegionSpecifier.RegionSpecifierType
    ENCODED_REGION_NAME: RegionSpecifier.RegionSpecifierType
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    type: RegionSpecifier.RegionSpecifierType
    value: bytes
    def __init__(self, type: _Optional[_Union[RegionSpecifier.RegionSpecifierType, str]] = ..., value: _Optional[bytes] = ...) -> None: ...

class MoveRegionRequest(_message.Message):
    __slots__ = ("region", "dest_server_name")
    REGION_FIELD_NUMBER: _ClassVar[int]
    DEST_SERVER_NAME_FIELD_NUMBER: _ClassVar[int]
    region: RegionSpecifier
    dest_server_name: ServerName
    def __init__(self, region: _Optional[_Union[RegionSpecifier, _Mapping]] = ..., dest_server_name: _Optional[_Union[ServerName, _Mapping]] = ...) -> None: ...

class MoveRegionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RegionInfo(_message.Message):
    __slots__ = ("region_id", "table_name", "start_key", "end_key")
    REGION_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    START_KEY_FIELD_NUMBER: _ClassVar[int]
    END_KEY_FIELD_NUMBER: _ClassVar[int]
    region_id: int
    table_name: TableName
    start_key: bytes
    end_key: bytes
    def __init__(self, region_id: _Optional[int] = ..., table_name: _Optional[_Union[TableName, _Mapping]] = ..., start_key: _Optional[bytes] = ..., end_key: _Optional[bytes] = ...) -> None: ...

class SplitTableRegionRequest(_message.Message):
    __slots__ = ("region_info", "split_row")
    REGION_INFO_FIELD_NUMBER: _ClassVar[int]
    SPLIT_ROW_FIELD_NUMBER: _ClassVar[int]
    region_info: RegionInfo
    split_row: bytes
    def __init__(self, region_info: _Optional[_Union[RegionInfo, _Mapping]] = ..., split_row: _Optional[bytes] = ...) -> None: ...

class MergeTableRegionsRequest(_message.Message):
    __slots__ = ("region",)
    REGION_FIELD_NUMBER: _ClassVar[int]
    region: _containers.RepeatedCompositeFieldContainer[RegionSpecifier]
    def __init__(self, region: _Optional[_Iterable[_Union[RegionSpecifier, _Mapping]]] = ...) -> None: ...

class FlushRegionRequest(_message.Message):
    __slots__ = ("region",)
    REGION_FIELD_NUMBER: _ClassVar[int]
    region: RegionSpecifier
    def __init__(self, region: _Optional[_Union[RegionSpecifier, _Mapping]] = ...) -> None: ...

class FlushRegionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CompactRegionRequest(_message.Message):
    __slots__ = ("region", "major")
    REGION_FIELD_NUMBER: _ClassVar[int]
    MAJOR_FIELD_NUMBER: _ClassVar[int]
    region: RegionSpecifier
    major: bool
    def __init__(self, region: _Optional[_Union[RegionSpecifier, _Mapping]] = ..., major: _Optional[bool] = ...) -> None: ...

class CompactRegionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TableCF(_message.Message):
    __slots__ = ("table_name", "families")
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    FAMILIES_FIELD_NUMBER: _ClassVar[int]
    table_name: TableName
    families: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, table_name: _Optional[_Union[TableName, _Mapping]] = ..., families: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ReplicationPeer(_message.Message):
    __slots__ = ("clusterkey", "configuration", "table_cfs", "replicate_all", "serial")
    CLUSTERKEY_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    TABLE_CFS_FIELD_NUMBER: _ClassVar[int]
    REPLICATE_ALL_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    clusterkey: str
    configuration: _containers.RepeatedCompositeFieldContainer[NameStringPair]
    table_cfs: _containers.RepeatedCompositeFieldContainer[TableCF]
    replicate_all: bool
    serial: bool
    def __init__(self, clusterkey: _Optional[str] = ..., configuration: _Optional[_Iterable[_Union[NameStringPair, _Mapping]]] = ..., table_cfs: _Optional[_Iterable[_Union[TableCF, _Mapping]]] = ..., replicate_all: _Optional[bool] = ..., serial: _Optional[bool] = ...) -> None: ...

class ReplicationState(_message.Message):
    __slots__ = ("state",)
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ENABLED: _ClassVar[ReplicationState.State]
        DISABLED: _ClassVar[ReplicationState.State]
    ENABLED: ReplicationState.State
    DISABLED: ReplicationState.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: ReplicationState.State
    def __init__(self, state: _Optional[_Union[ReplicationState.State, str]] = ...) -> None: ...

class ReplicationPeerDescription(_message.Message):
    __slots__ = ("id", "state", "config")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: ReplicationState
    config: ReplicationPeer
    def __init__(self, id: _Optional[str] = ..., state: _Optional[_Union[ReplicationState, _Mapping]] = ..., config: _Optional[_Union[ReplicationPeer, _Mapping]] = ...) -> None: ...

class AddReplicationPeerRequest(_message.Message):
    __slots__ = ("peer_id", "peer_config", "peer_state")
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    PEER_CONFIG_FIELD_NUMBER: _ClassVar[int]
    PEER_STATE_FIELD_NUMBER: _ClassVar[int]
    peer_id: str
    peer_config: ReplicationPeer
    peer_state: ReplicationState
    def __init__(self, peer_id: _Optional[str] = ..., peer_config: _Optional[_Union[ReplicationPeer, _Mapping]] = ..., peer_state: _Optional[_Union[ReplicationState, _Mapping]] = ...) -> None: ...

class RemoveReplicationPeerRequest(_message.Message):
    __slots__ = ("peer_id",)
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    peer_id: str
    def __init__(self, peer_id: _Optional[str] = ...) -> None: ...

class ListReplicationPeersRequest(_message.Message):
    __slots__ = ("regex",)
    REGEX_FIELD_NUMBER: _ClassVar[int]
    regex: str
    def __init__(self, regex: _Optional[str] = ...) -> None: ...

class ListReplicationPeersResponse(_message.Message):
    __slots__ = ("peer_desc",)
    PEER_DESC_FIELD_NUMBER: _ClassVar[int]
    peer_desc: _containers.RepeatedCompositeFieldContainer[ReplicationPeerDescription]
    def __init__(self, peer_desc: _Optional[_Iterable[_Union[ReplicationPeerDescription, _Mapping]]] = ...) -> None: ...

class Cell(_message.Message):
    __slots__ = ("row",)
    ROW_FIELD_NUMBER: _ClassVar[int]
    row: bytes
    def __init__(self, row: _Optional[bytes] = ...) -> None: ...

class NameBytesPair(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("family",)
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    family: bytes
    def __init__(self, family: _Optional[bytes] = ...) -> None: ...

class Filter(_message.Message):
    __slots__ = ("name", "serialized_filter")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SERIALIZED_FILTER_FIELD_NUMBER: _ClassVar[int]
    name: str
    serialized_filter: bytes
    def __init__(self, name: _Optional[str] = ..., serialized_filter: _Optional[bytes] = ...) -> None: ...

class TimeRange(_message.Message):
    __slots__ = ("to",)
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    to: int
    def __init__(self, to: _Optional[int] = ..., **kwargs) -> None: ...

class Scan(_message.Message):
    __slots__ = ("column", "attribute", "filter", "time_range", "max_versions", "cache_blocks")
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    TIME_RANGE_FIELD_NUMBER: _ClassVar[int]
    MAX_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    CACHE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    column: _containers.RepeatedCompositeFieldContainer[Column]
    attribute: _containers.RepeatedCompositeFieldContainer[NameBytesPair]
    filter: Filter
    time_range: TimeRange
    max_versions: int
    cache_blocks: bool
    def __init__(self, column: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., attribute: _Optional[_Iterable[_Union[NameBytesPair, _Mapping]]] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., time_range: _Optional[_Union[TimeRange, _Mapping]] = ..., max_versions: _Optional[int] = ..., cache_blocks: _Optional[bool] = ...) -> None: ...

class ScanRequest(_message.Message):
    __slots__ = ("region", "scan", "scanner_id", "number_of_rows", "close_scanner", "next_call_seq", "client_handles_partials", "client_handles_heartbeats")
    REGION_FIELD_NUMBER: _ClassVar[int]
    SCAN_FIELD_NUMBER: _ClassVar[int]
    SCANNER_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_OF_ROWS_FIELD_NUMBER: _ClassVar[int]
    CLOSE_SCANNER_FIELD_NUMBER: _ClassVar[int]
    NEXT_CALL_SEQ_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HANDLES_PARTIALS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HANDLES_HEARTBEATS_FIELD_NUMBER: _ClassVar[int]
    region: RegionSpecifier
    scan: Scan
    scanner_id: int
    number_of_rows: int
    close_scanner: bool
    next_call_seq: int
    client_handles_partials: bool
    client_handles_heartbeats: bool
    def __init__(self, region: _Optional[_Union[RegionSpecifier, _Mapping]] = ..., scan: _Optional[_Union[Scan, _Mapping]] = ..., scanner_id: _Optional[int] = ..., number_of_rows: _Optional[int] = ..., close_scanner: _Optional[bool] = ..., next_call_seq: _Optional[int] = ..., client_handles_partials: _Optional[bool] = ..., client_handles_heartbeats: _Optional[bool] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("cell",)
    CELL_FIELD_NUMBER: _ClassVar[int]
    cell: _containers.RepeatedCompositeFieldContainer[Cell]
    def __init__(self, cell: _Optional[_Iterable[_Union[Cell, _Mapping]]] = ...) -> None: ...

class ScanResponse(_message.Message):
    __slots__ = ("scanner_id", "more_results", "results", "more_results_in_region")
    SCANNER_ID_FIELD_NUMBER: _ClassVar[int]
    MORE_RESULTS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MORE_RESULTS_IN_REGION_FIELD_NUMBER: _ClassVar[int]
    scanner_id: int
    more_results: bool
    results: _containers.RepeatedCompositeFieldContainer[Result]
    more_results_in_region: bool
    def __init__(self, scanner_id: _Optional[int] = ..., more_results: _Optional[bool] = ..., results: _Optional[_Iterable[_Union[Result, _Mapping]]] = ..., more_results_in_region: _Optional[bool] = ...) -> None: ...

class GetStoreFileRequest(_message.Message):
    __slots__ = ("region", "family")
    REGION_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    region: RegionSpecifier
    family: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, region: _Optional[_Union[RegionSpecifier, _Mapping]] = ..., family: _Optional[_Iterable[bytes]] = ...) -> None: ...

class GetStoreFileResponse(_message.Message):
    __slots__ = ("store_file",)
    STORE_FILE_FIELD_NUMBER: _ClassVar[int]
    store_file: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, store_file: _Optional[_Iterable[str]] = ...) -> None: ...
