"""mosquitto_pub, mosquitto_sub and mosquitto_rr of Debian's mosquitto-clients.

They know nothing of this broker, nor it of them: [MQTT3-7.0.0-2].
"""

import os
import re
import subprocess
import threading

import pytest

from harness.broker import BINARY, Broker
from harness.wait import DEADLINE_S, Stopwatch, elapse, until

VERSIONS = ["mqttv31", "mqttv311", "mqttv5"]


def feature(text):
    return pytest.mark.feature("mosquitto-clients", text)


def pub(broker, *args, **fields):
    done = subprocess.run(
        ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(broker.port), *args],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        **fields,
    )
    assert done.returncode == 0, done
    return done


class Sub:
    """mosquitto_sub in the background, known to be subscribed: its debug output says so."""

    def __init__(self, broker, *args):
        command = ["stdbuf", "-oL", "mosquitto_sub", "-h", "127.0.0.1", "-p", str(broker.port), "-d", *args]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        while True:
            line = self.process.stdout.readline()
            self.lines.append(line)
            assert line, f"mosquitto_sub ended: {self.lines}"
            # Printed behind SUBACK.
            if line.startswith("Subscribed ("):
                return

    def output(self, timeout=DEADLINE_S) -> list[str]:
        """What it printed of messages, after its own end."""
        try:
            out, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"mosquitto_sub got too little: {self.process.communicate()[0]}") from None
        return [l for l in out.splitlines() if not l.startswith(("Client ", "Subscribed ", "Timed "))]

    def lose(self):
        """SIGKILL: no DISCONNECT."""
        self.process.kill()
        self.process.wait()


@feature("QoS 0, 1, 2 in 3.1, 3.1.1, 5.0")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_qos(broker, name, version, qos):
    sub = Sub(broker, "-t", name, "-q", qos, "-V", version, "-C", "1", "-F", "%t %q %p")
    pub(broker, "-t", name, "-q", qos, "-V", version, "-m", "hello")
    assert sub.output() == [f"{name} {qos} hello"]


@feature("order of lines from a pipe")
@pytest.mark.parametrize("version", VERSIONS)
def test_lines(broker, name, version):
    sub = Sub(broker, "-t", name, "-q", "1", "-V", version, "-C", "200")
    pub(broker, "-t", name, "-q", "1", "-V", version, "-l", input="".join(f"{n}\n" for n in range(200)))
    assert sub.output() == [str(n) for n in range(200)]


@feature("retained messages, removal, --retained-only")
@pytest.mark.parametrize("version", VERSIONS)
def test_retained(broker, name, version):
    pub(broker, "-t", name, "-V", version, "-q", "1", "-r", "-m", "kept")
    got = subprocess.run(
        [
            "mosquitto_sub",
            "-h",
            "127.0.0.1",
            "-p",
            str(broker.port),
            "-t",
            name,
            "-V",
            version,
            "-C",
            "1",
            "-W",
            "60",
            "-F",
            "%r %p",
        ],
        capture_output=True,
        text=True,
    )
    assert got.stdout == "1 kept\n"
    got = subprocess.run(
        [
            "mosquitto_sub",
            "-h",
            "127.0.0.1",
            "-p",
            str(broker.port),
            "-t",
            name,
            "-V",
            version,
            "--remove-retained",
            "--retained-only",
            "-C",
            "1",
            "-W",
            "60",
        ],
        capture_output=True,
        text=True,
    )
    assert got.stdout == "kept\n"
    until(
        lambda: (
            subprocess.run(
                ["mosquitto_sub", "-h", "127.0.0.1", "-p", str(broker.port), "-t", name, "--retained-only", "-W", "1"],
                capture_output=True,
            ).stdout
            == b""
        ),
        5,
        "the retained message gone",
    )


@feature("persistent session (-c), queue of an offline session")
@pytest.mark.parametrize("version", VERSIONS)
def test_session(broker, name, version):
    args = ["-i", name, "-c", "-q", "1", "-t", name, "-V", version] + (["-x", "60"] if version == "mqttv5" else [])
    Sub(broker, *args, "-E")
    for number in range(3):
        pub(broker, "-t", name, "-q", "1", "-m", str(number))
    # The queue may come before SUBACK, so the answer to SUBSCRIBE is not waited for.
    got = subprocess.run(
        ["mosquitto_sub", "-h", "127.0.0.1", "-p", str(broker.port), *args, "-C", "3", "-W", "60"],
        capture_output=True,
        text=True,
    )
    assert got.stdout.split() == ["0", "1", "2"]


@feature("will")
@pytest.mark.parametrize("version", VERSIONS)
def test_will(broker, name, version):
    sub = Sub(broker, "-t", name, "-V", version, "-C", "1")
    Sub(
        broker, "-t", name + "/x", "-V", version, "--will-topic", name, "--will-payload", "bye", "--will-qos", "1"
    ).lose()
    assert sub.output() == ["bye"]


@feature("will delay")
def test_will_delay(broker, name):
    sub = Sub(broker, "-t", name, "-V", "mqttv5", "-C", "1")
    other = Sub(
        broker,
        "-t",
        name + "/x",
        "-V",
        "mqttv5",
        "-i",
        name,
        "-c",
        "-x",
        "60",
        "--will-topic",
        name,
        "--will-payload",
        "bye",
        "-D",
        "will",
        "will-delay-interval",
        "1",
    )
    clock = Stopwatch()
    other.lose()
    assert sub.output() == ["bye"] and clock.seconds() >= 0.9


@feature("user properties, content type, response topic, correlation data, expiry")
def test_properties(broker, name):
    sub = Sub(broker, "-t", name, "-V", "mqttv5", "-C", "1", "-F", "%C|%R|%D|%E|%P|%p")
    pub(
        broker,
        "-t",
        name,
        "-V",
        "mqttv5",
        "-m",
        "x",
        "-D",
        "publish",
        "content-type",
        "text/plain",
        "-D",
        "publish",
        "response-topic",
        name + "/r",
        "-D",
        "publish",
        "correlation-data",
        "seven",
        "-D",
        "publish",
        "message-expiry-interval",
        "100",
        "-D",
        "publish",
        "user-property",
        "b",
        "1",
        "-D",
        "publish",
        "user-property",
        "a",
        "2",
    )
    content, response, correlation, expiry, users, payload = sub.output()[0].split("|")
    assert (content, response, correlation, payload) == ("text/plain", name + "/r", "seven", "x")
    assert 98 <= int(expiry) <= 100
    assert users.index("b:1") < users.index("a:2")


PROPERTIES = [
    ("content-type", "text/x"),
    ("correlation-data", 'cor"r'),
    ("message-expiry-interval", "60000"),
    ("payload-format-indicator", "1"),
    ("response-topic", "r/t"),
    ("user-property", "k", 'v"1'),
    ("user-property", "k", "w"),
]
LETTERS = "tlqrmCRDEFPSA"
WIDTHS = ("", "12", "-12", "012", "-012", "3", "0", ".2", "12.2", "-12.0", "5.", ".0")
FORMATS = [
    *(f"%{width}{letter}" for width in WIDTHS for letter in LETTERS),
    # A payload is cut at the width. Of one that is shorter mosquitto_sub prints the half in hexadecimal.
    *(f"%{width}{letter}" for width in ("", "12", "-12", "012", "3", ".2", "7.2") for letter in "pxX"),
    "%200p|%-200p|%0200p|%%|%5%|%-%",
    "\\n\\r\\t\\v\\a\\e\\0\\\\ text ü",
    "@@ @Y-@m-@d @I @H:@M @a @A @b @B @C @D @e @F @g @G @h @j @p @u @U @V @w @W @x @y @z @Z @n@t@% @q @Q",
]
PAYLOAD = '{"a": [1, 2.50, {"c": -0.1}], "ü": "x\\u0041/\\n", "e": {}, "t": true, "n": null, "big": 1e30}'


@feature("formats of mosquitto_sub -F, byte by byte as heraldmq sub prints them")
@pytest.mark.parametrize("zone", ["UTC", "Africa/Cairo"])
@pytest.mark.parametrize("payload", [PAYLOAD, ""], ids=["json", "empty"])
def test_formats_are_those_of_heraldmq_sub(broker, name, payload, zone):
    properties = [part for words in PROPERTIES for part in ("-D", "publish", *words)]
    message = ["-m", payload] if payload else ["-n"]
    # An empty message is not retained: the queue of a session keeps it.
    kept = ["-i", name, "-c", "-x", "600", "-V", "5", "-t", name, "-q", "1", "-D", "subscribe", "subscription-identifier", "77"]

    def printed(program, *shown):
        args = [*program, "-p", str(broker.port), *kept]
        # Packet identifiers count on in a session.
        broker.client(name).close()
        assert subprocess.run([*args, "-E"], timeout=DEADLINE_S).returncode == 0
        pub(broker, "-V", "5", "-t", name, "-q", "1", *message, *properties)
        got = subprocess.run(
            [*args, "-C", "1", "-W", "60", "-N", *shown], capture_output=True, timeout=DEADLINE_S, env={**os.environ, "TZ": zone}
        )
        assert got.returncode == 0 and got.stderr == b"", got
        # The microseconds of `tst` are of the process.
        return re.sub(rb"T[0-9:]{8}\.[0-9]{6}Z", b"T", got.stdout)

    shapes = [("-F", "\x1e".join(FORMATS)), ("-F", "%j"), ("-F", "%J"), ("-F", "%j", "--pretty"), ("-F", "%J", "--pretty")]
    for shown in shapes:
        # A minute, or a second of what is left of the expiry, may end between the two.
        for _ in range(5):
            theirs, ours = printed(["mosquitto_sub"], *shown), printed([BINARY, "sub"], *shown)
            if ours == theirs:
                break
        for theirs_of, ours_of, format in zip(theirs.split(b"\x1e"), ours.split(b"\x1e"), FORMATS):
            assert ours_of == theirs_of, format if "\x1e" in shown[1] else shown
        assert ours == theirs


@feature("message expiry in the queue")
def test_message_expiry(broker, name):
    args = ["-i", name, "-c", "-x", "60", "-q", "1", "-t", name, "-V", "mqttv5"]
    Sub(broker, *args, "-E")
    until(lambda: broker.metric("heraldmq_clients_connected") == 0, what="the end of the connection")
    pub(broker, "-t", name, "-q", "1", "-V", "mqttv5", "-m", "dies", "-D", "publish", "message-expiry-interval", "1")
    pub(broker, "-t", name, "-q", "1", "-m", "lives")
    elapse(1.5)
    got = subprocess.run(
        ["mosquitto_sub", "-h", "127.0.0.1", "-p", str(broker.port), *args, "-C", "1", "-W", "60"],
        capture_output=True,
        text=True,
    )
    assert got.stdout == "lives\n"


@feature("topic alias")
def test_topic_alias(broker, name):
    sub = Sub(broker, "-t", name, "-C", "3", "-F", "%t %p")
    pub(broker, "-t", name, "-V", "mqttv5", "-D", "publish", "topic-alias", "3", "--repeat", "3", "-m", "x")
    assert sub.output() == [f"{name} x"] * 3


@feature("subscription identifier")
def test_subscription_identifier(broker, name):
    sub = Sub(
        broker, "-t", name, "-V", "mqttv5", "-D", "subscribe", "subscription-identifier", "42", "-C", "1", "-F", "%S %p"
    )
    pub(broker, "-t", name, "-m", "x")
    assert sub.output() == ["42 x"]


@feature("request and response (mosquitto_rr)")
def test_request_response(broker, name):
    answerer = Sub(broker, "-t", name + "/do", "-V", "mqttv5", "-C", "1", "-F", "%R|%D|%p")
    asker = subprocess.Popen(
        [
            "mosquitto_rr",
            "-h",
            "127.0.0.1",
            "-p",
            str(broker.port),
            "-V",
            "mqttv5",
            "-t",
            name + "/do",
            "-e",
            name + "/reply",
            "-m",
            "2+2",
            "-D",
            "publish",
            "correlation-data",
            "c",
            "-W",
            "60",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    response, correlation, payload = answerer.output()[0].split("|")
    assert payload == "2+2"
    pub(broker, "-t", response, "-V", "mqttv5", "-D", "publish", "correlation-data", correlation, "-m", "4")
    assert asker.communicate(timeout=DEADLINE_S)[0] == "4\n"


@feature("maximum packet size, receive maximum")
def test_connect_properties(broker, name):
    sub = Sub(
        broker,
        "-t",
        name,
        "-V",
        "mqttv5",
        "-q",
        "1",
        "-C",
        "1",
        "-D",
        "connect",
        "maximum-packet-size",
        "200",
        "-D",
        "connect",
        "receive-maximum",
        "1",
    )
    pub(broker, "-t", name, "-q", "1", "-m", "x" * 500)
    pub(broker, "-t", name, "-q", "1", "-m", "small")
    assert sub.output() == ["small"]


@feature("shared subscriptions")
def test_shared(broker, name):
    members = [Sub(broker, "-t", f"$share/g/{name}", "-q", "1") for _ in range(2)]
    pub(broker, "-t", name, "-q", "1", "-l", input="".join(f"{n}\n" for n in range(20)))
    got = []

    def read(member):
        got.extend(int(line) for line in member.process.stdout if line.strip().isdigit())

    readers = [threading.Thread(target=read, args=(member,), daemon=True) for member in members]
    for reader in readers:
        reader.start()
    until(lambda: len(got) >= 20, what="all messages")
    for member, reader in zip(members, readers):
        member.process.terminate()
        reader.join(DEADLINE_S)
    assert sorted(got) == list(range(20))


@feature("unsubscribe (-U)")
def test_unsubscribe(broker, name):
    sub = Sub(broker, "-t", name + "/#", "-t", name + "/a", "-U", name + "/#", "-C", "1")
    while not any("UNSUBACK" in line for line in sub.lines):
        sub.lines.append(sub.process.stdout.readline())
        assert sub.lines[-1], f"mosquitto_sub ended: {sub.lines}"
    pub(broker, "-t", name + "/b", "-m", "not this")
    pub(broker, "-t", name + "/a", "-m", "this")
    assert sub.output() == ["this"]


@feature("keep-alive by PINGREQ")
def test_keep_alive(broker, name):
    # It outlasts a client that came later and is silent.
    sub = Sub(broker, "-t", name, "-k", "10", "-C", "1")
    with broker.client(name, keep_alive=10) as silent:
        silent.expect_disconnected(0x8D)
    pub(broker, "-t", name, "-m", "x")
    assert sub.output() == ["x"]


@feature("large messages from a file")
def test_large_message(broker, name, tmp_path):
    path = tmp_path / "payload"
    path.write_bytes(b"0123456789" * 30_000)
    sub = Sub(broker, "-t", name, "-q", "2", "-C", "1")
    pub(broker, "-t", name, "-q", "2", "-f", str(path))
    assert sub.output() == ["0123456789" * 30_000]


@feature("$SYS topics")
def test_sys(broker):
    got = subprocess.run(
        ["mosquitto_sub", "-h", "127.0.0.1", "-p", str(broker.port), "-t", "$SYS/broker/uptime", "-C", "2", "-W", "60"],
        capture_output=True,
        text=True,
    )
    assert got.returncode == 0 and len(got.stdout.splitlines()) == 2


@feature("refused connection: CONNACK code shown")
def test_refused(name):
    with Broker({"allowAnonymous": False}) as broker:
        for version, said in (("mqttv311", "not authorised"), ("mqttv5", "Not authorized")):
            got = subprocess.run(
                ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(broker.port), "-V", version, "-t", name, "-m", "x"],
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
            )
            assert got.returncode != 0 and said.lower() in got.stderr.lower()
