"""Three nodes as one place for attacks: readings are sums over them, bystanders are clients of each.

Invariant: an attack is given a fault for each shard whose leader is another one afterwards.
"""

import contextlib
import types
import uuid

import staged.cluster
from prometheus_client.parser import text_string_to_metric_families
from staged.cluster import Cluster

from .bystander import Bystander
from .process import Silent
from .runner import SETS
from .stage import Stage

# Attacks that work through what is replicated.
NAMES = [
    "SubscribeSameDurable",
    "SubscribeTenThousandDurable",
    "SubscribeManyFilters",
    "RetainedDistinct",
    "RetainedChurn",
    "RetainedReplayToDurable",
    "RetainedBigPages",
    "UnreleasedReconnects",
    "SubscribedReconnects",
    "ConnectDurableFlood",
    "TakeoverStormDurable",
    "PublishFanOutDurable",
    "PublishToManyDurable",
    "PublishAliasesDurableTen",
    "SubscribeTenThousandMoreDurable",
    "UnsubscribeAllDurable",
    "LongNameQos2",
    "LongNameQos2ToItself",
    "LongNameSubscribes",
    "LongNameAcknowledges",
    "LongNameAcknowledgesQos2",
    "LongNameMember",
    "LongNameLegacy",
    "LongNameRetained",
]

# The nodes' logs are counted too.
staged.cluster.Broker = Silent


class Nodes:
    """What an attack and the readings need to know of a broker. Clients of the attack go to one node."""

    def __init__(self, cluster):
        self.cluster, self.entry = cluster, cluster.nodes[1].broker
        self.brokers = [node.broker for node in cluster.nodes]
        self.host, self.port, self.port_of = self.entry.host, self.entry.port, self.entry.port_of
        self.process = types.SimpleNamespace(poll=self._poll)

    def _poll(self):
        return next((broker.process.poll() for broker in self.brokers if broker.process.poll() is not None), None)

    def cpu(self):
        return sum(broker.cpu() for broker in self.brokers)

    def reset_peak(self):
        return sum(broker.reset_peak() for broker in self.brokers)

    def peak(self):
        return sum(broker.peak() for broker in self.brokers)

    def folder(self):
        return sum(broker.folder() for broker in self.brokers)

    @property
    def log_bytes(self):
        return sum(broker.log_bytes for broker in self.brokers)

    @property
    def log_text(self):
        return [line for broker in self.brokers for line in broker.log_text[-3:]]

    def threads(self):
        found: dict[str, float] = {}
        for broker in self.brokers:
            for name, used in broker.threads().items():
                found[name] = found.get(name, 0) + used
        return found

    def link_bytes(self):
        total = 0
        for broker in self.brokers:
            for family in text_string_to_metric_families(broker.http("/metrics")[1]):
                total += sum(s.value for s in family.samples if s.name == "heraldmq_link_sent_bytes_total")
        return int(total)

    def metric(self, name, **labels) -> float:
        return sum(broker.metric(name, **labels) for broker in self.brokers)

    def leaders(self) -> dict:
        view = self.cluster.running()[0].status()
        return {f"{shard['store']} {shard['shard']}": shard["leader"] for shard in view["shards"]}


class Bystanders:
    """Some at each node."""

    def __init__(self, brokers, tag):
        self.each = [Bystander(b.host, b.port, f"{tag}{n}") for n, b in enumerate(brokers)]

    def longest(self) -> dict:
        found: dict = {}
        for bystander in self.each:
            for what, wait in bystander.longest().items():
                found[what] = found.get(what, 0) + wait if what == "published" else max(found.get(what, 0), wait)
        return found

    def close(self):
        for bystander in self.each:
            bystander.close()


class Place:
    """One cluster for many attacks; another one for an attack with other settings, and after an attack that leaves much behind,
    which would be counted to the next."""

    def __init__(self):
        self.sets = dict(SETS)
        self.cluster = Cluster(3, dict(self.sets))
        self.is_used_up = False

    @contextlib.contextmanager
    def __call__(self, attack, version, n):
        sets = {**SETS, **attack.sets(None)}
        if self.is_used_up or sets != self.sets:
            self.cluster.close()
            self.sets = sets
            self.cluster = Cluster(3, dict(sets))
        self.is_used_up = attack.leaves
        nodes, tag = Nodes(self.cluster), "a" + uuid.uuid4().hex[:6]
        self.cluster.settled()
        bystanders, stage = Bystanders(nodes.brokers, tag), Stage(nodes, version, n, tag)
        stage.cause.nodes = 3
        before = nodes.leaders()
        stage.leaders_moved = lambda: [
            f"{shard} has another leader" for shard, leader in nodes.leaders().items() if before.get(shard) != leader
        ]
        try:
            yield stage, bystanders
        finally:
            bystanders.close()
            stage.close()

    def close(self):
        self.cluster.close()
