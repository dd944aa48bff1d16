"""A server of NATS with JetStream, and a small client of it that speaks the text protocol.

Invariant: every process started here is ended here. `nats-server` is in the path (`need_nats_server` of scripts/tools.sh).
"""

import base64
import binascii
import json
import pathlib
import signal
import socket
import subprocess
import uuid

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from .postgres import free_port
from .wait import DEADLINE_S, until

CONFIG = """
listen: "127.0.0.1:{port}"
{more}
"""

JETSTREAM = 'jetstream: {{store_dir: "{folder}/jetstream"}}'


class Message:
    """What a stream keeps of a message. `headers` has of each name the values in their order."""

    def __init__(self, kept: dict):
        self.sequence = kept["seq"]
        self.subject = kept["subject"]
        self.payload = base64.b64decode(kept.get("data", ""))
        self.headers: dict[str, list[str]] = {}
        for line in base64.b64decode(kept.get("hdrs", "")).decode().split("\r\n")[1:]:
            if line:
                name, value = line.split(":", 1)
                self.headers.setdefault(name, []).append(value.strip())

    @property
    def text(self) -> str:
        return self.payload.decode()


def nkey() -> tuple[str, str]:
    """The seed and the public key of a new user, as NATS writes them."""
    key = Ed25519PrivateKey.generate()
    user, seed = 20 << 3, 18 << 3

    def written(data: bytes) -> str:
        checksum = binascii.crc_hqx(data, 0).to_bytes(2, "little")
        return base64.b32encode(data + checksum).decode().rstrip("=")

    private, public = key.private_bytes_raw(), key.public_key().public_bytes_raw()
    return written(bytes([seed | user >> 5, (user & 31) << 3]) + private), written(bytes([user]) + public)


class NatsError(Exception):
    """The API of JetStream has refused a request."""


class NatsClient:
    """A connection, for requests one after the other."""

    def __init__(self, port: int, **login):
        self._socket = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        self._file = self._socket.makefile("rb")
        self._inbox = f"_INBOX.{uuid.uuid4().hex}"
        self._line()
        options = {"verbose": False, "headers": True, "no_responders": True, **login}
        self._send(f"CONNECT {json.dumps(options)}\r\nSUB {self._inbox} 1\r\n".encode())

    def _send(self, data: bytes):
        self._socket.sendall(data)

    def _line(self) -> str:
        line = self._file.readline().decode()
        assert line, "the server has ended the connection"
        return line.rstrip("\r\n")

    def request(self, subject: str, body: bytes, headers: list[tuple[str, str]] | None = None) -> bytes:
        to = f"{subject} {self._inbox}".encode()
        if headers:
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
            head = f"NATS/1.0\r\n{lines}\r\n".encode()
            self._send(b"HPUB %s %d %d\r\n%s%s\r\n" % (to, len(head), len(head) + len(body), head, body))
        else:
            self._send(b"PUB %s %d\r\n%s\r\n" % (to, len(body), body))
        while True:
            words = self._line().split()
            if words[0] == "PING":
                self._send(b"PONG\r\n")
            elif words[0] in ("MSG", "HMSG"):
                length = int(words[-1])
                payload = self._file.read(length + 2)[:length]
                assert words[0] == "MSG", f"nobody answers {subject}: {payload!r}"
                return payload
            else:
                assert words[0] != "-ERR", " ".join(words)

    def api(self, call: str, **body) -> dict:
        """Asks the API of JetStream."""
        answer = json.loads(self.request(f"$JS.API.{call}", json.dumps(body).encode() if body else b""))
        if "error" in answer:
            raise NatsError(answer["error"]["description"])
        return answer

    def published(self, subject: str, payload: bytes, headers: list[tuple[str, str]] | None = None) -> int:
        """Publishes, and waits until a stream has it. Gives the place there."""
        answer = json.loads(self.request(subject, payload, headers))
        assert "error" not in answer, answer
        return answer["seq"]

    def stream(self, name: str, *subjects: str, **options):
        """Makes a stream, in files unless `storage` says otherwise. Times in ns, sizes in bytes."""
        self.api(f"STREAM.CREATE.{name}", **{"name": name, "subjects": list(subjects), "storage": "file", **options})

    def count(self, stream: str) -> int:
        return self.api(f"STREAM.INFO.{stream}")["state"]["messages"]

    def messages(self, stream: str) -> list[Message]:
        """All that it has."""
        state = self.api(f"STREAM.INFO.{stream}")["state"]
        if not state["messages"]:
            return []
        sequences = range(state["first_seq"], state["last_seq"] + 1)
        return [Message(self.api(f"STREAM.MSG.GET.{stream}", seq=sequence)["message"]) for sequence in sequences]

    def close(self):
        self._file.close()
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class NatsServer:
    """Context manager around one server, which keeps its streams in `folder`. `more`: further lines of its configuration."""

    def __init__(self, folder: pathlib.Path, *more: str, jetstream=True):
        folder.mkdir(exist_ok=True)
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._config, self._log = folder / "nats.conf", folder / "nats.log"
        self._keeps = [JETSTREAM.format(folder=folder)] if jetstream else []
        self.process: subprocess.Popen | None = None
        self.configure(*more)
        try:
            self.start()
        except BaseException:
            self.kill()
            raise

    def configure(self, *more: str):
        """What counts from the next start on."""
        self._config.write_text(CONFIG.format(port=self.port, more="\n".join([*self._keeps, *more])))

    def start(self):
        with self._log.open("w") as log:
            self.process = subprocess.Popen(["nats-server", "-c", str(self._config)], stderr=log, stdout=log)
        until(lambda: "Server is ready" in self.log() or self.process.poll() is not None, what=self.log)
        assert self.process.poll() is None, self.log()

    def log(self) -> str:
        return self._log.read_text()

    def client(self, **login) -> NatsClient:
        return NatsClient(self.port, **login)

    def signal(self, number: int):
        self.process.send_signal(number)

    def kill(self):
        """As `kill -9`."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        self.signal(signal.SIGTERM)
        self.process.wait(DEADLINE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
