"""A reader of server-sent events."""

import http.client
import json
import time
import urllib.parse

from harness.wait import DEADLINE_S


class Stream:
    """The events of a node from the answer to the request on. `status` is that of the answer."""

    def __init__(self, address, port, key=None, last=None, path="/api/v1/events", **query):
        self.connection = http.client.HTTPConnection(address, port, timeout=DEADLINE_S)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        if last is not None:
            headers["last-event-id"] = last
        path += "?" + urllib.parse.urlencode(query)
        self.connection.request("GET", path, headers=headers)
        self.answer = self.connection.getresponse()
        self.status = self.answer.status
        self.last = None

    def next(self) -> tuple[str, object] | None:
        """The next event and its data; None at the end of the stream. Signs of life are passed over until the deadline."""
        name, data = None, None
        ends = time.monotonic() + DEADLINE_S
        while line := self.answer.readline().decode():
            field, _, value = line.rstrip("\n").partition(": ")
            match field:
                case "event":
                    name = value
                case "data":
                    data = json.loads(value)
                case "id":
                    self.last = value
                case "" if name:
                    return name, data
            # Signs of life keep the connection from timing out.
            assert name or time.monotonic() < ends, f"nothing happened within {DEADLINE_S} s"
        return None

    def until(self, wanted) -> list[tuple[str, object]]:
        """What comes up to the first event for which `wanted(name, data)`, which is the last of them."""
        seen = []
        while (event := self.next()) is not None:
            seen.append(event)
            if wanted(*event):
                return seen
        raise AssertionError(f"the stream ended after {seen[-3:]}")

    def close(self):
        self.connection.close()
        self.answer.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
