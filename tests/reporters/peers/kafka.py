"""Single Apache Kafka broker in KRaft mode with plain, SASL and TLS listeners."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization
from fakes import ROOT, eventually
from missing import missing
from ports import free_port

from reporters.peers.processes import Server, private_folder

__all__ = ["PASSWORD", "Kafka"]

PASSWORD = "k4fka#secret"
_JARS = ROOT / ".tools" / "kafka" / "jars"


def _java() -> Path:
    found = subprocess.run(
        [sys.executable, str(ROOT / "jvm-shim" / "build.py"), "--java-home"],
        capture_output=True,
        text=True,
        check=False,
    )
    home = found.stdout.strip() or os.environ.get("JAVA_HOME", "")
    java = Path(home) / "bin" / "java"
    if not java.exists():
        missing("no Java to run a Kafka broker with")
    return java


class Kafka:
    """Kafka broker, whose data and ports remain after ``stop`` and ``start``; :meth:`remove` deletes all files.

    Attributes:
        servers: address without authentication; every client has all rights.
        with_login: address for the user ``eve``, who has only granted rights.
        with_tls: address with a certificate of ``authority`` for localhost.
    """

    def __init__(self) -> None:
        if not _JARS.is_dir():
            missing("there is no Kafka broker in .tools/kafka; make broker fetches it")
        java = _java()
        self._folder = private_folder("kafka")
        plain, login, tls, controller = (free_port() for _ in range(4))
        self.servers, self.with_login, self.with_tls = (f"localhost:{port}" for port in (plain, login, tls))
        self.authority = self._folder / "ca.pem"
        (self._folder / "server.properties").write_text(self._properties(plain, login, tls, controller))
        run: list[str | Path] = [
            java,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{_JARS}/*",
        ]
        self.server = Server(self._folder, [*run, "kafka.Kafka", "server.properties"])
        # The id must not begin with "-", because the command would parse "-" as an option. Ids that Kafka generates do
        # not begin with "-" either.
        cluster = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        self._format = [*run, "kafka.tools.StorageTool", "format", "--config", "server.properties"]
        self._format += ["--cluster-id", cluster]

    def _properties(self, plain: int, login: int, tls: int, controller: int) -> str:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.authority))
        certificate = authority.issue_cert("localhost")
        # Java accepts only PKCS #8 keys. In properties files, line breaks must be escaped.
        loaded = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        key = loaded.private_bytes(*form).decode().strip().replace("\n", "\\n")
        chain = "".join(pem.bytes().decode() for pem in certificate.cert_chain_pems).strip().replace("\n", "\\n")
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        listeners = f"PLAIN://localhost:{plain},LOGIN://localhost:{login},TLS://localhost:{tls}"
        return f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:{controller}
controller.listener.names=CONTROLLER
listeners={listeners},CONTROLLER://localhost:{controller}
advertised.listeners={listeners}
inter.broker.listener.name=PLAIN
listener.security.protocol.map=PLAIN:PLAINTEXT,LOGIN:SASL_PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.login.plain.sasl.jaas.config={module} user_eve="{PASSWORD}";
listener.name.tls.ssl.keystore.type=PEM
listener.name.tls.ssl.keystore.key={key}
listener.name.tls.ssl.keystore.certificate.chain={chain}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=false
auto.create.topics.enable=false
log.dirs={self._folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
"""

    def start(self) -> None:
        if not (self._folder / "data").exists():
            subprocess.run(self._format, cwd=self._folder, check=True, capture_output=True)
        self.server.start()
        eventually(self._answers, within=60, what="a Kafka broker that answers")

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        assert self.server.is_running, self.server.output
        try:
            self.admin().list_topics(timeout=1)
        except KafkaException:
            return False
        return True

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.server.stop(number)

    def remove(self) -> None:
        self.server.remove()

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def make_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        from confluent_kafka.admin import NewTopic

        config = {key.replace("_", "."): value for key, value in settings.items()}
        # Keep a reference to the admin client until the future is done.
        admin = self.admin()
        (done,) = admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values()
        done.result(20)

    def delete_topic(self, name: str) -> None:
        admin = self.admin()
        (done,) = admin.delete_topics([name]).values()
        done.result(20)

    def allow_eve(self, topic: str, allowed: bool = True) -> None:
        """Grant or revoke the permission to write to the topic."""
        from confluent_kafka import admin

        about = (admin.ResourceType.TOPIC, topic, admin.ResourcePatternType.LITERAL, "User:eve", "*")
        rights = [admin.AclOperation.WRITE, admin.AclOperation.DESCRIBE]
        client = self.admin()
        if allowed:
            bindings = [admin.AclBinding(*about, right, admin.AclPermissionType.ALLOW) for right in rights]
            done = client.create_acls(bindings)
        else:
            filters = [admin.AclBindingFilter(*about, right, admin.AclPermissionType.ALLOW) for right in rights]
            done = client.delete_acls(filters)
        for one in done.values():
            one.result(20)

    def messages(self, topic: str, count: int, within: float = 20) -> list[Any]:
        """Wait for ``count`` messages, and return all messages in the topic from its beginning."""
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": uuid.uuid4().hex,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        found: list[Any] = []
        ends: set[int] = set()
        partitions = len(consumer.list_topics(topic, 20).topics[topic].partitions)
        try:
            consumer.subscribe([topic])

            def complete() -> bool:
                message = consumer.poll(0.2)
                if message is None:
                    return False
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is None:
                    ends.discard(partition)
                    found.append(message)
                elif error.name() == "_PARTITION_EOF":
                    ends.add(partition)
                return len(found) >= count and len(ends) == partitions

            eventually(complete, within=within, what=f"{count} messages of {topic}, there are {len(found)}")
        finally:
            consumer.close()
        return found
