"""People who use the HTTP API with a user name and a password."""

import http.client
import json
import subprocess

from harness.broker import BINARY
from harness.wait import DEADLINE_S


def add_user(file, user, password):
    made = subprocess.run(
        [BINARY, "passwd", str(file), user],
        input=f"{password}\n",
        text=True,
        capture_output=True,
    )
    assert made.returncode == 0, made.stderr


class Browser:
    """Keeps the cookie, and shows the token of the session."""

    def __init__(self, address, port):
        self.address, self.port, self.cookie, self.csrf = address, port, None, None

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection(self.address, self.port, timeout=DEADLINE_S)
        headers = {"content-type": "application/json", **headers}
        if self.cookie:
            headers["cookie"] = self.cookie
        if self.csrf and method != "GET":
            headers["x-csrf-token"] = self.csrf
        connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        if given := answer.getheader("set-cookie"):
            self.cookie = given.split(";")[0]
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text else None

    def login(self, user, password=None):
        status, answer = self.ask("POST", "/login", {"user": user, "password": password or f"password of {user}"})
        if status == 200:
            self.csrf = answer["csrf_token"]
        return status, answer
