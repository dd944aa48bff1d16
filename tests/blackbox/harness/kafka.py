"""A server of Kafka, which is its own controller, and what tests ask it.

Invariant: every process started here is ended here. HERALD_KAFKA is a folder with the files of Java (`need_kafka` of scripts/tools.sh).
Absent on purpose: clusters of Kafka.
"""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, NewTopic, ResourcePatternType, ResourceType

from .pki import Authority
from .postgres import free_port
from .wait import DEADLINE_S, until

USER, PASSWORD = "heraldmq", "right"

# A Java that is ready soon is worth more here than one that is fast later.
JAVA = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

CONFIG = """
process.roles=broker,controller
node.id=1
log.dirs={folder}/data
listeners=PLAIN://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},LOGIN://127.0.0.1:{login},TLS://127.0.0.1:{tls}
listener.security.protocol.map=PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_SSL,TLS:SSL
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
inter.broker.listener.name=PLAIN
auto.create.topics.enable=false
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
ssl.keystore.type=PEM
ssl.keystore.location={folder}/server.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/authority.crt
listener.name.tls.ssl.client.auth=required
listener.name.login.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.login.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.login.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.login.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
"""


class Record:
    """What a topic has of a message. `headers`: name and value of each, in their order."""

    def __init__(self, message):
        self.partition, self.offset = message.partition(), message.offset()
        self.key, self.value = message.key(), message.value()
        self.headers: list[tuple[str, bytes]] = message.headers() or []

    @property
    def text(self) -> str:
        return self.value.decode()


class Kafka:
    """Context manager around one server, which keeps its topics in `folder`. `url` is without TLS and login, `login_url` has TLS and SASL,
    `tls_url` wants a certificate of the client. No topic is made by itself."""

    def __init__(self, folder: pathlib.Path):
        folder.mkdir(exist_ok=True)
        self._folder, self._log, self._config = folder, folder / "kafka.log", folder / "server.properties"
        self.authority = Authority(folder)
        leaf = self.authority.issue("server")
        (folder / "server.pem").write_text(pathlib.Path(leaf.key).read_text() + pathlib.Path(leaf.cert).read_text())
        # Each is listened on until all are known.
        with contextlib.ExitStack() as held:
            ports = [held.enter_context(socket.create_server(("127.0.0.1", free_port()))).getsockname()[1] for _ in range(4)]
        self.port, login, tls, controller = ports
        self.url, self.login_url, self.tls_url = (f"127.0.0.1:{port}" for port in (self.port, login, tls))
        self._config.write_text(
            CONFIG.format(folder=folder, plain=self.port, controller=controller, login=login, tls=tls, user=USER, password=PASSWORD)
        )
        self.process: subprocess.Popen | None = None
        scram = [option for bits in (256, 512) for option in ("--add-scram", f"SCRAM-SHA-{bits}=[name={USER},password={PASSWORD}]")]
        identifier = "4L6g3nShT-eMCtK--X86sw"
        self._java("kafka.tools.StorageTool", "format", "--standalone", "-t", identifier, "-c", str(self._config), *scram).wait(DEADLINE_S)
        try:
            self.start()
        except BaseException:
            self.kill()
            raise

    def _java(self, *arguments: str) -> subprocess.Popen:
        with self._log.open("a") as log:
            return subprocess.Popen([*JAVA, "-cp", f"{os.environ['HERALD_KAFKA']}/*", *arguments], stdout=log, stderr=log)

    def start(self):
        """Waits until it answers."""
        self.process = self._java("kafka.Kafka", str(self._config))
        until(lambda: self._answers() or self.process.poll() is not None, what=self.log)
        assert self.process.poll() is None, self.log()

    def _answers(self) -> bool:
        try:
            return bool(self.admin().list_topics(timeout=1).brokers)
        except Exception:  # noqa: BLE001  (whatever the library says of a server that is not there yet)
            return False

    def log(self) -> str:
        return self._log.read_text()

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.url, "log_level": 0, "socket.timeout.ms": 10_000})

    def topic(self, name: str, partitions=1, **options):
        """Makes a topic; `options` with `_` for `.`."""
        config = {key.replace("_", "."): str(value) for key, value in options.items()}
        # It ends what it was asked for when it is gone.
        admin = self.admin()
        admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(DEADLINE_S)

    def deny_writing(self, topic: str):
        """No user may write there, but for tests."""
        binding = AclBinding(
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{USER}", "*", AclOperation.WRITE, AclPermissionType.DENY
        )
        admin = self.admin()
        for done in admin.create_acls([binding]).values():
            done.result(DEADLINE_S)

    def records(self, topic: str, committed=True) -> list[Record]:
        """All that the topic has now, each partition in its order. `committed`: without what a transaction has not committed."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.url,
                "group.id": "tests",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "log_level": 0,
            }
        )
        try:
            partitions = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            found, ended = [], set()
            while len(ended) < len(partitions):
                message = consumer.poll(DEADLINE_S)
                assert message is not None, "the server does not answer"
                if message.error() is None:
                    found.append(Record(message))
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    ended.add(message.partition())
            return sorted(found, key=lambda record: (record.partition, record.offset))
        finally:
            consumer.close()

    def texts(self, topic: str, committed=True) -> list[str]:
        return [record.text for record in self.records(topic, committed)]

    def published(self, topic: str, value: bytes | None, key: bytes | None = None, headers=()):
        """Writes a record, and waits until it is there."""
        self.publish_all(topic, [(key, value)], headers)

    def publish_all(self, topic: str, pairs: list[tuple[bytes | None, bytes | None]], headers=()):
        """Writes records of keys and values, and waits until they are there."""
        failed = []
        producer = Producer({"bootstrap.servers": self.url, "enable.idempotence": True, "log_level": 0})
        for key, value in pairs:
            producer.produce(topic, value, key, headers=list(headers), on_delivery=lambda error, _: error and failed.append(error))
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0 and not failed, failed

    def behind(self, group: str, topic: str) -> int:
        """Records of a topic that a group has not committed; all of a partition of which it has committed nothing."""
        consumer = Consumer({"bootstrap.servers": self.url, "group.id": group, "log_level": 0})
        try:
            partitions = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
            committed = consumer.committed([TopicPartition(topic, partition) for partition in partitions], timeout=DEADLINE_S)
            ends = [consumer.get_watermark_offsets(place, timeout=DEADLINE_S)[1] for place in committed]
            return sum(end - max(place.offset, 0) for place, end in zip(committed, ends, strict=True))
        finally:
            consumer.close()

    def take_over(self, transactional_id: str):
        """Begins a producer of this name, which fences the one before it, and ends."""
        producer = Producer({"bootstrap.servers": self.url, "transactional.id": transactional_id, "log_level": 0})
        producer.init_transactions(DEADLINE_S)

    def signal(self, number: int):
        self.process.send_signal(number)

    def kill(self):
        """As `kill -9`."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
