"""Pods as processes: a StatefulSet, its headless Service, the Service for clients, and the kubelets, without Kubernetes.

A pod is a network namespace with the name server, the search list and the file of hosts that a kubelet writes, and a volume
that outlives it. Each start of a pod gives it an address that no pod has had. A container that ends is started again in the same
pod, later each time. The Service for clients has the pods that are ready; the headless one has all.
Invariant: all pods have the same configuration, but for `bootstrap`, which pod 0 has at each of its starts, and
`clusterConfig.host`, the pod's own name.
Absent on purpose: any controller that decides; a test says which pod is stopped, and when.
"""

import concurrent.futures
import dataclasses
import functools
import http.client
import itertools
import json
import pathlib
import signal
import subprocess
import threading
import time

from harness.broker import BINARY, Broker
from harness.wait import DEADLINE_S, until

from .cluster import CLUSTER, HTTP, Cluster, Node
from .load import Load
from .names import Names
from .network import Bridged, Place

SET = "heraldmq"
NAMESPACE = "default.svc.cluster.local"
# The name of the headless Service.
HEADLESS = f"{SET}.{NAMESPACE}"
RESOLV = f"search {NAMESPACE} svc.cluster.local cluster.local\noptions ndots:5\n"
NETNS = pathlib.Path("/etc/netns")

# Seconds from SIGTERM to SIGKILL.
GRACE_S = 90.0
# Seconds from one look of a kubelet at its pods to the next, and the most that a probe takes.
LOOK_S, PROBE_S = 0.1, 2.0
# Seconds before a container is started again: doubled each time, until it has been ready.
BACK_OFF_S, LONGEST_BACK_OFF_S = 0.2, 3.0
# A pod that is to become ready is given up after so many restarts.
MOST_RESTARTS = 5
# Time for a pod to become ready, and for all replicas to be made.
READY_S, WHOLE_S = 2 * DEADLINE_S, 3 * DEADLINE_S
# Fourth bytes of addresses of pods; the name server has 254.
FIRST_ADDRESS, LAST_ADDRESS = 1, 250

# Gives the process a host name of its own, which is also the name of its node.
NAMED = 'echo "$0" >/proc/sys/kernel/hostname; exec "$@"'


@functools.cache
def _own_netns():
    """Gives this process and its children an empty folder /etc/netns, whose files `ip netns exec` puts over those of /etc.
    As a run keeps its mounts apart (`disks.keep_mounts_apart`), only the empty folder is left on the machine."""
    NETNS.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "netns", NETNS], check=True, capture_output=True)


class Nobody:
    """Where a client of a Service ends up that has no ready pod: the connection is refused."""

    mqtt = ("127.0.0.1", 1)


class Service:
    """The pods that are ready, as a list which changes; `Load` takes it for its nodes."""

    def __init__(self, pods: "Pods"):
        self.pods = pods

    def __iter__(self):
        return iter([pod for pod in list(self.pods.nodes) if pod.is_served] or [Nobody])


class Pod(Node):
    """A place, a volume, and a container, if any. `ordinal` is the number behind its name."""

    def __init__(self, pods: "Pods", ordinal: int):
        super().__init__(pods, pods.network.add(), ordinal, pods.sets)
        self.pods, self.ordinal, self.name = pods, ordinal, f"{SET}-{ordinal}"
        self.full_name = f"{self.name}.{HEADLESS}"
        self.host = self.full_name if pods.are_named else None
        # Whether it exists; whether its container is to run; whether clients are led to it.
        self.exists = self.is_wanted = self.is_served = False
        self.back_off, self.start_at = BACK_OFF_S, 0.0
        # Of its node, where a test has noted it.
        self.known_id: str | None = None
        # How often the container of this pod was started again.
        self.restarts = 0
        self.lock = threading.RLock()

    def __repr__(self):
        return self.name

    def config(self, bootstrap, env, seeds) -> dict:
        config = super().config(bootstrap, env, seeds)
        # Pods wait as they do by default.
        config.pop("stop", None)
        config["clusterConfig"].pop("foundAfterSeconds", None)
        config["http"]["host"] = "0.0.0.0"
        config["clusterConfig"].update(
            clusterDomainName=HEADLESS,
            seedEndpoints=",".join(seeds) if seeds else None,
        )
        for key, value in self.pods.config.items():
            config[key] = {**config.get(key, {}), **value} if isinstance(value, dict) else value
        return config

    # -- its life

    def start(self, *, ready=True):
        """A new pod with the same volume and a new address."""
        with self.lock:
            self.place = self.pods.moved(self.place)
            self.exists = True
            self.pods.publish()
            folder = NETNS / self.place.prefix[3]
            folder.mkdir(exist_ok=True)
            (folder / "resolv.conf").write_text(f"nameserver {self.pods.name_server}\n{RESOLV}")
            (folder / "hosts").write_text(
                f"127.0.0.1\tlocalhost\n::1\tlocalhost\n{self.place.address}\t{self.full_name}\t{self.name}\n"
            )
            self.folder.mkdir(exist_ok=True)
            self.back_off, self.restarts, self.is_wanted = BACK_OFF_S, 0, True
            self.run()
        if ready:
            self.becomes_ready()

    def run(self):
        """Starts the container of a pod that exists."""
        seeds = [] if self.pods.only_headless else [f"{pod.full_name}:{CLUSTER}" for pod in self.pods.nodes]
        self.broker = Broker(
            self.sets,
            config=self.config(self.ordinal == 0, "Test", seeds),
            data_dir=self.data_dir,
            host=self.place.address,
            prefix=(*self.place.prefix, "unshare", "--uts", "sh", "-c", NAMED, self.name),
            ready=False,
            binary=self.binary,
        )
        self.broker.key = self.pods.token.read_text()
        self.pods.processes.append(self.broker)

    def stop(self, grace=GRACE_S) -> int:
        """Deletes the pod: SIGTERM, and SIGKILL after `grace` seconds. The exit code of its container."""
        self.terminate()
        return self.ends(grace)

    def terminate(self):
        """Begins to delete the pod: no client is led to it any more, and its container gets SIGTERM."""
        with self.lock:
            self.is_wanted = self.is_served = False
            if self.broker.process.poll() is None:
                self.broker.signal(signal.SIGTERM)

    def ends(self, grace=GRACE_S) -> int:
        """Waits until the container has ended after `terminate`; then the pod and its name do not exist any more."""
        try:
            code = self.broker.wait(grace)
        except subprocess.TimeoutExpired:
            self.broker.kill()
            code = -signal.SIGKILL
        self.vanish()
        return code

    def vanish(self):
        self.exists = False
        self.pods.publish()

    def kill(self):
        """SIGKILL, and the pod is deleted: its machine has failed."""
        with self.lock:
            self.is_wanted = self.is_served = False
            self.broker.kill()
        self.vanish()

    def crash(self):
        """SIGKILL; the kubelet starts the container again."""
        self.broker.kill()

    def renew(self):
        """Deletes the pod, and makes it anew with its volume; returns when it is ready."""
        code = self.stop()
        assert code == 0, f"{self} ended with {code}"
        self.start()

    def becomes_ready(self, timeout=READY_S):
        def is_done():
            assert self.restarts < MOST_RESTARTS, f"{self} ends again and again: {self.told()}"
            # Its log may be read later than its answer.
            return self.is_ready() and self.broker.find("listening", kind="mqtt-tcp")

        until(is_done, timeout, lambda: f"{self} to be ready: {self.told()}")
        self.is_served = True

    # -- asking it

    def probe(self, path) -> tuple[int, str] | None:
        """Status and body of a GET, as a kubelet makes it, without a key; `None`: no answer."""
        connection = http.client.HTTPConnection(self.place.address, HTTP, timeout=PROBE_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def is_ready(self) -> bool:
        return (self.probe("/readyz") or (0, ""))[0] == 200

    def is_alive(self) -> bool:
        return (self.probe("/healthz") or (0, ""))[0] == 200

    def told(self) -> str:
        """The state of it, for a test that fails."""
        return f"{self.probe('/readyz')}, {self.restarts} restarts, {self.broker.log_text[-3:]}"

    def says(self, *words) -> bool:
        """Whether a line of the log of its container has these words, in small or capital letters."""
        lines = [line.lower() for line in list(self.broker.log_text)]
        return any(all(word.lower() in line for word in words) for line in lines)

    def status(self) -> dict | None:
        if not self.exists or self.broker.process.poll() is not None:
            return None
        try:
            return super().status()
        except (http.client.HTTPException, json.JSONDecodeError):
            return None


class Kubelet(threading.Thread):
    """Starts containers again that have ended, and says which pods are ready."""

    def __init__(self, pods: "Pods"):
        super().__init__(daemon=True)
        self.pods = pods
        self._end = threading.Event()
        self.start()

    def run(self):
        while not self._end.wait(LOOK_S):
            for pod in list(self.pods.nodes):
                self._look_after(pod)

    def _look_after(self, pod):
        if not pod.is_wanted:
            return
        is_ready = pod.is_ready()
        with pod.lock:
            if not pod.is_wanted:
                return
            pod.is_served = is_ready
            if is_ready:
                pod.back_off = BACK_OFF_S
            now = time.monotonic()
            if pod.broker.process.poll() is None:
                pod.start_at = now + pod.back_off
            elif now >= pod.start_at:
                pod.back_off = min(2 * pod.back_off, LONGEST_BACK_OFF_S)
                pod.restarts += 1
                pod.run()

    def close(self):
        self._end.set()
        self.join()


class Pods(Cluster):
    """Context manager: `size` pods, all started at once, which are ready and have all replicas if `form`. `sets` are settings
    for `--set`, `config` is put over the configuration; `are_named`: `clusterConfig.host` is the pod's own
    name, else it is empty; `only_headless`: the pods have `clusterDomainName` only, and no seeds."""

    def __init__(
        self, size=3, sets=None, *, config=None, form=True, are_named=True, only_headless=False, binary=BINARY
    ):
        self.config, self.are_named, self.only_headless = config or {}, are_named, only_headless
        self.names = self.kubelet = None
        self._addresses = iter(range(0))
        # All pods that there were, by ordinal: their volumes are kept.
        self.known: list[Pod] = []
        _own_netns()
        super().__init__(0, sets, places=Bridged(), binary=binary)
        try:
            self.name_server = f"{self.network.net}.254"
            self.names = Names(self.name_server)
            self.service = Service(self)
            self.resize(size)
            self.kubelet = Kubelet(self)
            if form:
                self.start()
                self.spread()
        except BaseException:
            self.close()
            raise

    # -- what pods need

    def moved(self, place: Place) -> Place:
        """The same namespace with the next address; after the last one they begin anew."""
        address = next(self._addresses, None)
        while address is None or any(pod.exists and pod.place.address == address for pod in self.known):
            if address is None:
                numbers = range(FIRST_ADDRESS, LAST_ADDRESS)
                self._addresses = (f"{self.network.net}.{number}" for number in numbers)
            address = next(self._addresses)
        commands = f"addr flush dev eth0\naddr add {address}/24 dev eth0\n"
        batch = ["ip", "-n", place.prefix[3], "-4", "-batch", "-"]
        subprocess.run(batch, input=commands, text=True, check=True, capture_output=True)
        return dataclasses.replace(place, address=address)

    def publish(self):
        """The name server knows the pods that exist, ready or not."""
        records = {pod.full_name: [pod.place.address] for pod in self.known if pod.exists}
        if records:
            records[HEADLESS] = [address for addresses in list(records.values()) for address in addresses]
        self.names.change(records)

    def resize(self, size):
        """How many replicas the set has; none is started or stopped."""
        while len(self.known) < size:
            self.known.append(Pod(self, len(self.known)))
        self.nodes[:] = self.known[:size]

    # -- what a StatefulSet and its user do

    def start(self, *, ready=True):
        """All pods that do not exist, at once."""
        started = [pod for pod in self.nodes if not pod.exists]
        for pod in started:
            pod.start(ready=False)
        for pod in started if ready else []:
            pod.becomes_ready()

    def stop(self):
        """All pods at once."""
        for pod in self.nodes:
            pod.terminate()
        codes = {pod: pod.ends() for pod in self.nodes}
        assert not any(codes.values()), codes

    def scale(self, size, *, ready=True):
        """More pods are all started at once; with fewer, those with the highest ordinals are deleted, one after the other."""
        for pod in reversed(self.nodes[size:]):
            code = pod.stop()
            assert code == 0, f"{pod} ended with {code}"
        self.resize(size)
        self.start(ready=ready)

    def roll(self):
        """From the highest ordinal to the lowest: yields each pod, which the caller has to `renew` before it goes on."""
        yield from reversed(self.nodes)

    def identifiers(self) -> set:
        """The clusters that the pods belong to."""
        return {(pod.status() or {}).get("cluster") for pod in self.nodes}

    def is_spread_over(self, size) -> bool:
        """Whether all pods are settled and each shard has `size` voters, all of them pods that run."""
        views = self.views(self.nodes)
        if not all(views) or not self._is_settled(self.nodes):
            return False
        members = {view["node"] for view in views}
        return all(len(s["voters"]) == size and set(s["voters"]) <= members for s in views[0]["shards"])

    def whole(self, timeout=WHOLE_S):
        """Waits until each shard has three voters, or one of two pods, all of them pods that run, and each pod sees no others."""
        size = 3 if len(self.nodes) >= 3 else 1
        until(lambda: self.is_spread_over(size), timeout, lambda: f"all replicas: {self.views(self.nodes)}")

    def forget(self, identifier):
        """`heraldmq cluster evict` for a node that has lost its volume."""

        def is_done():
            views = [pod.status() for pod in self.nodes]
            if all(view and identifier not in {n["node"] for n in view["nodes"]} for view in views):
                return True
            # Refused while its replicas are needed.
            next(pod for pod, view in zip(self.nodes, views) if view).asked("evict", identifier)
            return False

        until(is_done, WHOLE_S, lambda: f"nobody to know {identifier}: {self.views(self.nodes)}")

    # -- the end

    def close(self):
        for pod in self.known:
            pod.is_wanted = False
            if pod.broker:
                # One after the other in order would take long: nodes may wait for each other.
                pod.broker.kill()
        if self.kubelet:
            self.kubelet.close()
        if self.names:
            self.names.close()
        super().close()


class PodLoad(Load):
    """Durable subscribers and publishers of QoS 1 at the Service of the pods."""

    def __init__(self, pods: Pods, name, *, publishers=4, subscribers=2, rate=20):
        super().__init__(
            pods.service,
            name,
            publishers=publishers,
            subscribers=subscribers,
            rate=rate,
            contenders=0,
            mourned=0,
            registers=0,
        )
        for person in (*self.publishers, *self.subscribers):
            person.qos = 1
        self._worker = concurrent.futures.ThreadPoolExecutor(1)

    def during(self, action, timeout=2 * WHOLE_S):
        """Clients go on while `action` is done; its result."""
        done = self._worker.submit(action)
        self.until(done.done, timeout, "the end of what is done meanwhile")
        return done.result()

    def answered(self):
        """Each publisher gets an answer to a message that it sends from now on."""
        self.go_on(1, READY_S)

    def gaps(self, since) -> list[float]:
        """For each publisher the longest time without a PUBACK from `since` until now, in seconds, whether it was connected or
        not; each has something to send all the time."""
        now = time.monotonic()
        found = []
        for publisher in self.publishers:
            mine = (p for p in self.history.publications.values() if p.publisher == publisher.client_id)
            times = [since, *sorted(p.acked for p in mine if since <= p.acked <= now), now]
            found.append(max(later - earlier for earlier, later in itertools.pairwise(times)))
        return found

    def __exit__(self, *exit):
        self._worker.shutdown(wait=False)
        super().__exit__(*exit)
