"""Pages of other sites in a browser on the node's machine."""

import http.client

import pytest

from harness.broker import Broker
from harness.wait import DEADLINE_S
from test_abuse import TOKEN, token_file  # noqa: F401


@pytest.fixture(scope="module")
def stage():
    with Broker() as broker:
        yield broker


def status(broker, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=DEADLINE_S)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    found = connection.getresponse().status
    connection.close()
    return found


@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/clients/x/watch", "/api/v1/stats"])
def test_a_page_of_another_origin_reads_nothing(stage, path):
    own = f"localhost:{stage.http_port}"
    assert status(stage, path, host=own, origin="https://evil.example") == 403
    assert status(stage, path, host=own, origin="http://localhost:1") == 403
    assert status(stage, path, host=own, origin="null") == 403
    assert status(stage, path, host=own, sec_fetch_site="cross-site") == 403
    assert status(stage, path, host=own, origin=f"http://{own}", sec_fetch_site="same-origin") == 200
    assert status(stage, path) == 200


def test_a_key_counts_whatever_page_shows_it(token_file):  # noqa: F811
    with Broker({"http.tokenFile": token_file}) as broker:
        shown = {"origin": "https://tools.example", "sec_fetch_site": "cross-site"}
        assert status(broker, "/api/v1/stats", authorization=f"Bearer {TOKEN}", **shown) == 200
        assert status(broker, "/api/v1/stats", **shown) == 403


def test_metrics_are_not_for_a_name_of_another_site(stage):
    assert status(stage, "/metrics", host="evil.example:8091") == 403
    assert status(stage, "/metrics", host="evil.example", via="1.1 proxy") == 200
    for host in ("localhost:8091", "127.0.0.1", "[::1]:8091"):
        assert status(stage, "/metrics", host=host) == 200
    # Orchestrators name what they ask as they like.
    assert status(stage, "/healthz", host="evil.example") == status(stage, "/readyz", host="evil.example") == 200
