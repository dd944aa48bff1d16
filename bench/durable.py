#!/usr/bin/env python3
"""What one durable message costs a broker, one message at a time.

    bench/durable.py --port PORT --pid PID [--messages 1000] [--pause-ms 1]

Connects a durable subscriber and a publisher of QoS 1 to a broker on 127.0.0.1, and sends one message after the other: the next one follows when the
publisher has its PUBACK and the subscriber the message, which it acknowledges, and the pause is over. Prints, for each message, the waits and the CPU time
of the broker's threads, by thread. Waits do not depend on how busy the machine is; CPU time does. The process has to belong to the same user.
"""

import argparse
import collections
import pathlib
import socket
import struct
import time


def string(text):
    return struct.pack("!H", len(text)) + text.encode()


def packet(kind, body):
    assert len(body) < 128
    return bytes([kind, len(body)]) + body


class Client:
    def __init__(self, port, name, is_clean):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send(0x10, string("MQTT") + bytes([4, 2 if is_clean else 0, 0, 0]) + string(name))
        self.expect(0x20)

    def send(self, kind, body):
        self.socket.sendall(packet(kind, body))

    def expect(self, kind):
        header = self.read(2)
        body = self.read(header[1])
        if header[0] & 0xF0 != kind:
            raise SystemExit(f"a packet {header[0]:#x} has come instead of {kind:#x}")
        return body

    def read(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise SystemExit("the broker has closed the connection")
            data += part
        return data


def used(pid):
    """Waits and ns of CPU time so far, by the thread's name."""
    threads = collections.Counter(), collections.Counter()
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        status = (task / "status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches:"))
        threads[0][name] += int(line.split()[1])
        threads[1][name] += int((task / "schedstat").read_text().split()[0])
    return threads


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--pause-ms", type=float, default=1)
    options = parser.parse_args()
    subscriber = Client(options.port, "durable-subscriber", is_clean=False)
    subscriber.send(0x82, struct.pack("!H", 1) + string("durable") + bytes([1]))
    subscriber.expect(0x90)
    publisher = Client(options.port, "durable-publisher", is_clean=True)
    for number in range(-100, options.messages):
        if number == 0:
            before = used(options.pid)
        publisher.send(0x32, string("durable") + struct.pack("!H", number % 1000 + 1) + bytes(32))
        body = subscriber.expect(0x30)
        topic_length = struct.unpack("!H", body[:2])[0]
        subscriber.send(0x40, body[2 + topic_length : 4 + topic_length])
        publisher.expect(0x40)
        time.sleep(options.pause_ms / 1000)
    after = used(options.pid)
    waits, cpu = ({name: (new[name] - old[name]) / options.messages for name in new} for old, new in zip(before, after, strict=True))
    for name in sorted(waits):
        if waits[name] > 0.01:
            print(f"{name:16} {waits[name]:6.2f} waits {cpu[name] / 1000:7.1f} µs")
    print(f"{'all':16} {sum(waits.values()):6.2f} waits {sum(cpu.values()) / 1000:7.1f} µs")


if __name__ == "__main__":
    main()
