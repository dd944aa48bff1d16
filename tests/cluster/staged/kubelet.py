"""The nodes of the rig of `controllers.py`: a scheduler and a kubelet, whose containers are processes.

A pod is a network namespace with an address that no pod had before it. A container is a process whose root has what the image
of HeraldMQ has: the program, the libraries of this machine, the volumes, and the files of /etc that a kubelet writes. It has the
user of its security context, and a root that is read only where that says so.
Invariant: a pod with a volume, a probe, a hook or a source of a variable that the rig does not know never runs; its status says
why.
Absent on purpose: limits of CPU and memory, capabilities, sidecars, `preStop`, and anything that an image needs a shell for.
"""

import base64
import dataclasses
import datetime
import http.client
import itertools
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time

from .kubernetes import Api, Refused, Watched
from .network import Bridged, Place

NODES = 5
# Seconds from one look at a pod to the next.
LOOK_S = 0.1
# Seconds before a container is started again: doubled each time. Ten times less than those of a kubelet.
BACK_OFF_S, LONGEST_BACK_OFF_S = 1.0, 30.0
# Of a termination message, as a kubelet has it.
MESSAGE_LINES, MESSAGE_CHARACTERS = 80, 2048
# Fourth bytes of addresses of pods; the name server has 254.
FIRST_ADDRESS, LAST_ADDRESS = 1, 250
DOMAIN = "svc.cluster.local"
FIELDS = {
    "metadata.name": lambda pod: pod.name,
    "metadata.namespace": lambda pod: pod.namespace,
    "metadata.uid": lambda pod: pod.uid,
    "spec.nodeName": lambda pod: pod.spec["nodeName"],
    "status.podIP": lambda pod: pod.place.address,
    "status.hostIP": lambda pod: pod.kubelet.gateway,
}


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Unknown(Exception):
    """The rig cannot play this pod, or not yet; the message says why."""


class Probe(threading.Thread):
    """Asks a container again and again. `passes`: the last state, `None` before there is one."""

    def __init__(self, spec: dict, address: str, ports: dict[str, int]):
        super().__init__(daemon=True)
        self.spec, self.address = spec, address
        kinds = {"httpGet", "tcpSocket"} & spec.keys()
        if not kinds:
            raise Unknown(f"the rig knows probes by httpGet and tcpSocket, and not {sorted(spec)}")
        self.kind = kinds.pop()
        port = spec[self.kind]["port"]
        if isinstance(port, str) and port not in ports:
            raise Unknown(f"a probe names the port {port}, which its container does not have")
        self.port = ports[port] if isinstance(port, str) else port
        if spec[self.kind].get("scheme", "HTTP") != "HTTP":
            raise Unknown("the rig knows probes by HTTP, and not by HTTPS")
        self.passes: bool | None = None
        self.is_open = True
        self._end = threading.Event()
        self.start()

    def run(self):
        succeeded = failed = 0
        wait = self.spec.get("initialDelaySeconds", 0)
        while not self._end.wait(wait):
            if self._ask():
                succeeded, failed = succeeded + 1, 0
            else:
                succeeded, failed = 0, failed + 1
            if succeeded >= self.spec.get("successThreshold", 1):
                self.passes = True
            elif failed >= self.spec.get("failureThreshold", 3):
                self.passes = False
            wait = self.spec.get("periodSeconds", 10)

    def _ask(self) -> bool:
        timeout = self.spec.get("timeoutSeconds", 1)
        if self.kind == "tcpSocket":
            try:
                socket.create_connection((self.address, self.port), timeout).close()
                return True
            except OSError:
                return False
        connection = http.client.HTTPConnection(self.address, self.port, timeout=timeout)
        try:
            headers = {header["name"]: header["value"] for header in self.spec["httpGet"].get("httpHeaders", ())}
            connection.request("GET", self.spec["httpGet"].get("path", "/"), headers=headers)
            return 200 <= connection.getresponse().status < 400
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def close(self):
        self.is_open = False
        self._end.set()


class Container:
    """A container of a pod and its process, if any."""

    def __init__(self, pod: "Pod", spec: dict, is_init=False):
        self.pod, self.spec, self.name, self.is_init = pod, spec, spec["name"], is_init
        self.process: subprocess.Popen | None = None
        self.restarts, self.back_off, self.start_at = 0, BACK_OFF_S, 0.0
        self.waiting: dict | None = {"reason": "PodInitializing"}
        self.last: dict | None = None
        self.started_at = None
        self.probes: dict[str, Probe] = {}
        self.kill_at: float | None = None
        # Lines of all its processes.
        self.log: list[str] = []

    def start(self):
        """Starts its process. `Unknown` if that cannot be."""
        program = self.pod.kubelet.images.get(self.spec["image"])
        if program is None:
            raise Unknown(f"there is no image {self.spec['image']}")
        if self.spec.get("lifecycle"):
            raise Unknown("the rig does not know hooks of containers")
        script, environment = self._script(program), self.environment()
        self.process = subprocess.Popen(
            [*self.pod.place.prefix, "unshare", "--uts", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment},
        )
        self.started_at, self.waiting, self.kill_at = now(), None, None
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()
        self._probe("startupProbe")
        if "startupProbe" not in self.spec:
            self._probe("livenessProbe", "readinessProbe")

    def _probe(self, *kinds):
        """Begins those of the kinds that it has."""
        ports = {port["name"]: port["containerPort"] for port in self.spec.get("ports", ()) if "name" in port}
        for kind in kinds:
            if kind in self.spec:
                self.probes[kind] = Probe(self.spec[kind], self.pod.place.address, ports)

    def _read(self, process):
        for line in process.stdout:
            self.log.append(line.decode(errors="replace").rstrip("\n"))

    def environment(self) -> dict[str, str]:
        found = {}
        for source in self.spec.get("envFrom", ()):
            raise Unknown(f"the rig does not know envFrom: {source}")
        for variable in self.spec.get("env", ()):
            source = variable.get("valueFrom", {})
            if not source:
                found[variable["name"]] = self.expanded(variable.get("value", ""), found)
            elif (field := source.get("fieldRef", {}).get("fieldPath")) in FIELDS:
                found[variable["name"]] = FIELDS[field](self.pod)
            elif "secretKeyRef" in source or "configMapKeyRef" in source:
                kind = "Secret" if "secretKeyRef" in source else "ConfigMap"
                reference = source.get("secretKeyRef") or source["configMapKeyRef"]
                files = self.pod.kubelet.data(kind, self.pod.namespace, reference["name"])
                found[variable["name"]] = files[reference["key"]].decode()
            else:
                raise Unknown(f"the rig does not know the source of the variable {variable}")
        return found

    @staticmethod
    def expanded(text, variables):
        return re.sub(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)", lambda m: variables.get(m[1], m[0]), text)

    def _script(self, program) -> str:
        """What makes the root of the process, and then becomes the process."""
        pod = self.pod
        root = pod.folder / "roots" / self.name
        root.mkdir(parents=True, exist_ok=True)
        context = {**pod.spec.get("securityContext", {}), **self.spec.get("securityContext", {})}
        inside, quoted = f"{root}/", shlex.quote
        lines = [
            "set -e",
            f"echo {quoted(pod.hostname)} >/proc/sys/kernel/hostname",
            f"mount -t tmpfs -o mode=755 root {quoted(inside)}",
            f"cd {quoted(inside)}",
            "mkdir -p usr/bin usr/lib etc/ssl/certs proc dev sys tmp",
            "mount --bind /usr/lib usr/lib && mount -o remount,bind,ro usr/lib",
            "for each in /lib /lib64 /usr/lib64; do",
            '  if [ -h "$each" ]; then cp -P "$each" ".$each"',
            '  elif [ -d "$each" ]; then mkdir -p ".$each" && mount --bind "$each" ".$each"; fi',
            "done",
            "[ ! -d /etc/ssl/certs ] || mount --bind /etc/ssl/certs etc/ssl/certs",
            "[ ! -e /etc/ld.so.cache ] || cp /etc/ld.so.cache etc/",
            f"cp {quoted(str(pod.folder / 'etc'))}/* etc/",
            "mount --rbind /dev dev && mount --rbind /proc proc",
            f"touch usr/bin/heraldmq && mount --bind {quoted(str(program))} usr/bin/heraldmq",
        ]
        # What is deeper comes after what it is in.
        for mount in sorted(self.spec.get("volumeMounts", ()), key=lambda mount: mount["mountPath"]):
            source = pod.volume(mount["name"])
            if "subPath" in mount:
                source = source / mount["subPath"]
            target = quoted(mount["mountPath"].strip("/"))
            make = f"mkdir -p {target}" if source.is_dir() else f"mkdir -p $(dirname {target}) && touch {target}"
            lines += [make, f"mount --bind {quoted(str(source))} {target}"]
            if mount.get("readOnly"):
                lines.append(f"mount -o remount,bind,ro {target}")
        if context.get("readOnlyRootFilesystem"):
            lines.append("mount -o remount,ro .")
        environment = self.environment()
        command = [self.expanded(word, environment) for word in self.spec.get("command", ["/usr/bin/heraldmq"])]
        command += [self.expanded(word, environment) for word in self.spec.get("args", ())]
        user, group = context.get("runAsUser", 65532), context.get("runAsGroup", context.get("runAsUser", 65532))
        groups = context.get("fsGroup", group)
        lines.append(f"exec chroot --userspec={user}:{group} --groups={groups} . {shlex.join(command)}")
        return "\n".join(lines)

    # -- its state

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def look(self):
        """What its probes say has consequences."""
        startup = self.probes.get("startupProbe")
        if startup and startup.passes and startup.is_open:
            startup.close()
            self._probe("livenessProbe", "readinessProbe")
        if any(self.probes[kind].passes is False for kind in ("startupProbe", "livenessProbe") if kind in self.probes):
            self.terminate(self.pod.spec.get("terminationGracePeriodSeconds", 30))
        if self.kill_at and time.monotonic() >= self.kill_at and self.is_running():
            self.process.kill()

    def terminate(self, grace):
        """SIGTERM now, once, and SIGKILL later."""
        if self.is_running() and self.kill_at is None:
            self.kill_at = time.monotonic() + grace
            self.process.send_signal(signal.SIGTERM)

    def has_ended(self) -> int | None:
        """The exit code of a process that has ended since it was asked; its end is noted."""
        if self.process is None or self.process.poll() is None:
            return None
        self._reader.join(1)
        code = self.process.returncode
        message = "\n".join(self.log[-MESSAGE_LINES:])[-MESSAGE_CHARACTERS:]
        keeps_log = self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError" and code != 0
        self.last = {
            "exitCode": code if code >= 0 else 128 - code,
            "reason": "Error" if code else "Completed",
            "startedAt": self.started_at,
            "finishedAt": now(),
            **({"message": message} if keeps_log else {}),
        }
        self.process = None
        for probe in self.probes.values():
            probe.close()
        self.probes = {}
        return code

    def is_started(self) -> bool:
        startup = self.probes.get("startupProbe")
        return self.is_running() and (startup is None or bool(startup.passes))

    def is_ready(self) -> bool:
        if self.is_init:
            return self.process is None and self.last is not None and self.last["exitCode"] == 0
        probe = self.probes.get("readinessProbe")
        return self.is_started() and (("readinessProbe" not in self.spec) or bool(probe and probe.passes))

    def status(self) -> dict:
        if self.process is not None:
            state = {"running": {"startedAt": self.started_at}}
        elif self.waiting:
            state = {"waiting": self.waiting}
        else:
            state = {"terminated": self.last}
        before = self.last if self.last and "terminated" not in state else None
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": self.spec["image"],
            "restartCount": self.restarts,
            "ready": self.is_ready(),
            "started": self.is_started(),
            "state": state,
            "lastState": {"terminated": before} if before else {},
        }


class Pod(threading.Thread):
    """A pod that is bound to a node, from its start until the API has forgotten it."""

    def __init__(self, kubelet: "Kubelet", manifest: dict):
        super().__init__(daemon=True)
        self.kubelet, self.spec, self.manifest = kubelet, manifest["spec"], manifest
        self.uid, self.name = manifest["metadata"]["uid"], manifest["metadata"]["name"]
        self.namespace = manifest["metadata"]["namespace"]
        self.hostname = self.spec.get("hostname", self.name)
        self.place = kubelet.take_place()
        self.folder = kubelet.folder / self.uid
        self.inits = [Container(self, spec, True) for spec in self.spec.get("initContainers", ())]
        self.containers = [Container(self, spec) for spec in self.spec["containers"]]
        self.started_at, self.reported, self.changed_at = now(), None, {}
        self.start()

    def __repr__(self):
        return self.name

    @property
    def log(self) -> list[str]:
        return [line for container in (*self.inits, *self.containers) for line in container.log]

    # -- what its containers find

    def _write_etc(self):
        etc = self.folder / "etc"
        etc.mkdir(parents=True)
        search = f"{self.namespace}.{DOMAIN} {DOMAIN} {DOMAIN.partition('.')[2]}"
        (etc / "resolv.conf").write_text(f"nameserver {self.kubelet.gateway}\nsearch {search}\noptions ndots:5\n")
        full = f"{self.hostname}.{self.spec['subdomain']}.{self.namespace}.{DOMAIN}\t" if "subdomain" in self.spec else ""
        own = f"{self.place.address}\t{full}{self.hostname}"
        (etc / "hosts").write_text(f"127.0.0.1\tlocalhost\n::1\tlocalhost\n{own}\n")
        (etc / "hostname").write_text(f"{self.hostname}\n")
        (etc / "nsswitch.conf").write_text("hosts: files dns\n")

    def volume(self, name) -> pathlib.Path:
        """The folder of a volume, which is made if it has to be."""
        spec = next(volume for volume in self.spec["volumes"] if volume["name"] == name)
        kept = self.kubelet.folder / "claims" / self.namespace
        folder = self.folder / "volumes" / name
        if "persistentVolumeClaim" in spec:
            folder = kept / spec["persistentVolumeClaim"]["claimName"]
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        group = self.spec.get("securityContext", {}).get("fsGroup")
        if "configMap" in spec:
            files = self.kubelet.data("ConfigMap", self.namespace, spec["configMap"]["name"])
            self._fill(folder, files, spec["configMap"], group)
        elif "secret" in spec:
            files = self.kubelet.data("Secret", self.namespace, spec["secret"]["secretName"])
            self._fill(folder, files, spec["secret"], group)
        elif "persistentVolumeClaim" not in spec and "emptyDir" not in spec:
            raise Unknown(f"the rig does not know the volume {spec}")
        elif is_new:
            shutil.chown(folder, 0, group or 0)
            folder.chmod(0o2775 if group else 0o777)
        return folder

    @staticmethod
    def _fill(folder, files, spec, group):
        paths = {item["key"]: item["path"] for item in spec.get("items", ())} or {key: key for key in files}
        for key, path in paths.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(files[key])
            # A group that may read has the files, as `fsGroup` says.
            file.chmod(spec.get("defaultMode", 0o644) | (0o040 if group else 0))
            shutil.chown(file, 0, group or 0)

    # -- its life

    def run(self):
        try:
            self._write_etc()
            if self._has_initialised() and not self._is_leaving():
                self._play()
            self._end()
        finally:
            self.kubelet.forget(self)

    def _current(self) -> dict | None:
        return self.kubelet.pods.objects.get(self.uid)

    def _is_leaving(self) -> bool:
        current = self._current()
        return current is None or "deletionTimestamp" in current["metadata"] or self.kubelet.is_closing

    def _has_initialised(self) -> bool:
        """Runs the containers that come first, one after the other."""
        for container in self.inits:
            while not container.is_ready():
                if self._is_leaving() or not self._step(container, self.spec["restartPolicy"] != "Never"):
                    return False
        return True

    def _play(self):
        """Until the pod is deleted, or all its containers have ended for good."""
        while not self._is_leaving():
            policy = self.spec["restartPolicy"]
            running = [self._step(each, policy == "Always", policy == "OnFailure") for each in self.containers]
            if not any(running):
                return

    def _step(self, container, always, on_failure=False) -> bool:
        """A look at a container, and what follows; `False` if it has ended for good."""
        code = container.has_ended()
        if code is not None:
            if not (code if container.is_init or on_failure else always) or (container.is_init and not always):
                self._report()
                return container.is_init and code == 0
            container.waiting = {"reason": "CrashLoopBackOff", "message": f"ended with {code}"}
            container.start_at = time.monotonic() + container.back_off
            container.back_off = min(2 * container.back_off, LONGEST_BACK_OFF_S)
            container.restarts += 1
        if container.process is None and container.waiting is None:
            return False
        if container.process is None and time.monotonic() >= container.start_at:
            try:
                container.start()
            except (Unknown, KeyError) as problem:
                is_image = "no image" in str(problem)
                reason = "ImagePullBackOff" if is_image else "CreateContainerConfigError"
                container.waiting = {"reason": reason, "message": str(problem)}
                container.start_at = time.monotonic() + BACK_OFF_S
        container.look()
        self._report()
        time.sleep(LOOK_S)
        return True

    def _end(self):
        """Ends what still runs, and tells the API when the pod has gone. A pod that has ended by itself waits for its deletion."""
        while not self._is_leaving():
            self._report()
            time.sleep(LOOK_S)
        current = self._current()
        grace = (current or {}).get("metadata", {}).get("deletionGracePeriodSeconds", 0)
        if current is None or self.kubelet.is_closing:
            grace = 0
        running = [container for container in (*self.inits, *self.containers) if container.is_running()]
        for container in running:
            if grace:
                container.terminate(grace)
            else:
                container.process.kill()
        while any(container.is_running() for container in running):
            if self._current() is None or self.kubelet.is_closing:
                for container in running:
                    container.process.kill()
            for container in running:
                container.look()
            self._report()
            time.sleep(LOOK_S)
        for container in running:
            container.waiting = None
            code = container.has_ended()
            self.kubelet.ends.append((self.namespace, self.name, code))
        self._report()
        if current is not None and not self.kubelet.is_closing:
            conditions = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
            self.kubelet.tell(lambda: self.kubelet.api.delete("Pod", self.namespace, self.name, **conditions))

    # -- what the API knows of it

    def phase(self) -> str:
        ended = [container.last for container in self.containers if container.process is None and not container.waiting]
        if len(ended) == len(self.containers):
            return "Failed" if any(last["exitCode"] for last in ended) else "Succeeded"
        failed = [c for c in self.inits if c.process is None and not c.waiting and c.last and c.last["exitCode"]]
        if failed and self.spec["restartPolicy"] == "Never":
            return "Failed"
        is_pending = any(container.process is None and container.last is None for container in self.containers)
        return "Pending" if is_pending else "Running"

    def _report(self):
        status = {
            "phase": self.phase(),
            "podIP": self.place.address,
            "podIPs": [{"ip": self.place.address}],
            "hostIP": self.kubelet.gateway,
            "startTime": self.started_at,
            "containerStatuses": [container.status() for container in self.containers],
            "initContainerStatuses": [container.status() for container in self.inits],
        }
        is_ready = status["phase"] == "Running" and all(container.is_ready() for container in self.containers)
        states = {
            "PodReadyToStartContainers": True,
            "Initialized": all(container.is_ready() for container in self.inits),
            "ContainersReady": is_ready,
            "Ready": is_ready,
        }
        if (status, states) == self.reported:
            return
        before = self.reported[1] if self.reported else {}
        for kind, state in states.items():
            if before.get(kind) != state:
                self.changed_at[kind] = now()
        conditions = [
            {"type": kind, "status": str(state), "lastTransitionTime": self.changed_at[kind]}
            for kind, state in states.items()
        ]
        body = {"metadata": {"uid": self.uid}, "status": {**status, "conditions": conditions}}
        if self.kubelet.tell(lambda: self.kubelet.api.patch("Pod", self.namespace, self.name, body, "status")):
            self.reported = (status, states)


class Kubelet:
    """All nodes: binds pods to them and plays them. `images` has the program of each image; an image that is not there never
    starts. `gateway`: the address of this machine, where pods find the name server."""

    def __init__(self, api: Api, network: Bridged, gateway: str, folder: pathlib.Path, images: dict[str, str]):
        self.api, self.network, self.gateway, self.folder, self.images = api, network, gateway, folder, images
        folder.mkdir()
        self.played: dict[str, Pod] = {}
        # The ends of containers that were told to end: namespace, pod, exit code.
        self.ends: list[tuple[str, str, int]] = []
        self.is_closing = False
        # The node of each pod that was bound, by their identifiers.
        self._bound: dict[str, str] = {}
        self._free: list[Place] = []
        self._lock = threading.Lock()
        self._numbers = itertools.cycle(range(FIRST_ADDRESS, LAST_ADDRESS))
        self._nodes = [f"node-{number}" for number in range(NODES)]
        for name in self._nodes:
            self._join(name)
        self._wake = threading.Event()
        self.pods = Watched(api, "Pod", self._wake.set)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _join(self, name):
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": name, "kubernetes.io/os": "linux"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        self.api.create("Node", None, node)
        status = {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()}]}
        self.api.patch("Node", None, name, {"status": status}, "status")
        # Admission has given it a taint, which another controller takes away.
        self.api.patch("Node", None, name, {"spec": {"taints": None}})

    def _run(self):
        while not self.is_closing:
            self._wake.wait(LOOK_S)
            self._wake.clear()
            for uid, pod in self.pods.objects.items():
                if "nodeName" not in pod["spec"] and uid not in self._bound:
                    self._bind(pod)
                elif "nodeName" in pod["spec"] and uid not in self.played and pod["status"]["phase"] in ("Pending", "Running"):
                    self.played[uid] = Pod(self, pod)

    def _bind(self, pod):
        """Each pod gets the node with the fewest pods of its namespace."""
        name, namespace, uid = (pod["metadata"][field] for field in ("name", "namespace", "uid"))
        objects = self.pods.objects
        # What was bound just now, the watch has not seen yet.
        self._bound = {each: node for each, node in self._bound.items() if each in objects}
        counts = {node: 0 for node in self._nodes}
        for each, node in self._bound.items():
            counts[node] += objects[each]["metadata"]["namespace"] == namespace
        node = min(counts, key=counts.get)
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        # Until the watch has seen it, the API refuses to do it twice.
        if self.tell(lambda: self.api.create("Pod", namespace, body, name, "binding")):
            self._bound[uid] = node

    @staticmethod
    def tell(action) -> bool:
        """Whether the API took it; what it refuses is about a pod that has changed or gone, and the next look sees that."""
        try:
            action()
            return True
        except (OSError, http.client.HTTPException, Refused):
            return False

    def data(self, kind, namespace, name) -> dict[str, bytes]:
        """The files of a ConfigMap or Secret."""
        found = self.api.get(kind, namespace, name)
        if found is None:
            raise Unknown(f"there is no {kind} {name}")
        if kind == "Secret":
            return {key: base64.b64decode(value) for key, value in found.get("data", {}).items()}
        return {key: value.encode() for key, value in found.get("data", {}).items()}

    def take_place(self) -> Place:
        """A namespace of the network with an address that no pod has."""
        with self._lock:
            place = self._free.pop() if self._free else self.network.add()
            used = {pod.place.address for pod in self.played.values()}
            address = next(found for n in self._numbers if (found := f"{self.network.net}.{n}") not in used)
        commands = f"addr flush dev eth0\naddr add {address}/24 dev eth0\n"
        batch = ["ip", "-n", place.prefix[3], "-4", "-batch", "-"]
        subprocess.run(batch, input=commands, text=True, check=True, capture_output=True)
        return dataclasses.replace(place, address=address)

    def forget(self, pod: Pod):
        with self._lock:
            self._free.append(pod.place)
        shutil.rmtree(pod.folder, ignore_errors=True)
        # Until the API has forgotten it, nobody else may be played for it.
        while pod.uid in self.pods.objects and not self.is_closing:
            time.sleep(LOOK_S)
        self.played.pop(pod.uid, None)

    def close(self):
        self.is_closing = True
        self._thread.join()
        for pod in list(self.played.values()):
            pod.join()
        self.pods.close()
