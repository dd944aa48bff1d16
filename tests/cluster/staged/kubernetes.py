"""The control plane of Kubernetes on this machine: etcd, the API server and the controllers, and a client of the API.

The three are one program, which `need_kubernetes` of scripts/tools.sh builds; `HERALD_KUBERNETES` names it.
Invariant: all three listen on loopback only, with a token and keys that are made for this run, and end with it.
Absent on purpose: a scheduler and a kubelet; `kubelet.py` is both. There is no authorization: each caller has the token of an
administrator.
"""

import contextlib
import functools
import http.client
import json
import os
import pathlib
import secrets
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from harness.wait import DEADLINE_S, until

PROGRAM = os.environ.get("HERALD_KUBERNETES")

# The controllers that the objects of a StatefulSet, its budget, its Services and its Jobs need.
CONTROLLERS = (
    "disruption-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "persistentvolumeclaim-protection-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
)
# Time for the API server to be ready: it makes its own objects first.
READY_S = 3 * DEADLINE_S
# Seconds until a watch is opened again, at the latest, and the pause before.
WATCH_S, PAUSE_S = 60, 0.2

# Where the API has objects of a kind.
PLACES = {
    "ConfigMap": ("/api/v1", "configmaps"),
    "Endpoints": ("/api/v1", "endpoints"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
    "Pod": ("/api/v1", "pods"),
    "Secret": ("/api/v1", "secrets"),
    "Service": ("/api/v1", "services"),
    "ServiceAccount": ("/api/v1", "serviceaccounts"),
    "StatefulSet": ("/apis/apps/v1", "statefulsets"),
    "ControllerRevision": ("/apis/apps/v1", "controllerrevisions"),
    "Job": ("/apis/batch/v1", "jobs"),
    "EndpointSlice": ("/apis/discovery.k8s.io/v1", "endpointslices"),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
}
# Kinds that belong to no namespace.
GLOBAL = {"Namespace": ("/api/v1", "namespaces"), "Node": ("/api/v1", "nodes")}
APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"


class Refused(Exception):
    """An answer of the API that is no success."""

    def __init__(self, what, status, text):
        super().__init__(f"{what}: {status} {text}")
        self.status = status


class Api:
    """Requests to the API server, each by a connection of its own; any thread may make them."""

    def __init__(self, port: int, token: str, authority: pathlib.Path):
        self.port, self.token = port, token
        self.tls = ssl.create_default_context(cafile=str(authority))

    def _connect(self, timeout) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=self.tls)

    def request(self, method, path, body=None, *, kind="application/json"):
        """The object that the answer is. `Refused` for an answer that is no success."""
        with contextlib.closing(self._connect(DEADLINE_S)) as connection:
            headers = {"authorization": f"Bearer {self.token}", "content-type": kind}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        if answer.status >= 300:
            raise Refused(f"{method} {path}", answer.status, text)
        return json.loads(text) if text.startswith("{") else text

    @staticmethod
    def path(kind, namespace=None, name=None, part=None) -> str:
        """`part`: a subresource such as `status`; `namespace`: `None` for all."""
        if kind in GLOBAL:
            base, plural = GLOBAL[kind]
        elif kind in PLACES:
            base, plural = PLACES[kind]
            base += f"/namespaces/{namespace}" if namespace else ""
        else:
            raise ValueError(f"the rig has no place for objects of the kind {kind}: {', '.join((*PLACES, *GLOBAL))}")
        return "/".join(filter(None, (base, plural, name, part)))

    def get(self, kind, namespace, name, part=None) -> dict | None:
        """`None` if there is no such object."""
        try:
            return self.request("GET", self.path(kind, namespace, name, part))
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def list(self, kind, namespace=None) -> list[dict]:
        return self.request("GET", self.path(kind, namespace))["items"]

    def create(self, kind, namespace, body, name=None, part=None):
        return self.request("POST", self.path(kind, namespace, name, part), body)

    def apply(self, manifest: dict, namespace=None):
        """What `kubectl apply --server-side` does."""
        path = self.path(manifest["kind"], namespace, manifest["metadata"]["name"])
        return self.request("PATCH", f"{path}?fieldManager=rig&force=true", manifest, kind=APPLY)

    def patch(self, kind, namespace, name, body, part=None):
        return self.request("PATCH", self.path(kind, namespace, name, part), body, kind=STRATEGIC)

    def delete(self, kind, namespace, name, **options):
        """Of no consequence if there is no such object any more, or only one of the same name."""
        try:
            self.request("DELETE", self.path(kind, namespace, name), {"kind": "DeleteOptions", "apiVersion": "v1", **options})
        except Refused as refused:
            if refused.status not in (404, 409):
                raise

    def evict(self, namespace, name) -> bool:
        """What `kubectl drain` does with a pod: `False` if the budget refuses it."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        try:
            self.create("Pod", namespace, body, name, "eviction")
        except Refused as refused:
            if refused.status == 429:
                return False
            raise
        return True

    def changes(self, kind, version: str):
        """The changes of objects of a kind after a version, as the API sends them, for a minute."""
        query = {"watch": 1, "resourceVersion": version, "timeoutSeconds": WATCH_S, "allowWatchBookmarks": "true"}
        with contextlib.closing(self._connect(2 * WATCH_S)) as connection:
            path = f"{self.path(kind)}?{urllib.parse.urlencode(query)}"
            connection.request("GET", path, headers={"authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            if answer.status >= 300:
                raise Refused(f"watch {kind}", answer.status, answer.read().decode())
            while line := answer.readline():
                change = json.loads(line)
                if change["type"] == "ERROR":
                    # The version is too old.
                    return
                yield change


class Watched(threading.Thread):
    """All objects of a kind, as `objects` by their identifier; `changed` is called after each change."""

    def __init__(self, api: Api, kind: str, changed=lambda: None):
        super().__init__(daemon=True)
        self.api, self.kind, self.changed = api, kind, changed
        self.objects: dict[str, dict] = {}
        self._is_ended = False
        self.start()

    def run(self):
        while not self._is_ended:
            try:
                self._follow()
            except (OSError, http.client.HTTPException, ValueError, Refused):
                # The API server is away, or ends.
                time.sleep(PAUSE_S)

    def _follow(self):
        listed = self.api.request("GET", self.api.path(self.kind))
        self.objects = {item["metadata"]["uid"]: item for item in listed["items"]}
        self.changed()
        for change in self.api.changes(self.kind, listed["metadata"]["resourceVersion"]):
            if self._is_ended:
                return
            item = change["object"]
            # Others may be reading it.
            objects = dict(self.objects)
            if change["type"] == "DELETED":
                objects.pop(item["metadata"]["uid"], None)
            elif change["type"] != "BOOKMARK":
                objects[item["metadata"]["uid"]] = item
            self.objects = objects
            self.changed()

    def close(self):
        """Its thread ends with the watch."""
        self._is_ended = True


def _free_ports(count) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in found]


class ControlPlane:
    """The processes, from the moment on when the API server and the controllers are ready. `folder` gets their files and logs."""

    def __init__(self, folder: pathlib.Path):
        assert PROGRAM, "HERALD_KUBERNETES names no program; tests/cluster/controllers.sh sets it"
        self.folder = folder
        folder.mkdir()
        self.processes: list[subprocess.Popen] = []
        self._etcd, peers, self._port, self._controllers = _free_ports(4)
        token = secrets.token_hex(16)
        self._write_keys(token)
        try:
            self._start_etcd(peers)
            self._start_api_server()
            authority = folder / "certs" / "apiserver.crt"
            until(lambda: authority.exists() and authority.stat().st_size, READY_S, self.told)
            self.api = Api(self._port, token, authority)
            until(functools.partial(self._is_ready, "/readyz"), READY_S, self.told)
            self._start_controllers(token, authority)
            # The default account of a namespace is made by a controller.
            until(lambda: self.api.get("ServiceAccount", "default", "default"), READY_S, self.told)
        except BaseException:
            self.close()
            raise

    def _write_keys(self, token):
        key = rsa.generate_private_key(65537, 2048)
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        self._key = self.folder / "accounts.key"
        self._key.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
        self._tokens = self.folder / "tokens.csv"
        self._tokens.write_text(f'{token},rig,rig,"system:masters"\n')

    def _start(self, program, *args):
        with open(self.folder / f"{program}.log", "wb") as log:
            # It also ends with a run that was killed.
            command = ["setpriv", "--pdeathsig", "KILL", PROGRAM, program, *map(str, args)]
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder))

    def _start_etcd(self, peers):
        client, peer = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{peers}"
        self._start(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # What is lost with the machine is not missed.
            "--unsafe-no-fsync",
            "--log-level=warn",
        )

    def _start_api_server(self):
        self._start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self.folder / 'certs'}",
            f"--token-auth-file={self._tokens}",
            "--authorization-mode=AlwaysAllow",
            "--service-cluster-ip-range=10.255.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={self._key}",
            f"--service-account-key-file={self._key}",
            "--endpoint-reconciler-type=none",
            "--profiling=false",
        )

    def _start_controllers(self, token, authority):
        server = {"server": f"https://127.0.0.1:{self._port}", "certificate-authority": str(authority)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rig", "cluster": server}],
            "users": [{"name": "rig", "user": {"token": token}}],
            "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": "rig"}}],
            "current-context": "rig",
        }
        self.kubeconfig = self.folder / "kubeconfig"
        # JSON is YAML.
        self.kubeconfig.write_text(json.dumps(config))
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._controllers}",
            "--leader-elect=false",
            f"--service-account-private-key-file={self._key}",
            f"--root-ca-file={authority}",
        )

    def _is_ready(self, path) -> bool:
        self._must_run()
        try:
            return self.api.request("GET", path) == "ok"
        except (OSError, http.client.HTTPException, Refused):
            return False

    def _must_run(self):
        assert all(process.poll() is None for process in self.processes), self.told()

    def told(self) -> str:
        """The last lines of each log, for a test that fails."""
        logs = {log.name: log.read_text(errors="replace").splitlines()[-5:] for log in self.folder.glob("*.log")}
        return f"the control plane to be ready: {logs}"

    def close(self):
        # Nothing of it is needed any more, and in order it would take long.
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
