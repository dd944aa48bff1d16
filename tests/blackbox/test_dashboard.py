"""The dashboard's files, as a node serves them; what the pages do is tested in a browser (`dashboard/test`)."""

import gzip
import re
import urllib.error
import urllib.request

import pytest

from harness.broker import Broker


@pytest.fixture(scope="module")
def stage():
    with Broker({"http.anonymous": "none"}) as broker:
        yield broker


def get(broker, path, encoding=None):
    request = urllib.request.Request(f"http://127.0.0.1:{broker.http_port}{path}")
    if encoding:
        request.add_header("accept-encoding", encoding)
    with urllib.request.urlopen(request) as answer:
        return answer.headers, answer.read()


def test_pages_come_without_a_key_and_may_do_little(stage):
    headers, page = get(stage, "/")
    assert headers["content-type"] == "text/html; charset=utf-8" and headers["cache-control"] == "no-cache"
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["trusted-types"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
    # No address leaves the folder of the page: it works below any path.
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page.decode())
    assert len(addresses) == 3 and not any(a.startswith("/") or ":" in a for a in addresses)
    for address in addresses:
        headers, plain = get(stage, f"/{address}")
        assert headers["content-security-policy"] and headers["x-content-type-options"] == "nosniff"
        if address.startswith("assets/"):
            assert "immutable" in headers["cache-control"]
        headers, packed = get(stage, f"/{address}", "gzip")
        assert headers["content-encoding"] == "gzip" and gzip.decompress(packed) == plain
        headers, packed = get(stage, f"/{address}", "gzip, br")
        assert headers["content-encoding"] == "br" and len(packed) < len(plain)


@pytest.mark.parametrize("path", ["/assets/", "/assets/nothing.js", "/../Cargo.toml", "/%2e%2e/Cargo.toml", "/index.html.br"])
def test_nothing_else_is_served(stage, path):
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(stage, path)
    assert refused.value.code == 404


def test_what_a_page_asks_for_needs_a_right(stage):
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(stage, "/api/v1/stats")
    assert refused.value.code == 401
