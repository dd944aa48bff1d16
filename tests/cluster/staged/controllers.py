"""HeraldMQ under the real controllers of Kubernetes, without a container runtime.

`Rig` is the control plane (`kubernetes.py`), the nodes (`kubelet.py`), a network, and a name server whose records are those of the
EndpointSlices. `Installed` is HeraldMQ in a namespace of its own, and what its user does: applying objects, and reading them.
Invariant: only the controllers make and delete pods; a test changes the objects that a user changes.
Absent on purpose: kube-proxy: the name of a Service that is not headless has the addresses of its ready pods, and so has its port.
"""

import copy
import json
import pathlib
import tempfile
import time

import yaml
from harness.broker import BINARY, run
from harness.wait import DEADLINE_S, until

from .cluster import HTTP, MQTT, STORES
from .kubelet import DOMAIN, Kubelet
from .kubernetes import ControlPlane, Watched
from .names import Names
from .network import Bridged
from .pods import WHOLE_S, Nobody

MANIFESTS = pathlib.Path(__file__).parent.parent / "kubernetes" / "heraldmq.yaml"
# The rendering of the chart, for a release `heraldmq` in a namespace of that name.
PACKAGED = pathlib.Path(__file__).parents[3] / "packaging" / "kubernetes"
SET, CLIENTS, JOB = "heraldmq", "heraldmq", "heraldmq-resize"
# Images: the same program by two names, so that a template can change; any other image never starts.
IMAGE, NEXT_IMAGE, BROKEN_IMAGE = "heraldmq", "heraldmq:next", "heraldmq:broken"
TOKEN = "for-tests-only"
# Seconds from one look at the API to the next.
LOOK_S = 0.2


def comes_true(condition, timeout=DEADLINE_S, what="the condition"):
    """`until`, whose pauses are so long that the questions do not take the machine's time."""
    return until(lambda: condition() or time.sleep(LOOK_S), timeout, what)


class Rig:
    """Context manager. `binary`: the program of both images."""

    def __init__(self, binary=BINARY):
        self._temporary = tempfile.TemporaryDirectory(prefix="heraldmq-kubernetes-")
        self.folder = pathlib.Path(self._temporary.name)
        self.network = Bridged()
        self.names = self.plane = self.kubelet = self._slices = None
        try:
            gateway = f"{self.network.net}.254"
            self.names = Names(gateway)
            self.plane = ControlPlane(self.folder / "plane")
            self.api = self.plane.api
            images = {IMAGE: binary, NEXT_IMAGE: binary}
            self.kubelet = Kubelet(self.api, self.network, gateway, self.folder / "kubelet", images)
            self._slices = Watched(self.api, "EndpointSlice", self._publish)
        except BaseException:
            self.close()
            raise

    def endpoints(self, namespace, service) -> list[dict]:
        """Those that are ready, or of which the Service says that it does not matter."""
        slices = list(self._slices.objects.values()) if self._slices else []
        return [
            endpoint
            for each in slices
            if each["metadata"]["namespace"] == namespace
            and each["metadata"]["labels"].get("kubernetes.io/service-name") == service
            for endpoint in each["endpoints"] or ()
            if endpoint["conditions"].get("ready")
        ]

    def _publish(self):
        records = {}
        if not self._slices:
            return
        for each in list(self._slices.objects.values()):
            service = each["metadata"]["labels"].get("kubernetes.io/service-name")
            name = f"{service}.{each['metadata']['namespace']}.{DOMAIN}"
            for endpoint in each["endpoints"] or ():
                if endpoint["conditions"].get("ready"):
                    records.setdefault(name, []).extend(endpoint["addresses"])
                    if "hostname" in endpoint:
                        records.setdefault(f"{endpoint['hostname']}.{name}", []).extend(endpoint["addresses"])
        self.names.change(records)

    def close(self):
        for each in (self._slices, self.kubelet, self.plane, self.names, self.network):
            if each:
                each.close()
        self._temporary.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def manifests(namespace) -> list[dict]:
    """The objects to install: those of `PACKAGED`, if there are any, else those of `MANIFESTS`. Of the former, hooks are left out:
    the Job that makes the Secret would have to reach the API server from a pod."""
    own = list(yaml.safe_load_all(MANIFESTS.read_text()))
    found = []
    for file in sorted(PACKAGED.glob("*.yaml")):
        text = file.read_text().replace("\n  namespace: heraldmq\n", "\n").replace(".heraldmq.svc.", f".{namespace}.svc.")
        found += [each for each in yaml.safe_load_all(text) if each]
    if not found:
        return own
    found = [each for each in found if "helm.sh/hook" not in each["metadata"].get("annotations", {})]
    config = next(each for each in found if each["kind"] == "ConfigMap")
    options = yaml.safe_load(config["data"]["heraldmq.yml"])
    # What the tests need: clients without a password, and a log that can be read by programs.
    options |= {"allowAnonymous": True, "eventLoops": 1, "log": {"format": "json"}}
    config["data"]["heraldmq.yml"] = yaml.safe_dump(options)
    pod = next(each for each in found if each["kind"] == "StatefulSet")["spec"]["template"]["spec"]
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        container["image"] = IMAGE
    return found + [each for each in own if each["kind"] in ("Secret", "Job")]


class Served:
    """A pod that the Service leads clients to."""

    def __init__(self, address):
        self.mqtt = (address, MQTT)


class Service:
    """The pods that are ready, as a list which changes; `Load` takes it for its nodes."""

    def __init__(self, installed: "Installed"):
        self.installed = installed

    def __iter__(self):
        found = self.installed.rig.endpoints(self.installed.namespace, CLIENTS)
        return iter([Served(address) for each in found for address in each["addresses"]] or [Nobody])


class Installed:
    """Context manager: the objects of `manifests` in a new namespace. Its pods are killed at the end; none may have panicked."""

    def __init__(self, rig: Rig, namespace: str):
        self.rig, self.api, self.namespace = rig, rig.api, namespace
        self.service = Service(self)
        self.manifests = manifests(namespace)
        self.key = rig.folder / "token"
        self.key.write_text(TOKEN)
        # The logs of all pods that were seen, by name and identifier.
        self.logs: dict[str, list[str]] = {}
        self.api.create("Namespace", None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        comes_true(lambda: self.api.get("ServiceAccount", namespace, "default"), what="the account of the namespace")

    # -- what its user does

    def manifest(self, kind, name) -> dict:
        found = next(each for each in self.manifests if (each["kind"], each["metadata"]["name"]) == (kind, name))
        return copy.deepcopy(found)

    def install(self):
        for manifest in self.manifests:
            if manifest["kind"] != "Job":
                self.api.apply(manifest, self.namespace)

    def change(self, **fields):
        """Applies the StatefulSet anew: `image`, `replicas`, or `annotation` of its pods; others are as they were."""
        manifest = next(each for each in self.manifests if each["kind"] == "StatefulSet")
        template = manifest["spec"]["template"]
        for key, value in fields.items():
            if key == "replicas":
                manifest["spec"]["replicas"] = value
            elif key == "image":
                template["spec"]["containers"][0]["image"] = value
            elif key == "annotation":
                template["metadata"]["annotations"] = {"rig/changed": value}
            else:
                raise TypeError(f"no change of {key}")
        self.api.apply(manifest, self.namespace)

    def resize(self, size):
        """The Job that a hook of `helm upgrade` runs before the set gets fewer replicas; returns when it is complete."""
        job = self.manifest("Job", JOB)
        args = job["spec"]["template"]["spec"]["containers"][0]["args"]
        args[args.index("resize") + 1] = str(size)
        self.api.apply(job, self.namespace)

        def is_complete():
            self.note_logs()
            conditions = self.api.get("Job", self.namespace, JOB).get("status", {}).get("conditions", ())
            states = {each["type"]: each["status"] == "True" for each in conditions}
            assert not states.get("Failed"), f"the job failed: {self.told()}"
            return states.get("Complete")

        comes_true(is_complete, 2 * WHOLE_S, lambda: f"the end of the job: {self.told()}")
        self.api.delete("Job", self.namespace, JOB, propagationPolicy="Foreground")

    def evict(self, name) -> bool:
        return self.api.evict(self.namespace, name)

    # -- what is there

    def stateful_set(self) -> dict:
        return self.api.get("StatefulSet", self.namespace, SET)

    def pods(self) -> dict[str, dict]:
        """The pods of the set, by name."""
        pods = self.api.list("Pod", self.namespace)
        owned = (p for p in pods if any(o["kind"] == "StatefulSet" for o in p["metadata"].get("ownerReferences", ())))
        return {pod["metadata"]["name"]: pod for pod in owned}

    def identifiers(self) -> dict[str, str]:
        """Of each pod: another one of the same name has another."""
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    @staticmethod
    def is_ready(pod) -> bool:
        conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
        return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]

    def ready(self) -> set[str]:
        return {name for name, pod in self.pods().items() if self.is_ready(pod)}

    def restarts(self) -> int:
        """How often a container of a pod that is there was started again."""
        return sum(c["restartCount"] for pod in self.pods().values() for c in pod["status"].get("containerStatuses", ()))

    def revisions(self) -> set[str]:
        """The revisions of the template that pods have."""
        return {pod["metadata"]["labels"]["controller-revision-hash"] for pod in self.pods().values()}

    def is_rolled_out(self) -> bool:
        """What `kubectl rollout status` waits for."""
        self.note_logs()
        found = self.stateful_set()
        status, wanted = found["status"], found["spec"]["replicas"]
        return (
            status.get("observedGeneration") == found["metadata"]["generation"]
            and status["replicas"] == status.get("readyReplicas") == status.get("updatedReplicas") == wanted
            and status["currentRevision"] == status["updateRevision"]
            # The controller may not have seen yet that a pod is being deleted.
            and len(self.ready()) == len(self.pods()) == wanted
        )

    def rolled_out(self, timeout=WHOLE_S):
        comes_true(self.is_rolled_out, timeout, lambda: f"the rollout: {self.told()}")

    def disruptions_allowed(self) -> int:
        budget = self.api.get("PodDisruptionBudget", self.namespace, SET)
        status = budget.get("status", {})
        is_current = status.get("observedGeneration") == budget["metadata"]["generation"]
        return status["disruptionsAllowed"] if is_current else -1

    # -- asking the broker

    def status(self, name) -> dict | None:
        """`heraldmq cluster status` of a pod."""
        address = self.pods().get(name, {}).get("status", {}).get("podIP")
        if not address:
            return None
        done = run("cluster", "status", "--json", "--url", f"http://{address}:{HTTP}", "--token-file", self.key)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def views(self) -> list[dict | None]:
        return [self.status(name) for name in sorted(self.pods())]

    def is_whole(self, size) -> bool:
        """Whether all pods are of one cluster of just these nodes, whose shards have three voters."""
        views = self.views()
        if len(views) != size or not all(views):
            return False
        members = {view["node"] for view in views}
        return all(
            {node["node"] for node in view["nodes"]} == members
            and {shard["store"] for shard in view["shards"]} >= set(STORES)
            and all(s["leader"] in members and set(s["voters"]) <= members for s in view["shards"])
            and all(len(s["voters"]) == min(3, size) for s in view["shards"])
            for view in views
        )

    def whole(self, size):
        comes_true(lambda: self.is_whole(size), WHOLE_S, lambda: f"{size} nodes of one cluster: {self.views()}; {self.told()}")

    # -- for a test that fails, and the end

    def note_logs(self):
        for pod in list(self.rig.kubelet.played.values()):
            if pod.namespace == self.namespace:
                self.logs[f"{pod.name} {pod.uid}"] = pod.log

    def told(self) -> str:
        self.note_logs()
        states = {
            name: [c["state"] for c in pod["status"].get("containerStatuses", ())] for name, pod in self.pods().items()
        }
        return f"{self.stateful_set().get('status')}, {states}, {[(name, log[-4:]) for name, log in self.logs.items()]}"

    def close(self):
        self.note_logs()
        self.api.delete("StatefulSet", self.namespace, SET, propagationPolicy="Foreground")
        deadline = time.monotonic() + DEADLINE_S
        for pod in self.api.list("Pod", self.namespace):
            self.api.delete("Pod", self.namespace, pod["metadata"]["name"], gracePeriodSeconds=0)
        comes_true(
            lambda: not any(pod.namespace == self.namespace for pod in list(self.rig.kubelet.played.values())),
            deadline - time.monotonic(),
            "the end of all pods",
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        for name, log in self.logs.items():
            assert not any("panicked" in line for line in log), (name, log[-40:])
