"""Databases, over their Python and Java clients."""

from __future__ import annotations

from spark_events.failures.kinds import (
    AGAIN,
    BROKEN,
    BUSY,
    CROWDED,
    DATA,
    DENIED,
    DOWN,
    LIBRARY,
    MISSING,
    MISTAKE,
    POOL,
    PYTHON_MEMORY,
    REJECTED,
    SCHEMA,
    SETUP,
    SILENT,
    SLOW,
)  # fmt: skip
from spark_events.failures.libraries.library import Library, attribute

__all__ = ["DATABASES"]

#: Messages of PostgreSQL. Errors on the way to a connection have no SQLSTATE, even if the server sent one.
_POSTGRES_MESSAGES = (
    (r"too many clients already|too many connections for|remaining connection slots are reserved", CROWDED),
    (r"password authentication failed|no password supplied|no pg_hba\.conf entry|permission denied for", DENIED),
    (r'database ".*" does not exist|relation ".*" does not exist', MISSING),
    (r'role ".*" does not exist', DENIED),
    (r'column ".*" does not exist|column ".*" of relation', SCHEMA),
    (r"deadlock detected|could not serialize access|could not obtain lock", AGAIN),
    (r"canceling statement due to|canceling autovacuum", SLOW),
    (r"duplicate key value|violates .*constraint|invalid input syntax|value too long for type|out of range", DATA),
    (r"syntax error at", MISTAKE),
    (r"certificate verify failed|sslmode|root certificate", SETUP),
)
_POSTGRES_ERRORS = {
    # The classes of psycopg.errors and asyncpg.exceptions, named after PostgreSQL's SQLSTATEs.
    "AdminShutdown CrashShutdown CannotConnectNow ConnectionFailure ConnectionException SqlclientUnableToEstablish"
    "Sqlconnection ConnectionDoesNotExist ReadOnlySqlTransaction DatabaseDropped IdleSessionTimeout"
    " ConnectionDoesNotExistError CannotConnectNowError ConnectionFailureError AdminShutdownError"
    " ReadOnlySQLTransactionError": DOWN,
    "TooManyConnections TooManyConnectionsError": CROWDED,
    "SerializationFailure DeadlockDetected LockNotAvailable TransactionRollback SerializationError"
    " DeadlockDetectedError LockNotAvailableError": AGAIN,
    "QueryCanceled QueryCanceledError TransactionTimeout IdleInTransactionSessionTimeout": SLOW,
    "InvalidPassword InvalidAuthorizationSpecification InsufficientPrivilege InvalidPasswordError"
    " InvalidAuthorizationSpecificationError InsufficientPrivilegeError": DENIED,
    "UndefinedTable InvalidCatalogName InvalidSchemaName UndefinedTableError InvalidCatalogNameError": MISSING,
    "UndefinedColumn UndefinedColumnError": SCHEMA,
    "UniqueViolation NotNullViolation ForeignKeyViolation CheckViolation StringDataRightTruncation"
    " NumericValueOutOfRange InvalidTextRepresentation InvalidDatetimeFormat DatetimeFieldOverflow DivisionByZero"
    " DataError IntegrityError UniqueViolationError NotNullViolationError ForeignKeyViolationError"
    " CheckViolationError": DATA,
    "SyntaxError UndefinedFunction PostgresSyntaxError ProgrammingError": MISTAKE,
}
_MYSQL_CODES = {
    "1040 1203 1226": CROWDED,
    "1205 1213": AGAIN,
    "1053 1152 1158 1159 1160 1161 1290 1836 2002 2003 2005 2006 2013 2055 2014 4031": DOWN,
    "3024 1317": SLOW,
    "1044 1045 1142 1143 1227 1698 1820": DENIED,
    "1049 1146 1051": MISSING,
    "1054": SCHEMA,
    "1048 1062 1264 1265 1292 1366 1406 1451 1452": DATA,
    "1064": MISTAKE,
}
_ORACLE_CODES = {
    "ORA-03113 ORA-03114 ORA-03135 ORA-01033 ORA-01034 ORA-01089 ORA-01092 ORA-12170 ORA-12500 ORA-12514 ORA-12516"
    " ORA-12519 ORA-12520 ORA-12528 ORA-12537 ORA-12541 ORA-12543 ORA-12545 ORA-12547 ORA-12560 ORA-12570 ORA-12571"
    " ORA-17002 ORA-17008 DPY-4011 DPY-6000 DPY-6001 DPY-6005 DPY-1001 DPI-1010 DPI-1080": DOWN,
    "ORA-00018 ORA-00020 ORA-02391": CROWDED,
    "ORA-00054 ORA-00060 ORA-08177 ORA-30006": AGAIN,
    "ORA-01013 ORA-12535 ORA-12609 DPY-4024 DPI-1067": SILENT,
    "ORA-01017 ORA-01031 ORA-01045 ORA-28000 ORA-28001 ORA-28009": DENIED,
    "ORA-00942 ORA-04043 ORA-12154 DPY-4000": MISSING,
    "ORA-00904": SCHEMA,
    "ORA-00001 ORA-01400 ORA-01407 ORA-01438 ORA-01722 ORA-01830 ORA-01843 ORA-01861 ORA-02291 ORA-12899": DATA,
    "ORA-00900 ORA-00907 ORA-00911 ORA-00923 ORA-00933 ORA-00936": MISTAKE,
    "DPY-3015 DPY-3010 DPI-1047": LIBRARY,
}
_SQL_SERVER_MESSAGES = (
    (r"[Ll]ogin failed|Cannot open database|permission was denied", DENIED),
    (r"TCP/IP connection to the host|[Cc]onnection (?:reset|is closed)|Broken pipe|connection was terminated", DOWN),
    (r"is not currently available|Resource ID ?: ?\d|reached .*(?:limit|maximum)", BUSY),
    (r"deadlock victim|deadlocked on", AGAIN),
    (r"[Tt]imed out|[Tt]imeout expired", SILENT),
    (r"Invalid object name", MISSING),
    (r"Invalid column name", SCHEMA),
    (r"Violation of|Cannot insert|would be truncated|overflow error|Conversion failed|Error converting", DATA),
    (r"Incorrect syntax", MISTAKE),
    (r"PKIX path building|certificate", SETUP),
)

DATABASES = (
    Library(
        "psycopg psycopg2",
        types={
            **_POSTGRES_ERRORS,
            "ConnectionTimeout": SILENT,
            # Without an SQLSTATE, the client has lost the connection or could not open it.
            "OperationalError": DOWN,
        },
        sql=True,
        messages=(*_POSTGRES_MESSAGES, (r"connection (?:is |has been )?(?:already )?closed", DOWN)),
        coded="OperationalError InterfaceError DatabaseError Error InternalError",
    ),
    Library("psycopg_pool", types={"PoolTimeout TooManyRequests": POOL}),
    Library(
        "asyncpg",
        types=_POSTGRES_ERRORS,
        # A connection that breaks during a query may leave its protocol in the wrong state.
        messages=((r"is closed$|^cannot switch to state", DOWN),),
        coded="InterfaceError InternalClientError",
    ),
    Library(
        "sqlalchemy",
        types={"TimeoutError": POOL},
        # SQLAlchemy's counterpart of asyncpg's error
        messages=((r"is closed$|^cannot switch to state", DOWN),),
        coded="InterfaceError",
    ),
    # They repeat the words of their driver's error.
    Library(
        "django.db peewee",
        types={"IntegrityError DataError": DATA},
        codes=_MYSQL_CODES,
        code_in=r"^\((\d{4}),",
        messages=(*_POSTGRES_MESSAGES, (r"connection (?:is |has been )?(?:already )?closed|database is locked", DOWN)),
        coded="OperationalError InterfaceError DatabaseError ProgrammingError InternalError",
    ),
    Library("org.postgresql", messages=(*_POSTGRES_MESSAGES, (r"(?i)connection|I/O error|timed out", DOWN))),
    Library(
        "pymysql MySQLdb _mysql_exceptions mysql aiomysql asyncmy mariadb",
        types={"InterfaceError": DOWN, "IntegrityError DataError": DATA},
        codes=_MYSQL_CODES,
        code_of=lambda error: getattr(error, "errno", None) or next(iter(error.args), None),
        code_in=r"^\((\d{4}),|^(\d{4}) \(|^\((\d{4})\)",
    ),
    Library(
        "com.mysql org.mariadb",
        types={
            "CommunicationsException CJCommunicationsException MySQLNonTransientConnectionException"
            " ConnectionIsClosedException": DOWN,
            "MySQLTimeoutException": SILENT,
            "MySQLTransactionRollbackException": AGAIN,
            "MysqlDataTruncation MySQLIntegrityConstraintViolationException": DATA,
            "MySQLSyntaxErrorException": MISTAKE,
        },
        messages=((r"Too many connections", CROWDED), (r"Access denied", DENIED)),
    ),
    Library(
        "oracledb cx_Oracle",
        codes=_ORACLE_CODES,
        code_of=lambda error: getattr(next(iter(error.args), None), "full_code", None),
        code_in=r"\b((?:ORA|DP[IY])-\d{4,5})\b",
    ),
    Library(
        "java.sql oracle com.zaxxer org.apache.commons.dbcp2",
        types={
            "SQLTransientConnectionException SQLNonTransientConnectionException SQLRecoverableException": DOWN,
            "SQLTimeoutException": SILENT,
            "SQLTransientException SQLTransactionRollbackException": AGAIN,
            "SQLInvalidAuthorizationSpecException": DENIED,
            "SQLIntegrityConstraintViolationException SQLDataException": DATA,
            "SQLSyntaxErrorException SQLFeatureNotSupportedException": MISTAKE,
        },
        codes=_ORACLE_CODES,
        code_in=r"\b(ORA-\d{5})\b",
        messages=(
            (r"No suitable driver", LIBRARY),
            (r"Access denied|invalid username/password|[Ll]ogin (?:failed|denied)", DENIED),
            (r"Table '.*' doesn't exist", MISSING),
            (r"Unknown column", SCHEMA),
            (r"Too many connections", CROWDED),
        ),
    ),
    Library("com.microsoft.sqlserver net.sourceforge.jtds", messages=_SQL_SERVER_MESSAGES),
    Library(
        "pymssql", messages=((r"\(20009|Adaptive Server connection failed|DB-Lib error", DOWN), *_SQL_SERVER_MESSAGES)
    ),
    Library(
        "pyodbc",
        sql=True,
        code_of=lambda error: next(iter(error.args), None),
        code_in=r"^\('(\w{5})'",
        messages=((r"Can't open lib|Data source name not found", LIBRARY), *_SQL_SERVER_MESSAGES),
    ),
    Library(
        "snowflake",
        types={"OperationalError InternalServerError ServiceUnavailableError OtherHTTPRetryableError": DOWN},
        sql=True,
        code_in=r"\((\w{5})\)",
        messages=(
            (r"does not exist or not authorized", MISSING),
            (r"Incorrect username or password|JWT token is invalid|User .* is locked|not authorized", DENIED),
        ),
    ),
    Library(
        "net.snowflake",
        messages=(
            (r"Incorrect username or password|JWT token is invalid|not authorized|Insufficient privileges", DENIED),
            (r"does not exist or not authorized", MISSING),
            (r"Communication (?:error|link)|HTTP status=5\d\d|timed? ?out", DOWN),
            (r"SQL compilation error", MISTAKE),
            (r"is not recognized|out of range|too long", DATA),
        ),
    ),
    Library(
        "redis valkey",
        types={
            "AuthenticationError AuthenticationWrongNumberOfArgsError AuthorizationError NoPermissionError"
            " ExternalAuthProviderError": DENIED,
            "MaxConnectionsError": POOL,
            "TimeoutError": SILENT,
            "ConnectionError BusyLoadingError ClusterDownError MasterDownError MasterNotFoundError"
            " SlaveNotFoundError": DOWN,
            "TryAgainError ReadOnlyError AskError MovedError LockError WatchError": AGAIN,
            "OutOfMemoryError": BUSY,
            "ResponseError DataError": REJECTED,
        },
        messages=(
            (r"max number of clients reached", CROWDED),
            (r"^OOM command", BUSY),
            (r"^(?:LOADING|CLUSTERDOWN|MASTERDOWN|READONLY|TRYAGAIN|BUSY) ", AGAIN),
            (r"^(?:NOAUTH|WRONGPASS|NOPERM) |invalid password", DENIED),
        ),
        coded="ConnectionError ResponseError",
    ),
    Library(
        "redis.clients io.lettuce org.redisson",
        types={
            "JedisConnectionException JedisClusterException JedisExhaustedPoolException RedisConnectionException"
            " RedisException RedisLoadingException": DOWN,
            "RedisCommandTimeoutException RedisTimeoutException": SILENT,
            "JedisAccessControlException": DENIED,
        },
        messages=((r"NOAUTH|WRONGPASS|NOPERM|invalid password", DENIED), (r"LOADING|CLUSTERDOWN|READONLY", DOWN)),
    ),
    Library(
        "pymongo",
        types={
            "WaitQueueTimeoutError": POOL,
            "NetworkTimeout ServerSelectionTimeoutError": SILENT,
            "ExecutionTimeout WTimeoutError": SLOW,
            "ConnectionFailure AutoReconnect NotPrimaryError NotMasterError _OperationCancelled": DOWN,
            "ConfigurationError InvalidURI": SETUP,
            "DuplicateKeyError DocumentTooLarge InvalidDocument": DATA,
            "OperationFailure": REJECTED,
        },
        # shutdown, an election, or a lost connection between the servers
        codes={
            "6 7 89 91 189 262 9001 10107 11600 11602 13435 13436": AGAIN,
            "RetryableWriteError": AGAIN,
            "13 18 8000": DENIED,
            "26": MISSING,
            "11000 121": DATA,
        },
        code_of=lambda error: "RetryableWriteError" if _has_label(error) else error.code,
        code_in=r"'code': (\d+)",
        messages=((r"[Aa]uthentication failed|not authorized", DENIED),),
        coded="OperationFailure WriteError BulkWriteError WriteConcernError",
        other=REJECTED,
    ),
    Library(
        "com.mongodb",
        types={
            "MongoSocketException MongoSocketOpenException MongoSocketReadException MongoSocketWriteException"
            " MongoNotPrimaryException MongoNodeIsRecoveringException MongoClosedException"
            " MongoSocketClosedException MongoConnectionPoolClearedException": DOWN,
            "MongoTimeoutException MongoSocketReadTimeoutException MongoOperationTimeoutException": SILENT,
            "MongoExecutionTimeoutException": SLOW,
            "MongoWaitQueueFullException": POOL,
            "MongoSecurityException": DENIED,
            "DuplicateKeyException MongoWriteException MongoBulkWriteException": DATA,
        },
        messages=((r"[Aa]uthentication failed|not authorized|\(Unauthorized\)", DENIED), (r"duplicate key", DATA)),
        coded="MongoCommandException MongoWriteException MongoBulkWriteException MongoTimeoutException",
    ),
    Library(
        "cassandra",
        types={
            "NoHostAvailable OperationTimedOut ConnectionShutdown ConnectionBusy Unavailable ConnectionException": DOWN,
            "ReadTimeout WriteTimeout CoordinationFailure ReadFailure WriteFailure": SLOW,
            "OverloadedErrorMessage RateLimitReached": BUSY,
            "AuthenticationFailed Unauthorized": DENIED,
            "InvalidRequest": REJECTED,
        },
        messages=((r"AuthenticationFailed|Bad credentials", DENIED),),
        coded="NoHostAvailable",
    ),
    Library(
        "com.datastax",
        types={
            "AllNodesFailedException NoNodeAvailableException NoHostAvailableException ClosedConnectionException"
            " UnavailableException TransportException ConnectionException HeartbeatException": DOWN,
            "DriverTimeoutException OperationTimedOutException": SILENT,
            "ReadTimeoutException WriteTimeoutException ReadFailureException WriteFailureException": SLOW,
            "OverloadedException BusyConnectionException BusyPoolException": BUSY,
            "AuthenticationException UnauthorizedException": DENIED,
            "InvalidKeyspaceException": MISSING,
            "CodecNotFoundException": SCHEMA,
        },
    ),
    Library(
        "elasticsearch elastic_transport opensearchpy elasticsearch_serverless",
        types={
            "ConnectionTimeout": SILENT,
            "ConnectionError TransportError NoNodesAvailable SniffingError": DOWN,
            "SSLError TlsError": SETUP,
            "AuthenticationException AuthorizationException": DENIED,
            "NotFoundError": MISSING,
            "ConflictError": AGAIN,
            "RequestError BadRequestError BulkIndexError": REJECTED,
        },
        http=True,
    ),
    Library(
        "org.elasticsearch org.opensearch",
        types={
            "EsHadoopNoNodesLeftException EsHadoopTransportException EsHadoopSecurityException NoNodeAvailableException"
            " OpenSearchHadoopNoNodesLeftException OpenSearchHadoopTransportException": DOWN,
            "EsHadoopParsingException EsHadoopSerializationException MapperParsingException": DATA,
        },
        messages=((r"(?i)unauthorized|security_exception|\b40[13]\b", DENIED), (r"\b429\b|es_rejected_exec", BUSY)),
    ),
    Library(
        "clickhouse_driver clickhouse_connect",
        types={"NetworkError": DOWN, "SocketTimeoutError": SILENT},
        codes={
            "159 160 209": SLOW,
            "202 252": BUSY,
            "3 210 242 279 999": DOWN,
            "192 193 194 497 516": DENIED,
            "60 81": MISSING,
            "16 47": SCHEMA,
            "6 27": DATA,
            "53 62": MISTAKE,
        },
        code_of=attribute("code"),
        code_in=r"[Cc]ode:? (\d+)",
        messages=((r"Max retries exceeded|Connection (?:refused|reset|aborted)|Read timed out", DOWN),),
    ),
    Library(
        "com.clickhouse ru.yandex.clickhouse",
        messages=((r"(?i)connect|timed? ?out|reset", DOWN), (r"Authentication failed|Not enough privileges", DENIED)),
    ),
    Library(
        "neo4j",
        types={
            "ServiceUnavailable SessionExpired ConnectionAcquisitionTimeoutError WriteServiceUnavailable"
            " ReadServiceUnavailable": DOWN,
            "TransientError DatabaseUnavailable NotALeader": AGAIN,
            "AuthError TokenExpired Forbidden": DENIED,
            "ConstraintError": DATA,
            "CypherSyntaxError": MISTAKE,
        },
    ),
    Library(
        "org.neo4j",
        types={
            "ServiceUnavailableException SessionExpiredException": DOWN,
            "TransientException": AGAIN,
            "AuthenticationException SecurityException": DENIED,
        },
    ),
    Library(
        "org.apache.hadoop.hbase org.apache.phoenix",
        types={
            "RetriesExhaustedException RetriesExhaustedWithDetailsException NotServingRegionException"
            " MasterNotRunningException ZooKeeperConnectionException RegionServerStoppedException"
            " ServerNotRunningYetException PleaseHoldException": DOWN,
            "CallTimeoutException": SILENT,
            "RegionTooBusyException CallQueueTooBigException": BUSY,
            "AccessDeniedException": DENIED,
            "TableNotFoundException": MISSING,
            "NoSuchColumnFamilyException": SCHEMA,
        },
    ),
    Library(
        "trino prestodb",
        types={
            "TrinoConnectionError Http502Error Http503Error Http504Error": DOWN,
            "TrinoInternalError PrestoInternalError": BROKEN,
            "TrinoAuthError": DENIED,
            "TrinoUserError PrestoUserError": REJECTED,
        },
    ),
    Library(
        "databricks influxdb_client influxdb arango",
        types={
            "RequestError MaxRetryDurationError SessionAlreadyClosedError ServerConnectionError": DOWN,
            "TemporarilyUnavailable InternalError DeadlineExceeded": BROKEN,
            "TooManyRequests ResourceExhausted RequestLimitExceeded": BUSY,
            "PermissionDenied Unauthenticated": DENIED,
            "NotFound ResourceDoesNotExist": MISSING,
        },
        http=True,
    ),
    Library(
        "sqlite3 duckdb",
        types={
            "OutOfMemoryException": PYTHON_MEMORY,
            "IntegrityError ConstraintException ConversionException": DATA,
            "BinderException": SCHEMA,
            "CatalogException": MISSING,
            "HTTPException": DOWN,
            "ParserException": MISTAKE,
        },
        messages=((r"(?i)database is locked|could not set lock", AGAIN),),
        coded="OperationalError IOException",
    ),
    Library(
        "happybase couchbase acouchbase aerospike pymemcache pylibmc pyhive impala",
        types={
            "NoConnectionsAvailable NoServerAvailable ServiceUnavailableException MemcacheUnexpectedCloseError"
            " MemcacheServerError ConnectionError ConnectionFailed HostUnreachable": DOWN,
            "TimeoutError TimeoutException UnAmbiguousTimeoutException AmbiguousTimeoutException": SILENT,
            "AuthenticationException NotAuthorized": DENIED,
            "DocumentNotFoundException BucketNotFoundException RecordNotFound": MISSING,
        },
    ),
    Library(
        "pinecone qdrant_client weaviate chromadb pymilvus",
        types={
            "ServiceException WeaviateConnectionError WeaviateStartUpError ResponseHandlingException PineconeConnection"
            "Error": DOWN,
            "WeaviateTimeoutError WeaviateQueryError": SILENT,
            "UnauthorizedException ForbiddenException": DENIED,
        },
        http=True,
    ),
)


def _has_label(error: object) -> bool:
    has_label = getattr(error, "has_error_label", None)
    return has_label is not None and bool(has_label("RetryableWriteError"))
