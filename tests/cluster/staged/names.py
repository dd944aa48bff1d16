"""A name server for pods: what the DNS of a cluster of Kubernetes answers for a headless Service, and how it fails.

It answers A records by UDP. A name that exists has an empty answer for every other type, a name that does not exist
has NXDOMAIN. On request the server is late, silent, or serves records of before.
Invariant: while the records are kept (`keep_old`), a change of them changes no answer.
Absent on purpose: TCP, other record types, and names that the server would have to ask others for.
"""

import socket
import struct
import threading
import time

PORT = 53
A, IN = 1, 1
# Response, authoritative, recursion desired and available; and the codes of the answer.
FLAGS, NOERROR, NXDOMAIN = 0x8580, 0, 3
TTL_S = 5


def question(packet: bytes) -> tuple[str, int, int]:
    """The name, in lower case, and the type that a query asks for; and where its question ends, in bytes."""
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode().lower())
        at += 1 + packet[at]
    kind = struct.unpack_from(">H", packet, at + 1)[0]
    return ".".join(labels), kind, at + 5


def answer(packet: bytes, records: dict[str, list[str]]) -> bytes:
    """What the server sends for a query."""
    name, kind, end = question(packet)
    code = NOERROR if name in records else NXDOMAIN
    found = records.get(name, []) if kind == A else []
    # A name is a reference to the one of the question, which is at byte 12.
    resources = b"".join(struct.pack(">HHHIH", 0xC00C, A, IN, TTL_S, 4) + socket.inet_aton(each) for each in found)
    return packet[:2] + struct.pack(">HHHHH", FLAGS | code, 1, len(found), 0, 0) + packet[12:end] + resources


class Names:
    """The server at port 53 of `address`. `late`: seconds that each answer takes; `age`: seconds that each change of the records
    takes to be seen; `is_silent`: nobody gets an answer."""

    def __init__(self, address: str):
        self.late, self.age, self.is_silent = 0.0, 0.0, False
        # All records there were: the time, and the addresses of each name.
        self._changes: list[tuple[float, dict[str, list[str]]]] = [(0.0, {})]
        # Names that do not exist, whatever `records` has.
        self.hidden: set[str] = set()
        self.asked = 0
        self._old: dict[str, list[str]] | None = None
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, PORT))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def change(self, records: dict[str, list[str]]):
        """These are the records from now on."""
        self._changes.append((time.monotonic(), records))

    def records(self) -> dict[str, list[str]]:
        """What is served now."""
        if self._old is not None:
            return self._old
        seen = time.monotonic() - self.age
        return next(records for since, records in reversed(self._changes) if since <= seen)

    def keep_old(self):
        """From now on the records of this moment are served."""
        self._old = self.records()

    def renew(self):
        """The records of now are served again."""
        self._old = None

    def _serve(self):
        while True:
            packet, client = self._socket.recvfrom(4096)
            if not packet:
                return
            self.asked += 1
            if self.is_silent:
                continue
            if self.late:
                timer = threading.Timer(self.late, self._send, (packet, client))
                timer.daemon = True
                timer.start()
            else:
                self._send(packet, client)

    def _send(self, packet, client):
        records = {name: found for name, found in self.records().items() if name not in self.hidden}
        try:
            self._socket.sendto(answer(packet, records), client)
        except OSError:
            # The pod has ended meanwhile, or the server has.
            return

    def close(self):
        # An empty packet ends the thread.
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()
