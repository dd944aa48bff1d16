"""A real `heraldmq serve` process with its own data folder and ports chosen by the system.

Invariant: every process started here is ended here, and its log is at hand when a test fails.
Absent on purpose: any knowledge of the broker's insides; only the command line, the log, the HTTP
endpoints and signals are used.
"""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request

import yaml
from prometheus_client.parser import text_string_to_metric_families

from .raw import Raw
from .wait import DEADLINE_S, until

HERE = pathlib.Path(__file__).resolve().parent.parent
BINARY = os.environ.get("HERALDMQ_BIN") or str(HERE.parent.parent / "target" / "release" / "heraldmq")
# The program of an earlier version, whose data folders and clusters this version is to go on with.
BEFORE = os.environ.get("HERALDMQ_BEFORE")
START_S = STOP_S = DEADLINE_S

# What a test needs unless it says otherwise: free ports, and a $SYS interval that a test can wait for.
BASE = {
    "mqttServerConfig": {"tcpListener": {"host": "127.0.0.1", "port": 0}},
    "http": {"port": 0},
    "sys": {"intervalSeconds": 1},
}


def environment() -> dict:
    """The environment without the variables that configure a broker."""
    return {k: v for k, v in os.environ.items() if not k.upper().startswith("HERALDMQ_")}


def setting(value) -> str:
    """A value as it stands behind `--set key=`."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


class Broker:
    """Context manager around one broker process.

    `sets` becomes `--set key=value`; `config` replaces `BASE` (a dict, or YAML text);
    `config=None` with `file=False` starts without any configuration file. `host` is where its clients and
    its HTTP port are reached; `prefix` stands before the command, as `ip netns exec NAME` does; `binary` is
    another program than that of this version.
    """

    started: list["Broker"] = []

    key: str | None = None
    """What requests to its HTTP port show."""

    def __init__(
        self,
        sets=None,
        *,
        config=BASE,
        file=True,
        args=(),
        env=None,
        data_dir=None,
        ready=True,
        host="127.0.0.1",
        prefix=(),
        binary=BINARY,
        preexec_fn=None,
    ):
        self.host = host
        self._folder = tempfile.TemporaryDirectory(prefix="heraldmq-test-")
        folder = pathlib.Path(self._folder.name)
        self.data_dir = pathlib.Path(data_dir) if data_dir else folder / "data"
        self.config_path = folder / "conf.yml"
        command = [*prefix, binary, "serve"]
        if file:
            self.write_config(config)
            command += ["--config", str(self.config_path)]
        command += ["--data-dir", str(self.data_dir), "--set", "log.format=json"]
        for key, value in (sets or {}).items():
            command += ["--set", f"{key}={setting(value)}"]
        self.command = command + list(args)
        self.log_lines: list[dict] = []
        self.log_text: list[str] = []
        self.process = subprocess.Popen(
            self.command,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**environment(), **(env or {})},
            cwd=folder,
            preexec_fn=preexec_fn,
        )
        Broker.started.append(self)
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        if ready:
            try:
                until(lambda: self.find("ready") or self.process.poll() is not None, START_S, "the ready line")
                assert self.process.poll() is None, f"the broker ended at once: {self.log_text}"
            except BaseException:
                self.close()
                raise

    def write_config(self, config):
        text = config if isinstance(config, str) else yaml.safe_dump(config)
        self.config_path.write_text(text)

    def _read_log(self):
        for line in self.process.stderr:
            line = line.decode(errors="replace").rstrip("\n")
            self.log_text.append(line)
            try:
                self.log_lines.append(json.loads(line))
            except ValueError:
                pass

    def find(self, message, **fields) -> list[dict]:
        """The log lines with this message and these fields."""
        return [
            l
            for l in list(self.log_lines)
            if l.get("message") == message and all(l.get(k) == v for k, v in fields.items())
        ]

    def port_of(self, kind) -> int:
        """Where a listener of this kind listens, such as mqtt-tls."""
        return int(self.find("listening", kind=kind)[0]["address"].rsplit(":", 1)[1])

    @property
    def port(self) -> int:
        return self.port_of("mqtt-tcp")

    @property
    def http_port(self) -> int:
        return self.port_of("http")

    @property
    def pid(self) -> int:
        return self.process.pid

    def rss(self) -> int:
        """Resident memory of the process, bytes."""
        with open(f"/proc/{self.pid}/status") as status:
            return next(int(l.split()[1]) * 1024 for l in status if l.startswith("VmRSS:"))

    # -- clients and endpoints

    def raw(self, version=5, **fields) -> Raw:
        """A raw connection, CONNECT not yet sent."""
        return Raw(self.port, version=version, host=self.host, **fields)

    def client(self, client_id="", *, version=5, reason=0, session_present=None, **fields) -> Raw:
        """A raw connection that is connected."""
        client = Raw(self.port, version=version, host=self.host)
        client.connack = client.connect(client_id, reason=reason, session_present=session_present, **fields)
        return client

    def http(self, path) -> tuple[int, str]:
        """Status and body of a GET, with the key if there is one."""
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        request = urllib.request.Request(f"http://{self.host}:{self.http_port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name, **labels) -> float:
        """The value of a metric that has these labels; 0 if there is none."""
        for family in text_string_to_metric_families(self.http("/metrics")[1]):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return 0

    def api(self, path):
        status, text = self.http(path)
        assert status == 200, text
        return json.loads(text)

    def drops(self, limit=1000) -> list[dict]:
        """The latest drops, newest first."""
        found, after = [], ""
        while len(found) < limit:
            page = self.api(f"/api/v1/drops?limit={min(limit - len(found), 500)}{after}")
            found += page["items"]
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
        return found

    def drop_totals(self) -> dict:
        return json.loads(self.http("/api/v1/drops/totals")[1])

    # -- the end

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, timeout=STOP_S) -> int:
        """The exit code; the whole log has been read then."""
        code = self.process.wait(timeout)
        self._reader.join(DEADLINE_S)
        return code

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def close(self):
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.kill()
        finally:
            self._folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        # Whatever a test was about, its broker must have survived it and ended in order.
        assert not any("panicked" in line for line in self.log_text), self.log_text
        assert self.process.returncode in (0, -signal.SIGKILL), f"exit code {self.process.returncode}: {self.log_text}"


def run(*args, timeout=DEADLINE_S, env=None, binary=BINARY, **fields) -> subprocess.CompletedProcess:
    """The heraldmq binary with these arguments, to its end; `binary` is another one than that of this version."""
    return subprocess.run(
        [binary, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**environment(), **(env or {})},
        **fields,
    )
