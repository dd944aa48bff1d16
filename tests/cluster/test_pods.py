"""Pods of Kubernetes as processes (`staged/pods.py`): each start has a new address, volumes are kept, names are all that stays.

`HERALD_POD_ROUNDS` is how many rounds `test_rounds` plays, `HERALD_POD_SEED` its seed.
"""

import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import time

import pytest
import yaml
from harness import raw
from harness.crowd import Crowd, Peer
from harness.raw import DISCONNECT
from harness.wait import DEADLINE_S, until
from staged.names import NOERROR, NXDOMAIN, A, answer
from staged.network import may_isolate
from staged.pods import HEADLESS, NAMESPACE, READY_S, SET, WHOLE_S, PodLoad, Pods
from verify import checks

pytestmark = pytest.mark.skipif(not may_isolate(), reason="only root can give pods a network of their own")

ROUNDS = int(os.environ.get("HERALD_POD_ROUNDS", "4"))
SEED = int(os.environ.get("HERALD_POD_SEED", os.environ.get("HERALD_SEED", "1")))
AAAA = 28
DURABLE = {"session_expiry": 3600}
# One loop for connections in each process: the machine has few cores for many pods.
SMALL = {"eventLoops": 1}
# How old the records of a name server are that is behind: in clusters of Kubernetes 30 s, and here a restart takes less time, too.
OLD_S = 6.0
# A node that has left waits for SIGTERM, as with the chart.
PATIENT = {"clusterConfig": {"afterLeave": "wait"}}
# For `heraldmq cluster resize --wait`.
RESIZE_S = 300


@contextlib.contextmanager
def loaded(size, name, **fields):
    """Pods with clients, and what they lose and how long they wait as the judgement at the end."""
    with Pods(size, SMALL, **fields) as pods, PodLoad(pods, name) as load:
        load.begin()
        began = time.monotonic()
        yield pods, load
        tell(load, "of all", began)
        load.finish()


def tell(load, what, began):
    """Prints how long publishers had to wait since then."""
    print(f"gaps {what}: {checks.distribution(load.gaps(began))}; {len(load.history.publications)} messages", flush=True)


def subscribed(pod, client_id, topic):
    """A durable session with a subscription, whose client has gone."""
    with pod.client(client_id, clean=False, props=DURABLE) as client:
        client.subscribe(topic, qos=1)
        client.disconnect()


def resumed(pod, client_id, topic, publisher):
    """The session of `subscribed` is there at this pod, and gets what another pod is sent."""
    with pod.client(client_id, clean=False, props=DURABLE, session_present=True) as client:
        with publisher.client() as sender:
            sender.published(topic, b"for all", qos=1)
        assert client.message().payload == b"for all"


def roll(pods, load):
    for pod in pods.roll():
        began = time.monotonic()
        load.during(pod.renew)
        load.answered()
        tell(load, f"while {pod} was renewed in {time.monotonic() - began:.1f} s", began)


def new_addresses(pods, before):
    return not {pod.place.address for pod in pods.nodes} & before


# -- the name server


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "kind", "code", "addresses"),
    [
        ("HeraldMQ-0.heraldmq", A, NOERROR, ["10.0.0.1"]),
        ("heraldmq", A, NOERROR, ["10.0.0.1", "10.0.0.2"]),
        ("heraldmq", AAAA, NOERROR, []),
        ("heraldmq-1.heraldmq", A, NXDOMAIN, []),
        ("heraldmq-1.heraldmq", AAAA, NXDOMAIN, []),
    ],
)
def test_what_the_name_server_answers(name, kind, code, addresses):
    records = {"heraldmq-0.heraldmq": ["10.0.0.1"], "heraldmq": ["10.0.0.1", "10.0.0.2"]}
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    query = b"\x12\x34\x01\x00\x00\x01" + bytes(6) + labels + struct.pack(">BHH", 0, kind, 1)
    # Also with something behind the question, as resolvers add.
    for asked in (query, query + b"\x00\x00\x29\x04\xd0" + bytes(6)):
        said = answer(asked, records)
        assert said[:2] == query[:2] and said[12 : len(query)] == query[12:]
        flags, questions, answers, *others = struct.unpack_from(">HHHHH", said, 2)
        assert (flags & 0x800F, questions, answers, others) == (0x8000 | code, 1, len(addresses), [0, 0])
        assert [socket.inet_ntoa(said[end - 4 : end]) for end in range(len(query) + 16, len(said) + 1, 16)] == addresses


# -- what a StatefulSet does


@pytest.mark.quick("P1", "P4")
def test_a_rolling_restart_with_new_addresses_loses_nothing(name):
    with loaded(3, name) as (pods, load):
        before = {pod.place.address for pod in pods.nodes}
        roll(pods, load)
        assert new_addresses(pods, before)


def test_a_rolling_restart_of_pods_without_a_name_of_their_own_loses_nothing(name):
    with loaded(3, name, are_named=False) as (pods, load):
        roll(pods, load)


def test_pods_that_only_have_the_headless_name_form_and_roll(name):
    with loaded(3, name, only_headless=True) as (pods, load):
        roll(pods, load)


def test_all_pods_are_stopped_and_come_back_with_new_addresses(name):
    with loaded(3, name) as (pods, load):
        before = {pod.place.address for pod in pods.nodes}
        load.during(pods.stop)
        load.during(pods.start)
        assert new_addresses(pods, before)
        load.during(pods.whole)
        load.answered()


def test_three_empty_pods_that_start_at_once_are_one_cluster(name):
    with Pods(3, SMALL) as pods:
        assert len(pods.identifiers()) == 1
        subscribed(pods.nodes[1], name, name)
        resumed(pods.nodes[0], name, name, pods.nodes[2])


def test_three_pods_become_five_and_three_again(name):
    with loaded(3, name, config=PATIENT) as (pods, load):
        load.during(lambda: pods.scale(5))
        load.during(pods.whole)
        load.answered()
        resize(pods, load, 3)
        load.during(lambda: pods.scale(3))
        load.during(pods.whole)
        load.answered()


def resize(pods, load, size):
    """`heraldmq cluster resize --wait` at pod 0; then the set may be scaled. Pods are `PATIENT`: otherwise a kubelet would
    start those that have left again, and they would join as new nodes."""
    done = load.during(lambda: pods.nodes[0].asked("resize", size, "--wait", timeout=RESIZE_S))
    assert done.returncode == 0, done
    assert not any(pod.restarts for pod in pods.nodes[size:])
    return done


def test_a_pod_with_an_empty_volume_takes_the_place_of_one(name):
    with loaded(3, name) as (pods, load):
        replaced = pods.nodes[2]
        before = replaced.id
        load.during(replaced.stop)
        replaced.wipe()
        load.during(replaced.start)
        assert replaced.id != before
        load.during(lambda: pods.forget(before))
        load.during(pods.whole)
        load.answered()


def test_a_pod_is_killed_while_another_rolls(name):
    with loaded(3, name) as (pods, load):
        killed, _, renewed = pods.nodes
        load.during(renewed.stop)
        killed.crash()
        load.during(renewed.start)
        load.during(killed.becomes_ready)
        load.during(pods.whole)
        load.answered()


@pytest.mark.parametrize("fault", ["old", "silent"])
def test_the_others_go_on_while_the_name_server_does_not_tell_the_address_of_a_pod(name, fault):
    with loaded(3, name) as (pods, load):
        pods.names.keep_old()
        pods.names.is_silent = fault == "silent"
        pod = pods.nodes[2]
        load.during(pod.stop)
        pod.start(ready=False)
        load.during(lambda: until(pod.is_alive, what=pod.told))
        load.answered()
        pods.names.renew()
        pods.names.is_silent = False
        load.during(pod.becomes_ready)
        load.during(pods.whole)
        load.answered()


def test_a_rolling_restart_with_a_name_server_that_is_behind_loses_nothing(name):
    with loaded(3, name) as (pods, load):
        pods.names.age = OLD_S
        roll(pods, load)
        load.during(pods.whole)


# -- pod 0 has `bootstrap`, and an empty volume


@pytest.fixture
def formed(name):
    """Three pods, and a session that is called `name`."""
    with Pods(3, SMALL) as pods:
        subscribed(pods.nodes[1], name, name)
        yield pods


def belongs(pods, name):
    """Pod 0 is a node of the others' cluster, and clients find their sessions there."""
    assert len(pods.identifiers()) == 1, pods.identifiers()
    resumed(pods.nodes[0], name, name, pods.nodes[2])


def test_pod_0_with_an_empty_volume_joins_the_pods_that_run(formed, name):
    zero = formed.nodes[0]
    zero.stop()
    zero.wipe()
    zero.start()
    belongs(formed, name)


def test_pod_0_with_an_empty_volume_joins_pods_that_start_at_the_same_time(formed, name):
    formed.stop()
    formed.nodes[0].wipe()
    formed.start()
    belongs(formed, name)


def test_pod_0_with_an_empty_volume_waits_for_pods_that_are_stopped(formed, name):
    formed.stop()
    zero = formed.nodes[0]
    zero.wipe()
    zero.start(ready=False)
    # It names those whom it waits for.
    until(lambda: zero.says("waits", formed.nodes[1].full_name) or zero.is_ready(), READY_S, zero.told)
    assert not zero.is_ready() and zero.is_alive(), zero.told()
    formed.start(ready=False)
    for pod in formed.nodes:
        pod.becomes_ready()
    belongs(formed, name)


# -- fewer pods without `resize`, and with it


def majority_of_the_last_two(pods):
    """Five pods, of which the last two have a majority of each shard: of each pod in between, the replicas move when it leaves."""
    for pod in pods.nodes[1:3]:
        pod.is_wanted = False
        before = pod.id
        pod.command("leave")
        pod.broker.wait(WHOLE_S)
        pod.vanish()
        pod.wipe()
        until(
            lambda: all(before not in {n["node"] for n in other.status()["nodes"]} for other in pods.nodes if other.exists),
            WHOLE_S,
            lambda: f"nobody to know {before}",
        )
    last = {pod.id for pod in pods.nodes[3:]}
    until(
        lambda: any(len(last & set(s["voters"])) == 2 for s in pods.nodes[0].status()["shards"] if len(s["voters"]) == 3),
        WHOLE_S,
        lambda: f"a shard of the last two pods: {pods.nodes[0].status()}",
    )
    pods.start()


def test_a_shard_that_lost_its_majority_has_no_leader_until_pods_are_back(name):
    with Pods(5, SMALL) as pods:
        majority_of_the_last_two(pods)
        subscribed(pods.nodes[0], name, name)
        pods.scale(3)
        living = {pod.id for pod in pods.nodes}

        def shards(pod):
            return json.loads(pod.command("status", "--json"))["shards"]

        def without_majority(pod):
            return {(s["store"], s["shard"]) for s in shards(pod) if 2 * len(living & set(s["voters"])) <= len(s["voters"])}

        def without_leader(pod):
            return {(s["store"], s["shard"]) for s in shards(pod) if s["leader"] is None}

        led_by_none = without_majority(pods.nodes[0])
        assert led_by_none, f"each shard has kept a majority: {pods.nodes[0].status()}"
        until(
            lambda: all(without_leader(pod) == without_majority(pod) == led_by_none for pod in pods.nodes),
            DEADLINE_S,
            lambda: f"no leader of {led_by_none}, but at {pods.nodes}: {[shards(pod) for pod in pods.nodes]}",
        )

        def alarms():
            return " ".join(alarm["detail"] for alarm in pods.nodes[0].broker.api("/api/v1/alarms")["items"])

        until(
            lambda: all(f"no node leads shard {shard} of the {store} store" in alarms() for store, shard in led_by_none),
            DEADLINE_S,
            alarms,
        )
        pods.scale(5)
        pods.settled()
        until(lambda: "no node leads" not in alarms(), DEADLINE_S, alarms)
        resumed(pods.nodes[0], name, name, pods.nodes[3])


def test_resize_says_what_it_would_do_and_does_it_once(name):
    with loaded(4, name, config=PATIENT) as (pods, load):
        first, last = pods.nodes[0], pods.nodes[3]
        identifier = last.id
        said = first.asked("resize", 3, "--dry-run")
        assert said.returncode == 0 and last.name in said.stdout, said
        assert len(first.status()["nodes"]) == 4 and last.is_ready()
        resize(pods, load, 3)
        assert identifier not in {n["node"] for n in first.status()["nodes"]}
        again = resize(pods, load, 3)
        assert identifier not in again.stdout and last.name not in again.stdout, again
        load.during(lambda: pods.scale(3))
        load.during(pods.whole)
        load.answered()


# -- the container of a node that has left is started again


def test_a_pod_that_left_comes_back_as_a_new_node_twice(name):
    with loaded(4, name) as (pods, load):
        left, witness = pods.nodes[3], pods.nodes[0]
        known = [left.id]
        for count in (1, 2):
            left.command("leave")
            load.during(
                lambda: until(
                    lambda: left.restarts >= count and left.is_ready() and (left.status() or {}).get("node") not in (None, *known),
                    READY_S,
                    lambda: f"another node than {known}: {left.told()}",
                )
            )
            known.append(left.id)
            members = {n["node"] for n in witness.status()["nodes"]}
            assert left.id in members and not members & set(known[:-1]), (members, known)
        assert left.restarts == 2
        load.answered()


def test_a_pod_that_left_waits_for_sigterm_if_it_is_to(name):
    with Pods(4, SMALL, config=PATIENT) as pods:
        left, witness = pods.nodes[3], pods.nodes[0]
        identifier = left.id
        left.command("leave")
        until(lambda: identifier not in {n["node"] for n in witness.status()["nodes"]}, WHOLE_S, "a member less")
        until(lambda: (left.probe("/readyz") or (0, ""))[0] == 503, what=left.told)
        assert left.is_alive() and left.restarts == 0 and left.broker.process.poll() is None
        assert left.stop() == 0
        # The volume is kept, and the set is scaled up again.
        left.start()
        assert left.id != identifier


# -- what a stop does to clients


class Leaver(Peer):
    """Notes when it was sent away or closed."""

    ended = 0.0

    def take(self, first, body):
        super().take(first, body)
        if first >> 4 == DISCONNECT:
            self.ended = self.ended or time.monotonic()

    def close(self):
        self.ended = self.ended or time.monotonic()
        super().close()


CLIENTS = 100


@contextlib.contextmanager
def crowded(name, drain_seconds):
    """Three pods, and the clients of the last one."""
    # The pace is that of the seconds, not of the rate.
    config = {"stop": {"drainSeconds": drain_seconds}, "clusterConfig": {"drainClientsPerSecond": 1}}
    with Pods(3, SMALL, config=config) as pods, Crowd(None) as crowd:
        place = pods.nodes[2].mqtt
        clients = [Leaver(crowd, f"{name}{n}", place=place) for n in range(CLIENTS)]
        crowd.run(lambda: all(c.connack and not c.connack.reason for c in clients), what="all connections")
        yield pods.nodes[2], crowd, clients


def test_sigterm_sends_clients_away_at_a_pace(name):
    with crowded(name, 5) as (pod, crowd, clients):
        pod.terminate()
        crowd.run(lambda: not any(c.open for c in clients), what="the end of all connections")
        assert pod.ends() == 0
        first = min(c.ended for c in clients)
        each_second = collections.Counter(int(c.ended - first) for c in clients)
        print(f"clients sent away each second: {sorted(each_second.items())}")
        assert len(each_second) >= 3, each_second
        # None had to leave without a word of where to go.
        assert {c.reason for c in clients} <= {0x9C, 0x9D}, collections.Counter(c.reason for c in clients)


def test_a_second_sigterm_ends_a_stop_at_once(name):
    with crowded(name, 600) as (pod, crowd, clients):
        pod.terminate()
        crowd.run(lambda: sum(not c.open for c in clients) >= 3, what="the first clients to be sent away")
        ended = sorted(c.ended for c in clients if not c.open)
        assert ended[2] - ended[0] > 0.5, f"sent away at once: {ended}"
        assert pod.broker.process.poll() is None and sum(c.open for c in clients) > CLIENTS / 2
        began = time.monotonic()
        pod.broker.signal(signal.SIGTERM)
        # At one client a second the rest would take longer.
        code = pod.ends(grace=CLIENTS / 2)
        assert code != -signal.SIGKILL, "the second SIGTERM changed nothing"
        print(f"ended with {code} {time.monotonic() - began:.2f} s after the second SIGTERM")


# -- what is ready, and what may end


QUEUED = 2000
# How long a pod is watched that cannot have what was queued.
WATCH_S = 8.0
TRIES = 3


def queue(pod, topic):
    """Messages for the session that subscribed to it, all of them acknowledged."""
    with pod.client() as sender:
        for number in range(QUEUED):
            sender.publish(topic, str(number), qos=1, pid=number + 1)
            if number % 10 == 9:
                for _ in range(10):
                    sender.expect(raw.PUBACK)


def voters_of_queues(pods) -> list:
    """The pods that have the queues."""
    return until(lambda: _voters_of_queues(pods), what="the voters of the queues")


def _voters_of_queues(pods):
    # The node that is asked may just have ended.
    view = next(filter(None, (pod.status() for pod in pods.nodes)), None)
    voters = next((s["voters"] for s in view["shards"] if s["store"] == "inbox"), []) if view else []
    return [pod for pod in pods.nodes if pod.known_id in voters]


def test_a_pod_is_not_ready_before_it_has_what_was_queued_while_it_was_down(name):
    with Pods(5, SMALL) as pods:
        subscribed(pods.nodes[0], name, name)
        for pod in pods.nodes:
            pod.known_id = pod.id
        for _ in range(TRIES):
            *have, late = voters_of_queues(pods)
            rest = [pod for pod in pods.nodes if pod not in (*have, late)]
            late.stop()
            queue(rest[0], name)
            # A majority of the nodes confirms its folder, and those that have the queues are not among them.
            for pod in have:
                pods.network.cut(pod.place, late.place)
                pods.network.cut(late.place, pod.place)
            late.start(ready=False)
            until(lambda: late.says("is reachable", rest[0].name) and late.says("is reachable", rest[1].name), what=late.told)
            watched = time.monotonic() + WATCH_S
            until(lambda: late.is_ready() or time.monotonic() > watched)
            was_ready, is_the_same = late.is_ready(), voters_of_queues(pods) == [*have, late]
            pods.network.heal()
            assert not (was_ready and is_the_same), "ready, and it has not heard of what was queued"
            late.becomes_ready()
            # It may still be without a connection to the leader of another shard.
            pods.settled()
            if is_the_same:
                break
        else:
            pytest.fail(f"the queues moved in each of {TRIES} attempts, and nothing was shown")
        with late.client(name, clean=False, props=DURABLE, session_present=True) as client:
            assert {int(message.payload) for message in client.take(QUEUED)} == set(range(QUEUED))


def test_a_pod_waits_with_its_end_for_the_majority_of_a_shard(formed):
    _, waits, away = formed.nodes
    away.stop()
    waits.terminate()
    until(lambda: waits.says("majority", "shard") or waits.broker.process.poll() is not None, what=waits.told)
    assert waits.broker.process.poll() is None, f"ended, and two of three are away: {waits.broker.log_text[-3:]}"
    away.start(ready=False)
    assert waits.ends() == 0
    away.becomes_ready()
    waits.start()
    formed.whole()


# -- names that are late, or missing


def test_three_pods_form_while_each_answer_of_the_name_server_is_late():
    with Pods(3, SMALL, form=False) as pods:
        pods.names.late = 4.0
        began = time.monotonic()
        pods.start(ready=False)
        for pod in pods.nodes:
            pod.becomes_ready(began + FORMED_S - time.monotonic())
        print(f"formed in {time.monotonic() - began:.1f} s")


# One name after the other takes longer than that.
FORMED_S = 20.0


def test_a_pod_waits_for_names_that_do_not_exist_yet(name):
    with Pods(3, SMALL, form=False) as pods:
        pods.names.hidden = {pod.full_name for pod in pods.nodes[:2]} | {HEADLESS}
        pods.start(ready=False)
        last = pods.nodes[2]
        until(lambda: last.says("waits"), READY_S, last.told)
        assert last.is_alive() and not last.is_ready() and last.restarts == 0
        pods.names.hidden = set()
        for pod in pods.nodes:
            pod.becomes_ready()
        pods.spread()
        assert len(pods.identifiers()) == 1 and not any(pod.restarts for pod in pods.nodes)


# -- all of it, by a seed


class Round:
    """What happens to a set of three to five pods. Each leaves the set whole."""

    def __init__(self, pods, load, chance):
        self.pods, self.load, self.chance = pods, load, chance

    def pod(self):
        return self.chance.choice(self.pods.nodes)

    def roll(self):
        roll(self.pods, self.load)

    def kill(self):
        """The machine of one has failed, and its pod starts elsewhere."""
        killed = self.pod()
        killed.kill()
        self.load.during(killed.start)

    def crash_while_another_rolls(self):
        crashed, renewed = self.chance.sample(self.pods.nodes, 2)
        self.load.during(renewed.stop)
        crashed.crash()
        self.load.during(renewed.start)
        self.load.during(crashed.becomes_ready)

    def all_at_once(self):
        self.load.during(self.pods.stop)
        self.load.during(self.pods.start)

    def replace(self):
        """One has lost its volume."""
        replaced = self.pod()
        before = replaced.id
        self.load.during(replaced.stop)
        replaced.wipe()
        self.load.during(replaced.start)
        self.load.during(lambda: self.pods.forget(before))

    def grow(self):
        self.load.during(lambda: self.pods.scale(min(5, len(self.pods.nodes) + 1)))

    def shrink(self):
        size = max(3, len(self.pods.nodes) - 1)
        resize(self.pods, self.load, size)
        self.load.during(lambda: self.pods.scale(size))


KINDS = ("roll", "kill", "crash_while_another_rolls", "all_at_once", "replace", "grow", "shrink")


@pytest.mark.timeout(300 + 120 * ROUNDS)
def test_rounds(name):
    print(f"HERALD_POD_SEED={SEED}")
    chance = random.Random(SEED)
    with loaded(3, name, config=PATIENT) as (pods, load):
        rounds = Round(pods, load, chance)
        for number in range(ROUNDS):
            kind = chance.choice(KINDS)
            began = time.monotonic()
            getattr(rounds, kind)()
            load.during(pods.whole)
            load.answered()
            tell(load, f"in round {number}, {kind} of {len(pods.nodes)} pods", began)


CHART = pathlib.Path(__file__).resolve().parent.parent.parent / "packaging/helm/heraldmq"


def of_chart(secret: pathlib.Path) -> dict:
    """The configuration that the chart makes for three pods, with names and files of this test; `helm` is in the path."""
    options = ["--namespace", NAMESPACE.split(".")[0], "--kube-version", "1.29.0", "--show-only", "templates/configmap.yaml"]
    done = subprocess.run(["helm", "template", SET, CHART, *options], capture_output=True, text=True, check=True)
    text = yaml.safe_load(done.stdout)["data"]["heraldmq.yml"].replace(f"{SET}-nodes.{NAMESPACE}", HEADLESS)
    config = yaml.safe_load(text)
    config["clusterConfig"]["secretFile"] = str(secret)
    del config["http"]["tokenFile"]
    # The clients of the test have no names.
    config["allowAnonymous"] = True
    return config


def test_the_configuration_of_the_chart_makes_a_cluster(tmp_path, name):
    """All pods may found it, as they do in Kubernetes; each is replaced once, and the last one leaves before there are two."""
    secret = tmp_path / "cluster-secret"
    secret.write_text("of all pods\n")
    config = of_chart(secret)
    assert config["bootstrap"] is True
    with loaded(3, name, config=config) as (pods, load):
        assert len(pods.identifiers()) == 1
        for pod in pods.roll():
            load.during(pod.renew)
            load.during(pods.whole)
        load.answered()
        last = pods.nodes[2]
        resize(pods, load, 2)
        until(lambda: last.says("waits to be stopped"), DEADLINE_S, lambda: f"{last} to wait: {last.told()}")
        assert not last.is_ready() and last.is_alive()
        load.during(lambda: pods.scale(2))
        load.during(pods.whole)
        load.answered()
