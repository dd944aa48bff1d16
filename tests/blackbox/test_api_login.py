"""Sessions of people at the HTTP API: login, cookie, token, logout."""

import signal

import pytest

from harness.broker import Broker
from harness.people import Browser, add_user
from harness.wait import until


@pytest.fixture()
def users(tmp_path):
    file = tmp_path / "people"
    for user in ("anna", "ben", "carla"):
        add_user(file, user, f"password of {user}")
    return file


def browser(broker):
    return Browser("127.0.0.1", broker.http_port)


def test_people_log_in_with_a_role_and_out(users, name):
    options = {
        "http.userFile": users,
        "http.operators": "anna",
        "http.administrators": "ben",
        "http.anonymous": "none",
    }
    with Broker(options) as broker:
        anna, ben, carla = (browser(broker) for _ in range(3))
        assert anna.ask("GET", "/me")[0] == 401
        for of_user, user, role in ((anna, "anna", "operator"), (ben, "ben", "administrator"), (carla, "carla", "viewer")):
            status, me = of_user.login(user)
            assert (status, me["role"]) == (200, role)
            assert of_user.ask("GET", "/me")[1] == me
        assert carla.login("carla", "password of ben")[0] == 401
        assert carla.login("nobody", "password of ben")[1]["type"].endswith("login-failed")
        ban = {"client": name}
        assert carla.ask("POST", "/bans", ban)[1]["type"].endswith("no-right")
        csrf, anna.csrf = anna.csrf, None
        assert anna.ask("POST", "/bans", ban)[1]["type"].endswith("csrf")
        anna.csrf = csrf
        status, made = anna.ask("POST", "/bans", ban)
        assert status == 201, made
        until(lambda: broker.find("api.change", path="/api/v1/bans", name="anna", key="session", role="operator"), what="the line of the change")
        before = anna.cookie
        assert anna.ask("POST", "/logout")[0] == 204
        anna.cookie = before
        assert anna.ask("GET", "/me")[0] == 401
        # Whoever is taken out of the file has no session any more.
        lines = users.read_text().splitlines(keepends=True)
        users.write_text("".join(line for line in lines if not line.startswith("carla:")))
        assert carla.ask("GET", "/clients")[0] == 200
        broker.signal(signal.SIGHUP)
        until(lambda: carla.ask("GET", "/clients")[0] == 401, what="the end of the session")
        assert ben.ask("GET", "/clients")[0] == 200
        # Nothing of passwords and sessions is in the log.
        text = "".join(broker.log_text)
        # NAME=NODE-SECRET, where the secret may have `-` and `=` as well.
        secret = before.split("=", 1)[1].split("-", 1)[1]
        assert len(secret) > 20 and secret not in text and "password of" not in text


def test_guesses_that_a_proxy_of_this_machine_may_have_passed_on_wait(users):
    with Broker({"http.userFile": users}) as broker:
        stranger = browser(broker)
        assert browser(broker).login("anna")[0] == 200
        guesses = iter(range(1000))
        until(lambda: stranger.login("anna", f"guess {next(guesses)}")[0] == 429, what="a guess that is not judged")
        assert next(guesses) < 20
        # It holds up neither other people nor whoever has shown the right password before.
        assert browser(broker).login("ben")[0] == 200
        assert browser(broker).login("anna")[0] == 200


def test_a_file_that_cannot_be_used_and_nobody_to_log_in(users, tmp_path):
    with Broker() as broker:
        status, problem = browser(broker).login("anna")
        assert status == 401 and "http.userFile" in problem["detail"]
    broker = Broker({"http.userFile": users, "http.operators": "dora"}, ready=False)
    assert broker.wait() == 2
    assert any("dora" in line for line in broker.log_text), broker.log_text
