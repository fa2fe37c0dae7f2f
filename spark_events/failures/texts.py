"""Patterns for messages: the class of a failure of which neither condition, type nor exit code is known."""

from __future__ import annotations

import re

from spark_events.failures.kinds import OUT_OF_MEMORY

__all__ = ["class_of_text"]

#: Classes and their patterns, which match names of exceptions, and words in messages. The first match decides.
#: Repetitions have limits, so that a long message takes linear time.
_RULES = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        (
            "CANCELLED",
            r"SPARK_JOB_CANCELLED|OPERATION_CANCELED|[Jj]ob (?:\d+ )?(?:was )?cancelled|cancelled job group"
            r"|Query \S+ was cancelled|TaskKilled"
            r"|SparkContext (?:has been |was )?shut ?down|stopped SparkContext",
        ),
        (
            "DISK_FULL",
            r"No space left on device|[Qq]uota ?[Ee]xceeded|not enough space on the disk",
        ),
        (
            "PYTHON_OUT_OF_MEMORY",
            r"(?:^|[\s.])_?(?:Array)?MemoryError\b|ArrowMemoryError|OutOfMemoryError: (?:CUDA|HIP)"
            r"|(?:CUDA|HIP) (?:error: )?out of memory|CUDA_ERROR_OUT_OF_MEMORY"
            r"|Python worker .{0,300}(?:exit code:? (?:137|-9)|SIGKILL)",
        ),
        (
            OUT_OF_MEMORY,
            r"OutOfMemory|GC overhead limit|memory limits|OOMKilled"
            r"|UNABLE_TO_ACQUIRE_MEMORY|CANNOT_ACQUIRE_MEMORY|Unable to acquire \d+ bytes|OOM(?![a-z])"
            r"|spark\.driver\.maxResultSize|Not enough memory to build and broadcast|[Cc]annot broadcast the table"
            r"|bad_alloc|Cannot allocate memory",
        ),
        (
            "FETCH_FAILURE",
            r"FetchFailed|Missing an output location for shuffle",
        ),
        (
            "EXECUTOR_LOST",
            r"ExecutorLostFailure|[Ee]xecutor heartbeat timed out|Lost executor|(?:Worker|Slave) lost"
            r"|RPC client disassociated|[Mm]ax number of executor failures|Could not find CoarseGrainedScheduler"
            r"|CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND",
        ),
        (
            "BROADCAST_TIMEOUT",
            r"Could not execute broadcast|EXECUTE_BROADCAST_TIMEOUT|sql\.broadcastTimeout",
        ),
        (
            "PYTHON_WORKER_CRASHED",
            r"Python worker (?:exited unexpectedly|failed to connect back)",
        ),
        (
            "MISSING_DEPENDENCY",
            r"ClassNotFound|NoClassDefFound|NoSuch(?:Method|Field)Error|AbstractMethodError|UnsupportedClassVersion"
            r"|UnsatisfiedLinkError|IncompatibleClassChange|ModuleNotFoundError|ImportError|No module named"
            r"|DATA_SOURCE_NOT_FOUND|find (?:the )?data source|load class for data source"
            r"|No FileSystem for scheme|No suitable driver"
            r"|InvalidClassException|UNSUPPORTED_FILE_SYSTEM|Cannot run program|ServiceConfigurationError"
            r"|CANNOT_LOAD_(?:CATALOG|FUNCTION_CLASS)|CANNOT_FIND_CATALOG|[Uu]nresolved dependenc"
            r"|PYTHON_VERSION_MISMATCH|Python in worker has different version|NoSuchMethodException"
            r"|Unable to find class|class file major version|gateway process exited|JAVA_GATEWAY_EXITED"
            r"|[Cc]annot find catalog|must be installed|IllegalAccessError|InaccessibleObject",
        ),
        (
            "PERMISSION",
            r"Access ?[Dd]enied|[Pp]ermission ?[Dd]enied|PERMISSION_DENIED|INSUFFICIENT_PERMISSION"
            r"|AccessControlException|\b40[13]\b.{0,20}(?:Forbidden|Unauthorized)"
            r"|(?:[Ss]tatus ?[Cc]ode|HTTP|code)\W{0,3}40[13]\b|Forbidden|(?i:not authorized)"
            r"|Authori[sz]ationException|Authenticat(?:ion|or)\w{0,50}Exception|[Aa]uthentication failed|GSSException"
            r"|Kerberos|[Cc]redentials|Expired ?Token|InvalidToken|SignatureDoesNotMatch|InvalidAccessKeyId"
            r"|[Ll]ogin failed|Mkdirs failed|PermissionError|does not have .{0,30}privilege"
            r"|does not have \S{1,60} access|Permission '\S{1,60}' denied",
        ),
        (
            "CONFIGURATION",
            r"Multiple streaming (?:jobs|queries)"
            r"|CANNOT_MODIFY_(?:STATIC_)?CONFIG|INVALID_(?:DRIVER|EXECUTOR)_MEMORY|INVALID_CONF_VALUE"
            r"|FEATURE_NOT_ENABLED|CONFIG_NOT_AVAILABLE|INVALID_KRYO|NoSuchElementException: spark\."
            r"|(?i:buffer overflow)\. Available|KRYO_BUFFER_OVERFLOW|[Mm]aster URL|memory .{0,100} must be at least"
            r"|above the max threshold|IllegalArgumentException: .{0,300}\bspark\.[a-z]\w*\.\w|ConfigException"
            r"|Address already in use|Multiple SparkContext|_NOT_ENABLED|MISSING_TIMEOUT_CONFIGURATION"
            r"|Failed to construct kafka|Cannot modify the value of a (?:static|Spark) config"
            r"|exceeds max allowed: spark\.|\bunset\b|winutils|Wrong basePath"
            r"|Too many open files|Failed to bind",
        ),
        (
            "SCHEMA_MISMATCH",
            r"cannot be converted in file|SchemaColumnConvertNotSupported|PARQUET_COLUMN_DATA_TYPE_MISMATCH"
            r"|UNRESOLVED_(?:COLUMN|FIELD|MAP_KEY)|[Cc]annot resolve (?!routine|function|conflict)"
            r"|INCOMPATIBLE_\w{0,50}(?:DATA|SCHEMA|TYPE|COLUMN)|[Cc]annot write incompatible"
            r"|[Ss]chema (?:mismatch|of .{0,300} differs|change)|ARITY_MISMATCH|MERGE_SCHEMA|NUM_COLUMNS_MISMATCH"
            r"|DATATYPE_MISMATCH|data type mismatch|Failed to merge|UNABLE_TO_INFER_SCHEMA|[Uu]nable to infer schema"
            r"|AvroTypeException|IllegalEvolutionException|AVRO_INCOMPATIBLE|FIELD_NOT_FOUND|No such struct field"
            r"|COLUMN_NOT_FOUND|SCHEMA_(?:NOT_)?COMPATIBLE|schema doesn.t match|AMBIGUOUS_REFERENCE|is ambiguous"
            r"|field\w{0,9} .{0,40}missing|Found duplicate column|COLUMN_ALREADY_EXISTS|SCHEMA_EVOLUTION|field ended by"
            r"|match the specified (?:format|partition|bucket)|(?:PARQUET|AVRO|ORC)_TYPE|_INVALID_TYPE|COLUMN_ORDINAL"
            r"|valid external type|codec for class|can not accept object|TYPE_UNACCEPTABLE|CANNOT_DETERMINE_TYPE"
            r"|types cannot be determined|on unresolved object|[Cc]an ?not infer schema"
            r"|(?i:column|field) \S{1,99} does(?: not|n't) exist|not match table schema",
        ),
        (
            "MISSING_FILE_OR_TABLE",
            r"TABLE_OR_VIEW_NOT_FOUND|[Tt]able or view not found|PATH_NOT_FOUND|[Pp]ath does not exist|FileNotFound"
            r"|NoSuch(?:Table|Database|Namespace|Key|Bucket)|(?:SCHEMA|VIEW|TABLE|DATABASE|NAMESPACE)_NOT_FOUND"
            r"|[Dd]atabase .{0,99} not found|FILE_NOT_EXIST|[Ff]ile does not exist|No such file|UnknownTopicOrPartition"
            r"|data may have been lost|OffsetOutOfRange|offset was changed|is not a Delta table|METADATA_NOT_FOUND"
            r"|NoSuchFile|BlockMissing|(?:[a-z0-9]{1,9}:/|[\s'\"]/)\S{1,300} does not exist"
            r"|(?i:path|file|folder|directory|table|view|relation|database|schema|namespace|catalog|topic|bucket"
            r"|container|collection|index|object|key|partition)\b.{0,300} does not exist",
        ),
        (
            "DATA_ERROR",
            r"NumberFormat|Arithmetic|DIVIDE_BY_ZERO|(?<!CANNOT_)CAST_|_OVERFLOW|DateTime(?:Parse)?Exception"
            r"|[Mm]alformed(?! request)|MALFORMED|is not a Parquet file|[Cc]orrupt"
            r"|[Cc]ould not read footer|CANNOT_READ_FILE_FOOTER|JSONDecodeError|UnicodeDecodeError"
            r"|MalformedInput|SparkUpgradeException|INCONSISTENT_BEHAVIOR_CROSS_VERSION|[Nn]ull value|NOT_NULL"
            r"|TOO_MANY_ROWS|DUPLICATED_MAP_KEY|INVALID_ARRAY_INDEX|ZipException|Checksum|ParquetDecoding"
            r"|Parquet(?:File)?Exception|(?i:not in gzip)|[Dd]uplicate key|_VIOLATION|DataException|JsonParse"
            r"|FileFormatException|[Cc]annot parse|CANNOT_PARSE|DECODING|ParseError|For input string"
            r"|Unexpected end of|expected \d+ (?:fields|columns)|ArrowInvalid|ArrowTypeError"
            r"|(?i:value) out of (?:\w+ ){0,2}range|lose precision|[Oo]verflow (?:in|occur)",
        ),
        (
            "EXTERNAL_SYSTEM",
            r"Connect(?:ion)? ?(?:Exception|Timeout|refused|reset|timed out|closed)|SocketTimeout|UnknownHost"
            r"|NoRouteToHost|SocketException|SSL\w{0,50}Exception|TimeoutException|[Tt]imed out|SlowDown"
            r"|(?:HTTP|[Ss]tatus|[Cc]ode|[Ee]rror)\W{0,3}50[0234]\b|\b50[0234] (?:Server|Service|Bad|Internal|Gateway)"
            r"|[Tt]hrottl|(?i:service ?unavailable)|CommunicationsException|NoNodeAvailable|[Cc]ould not connect"
            r"|Broken pipe|NoHostAvail|Unable to connect|Failed to connect|Too Many Requests|\.SQLException"
            r"|PSQLException|KafkaException|block locations|could only be (?:written|replicated)|EXTERNAL_ERROR"
            r"|Concurrent\w{1,50}Exception|CommitFailed|CommitStateUnknown|[Cc]onflict(?:ing|Exception)"
            r"|[Cc]oncurrent update|try (?:the operation )?again|[Oo]verloaded|Connection error"
            r"|HTTP \w+ request failed|(?<!AWS)BadRequestException|all nodes failed|NoNodes|MetaStoreClient"
            r"|MetaException|TTransport|Exception thrown in awaitResult: ?$|Connection pool shut down"
            r"|ConnectionTerminated|[Uu]nable to acquire (?:the )?lock|Connection from \S+ closed"
            r"|open native connection|Cannot detect ES version",
        ),
        (
            "USER_CODE",
            r"Task not serializable|attempting to reference SparkContext",
        ),
    )
)
#: Python's messages that end with a value of the data, whose words say nothing about the failure.
_VALUE = re.compile(r"(ValueError: (?:invalid literal for|could not convert string to|time data) ).*", re.DOTALL)


def class_of_text(text: str) -> str | None:
    """Return the class by the first pattern that matches, or None.

    >>> class_of_text("Path does not exist: file:/in")
    'MISSING_FILE_OR_TABLE'
    """
    text = _VALUE.sub(r"\1", text)
    return next((name for name, pattern in _RULES if pattern.search(text)), None)
