"""HTTP clients, RPC, brokers, and the services of cloud providers and of language models."""

from __future__ import annotations

from typing import Any

from spark_events.failures.kinds import (
    AGAIN,
    BROKEN,
    BUSY,
    CROWDED,
    DATA,
    DENIED,
    DOWN,
    GATEWAY,
    LIBRARY,
    MISSING,
    MISTAKE,
    POOL,
    REJECTED,
    SCHEMA,
    SETUP,
    SILENT,
    SLOW,
)  # fmt: skip
from spark_events.failures.libraries.codes import GRPC_CODES
from spark_events.failures.libraries.library import Library, attribute

__all__ = ["SERVICES"]

_AWS_CODES = {
    "BandwidthLimitExceeded EC2ThrottledException LimitExceededException PriorRequestNotComplete"
    " ProvisionedThroughputExceededException RequestLimitExceeded RequestThrottled RequestThrottledException SlowDown"
    " ThrottledException Throttling ThrottlingException TooManyRequestsException TransactionInProgressException": BUSY,
    "RequestTimeout RequestTimeoutException": SLOW,
    "AccessDenied AccessDeniedException AllAccessDisabled AuthFailure AuthorizationError ExpiredToken"
    " ExpiredTokenException Forbidden InvalidAccessKeyId InvalidClientTokenId InvalidSignatureException InvalidToken"
    " MissingAuthenticationToken NotAuthorizedException SignatureDoesNotMatch UnauthorizedOperation"
    " UnrecognizedClientException UnauthorizedException KMS.DisabledException": DENIED,
    "NoSuchKey NoSuchBucket ResourceNotFoundException EntityNotFoundException NoSuchUpload NoSuchEntity"
    " QueueDoesNotExist AWS.SimpleQueueService.NonExistentQueue": MISSING,
    "InternalError InternalFailure InternalServerError InternalServerException": BROKEN,
    "ServiceUnavailable ServiceUnavailableException Unavailable": CROWDED,
    "PermanentRedirect AuthorizationHeaderMalformed IllegalLocationConstraintException": SETUP,
}
_AWS_MESSAGES = (
    (r"Unable to load (?:AWS )?credentials|No AWS Credentials|credentials", DENIED),
    (r"Timeout waiting for connection from pool", POOL),
    (r"Unable to (?:execute HTTP request|find a region)|[Tt]imed out|reset|refused|UnknownHost", DOWN),
)
_AZURE_CODES = {
    "ServerBusy TooManyRequests IngressOverAccountLimit EgressIsOverAccountLimit": BUSY,
    "OperationTimedOut": SLOW,
    "InternalError": BROKEN,
    "AuthenticationFailed AuthorizationFailure AuthorizationPermissionMismatch InsufficientAccountPermissions"
    " InvalidAuthenticationInfo AuthorizationFailed NoAuthenticationInformation": DENIED,
    "BlobNotFound ContainerNotFound FilesystemNotFound PathNotFound ResourceNotFound": MISSING,
}
_TOO_LARGE = "message larger than max"
#: Code or type of a 429 that waiting cannot resolve, because the account has no credit.
_NO_CREDIT = "insufficient_quota"


def _of_grpc(error: Any) -> str | None:
    code = getattr(error, "code", None)
    return None if not callable(code) else str(getattr(code(), "name", code()))


def _of_aws(error: Any) -> object:
    response = getattr(error, "response", None)
    return response.get("Error", {}).get("Code") if isinstance(response, dict) else None


def _of_openai(error: Any) -> object:
    return _NO_CREDIT if _NO_CREDIT in (getattr(error, "code", None), getattr(error, "type", None)) else None


SERVICES = (
    Library(
        "httpx httpx2 httpcore httpcore2",
        types={
            "PoolTimeout": POOL,
            "TimeoutException ConnectTimeout ReadTimeout WriteTimeout": SILENT,
            "NetworkError ConnectError ReadError WriteError CloseError ProxyError RemoteProtocolError": DOWN,
            "UnsupportedProtocol InvalidURL LocalProtocolError TooManyRedirects": MISTAKE,
            "DecodingError": DATA,
        },
        messages=((r"CERTIFICATE_VERIFY_FAILED", SETUP),),
        coded="ConnectError",
        http=True,
    ),
    Library(
        "aiohttp",
        types={
            "ServerTimeoutError SocketTimeoutError ConnectionTimeoutError": SILENT,
            # This error has the class of a connection error, but is permanent: a retry receives the same certificate.
            "ClientConnectorCertificateError": SETUP,
            "ClientConnectionError ClientPayloadError ClientOSError ClientConnectorError ClientConnectorDNSError"
            " ClientProxyConnectionError ServerConnectionError ServerDisconnectedError ClientSSLError"
            " ClientConnectorSSLError ClientConnectionResetError": DOWN,
            "InvalidURL InvalidUrlClientError NonHttpUrlClientError": MISTAKE,
            "ContentTypeError": DATA,
        },
        http=True,
    ),
    Library(
        "requests",
        types={
            "ConnectTimeout ReadTimeout Timeout": SILENT,
            "SSLError": SETUP,
            "ConnectionError ChunkedEncodingError ProxyError": DOWN,
            "MissingSchema InvalidSchema InvalidURL InvalidHeader TooManyRedirects": MISTAKE,
            "JSONDecodeError InvalidJSONError ContentDecodingError": DATA,
        },
        http=True,
    ),
    Library(
        "urllib3",
        types={
            "TimeoutError ConnectTimeoutError ReadTimeoutError": SILENT,
            "EmptyPoolError FullPoolError": POOL,
            "ProtocolError NewConnectionError MaxRetryError NameResolutionError IncompleteRead ProxyError"
            " InvalidChunkLength": DOWN,
            "SSLError": SETUP,
            "LocationParseError LocationValueError URLSchemeUnknown": MISTAKE,
        },
        messages=((r"CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError", SETUP),),
        coded="MaxRetryError",
    ),
    Library(
        "http",
        types={"IncompleteRead RemoteDisconnected BadStatusLine CannotSendRequest ResponseNotReady": DOWN},
    ),
    Library(
        "urllib",
        types={"ContentTooShortError": DOWN},
        messages=(
            (r"CERTIFICATE_VERIFY_FAILED", SETUP),
            (r"timed out", SILENT),
            (r"refused|reset|Name or service|name resolution|getaddrinfo|nodename|unreachable|EOF occurred", DOWN),
        ),
        coded="URLError",
        http=True,
    ),
    Library(
        "websockets websocket",
        types={
            "ConnectionClosed ConnectionClosedError InvalidStatus InvalidHandshake"
            " WebSocketConnectionClosedException WebSocketBadStatusException": DOWN,
            "WebSocketTimeoutException": SILENT,
        },
        http=True,
    ),
    Library(
        "org.apache.http org.apache.hc org.apache.commons.httpclient okhttp3 retrofit2 feign",
        types={
            "NoHttpResponseException HttpHostConnectException ConnectionClosedException TruncatedChunkException"
            " ConnectionShutdownException StreamResetException RetryableException": DOWN,
            "ConnectTimeoutException": SILENT,
            "ConnectionPoolTimeoutException ConnectionRequestTimeoutException": POOL,
        },
        http=True,
    ),
    Library(
        "grpc",
        types={},
        codes=GRPC_CODES,
        code_of=_of_grpc,
        code_in=r"StatusCode\.([A-Z_]+)",
        # A request or response exceeds the size limit of a client or server.
        messages=((_TOO_LARGE, REJECTED),),
        coded="RpcError _InactiveRpcError AioRpcError _MultiThreadedRendezvous FutureTimeoutError",
        other=REJECTED,
    ),
    Library(
        "io.grpc",
        codes=GRPC_CODES,
        code_in=r"^([A-Z_]+)(?::|$)",
        messages=((_TOO_LARGE, REJECTED), (r"exceeds maximum size", SETUP)),
        coded="StatusRuntimeException StatusException",
    ),
    Library(
        "io.netty reactor",
        types={
            "ConnectTimeoutException ReadTimeoutException WriteTimeoutException": SILENT,
            "AnnotatedConnectException PrematureCloseException NativeIoException StacklessClosedChannelException"
            " AnnotatedNoRouteToHostException AbortedException": DOWN,
            "PoolAcquireTimeoutException": POOL,
        },
    ),
    Library(
        "thrift org.apache.thrift",
        types={"TTransportException": DOWN},
        messages=((r"(?i)unauthori[sz]ed|authenticat|GSS initiate|sasl", DENIED),),
        coded="TTransportException",
    ),
    Library(
        "kafka aiokafka",
        types={
            "NoBrokersAvailable KafkaConnectionError NodeNotReadyError StaleMetadata BrokerNotAvailableError"
            " Cancelled": DOWN,
            "KafkaTimeoutError RequestTimedOutError CoordinatorLoadInProgressError": SILENT,
            "NotLeaderForPartitionError LeaderNotAvailableError GroupCoordinatorNotAvailableError"
            " NotCoordinatorForGroupError RebalanceInProgressError CommitFailedError IllegalGenerationError"
            " NotEnoughReplicasError NotEnoughReplicasAfterAppendError UnknownMemberIdError": AGAIN,
            "AuthenticationFailedError AuthenticationMethodNotSupported SaslAuthenticationFailedError"
            " TopicAuthorizationFailedError GroupAuthorizationFailedError ClusterAuthorizationFailedError": DENIED,
            "UnknownTopicOrPartitionError OffsetOutOfRangeError InvalidTopicError": MISSING,
            "MessageSizeTooLargeError KafkaConfigurationError UnrecognizedBrokerVersion": SETUP,
            "CorruptRecordError CorruptRecordException": DATA,
        },
    ),
    Library(
        "confluent_kafka cimpl",
        codes={
            "_TRANSPORT _ALL_BROKERS_DOWN _RESOLVE _MSG_TIMED_OUT _TIMED_OUT REQUEST_TIMED_OUT _TIMED_OUT_QUEUE": DOWN,
            "_QUEUE_FULL THROTTLING_QUOTA_EXCEEDED": BUSY,
            "NOT_LEADER_FOR_PARTITION LEADER_NOT_AVAILABLE COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR"
            " REBALANCE_IN_PROGRESS ILLEGAL_GENERATION UNKNOWN_MEMBER_ID": AGAIN,
            "_AUTHENTICATION SASL_AUTHENTICATION_FAILED TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED"
            " CLUSTER_AUTHORIZATION_FAILED _SSL": DENIED,
            "UNKNOWN_TOPIC_OR_PART _UNKNOWN_TOPIC _UNKNOWN_PARTITION OFFSET_OUT_OF_RANGE": MISSING,
            "_INVALID_ARG MSG_SIZE_TOO_LARGE": SETUP,
        },
        code_of=lambda error: getattr(next(iter(error.args), None), "name", lambda: None)(),
        code_in=r"code=(\w+)",
        types={"ValueSerializationError KeySerializationError ValueDeserializationError KeyDeserializationError": DATA},
    ),
    Library(
        "org.apache.kafka",
        types={
            "TimeoutException": SILENT,
            "DisconnectException NetworkException BrokerNotAvailableException KafkaStorageException"
            " UnknownServerException": DOWN,
            "LeaderNotAvailableException NotLeaderOrFollowerException NotLeaderForPartitionException"
            " NotEnoughReplicasException NotEnoughReplicasAfterAppendException CoordinatorNotAvailableException"
            " CoordinatorLoadInProgressException NotCoordinatorException RebalanceInProgressException"
            " CommitFailedException RetriableCommitFailedException ConcurrentTransactionsException"
            " InvalidProducerEpochException ReplicaNotAvailableException FencedLeaderEpochException"
            " UnknownLeaderEpochException": AGAIN,
            "ThrottlingQuotaExceededException": BUSY,
            "AuthenticationException SaslAuthenticationException SslAuthenticationException AuthorizationException"
            " TopicAuthorizationException GroupAuthorizationException ClusterAuthorizationException"
            " TransactionalIdAuthorizationException DelegationTokenExpiredException": DENIED,
            "UnknownTopicOrPartitionException UnknownTopicIdException OffsetOutOfRangeException"
            " NoOffsetForPartitionException InvalidTopicException": MISSING,
            "RecordTooLargeException RecordBatchTooLargeException ConfigException InvalidConfigurationException"
            " UnsupportedVersionException": SETUP,
            "SerializationException CorruptRecordException InvalidTimestampException": DATA,
        },
    ),
    Library(
        "pika amqp kombu aio_pika nats pulsar _pulsar stomp",
        types={
            "AMQPConnectionError ConnectionClosed StreamLostError ConnectionClosedByBroker OperationalError"
            " NoServersError ConnectionClosedError ConnectError NotConnected ConnectFailedException"
            " AMQPHeartbeatTimeout": DOWN,
            "Timeout TimeoutError": SILENT,
            "ProbableAuthenticationError ProbableAccessDeniedError AccessRefused AuthenticationError"
            " AuthorizationError": DENIED,
        },
    ),
    Library(
        "org.apache.pulsar com.rabbitmq org.apache.qpid org.apache.activemq org.apache.rocketmq",
        types={
            "ConnectException AlreadyClosedException ShutdownSignalException BrokerPersistenceException"
            " RemotingConnectException RemotingTimeoutException": DOWN,
            "TimeoutException": SILENT,
            "AuthenticationException AuthorizationException AuthenticationFailureException": DENIED,
        },
    ),
    Library(
        "botocore boto3 s3transfer aiobotocore",
        types={
            "ConnectTimeoutError ReadTimeoutError": SILENT,
            "ConnectionError HTTPClientError ResponseStreamingError IncompleteReadError EndpointConnectionError"
            " ConnectionClosedError ProxyConnectionError": DOWN,
            "SSLError": SETUP,
            "NoCredentialsError PartialCredentialsError CredentialRetrievalError TokenRetrievalError"
            " UnauthorizedSSOTokenError SSOTokenLoadError NoAuthTokenError MetadataRetrievalError": DENIED,
            "NoRegionError ProfileNotFound ConfigNotFound InvalidRegionError InvalidEndpointDiscoveryConfiguration"
            "Error": SETUP,
            "ParamValidationError UnknownServiceError": MISTAKE,
        },
        codes={**_AWS_CODES, "403 401": DENIED, "404": MISSING, "503": CROWDED, "500": BROKEN},
        code_of=_of_aws,
        code_in=r"An error occurred \(([\w.]+)\)",
    ),
    Library(
        "com.amazonaws software.amazon",
        types={
            "ProvisionedThroughputExceededException LimitExceededException": BUSY,
            "ResourceNotFoundException NoSuchKeyException NoSuchBucketException EntityNotFoundException": MISSING,
            "ExpiredTokenException AccessDeniedException": DENIED,
            "ApiCallTimeoutException ApiCallAttemptTimeoutException": SILENT,
            "InternalServiceErrorException": BROKEN,
        },
        codes=_AWS_CODES,
        code_in=r"Error Code: ([\w.]+)",
        messages=_AWS_MESSAGES,
        http=True,
    ),
    Library(
        "org.apache.hadoop.fs.s3a",
        types={
            "AWSServiceThrottledException": BUSY,
            "AWSStatus500Exception": BROKEN,
            "AWSNoResponseException AWSApiCallTimeoutException HttpChannelEOFException": DOWN,
            "AWSRedirectException": SETUP,
            "NoAuthWithAWSException CredentialInitializationException NoAwsCredentialsException": DENIED,
            "UnknownStoreException": MISSING,
        },
        codes=_AWS_CODES,
        code_in=r"Error Code: ([\w.]+)",
        messages=_AWS_MESSAGES,
        http=True,
    ),
    Library(
        "google.api_core google.cloud",
        types={
            "ServiceUnavailable": CROWDED,
            "TooManyRequests ResourceExhausted": BUSY,
            "DeadlineExceeded GatewayTimeout RetryError": GATEWAY,
            "InternalServerError BadGateway Unknown ServerError": BROKEN,
            "Aborted": AGAIN,
            "Forbidden PermissionDenied Unauthorized Unauthenticated": DENIED,
            "NotFound": MISSING,
            "BadRequest InvalidArgument FailedPrecondition Conflict AlreadyExists": REJECTED,
        },
        http=True,
    ),
    Library(
        "google.auth google.oauth2",
        types={
            "TransportError": DOWN,
            "DefaultCredentialsError RefreshError MalformedError UserAccessTokenError": DENIED,
        },
        messages=((r"Connection|timed out|Max retries", DOWN),),
        coded="TransportError",
    ),
    Library("googleapiclient gcsfs", types={"HttpError": REJECTED}, http=True),
    Library(
        "com.google",
        types={
            "UnavailableException": DOWN,
            "ResourceExhaustedException": BUSY,
            "DeadlineExceededException": SILENT,
            "AbortedException": AGAIN,
            "InternalException": BROKEN,
            "PermissionDeniedException UnauthenticatedException": DENIED,
            "NotFoundException": MISSING,
            "InvalidProtocolBufferException JsonSyntaxException MalformedJsonException": DATA,
        },
        messages=(
            (r"Access Denied|does not have .{0,60} access|[Pp]ermission .{0,80} denied|^403 |\b401 Unauth", DENIED),
            (r"Not found: |^404 Not Found", MISSING),
            (r"[Rr]ate limit|[Qq]uota exceeded|^429 ", BUSY),
            (r"Provided Schema does not match|Schema mismatch", SCHEMA),
        ),
        http=True,
    ),
    Library(
        "azure msrest msal adlfs",
        types={
            "ServiceRequestError ServiceResponseError ServiceRequestTimeoutError IncompleteReadError"
            " ServerBusyError OperationTimeoutError ConnectionLostError ConnectError": DOWN,
            "ServiceResponseTimeoutError CosmosClientTimeoutError": SILENT,
            "ClientAuthenticationError CredentialUnavailableError AuthenticationError": DENIED,
            "ResourceNotFoundError CosmosResourceNotFoundError": MISSING,
            "HttpResponseError": REJECTED,
        },
        codes=_AZURE_CODES,
        code_of=attribute("error_code"),
        code_in=r"^\((\w+)\)|ErrorCode: ?(\w+)|Code: (\w+)",
        http=True,
    ),
    Library(
        "com.azure com.microsoft.azure com.microsoft.aad org.apache.hadoop.fs.azurebfs org.apache.hadoop.fs.azure",
        types={
            "ServerBusyException": BUSY,
            "RequestRateTooLargeException": BUSY,
            "GoneException ServiceUnavailableException": DOWN,
            "AuthorizationException ReceiverDisconnectedException AuthenticationException": DENIED,
            "TimeoutException": SILENT,
        },
        codes=_AZURE_CODES,
        code_in=r"\b(ServerBusy|OperationTimedOut|Auth\w+(?:Failure|Failed|Mismatch)|\w+NotFound)\b",
        messages=((r"accessToken|[Ff]ailed to acquire token|AADSTS\d+|AADToken", DENIED),),
        http=True,
    ),
    Library(
        "openai anthropic cohere mistralai groq together",
        types={
            "APITimeoutError Timeout": SILENT,
            "APIConnectionError": DOWN,
            "RateLimitError": BUSY,
            "InternalServerError ServiceUnavailableError OverloadedError APIError": BROKEN,
            "AuthenticationError PermissionDeniedError": DENIED,
            "NotFoundError": MISSING,
            "BadRequestError UnprocessableEntityError": REJECTED,
        },
        codes={_NO_CREDIT: DENIED},
        code_of=_of_openai,
        code_in=rf"({_NO_CREDIT})",
        http=True,
    ),
    Library(
        "huggingface_hub",
        types={
            "RepositoryNotFoundError EntryNotFoundError RevisionNotFoundError": MISSING,
            "GatedRepoError": DENIED,
            "OfflineModeIsEnabled": SETUP,
            "InferenceTimeoutError OverloadedError": BUSY,
        },
        http=True,
    ),
    Library(
        "paramiko smtplib ftplib ldap3 ldap",
        types={
            "SSHException NoValidConnectionsError SMTPServerDisconnected SMTPConnectError LDAPSocketOpenError"
            " SERVER_DOWN LDAPSocketReceiveError": DOWN,
            "SMTPSenderRefused error_temp": AGAIN,
            "AuthenticationException BadAuthenticationType PasswordRequiredException SMTPAuthenticationError"
            " LDAPBindError LDAPInvalidCredentialsResult INVALID_CREDENTIALS BadHostKeyException": DENIED,
        },
    ),
    Library(
        "kazoo consul etcd3 hdfs pyhdfs hvac kubernetes",
        types={
            "ConnectionLoss SessionExpiredError KazooTimeoutError ConnectionFailedError ConnectionTimeoutError"
            " VaultDown InternalServerError": DOWN,
            "AuthFailedError NoAuthError Forbidden Unauthorized": DENIED,
            "NoNodeError InvalidPath": MISSING,
        },
        http=True,
    ),
    Library(
        "slack_sdk stripe twilio zeep sendgrid atlassian github gitlab jira salesforce simple_salesforce",
        types={
            "APIConnectionError": DOWN,
            "RateLimitError": BUSY,
            "AuthenticationError PermissionError": DENIED,
        },
        http=True,
    ),
    Library("cryptography OpenSSL", types={"InvalidToken InvalidSignature": DATA}),
    Library("delta_sharing", types={}, http=True),
    Library("ray", types={"GetTimeoutError": SILENT, "RayActorError WorkerCrashedError NodeDiedError": DOWN}),
    Library("pip", types={"DistributionNotFound": LIBRARY}),
)
