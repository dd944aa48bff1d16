"""Nodes as processes: the configuration is that of the reports, with what tests need beside it.

Invariant: each process that was started is ended, and none of them has panicked.
"""

import collections
import contextlib
import itertools
import json
import pathlib
import shutil
import signal
import subprocess
import tempfile

from harness.broker import BINARY, Broker, run
from harness.clock import Clock
from harness.disk import SlowDisk
from harness.raw import Raw
from harness.wait import DEADLINE_S, until

from .disks import Disks
from .network import network

MQTT, CLUSTER, HTTP = 1883, 8899, 8091
STORES = ("session", "inbox", "retain")
# The store of users, groups and rules, which is there from the first change on.
CONTROL = "control"

# Time for members to find each other, elect leaders, and settle after a fault.
SETTLE_S = DEADLINE_S


class Node:
    """A place, a data folder, and the process there, if any."""

    def __init__(self, cluster, place, number, sets):
        self.cluster, self.place, self.sets = cluster, place, sets
        self.folder = cluster.folder / f"node{number}"
        # A disk of its own, if its cluster has `disks`.
        self.own_disk = cluster.disks.add(f"disk{number}") if cluster.disks else None
        self.data_dir = self.own_disk.data_dir if self.own_disk else self.folder / "data"
        self.broker: Broker | None = None
        # What its next process is started with.
        self.binary = cluster.binary
        self.disk: SlowDisk | None = None
        self.clock: Clock | None = None
        self.is_paused = False
        # What its configuration has for `clusterConfig.host`.
        self.host: str | None = place.address

    def __repr__(self):
        return self.place.address

    def config(self, bootstrap, env, seeds) -> dict:
        listener = {"port": MQTT}
        http = {"host": self.place.address, "port": HTTP, "tokenFile": str(self.cluster.token)}
        # Nodes are started and stopped one after the other; what a node waits for then is in test_pods.py.
        waits = {"foundAfterSeconds": 0} if self.binary == BINARY else {}
        stops = {"stop": {"majoritySeconds": 0}} if self.binary == BINARY else {}
        if not self.place.prefix:
            # On one machine with the others it cannot have all addresses.
            listener["host"] = self.place.address
        return {
            "bootstrap": bootstrap,
            "mqttServerConfig": {"tcpListener": listener},
            "clusterConfig": {
                "env": env,
                "host": self.host,
                "port": CLUSTER,
                "clusterDomainName": None,
                "seedEndpoints": ",".join(seeds),
                # Its network has nobody else in it; what a secret does is in test_security.py.
                "insecure": True,
                **waits,
            },
            **stops,
            "allowAnonymous": self.cluster.allow_anonymous,
            "http": http,
            **self.cluster.more(self),
        }

    # -- its life

    def start(self, *, bootstrap=False, env="Test", seeds=None, ready=True, args=()):
        """`seeds`: the first node, if not given; `args`: more arguments of `heraldmq serve`."""
        seeds = seeds or [self.cluster.nodes[0].endpoint]
        self.folder.mkdir(exist_ok=True)
        self.broker = Broker(
            self.sets,
            config=self.config(bootstrap, env, seeds),
            data_dir=self.data_dir,
            host=self.place.address,
            prefix=sum((f.prefix for f in (self.place, self.disk, self.clock) if f), ()),
            ready=ready,
            args=args,
            binary=self.binary,
        )
        # From another machine, as these are, nobody reads without a key.
        self.broker.key = self.cluster.token.read_text()
        self.cluster.processes.append(self.broker)

    def slow_disk(self):
        """Makes the disk of the next process one that can be slow."""
        self.disk = SlowDisk(self.folder / "shim", self.data_dir)

    def false_clock(self):
        """Makes the clock of the next process one that can jump."""
        self.clock = Clock(self.folder / "clock")

    def kill(self):
        self.resume()
        self.broker.kill()

    def stop(self):
        self.resume()
        assert self.broker.stop() == 0

    def wipe(self):
        """Forgets all; it must not run."""
        if self.own_disk:
            self.own_disk.format()
        else:
            shutil.rmtree(self.data_dir)

    def pause(self):
        self.is_paused = True
        self.broker.signal(signal.SIGSTOP)

    def resume(self):
        if self.is_paused:
            self.is_paused = False
            self.broker.signal(signal.SIGCONT)

    # -- asking it

    @property
    def endpoint(self) -> str:
        return f"{self.place.address}:{CLUSTER}"

    @property
    def mqtt(self) -> tuple[str, int]:
        return self.place.address, MQTT

    def client(self, client_id="", **fields) -> Raw:
        return self.broker.client(client_id, **fields)

    def status(self) -> dict | None:
        """`None` if there is no answer."""
        if not self.broker.find("listening", kind="http"):
            return None
        try:
            status, body = self.broker.http("/api/v1/cluster")
        except OSError:
            return None
        return json.loads(body) if status == 200 else None

    def command(self, what, *args):
        """`heraldmq cluster …` at this node; it must succeed."""
        done = self.asked(what, *args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def asked(self, *args, binary=BINARY, timeout=DEADLINE_S) -> subprocess.CompletedProcess:
        """`heraldmq cluster …` at this node, whatever comes of it, by this version or another one."""
        url = f"http://{self.place.address}:{HTTP}"
        return run("cluster", *args, "--url", url, "--token-file", self.cluster.token, binary=binary, timeout=timeout)

    @property
    def id(self) -> str:
        return self.status()["node"]


class Cluster:
    """Context manager. `size` nodes are formed at once, as the reports do: the first with `bootstrap`, the
    others after it in order. With `disks`, each has a disk of its own; the clock of the node
    `clocked` can jump; `binary` is the program that its nodes are started with; `places` gives addresses, if not
    those of `network()`; `allow_anonymous` is the option of that name, `None` for its default; `more` gives what
    else the configuration of a node has."""

    def __init__(
        self,
        size=3,
        sets=None,
        *,
        disks=False,
        clocked=None,
        binary=BINARY,
        places=None,
        allow_anonymous=True,
        more=lambda _node: {},
    ):
        self._temporary = tempfile.TemporaryDirectory(prefix="heraldmq-cluster-")
        self.folder = pathlib.Path(self._temporary.name)
        self.token = self.folder / "token"
        self.token.write_text("for-tests-only")
        self.sets = sets or {}
        self.binary = binary
        self.allow_anonymous = allow_anonymous
        self.more = more
        self.nodes: list[Node] = []
        self._numbers = itertools.count(1)
        self.processes: list[Broker] = []
        self.network = places or network()
        self.disks = None
        try:
            self.disks = Disks(self.folder / "disks") if disks else None
            for _ in range(size):
                self.add()
            if clocked is not None:
                self.nodes[clocked].false_clock()
            for node in self.nodes:
                node.start(bootstrap=node is self.nodes[0])
            if size > 1:
                self.spread()
        except BaseException:
            self.close()
            raise

    def add(self) -> Node:
        """A place for one more node, which is not started."""
        node = Node(self, self.network.add(), next(self._numbers), self.sets)
        self.nodes.append(node)
        return node

    def running(self) -> list[Node]:
        return [n for n in self.nodes if n.broker and n.broker.process.poll() is None and not n.is_paused]

    def settled(self, nodes=None, timeout=SETTLE_S):
        """Waits until these nodes, or all that run, are ready, see each other and no other node, and agree on
        a leader of each shard."""
        nodes = nodes or self.running()
        until(lambda: self._is_settled(nodes), timeout, lambda: f"one view of {nodes}: {self.views(nodes)}")

    def _is_settled(self, nodes) -> bool:
        views = self.views(nodes)
        if not all(views) or not all(node.broker.find("ready") for node in nodes):
            return False
        members = {view["node"] for view in views}
        up = [{n["node"] for n in view["nodes"] if n["reach"] == "up"} for view in views]
        leaders = [{(s["store"], s["shard"]): s["leader"] for s in view["shards"]} for view in views]
        stores = {store for store, _ in leaders[0]} - {CONTROL}
        agreed = all(view == leaders[0] for view in leaders) and stores == set(STORES)
        return agreed and all(view == members for view in up) and set(leaders[0].values()) <= members

    def spread(self):
        """Waits until shards have as many voters as is set, or replicas on all nodes, up to three, and no node
        leads more than one more than another: from then on nobody moves anything."""
        self.settled()
        until(self._is_spread, SETTLE_S, lambda: f"all replicas: {self.views(self.running())}")

    def _is_spread(self) -> bool:
        view, running = self.running()[0].status(), self.running()
        usual = 3 if len(running) >= 3 else 1
        leaders = collections.Counter(shard["leader"] for shard in view["shards"])
        led = [leaders[node.id] for node in running]

        def is_whole(shard):
            return len(shard["voters"]) == self.sets.get(f"{shard['store']}_store_replica_voter_count", usual)

        return all(map(is_whole, view["shards"])) and max(led) - min(led) <= 1

    @staticmethod
    def views(nodes) -> list[dict | None]:
        return [node.status() for node in nodes]

    def leader(self, store="inbox", shard=0) -> Node:
        """The node that leads a shard, as all running nodes agree."""
        self.settled()
        view = self.running()[0].status()
        leads = next(s["leader"] for s in view["shards"] if (s["store"], s["shard"]) == (store, shard))
        return next(node for node in self.running() if node.id == leads)

    def leaders_apart(self) -> list[Node]:
        """The nodes that lead the first shard of inboxes, of sessions and of retained messages: three of them, as soon
        as leads are spread."""

        def apart():
            nodes = [self.leader(store) for store in ("inbox", "session", "retain")]
            return nodes if len(set(nodes)) == 3 else None

        return until(apart, SETTLE_S, "three leaders")

    def leads_now(self, store="inbox", shard=0) -> Node | None:
        """The node that leads a shard, as the first one says, whoever else agrees; `None`: nobody, for the moment."""
        view = self.nodes[0].status()
        wanted = next((s["leader"] for s in view["shards"] if (s["store"], s["shard"]) == (store, shard)), None)
        return next((node for node in self.nodes if node.id == wanted), None)

    def move(self, store="inbox", shard=0):
        """Another node leads a shard when this returns; balancing may move it on from there. All nodes must run."""
        before = until(lambda: self.leads_now(store, shard), SETTLE_S, "a leader")
        wanted = self.nodes[(self.nodes.index(before) + 1) % len(self.nodes)]

        def is_moved():
            now = self.leads_now(store, shard)
            if now is before:
                # Refused while nobody leads, because balancing has just moved it.
                with contextlib.suppress(AssertionError):
                    before.command("transfer-leader", store, str(shard), wanted.id)
            return now not in (None, before)

        until(is_moved, SETTLE_S, "another leader")

    def follower(self, store="inbox", shard=0) -> Node:
        """A node that does not lead it."""
        leader = self.leader(store, shard)
        return next(node for node in self.running() if node is not leader)

    def cut_off(self, node):
        """No other node hears it or is heard by it."""
        for other in self.nodes:
            if other is not node:
                self.network.cut(node.place, other.place)
                self.network.cut(other.place, node.place)

    def close(self):
        with contextlib.ExitStack() as stack:
            stack.callback(self._temporary.cleanup)
            stack.callback(self.network.close)
            if self.disks:
                stack.callback(self.disks.close)
            for process in self.processes:
                stack.callback(process.close)
            for node in self.nodes:
                node.resume()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        for process in self.processes:
            assert not any("panicked" in line for line in process.log_text), process.log_text[-40:]
