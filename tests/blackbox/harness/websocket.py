"""A WebSocket that sends any frame and shows each frame that comes (RFC 6455)."""

import base64
import os
import socket
import struct

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def request(path="/mqtt", protocol="mqtt", **headers) -> bytes:
    """The opening handshake of a client; a header that is None is left out."""
    fields = {
        "Host": "localhost",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": protocol,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"{name}: {value}" for name, value in fields.items() if value is not None]
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()


def frame(opcode, payload=b"", fin=True, masked=True) -> bytes:
    mask = os.urandom(4) if masked else b""
    length = len(payload)
    bit = 0x80 if masked else 0
    if length < 126:
        head = bytes([bit | length])
    elif length < 65536:
        head = bytes([bit | 126]) + struct.pack(">H", length)
    else:
        head = bytes([bit | 127]) + struct.pack(">Q", length)
    if masked:
        payload = bytes(byte ^ mask[n % 4] for n, byte in enumerate(payload))
    return bytes([(0x80 if fin else 0) | opcode]) + head + mask + payload


class WebSocket:
    """Behaves like a socket: `sendall` sends one binary frame, `recv` returns the payload of the next
    one, and nothing at a Close frame."""

    def __init__(self, stream: socket.socket, path="/mqtt", headers=None):
        self.stream = stream
        self._buffer = b""
        stream.sendall(request(path, **(headers or {})))
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, self._buffer = self._buffer.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 101 "), head
        self.head = head.decode().lower()

    def _more(self):
        data = self.stream.recv(65536)
        if not data:
            raise ConnectionResetError("end of stream")
        self._buffer += data

    def frame(self) -> tuple[int, bytes]:
        """Opcode and payload of the next frame."""
        while True:
            if len(self._buffer) >= 2:
                assert self._buffer[0] & 0x80 and not self._buffer[1] & 0x80, "whole and not masked"
                length, at = self._buffer[1], 2
                if length == 126 and len(self._buffer) >= 4:
                    length, at = struct.unpack(">H", self._buffer[2:4])[0], 4
                elif length == 127 and len(self._buffer) >= 10:
                    length, at = struct.unpack(">Q", self._buffer[2:10])[0], 10
                if (length < 126 or at > 2) and len(self._buffer) >= at + length:
                    opcode, payload = self._buffer[0] & 15, self._buffer[at : at + length]
                    self._buffer = self._buffer[at + length :]
                    return opcode, payload
            self._more()

    def close_code(self) -> int:
        """The code of the Close frame that comes next."""
        opcode, payload = self.frame()
        assert opcode == CLOSE, (opcode, payload)
        return struct.unpack(">H", payload[:2])[0]

    # As a socket.

    def sendall(self, data: bytes):
        self.stream.sendall(frame(BINARY, data))

    def recv(self, _size) -> bytes:
        opcode, payload = self.frame()
        assert opcode in (BINARY, CLOSE), (opcode, payload)
        return payload if opcode == BINARY else b""

    def settimeout(self, seconds):
        self.stream.settimeout(seconds)

    def close(self):
        self.stream.close()
