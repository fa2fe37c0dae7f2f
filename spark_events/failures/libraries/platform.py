"""Python, the JDK, Scala, Hadoop, Spark, and the formats and table formats that Spark reads."""

from __future__ import annotations

import re

from spark_events.failures.kinds import (
    AGAIN,
    BUSY,
    COMMIT_UNKNOWN,
    DATA,
    DENIED,
    DOWN,
    FETCH,
    FULL,
    LIBRARY,
    LOCAL_LIMIT,
    MEMORY,
    MISSING,
    MISTAKE,
    PYTHON_MEMORY,
    REJECTED,
    SCHEMA,
    SETUP,
    SILENT,
)  # fmt: skip
from spark_events.failures.libraries.library import Library

__all__ = ["ANALYSIS_ERRORS", "JVM_MISTAKES", "PLATFORM"]

#: Errors of an analysis, which has failed before any data was read: the query is wrong, unless a message tells another
#: cause.
ANALYSIS_ERRORS = re.compile(r"(?:org\.apache\.spark\.sql|pyspark)\.(?:[\w.]*\.)?(?:Extended)?AnalysisException")
#: Programming errors of the JVM. Spark and libraries raise them too, so they count only in the user's own code.
JVM_MISTAKES = frozenset(
    f"{package}.{name}"
    for package, names in (
        (
            "java.lang",
            "ArrayIndexOutOfBoundsException ArrayStoreException AssertionError ClassCastException"
            " CloneNotSupportedException IllegalArgumentException IllegalStateException IndexOutOfBoundsException"
            " NegativeArraySizeException NullPointerException StackOverflowError StringIndexOutOfBoundsException"
            " UnsupportedOperationException",
        ),
        ("java.util", "NoSuchElementException ConcurrentModificationException InputMismatchException"),
        ("scala", "MatchError NotImplementedError UninitializedFieldError"),
    )
    for name in names.split()
)

PLATFORM = (
    Library(
        "builtins exceptions",
        types={
            "ConnectionError ConnectionResetError ConnectionAbortedError ConnectionRefusedError BrokenPipeError": DOWN,
            "TimeoutError": SILENT,
            "PermissionError": DENIED,
            "FileNotFoundError NotADirectoryError": MISSING,
            "MemoryError": PYTHON_MEMORY,
            "ModuleNotFoundError ImportError": LIBRARY,
            "UnicodeDecodeError UnicodeEncodeError UnicodeError": DATA,
            "TypeError KeyError AttributeError NameError UnboundLocalError IndexError LookupError ZeroDivisionError"
            " AssertionError NotImplementedError RecursionError SyntaxError IndentationError TabError StopIteration"
            " StopAsyncIteration FloatingPointError PicklingError": MISTAKE,
        },
        # If a name has several addresses, asyncio joins their connection errors in one OSError without an errno.
        messages=(
            (r"^Multiple exceptions: \[Errno", DOWN),
            (r"^(?:CUDA|HIP) (?:error: )?out of memory", PYTHON_MEMORY),
        ),
        coded="OSError IOError EnvironmentError RuntimeError",
    ),
    Library("socket", types={"gaierror herror": DOWN, "timeout": SILENT, "error": DOWN}),
    Library(
        "ssl",
        types={"SSLCertVerificationError CertificateError": SETUP, "SSLError SSLEOFError SSLZeroReturnError": DOWN},
        messages=((r"CERTIFICATE_VERIFY_FAILED", SETUP),),
        coded="SSLError",
    ),
    Library("asyncio concurrent async_timeout", types={"TimeoutError": SILENT, "IncompleteReadError": DOWN}),
    Library("json simplejson orjson", types={"JSONDecodeError": DATA}),
    Library(
        "decimal zlib gzip zipfile lzma csv xml struct binascii bz2 tarfile",
        types={
            "InvalidOperation DivisionByZero error BadGzipFile BadZipFile LZMAError Error ParseError ExpatError"
            " ReadError": DATA
        },
    ),
    # The folder of Replay.store may also be unreachable for a while.
    Library(
        "spark_events",
        types={
            "InvalidPlanError InvalidChoiceError InvalidEventError": MISTAKE,
            "ConfigError": SETUP,
            "MissingExtraError": LIBRARY,
        },
        messages=((r"^Replay\.store is .*cannot be used", REJECTED),),
        coded="InvalidPlanError",
    ),
    Library("pickle _pickle cloudpickle", types={"PicklingError": MISTAKE, "UnpicklingError": DATA}),
    Library(
        "pyarrow",
        types={
            "ArrowInvalid ArrowTypeError": DATA,
            "ArrowMemoryError": PYTHON_MEMORY,
            "ArrowNotImplementedError": SCHEMA,
            "ArrowKeyError": MISTAKE,
        },
    ),
    Library(
        "pandas dateutil numpy",
        types={
            "ParserError EmptyDataError OutOfBoundsDatetime OutOfBoundsTimedelta IntCastingNaNError": DATA,
            "MergeError SpecificationError AxisError InvalidIndexError": MISTAKE,
            "_ArrayMemoryError": PYTHON_MEMORY,
        },
    ),
    Library("pydantic pydantic_core jsonschema marshmallow cerberus", types={"ValidationError": DATA}),
    Library("torch cupy", types={"OutOfMemoryError": PYTHON_MEMORY}),
    Library("numba", messages=((r"CUDA_ERROR_OUT_OF_MEMORY", PYTHON_MEMORY),)),
    Library("tensorflow", types={"ResourceExhaustedError": PYTHON_MEMORY}),
    Library("jaxlib jax", messages=((r"^RESOURCE_EXHAUSTED: Out of memory", PYTHON_MEMORY),)),
    Library("avro fastavro", types={"SchemaResolutionException": SCHEMA, "SchemaParseException": SCHEMA}),
    Library(
        "deltalake",
        types={
            "CommitFailedError": AGAIN,
            "TableNotFoundError": MISSING,
            "SchemaMismatchError": SCHEMA,
        },
        messages=((r"Schema error:", SCHEMA),),
        coded="DeltaError",
    ),
    Library(
        "delta",
        types={
            "ConcurrentAppendException ConcurrentDeleteReadException ConcurrentDeleteDeleteException"
            " ConcurrentTransactionException MetadataChangedException ProtocolChangedException ConcurrentWriteException"
            " DeltaConcurrentModificationException": AGAIN,
        },
    ),
    Library(
        "pyiceberg",
        types={
            "CommitFailedException": AGAIN,
            "CommitStateUnknownException": COMMIT_UNKNOWN,
            "NoSuchTableError NoSuchNamespaceError": MISSING,
            "ForbiddenError UnauthorizedError": DENIED,
            "ServiceUnavailableError ServerError": DOWN,
        },
    ),
    # The JVM.
    Library(
        "java.net sun.nio java.nio sun.net",
        types={
            "ConnectException NoRouteToHostException PortUnreachableException UnknownHostException"
            " ClosedChannelException UnresolvedAddressException AsynchronousCloseException": DOWN,
            "SocketTimeoutException HttpTimeoutException HttpConnectTimeoutException": SILENT,
            "BindException": SETUP,
            "AccessDeniedException": DENIED,
            "NoSuchFileException NotDirectoryException": MISSING,
            "MalformedInputException UnmappableCharacterException": DATA,
        },
    ),
    Library(
        "java.net.SocketException java.io.FileNotFoundException java.io.IOException",
        types={"FileNotFoundException": MISSING, "SocketException": DOWN},
        messages=(
            (r"Too many open files", LOCAL_LIMIT),
            (r"No space left on device|There is not enough space", FULL),
            (r"\(Permission denied\)$", DENIED),
        ),
    ),
    Library(
        "javax.net.ssl",
        types={"SSLHandshakeException SSLPeerUnverifiedException": SETUP, "SSLException SSLProtocolException": DOWN},
        messages=((r"closed connection|Connection reset|terminated the handshake|EOF", DOWN),),
        coded="SSLHandshakeException",
    ),
    Library(
        "sun.security.validator sun.security.provider.certpath java.security.cert",
        types={
            "ValidatorException SunCertPathBuilderException CertificateException CertificateExpiredException"
            " CertPathValidatorException": SETUP,
        },
    ),
    Library(
        "javax.security org.ietf.jgss sun.security.krb5 javax.naming java.security",
        types={
            "LoginException FailedLoginException GSSException KrbException AuthenticationException SaslException"
            " AccessControlException InvalidKeyException": DENIED,
            "CommunicationException ServiceUnavailableException": DOWN,
            "NameNotFoundException": SETUP,
        },
    ),
    Library("javax.security.sasl.SaslException", types={"SaslException": DENIED}),
    Library(
        "java.lang",
        types={
            "ClassNotFoundException NoClassDefFoundError NoSuchMethodError NoSuchFieldError AbstractMethodError"
            " UnsupportedClassVersionError UnsatisfiedLinkError IncompatibleClassChangeError NoSuchMethodException"
            " BootstrapMethodError VerifyError IllegalAccessError": LIBRARY,
            "NumberFormatException ArithmeticException": DATA,
            "OutOfMemoryError": MEMORY,
            "SecurityException": DENIED,
        },
    ),
    # Messages of Spark's external shuffle service, which has lost the files of an executor.
    Library(
        "java.lang.RuntimeException",
        messages=((r"Executor is not registered \(appId|Failed to open file: \S*shuffle_\d", FETCH),),
    ),
    # Java's version, or its --add-opens, does not fit to the class that is opened.
    Library("java.lang.reflect", types={"InaccessibleObjectException": LIBRARY}),
    Library(
        "java.io",
        types={
            "NotSerializableException": MISTAKE,
            "InvalidClassException": LIBRARY,
            "UTFDataFormatException": DATA,
        },
    ),
    Library(
        "java.util java.time java.text javax.xml org.xml com.fasterxml",
        types={
            "ZipException DataFormatException DateTimeParseException DateTimeException ParseException"
            " SAXParseException JsonParseException JsonMappingException JsonEOFException MismatchedInputException"
            " InvalidFormatException XMLStreamException": DATA,
            "ServiceConfigurationError MissingResourceException": LIBRARY,
        },
    ),
    Library("java.rmi", types={"ConnectException NoSuchObjectException": DOWN}),
    # Hadoop.
    Library(
        "org.apache.hadoop",
        types={
            "AccessControlException AuthorizationException InvalidToken": DENIED,
            "SafeModeException StandbyException RetriableException NoRouteToHostException ConnectTimeoutException"
            " LeaseExpiredException": DOWN,
            "BlockMissingException InvalidInputException PathNotFoundException": MISSING,
            "NSQuotaExceededException DSQuotaExceededException DiskErrorException QuotaExceededException": FULL,
            "ChecksumException": DATA,
            "UnsupportedFileSystemException": LIBRARY,
            "InvalidResourceRequestException": SETUP,
            "FileAlreadyExistsException": REJECTED,
        },
    ),
    Library(
        "org.apache.hadoop.hive org.apache.hive",
        types={
            "NoSuchObjectException UnknownTableException UnknownDBException InvalidObjectException": MISSING,
            "HiveAccessControlException HiveAuthzPluginException": DENIED,
        },
    ),
    Library(
        "org.apache.zookeeper org.apache.curator",
        types={
            "ConnectionLossException SessionExpiredException OperationTimeoutException": DOWN,
            "NoAuthException AuthFailedException": DENIED,
        },
    ),
    # Spark, and shuffle services.
    Library(
        "org.apache.spark",
        types={
            "FetchFailedException MetadataFetchFailedException ShuffleDataIOException": FETCH,
            "SparkOutOfMemoryError": MEMORY,
            "SchemaColumnConvertNotSupportedException": SCHEMA,
            "SparkArithmeticException SparkDateTimeException SparkNumberFormatException SparkUpgradeException"
            " BadRecordException CharConversionException": DATA,
            "NoSuchTableException NoSuchDatabaseException NoSuchNamespaceException NoSuchPartitionException"
            " NoSuchPartitionsException SparkFileNotFoundException CannotReplaceMissingTableException": MISSING,
            "NoSuchFunctionException ParseException TableAlreadyExistsException DatabaseAlreadyExistsException"
            " NamespaceAlreadyExistsException TempTableAlreadyExistsException": MISTAKE,
            "SparkClassNotFoundException": LIBRARY,
        },
    ),
    Library(
        "org.apache.celeborn org.apache.uniffle com.tencent.rss com.uber.rss",
        types={
            "RssFetchFailedException CelebornIOException CelebornRuntimeException PartitionUnRetryAbleException"
            " RssException FetchFailedException ShuffleFetchFailedException RssShuffleDataNotFoundException"
            " RssSendFailedException RssInvalidDataException": FETCH,
        },
    ),
    Library(
        "org.rocksdb",
        messages=(
            (r"No space left on device", FULL),
            (r"Mismatch in unique ID|Corruption|checksum|bad block", DATA),
            (r"lock hold by|LOCK: No locks available", SETUP),
        ),
    ),
    # Formats and table formats.
    Library(
        "org.apache.parquet parquet.io org.apache.orc org.apache.avro com.google.protobuf",
        types={
            "ParquetDecodingException ParquetCryptoRuntimeException FileFormatException InvalidAvroMagicException"
            " InvalidProtocolBufferException CorruptStatistics": DATA,
            "AvroTypeException IllegalEvolutionException InvalidSchemaException IncompatibleSchemaModificationException"
            " SchemaParseException": SCHEMA,
            "InvalidRecordException": SCHEMA,
        },
        messages=((r"Invalid sync!|Not an Avro data file|Not a data file", DATA),),
        coded="AvroRuntimeException",
    ),
    Library(
        "org.xerial.snappy com.github.luben net.jpountz com.univocity",
        types={
            "SnappyIOException ZstdIOException ZstdException LZ4Exception TextParsingException": DATA,
        },
    ),
    Library(
        "com.esotericsoftware", messages=((r"Buffer overflow\. Available", SETUP), (r"Unable to find class", LIBRARY))
    ),
    Library(
        "io.confluent",
        messages=(
            (r"Unauthorized|error code: 40[13]", DENIED),
            (r"(?i)error (?:retrieving|registering).{0,40}schema|Subject '.*' not found", REJECTED),
        ),
    ),
    Library(
        "org.apache.iceberg",
        types={
            "CommitFailedException": AGAIN,
            "CommitStateUnknownException": COMMIT_UNKNOWN,
            "NoSuchTableException NoSuchNamespaceException NoSuchViewException NotFoundException": MISSING,
            "ForbiddenException NotAuthorizedException": DENIED,
            "ServiceUnavailableException ServiceFailureException RESTException": DOWN,
        },
        messages=((r"Found conflicting|Found new conflicting|conflicting (?:files|deletes)", AGAIN),),
        coded="ValidationException",
    ),
    Library(
        "io.delta org.apache.spark.sql.delta com.databricks",
        types={
            "ConcurrentAppendException ConcurrentDeleteReadException ConcurrentDeleteDeleteException"
            " ConcurrentTransactionException MetadataChangedException ProtocolChangedException"
            " ConcurrentWriteException CommitFailedException": AGAIN,
            "DeltaFileNotFoundException VersionNotFoundException": MISSING,
            "InvariantViolationException DeltaInvariantViolationException": DATA,
        },
    ),
    Library(
        "org.apache.hudi",
        types={
            "HoodieWriteConflictException HoodieLockException HoodieEarlyConflictDetectionException": AGAIN,
            "TableNotFoundException": MISSING,
            "SchemaCompatibilityException MissingSchemaFieldException": SCHEMA,
        },
    ),
    Library(
        "com.nvidia.spark.rapids ai.rapids",
        types={
            "GpuSplitAndRetryOOM GpuRetryOOM CpuRetryOOM CpuSplitAndRetryOOM": MEMORY,
        },
        messages=((r"bad_alloc|out_of_memory", MEMORY),),
        coded="CudfException RmmException",
    ),
    Library(
        "com.hazelcast org.apache.ignite",
        types={
            "TargetNotMemberException HazelcastClientOfflineException ClientConnectionException": DOWN,
            "OperationTimeoutException": SILENT,
            "ClientOverloadException": BUSY,
        },
    ),
)
