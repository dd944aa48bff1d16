"""A broker for a measurement, as a process of its own."""

import os
import pathlib
import re
import subprocess
import sys
import time

# Without the variables that configure a broker.
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("HERALDMQ_")}

START_S = 15
STOP_S = 10


class Broker:
    """Everything is in `folder`; `sets` are its options, and `config` is a configuration file's text with others."""

    def __init__(self, binary, sets, folder, config=""):
        command = [binary, "serve", "--data-dir", f"{folder}/data", "--set", "log.format=json"]
        if config:
            file = pathlib.Path(folder, "broker.yml")
            file.write_text(config)
            command += ["--config", str(file)]
        for key, value in sets.items():
            command += ["--set", f"{key}={value}"]
        self.log = pathlib.Path(folder, "log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stderr=log, env=ENVIRONMENT)
        deadline = time.monotonic() + START_S
        while '"message":"ready"' not in self.log.read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                sys.exit(f"the broker does not start:\n{self.log.read_text()}")
            time.sleep(0.05)

    def port(self, kind):
        """Where the listener of a kind, such as mqtt-tcp, listens."""
        return int(re.search(rf'"kind":"{kind}","address":"[^"]*:(\d+)"', self.log.read_text())[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(STOP_S)
