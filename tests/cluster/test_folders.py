"""Old copies of data folders: the cluster refuses them for ever, and goes on without a scratch.

P1. A copy lacks what its node has acknowledged since it was made; with it the node must not vote, follow or lead.
"""

import itertools
import json
import re
import shutil

import pytest
from harness.broker import run
from harness.wait import DEADLINE_S, until
from staged.cluster import STORES, Cluster
from staged.disks import may_mount

DURABLE = {"session_expiry": 3600}
OLD_FOLDER = 3
END_S = DEADLINE_S
SENT = 20


@pytest.fixture
def cluster():
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def receiver(cluster, name):
    """A durable session that is to get everything."""
    with cluster.nodes[0].client(name, clean=False, props=DURABLE) as client:
        client.subscribe(name, qos=1)
    return name


class Copy:
    """A data folder as it was once."""

    def __init__(self, node):
        self.node = node
        self.folder = node.folder / "copy"
        shutil.copytree(node.data_dir, self.folder)

    def put_back(self):
        """The node must not run."""
        shutil.rmtree(self.node.data_dir)
        shutil.copytree(self.folder, self.node.data_dir)


def send(node, topic, begin, count=SENT):
    with node.client() as sender:
        for number in range(begin, begin + count):
            sender.published(topic, str(number), qos=1)


def assert_all_there(node, name, count):
    with node.client(name, clean=False, props=DURABLE, session_present=True) as client:
        got = [int(message.payload) for message in client.take(count)]
    assert sorted(set(got)) == list(range(count))


def says(node, *words) -> bool:
    return any(all(word in line for word in words) for line in list(node.broker.log_text))


def assert_refused(node, others):
    """Its process ends, and both sides say why."""
    node.start(ready=False)
    assert node.broker.wait(END_S) == OLD_FOLDER, node.broker.log_text
    assert says(node, "old copy", "Empty the folder", "evict"), node.broker.log_text
    # Members say it once a minute.
    until(lambda: any(says(other, "refused", "old copy") for other in others), what="a member's words")


def stamps(data_dir) -> bytes:
    return (data_dir / "cluster.stamps").read_bytes()


def newest_mark(data_dir) -> bytes:
    """The random number of the node's newest start, as it is written."""
    body = stamps(data_dir)[16:]
    numbers, begin = [], 0
    for at, byte in enumerate(body):
        if byte < 0x80:
            numbers.append(body[begin : at + 1])
            begin = at + 1
    # How many starts there are; incarnation, count and mark of each.
    return numbers[3 * numbers[0][0]]


def leaders(node):
    return {(s["store"], s["shard"]): (s["leader"], s["term"]) for s in node.status()["shards"]}


def run_on(cluster, node, name):
    """What is acknowledged while the node votes that is to lack it."""
    node.start()
    cluster.settled()
    send(cluster.nodes[0], name, 0)


def copied(cluster, node, name):
    """The node has run on after it was copied, and is stopped; the copy stands in its place."""
    node.stop()
    copy = Copy(node)
    run_on(cluster, node, name)
    node.stop()
    copy.put_back()
    return copy


def test_an_old_copy_is_refused_at_every_start(cluster, name, receiver):
    *others, node = cluster.nodes
    copied(cluster, node, name)
    led = []
    for start in range(4):
        cluster.settled()
        led.append(leaders(others[0]))
        assert_refused(node, others)
        send(others[0], name, SENT * (start + 1), SENT)
    # A slow disk may end a lead at any time; what is refused has no part in it, and ends none at each start.
    led.append(leaders(others[0]))
    assert any(before == after for before, after in itertools.pairwise(led)), led
    assert_all_there(others[1], name, 5 * SENT)


@pytest.mark.parametrize("present", [0, 1])
def test_it_is_refused_while_one_of_the_others_is_down(cluster, name, receiver, present):
    *others, node = cluster.nodes
    there, absent = others[present], others[1 - present]
    copied(cluster, node, name)
    absent.kill()
    for _ in range(2):
        assert_refused(node, [there])
    absent.start(ready=False)
    cluster.settled()
    assert_refused(node, others)
    assert_all_there(there, name, SENT)


def test_a_member_that_was_down_is_told(cluster, name, receiver):
    """It has never met the node since the copy was made: the third one has told it."""
    absent, third, node = cluster.nodes
    node.stop()
    copy = Copy(node)
    cluster.settled()
    absent.stop()
    node.start()
    cluster.settled()
    send(third, name, 0)
    node.stop()
    absent.start(ready=False)
    cluster.settled()
    mark = newest_mark(node.data_dir)
    until(lambda: mark in stamps(absent.data_dir), what="what it is told")
    third.kill()
    copy.put_back()
    assert_refused(node, [absent])
    third.start(ready=False)
    cluster.settled()
    assert_all_there(absent, name, SENT)


def test_it_is_refused_while_the_leader_is_restarted(cluster, name, receiver):
    *others, node = cluster.nodes
    copied(cluster, node, name)
    leader = cluster.leader()
    leader.stop()
    node.start(ready=False)
    leader.start(ready=False)
    assert node.broker.wait(END_S) == OLD_FOLDER, node.broker.log_text
    cluster.settled()
    assert_all_there(leader, name, SENT)


def test_a_copy_that_is_started_alone_waits_and_is_refused_by_who_comes(cluster, name, receiver):
    *others, node = cluster.nodes
    copied(cluster, node, name)
    for other in others:
        other.kill()
    node.start(ready=False)
    until(lambda: says(node, "takes no part in shards"), what="what it waits for")
    # Clean sessions are served meanwhile.
    until(lambda: node.broker.find("ready"), what="its readiness")
    with node.client() as client:
        client.subscribe(name)
        client.publish(name, b"here")
        assert client.message().payload == b"here"
    others[0].start(ready=False)
    assert node.broker.wait(END_S) == OLD_FOLDER, node.broker.log_text
    others[1].start(ready=False)
    cluster.settled()
    assert_all_there(others[0], name, SENT)


def test_a_copy_that_decides_alone_leads_nothing(name):
    """With two nodes each shard has one voter."""
    with Cluster(2) as cluster:
        other, node = cluster.nodes
        identifier = node.id
        assert any(s["voters"] == [identifier] for s in other.status()["shards"])
        copied(cluster, node, name)
        other.kill()
        node.start(ready=False)
        until(lambda: says(node, "takes no part in shards"), what="what it waits for")
        until(lambda: node.broker.find("ready"), what="its readiness")
        assert identifier not in {s.get("leader") for s in node.status()["shards"]}
        other.start(ready=False)
        assert node.broker.wait(END_S) == OLD_FOLDER, node.broker.log_text


def test_a_copy_of_a_running_node_is_refused(cluster, name, receiver):
    *others, node = cluster.nodes
    cluster.settled()
    copy = Copy(node)
    send(others[0], name, 0)
    node.stop()
    copy.put_back()
    for _ in range(2):
        assert_refused(node, others)
    assert_all_there(others[0], name, SENT)


@pytest.mark.quick
def test_a_copy_beside_the_node_is_refused_and_the_node_stays(cluster, name, receiver):
    *others, node = cluster.nodes
    node.stop()
    twin = cluster.add()
    twin.folder.mkdir()
    shutil.copytree(node.data_dir, twin.data_dir)
    node.start()
    cluster.settled()
    for _ in range(3):
        # It has another address.
        assert_refused(twin, others)
    cluster.settled()
    send(node, name, 0)
    assert_all_there(node, name, SENT)


def test_a_wiped_node_joins_again(cluster, name, receiver):
    *others, node = cluster.nodes
    old = node.id
    copied(cluster, node, name)
    assert_refused(node, others)
    node.wipe()
    node.start()
    others[0].command("evict", old)
    cluster.settled()

    def voters():
        return [set(s["voters"]) for s in others[0].status()["shards"]]

    new = node.id
    assert new != old
    until(lambda: all(new in some and old not in some for some in voters()), what=voters)
    assert_all_there(node, name, SENT)


def test_nodes_that_were_only_restarted_are_not_refused(cluster, name, receiver):
    """Killed at any moment, one at a time and all at once."""
    send(cluster.nodes[0], name, 0)
    for node in cluster.nodes:
        for _ in range(2):
            node.kill()
            node.start(ready=False)
        cluster.settled()
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        node.start(ready=False)
    cluster.settled()
    assert_all_there(cluster.nodes[0], name, SENT)


@pytest.mark.skipif(not may_mount(), reason="only root can mount a small disk")
def test_a_node_whose_disk_was_full_is_not_refused():
    """It tells nobody how far it has come before that is in its folder."""
    with Cluster(3, disks=True) as cluster:
        *others, node = cluster.nodes
        node.own_disk.fill()
        until(lambda: says(node, "cluster.stamps", "No space left"), what="a stamp that has no space")
        cluster.cut_off(node)
        until(lambda: node.id in down(others[0]), what="a node that is down")
        cluster.network.heal()
        # The new connections have shown the others its folder.
        cluster.settled()
        ident = node.id
        node.kill()
        node.start()
        cluster.settled()
        node.own_disk.free()
        node.kill()
        node.start()
        cluster.settled()
        assert node.id == ident


# ---- folders that a person accepts ------------------------------------------------------------

ACCEPT = ("--accept-folder",)


def accepted(node, ready=True):
    node.start(ready=ready, args=ACCEPT)


def restored(cluster, name):
    """Each node has the backup of another time, the first node the oldest; nothing runs. Gives how many messages are
    in the newest one."""
    copies = []
    for number, node in enumerate(cluster.nodes):
        node.stop()
        copies.append(Copy(node))
        node.start()
        cluster.settled()
        send(node, name, number * SENT)
    for node in cluster.nodes:
        node.stop()
    for copy in copies:
        copy.put_back()
    return 2 * SENT


def test_a_cluster_whose_nodes_are_restored_from_backups_serves_again(cluster, name, receiver):
    oldest, middle, newest = cluster.nodes
    count = restored(cluster, name)
    # Without a word they refuse each other.
    newest.start(ready=False)
    assert_refused(oldest, [newest])
    newest.kill()
    # The newest ones first: what they have is kept.
    accepted(newest, ready=False)
    accepted(middle, ready=False)
    cluster.settled()
    accepted(oldest, ready=False)
    cluster.settled()
    assert any(says(node, "older than what this one remembered") for node in cluster.nodes)
    send(oldest, name, count)
    assert_all_there(middle, name, count + SENT)
    # Once: from now on each one is known again.
    for node in cluster.nodes:
        node.stop()
        node.start()
        cluster.settled()
    send(newest, name, 0)
    assert_all_there(oldest, name, SENT)


def test_a_restored_node_that_has_more_than_the_others_does_not_follow_them(cluster, name, receiver):
    """P1: what is acknowledged after the others have gone on is given to the receiver, wherever it connects."""
    oldest, middle, newest = cluster.nodes
    restored(cluster, name)
    accepted(oldest, ready=False)
    accepted(middle, ready=False)
    cluster.settled()
    send(oldest, name, 1000)
    accepted(newest, ready=False)
    until(lambda: says(newest, "copies of different times"), what="a replica that cannot follow")
    send(middle, name, 1000 + SENT)
    old = newest.id
    newest.stop()
    newest.wipe()
    newest.start()
    oldest.command("evict", old)
    cluster.settled()
    with newest.client(name, clean=False, props=DURABLE, session_present=True) as client:
        got = {int(message.payload) for message in client.until(str(1000 + 2 * SENT - 1).encode())}
    assert set(range(1000, 1000 + 2 * SENT - 1)) <= got


def test_the_last_of_two_nodes_goes_on_by_a_word():
    """The other one is gone for good. Each shard has one voter."""
    with Cluster(2) as cluster:
        gone, node = cluster.nodes
        own, lost = node.id, gone.id

        def led():
            shards = (node.status() or {}).get("shards", [])
            return {(s["store"], s["shard"]) for s in shards if s["leader"] == own}

        before = led()
        assert before
        gone.kill()
        node.kill()
        node.start(ready=False)
        until(lambda: says(node, "takes no part in shards", "--accept-folder"), what="what it waits for")
        assert not led()
        node.kill()
        accepted(node)
        until(lambda: led() == before, what=lambda: f"{before}, not {led()}")
        assert says(node, "no majority of the members has confirmed (--accept-folder)")
        node.command("evict", lost, "--force")
        # Nobody is left to be waited for, and no word is needed any more.
        node.stop()
        node.start()
        until(lambda: led() == before, what=lambda: f"{before}, not {led()}")


# Shards move to the second node in the order of the stores, until it has half of them: the first half of the sessions or
# more, then inboxes. So the second node has sessions without inboxes, and the first one has inboxes without sessions.
SHARDS = [f"{store}_store_initial_shards" for store in STORES]
LOST = [
    pytest.param(1, dict(zip(SHARDS, (8, 2, 2), strict=True)), id="most sessions"),
    pytest.param(0, dict(zip(SHARDS, (4, 4, 2), strict=True)), id="most inboxes, all retained messages"),
]
CLIENTS = 50


def led_by(node, own) -> set:
    """The shards that a node leads, as it says itself."""
    shards = (node.status() or {}).get("shards", [])
    return {(s["store"], s["shard"]) for s in shards if s["leader"] == own}


def recover(node, *words):
    return run("store", "recover", node.data_dir, "--majority-is-lost", *words)


def count(node, what) -> float:
    return node.broker.metric(f"heraldmq_{what}")


def removed_replicas(node) -> set:
    lines = list(node.broker.log_lines)
    return {(x["store"], x["shard"]) for x in lines if x["message"].startswith("the replica here is removed")}


def stored_inboxes(node) -> int:
    """How many there are in the data folder of a node that does not run."""
    done = run("store", "inspect", node.data_dir, "--json")
    assert done.returncode == 0, done.stderr
    shards = next(store["shards"] for store in json.loads(done.stdout)["stores"] if store["name"] == "inbox")
    return sum(rows["rows"] for shard in shards for rows in shard["rows"] if rows["kind"] == "inboxes")


def try_session(node, client_id):
    """A durable client connects, subscribes, and gets what is published. Gives what it had, and `None` if it has a new
    session."""
    with node.client(client_id, clean=False, props=DURABLE) as client:
        had = None
        if client.connack.session_present:
            had = [message.payload.decode() for message in client.take(3)]
        client.subscribe(f"new/{client_id}", qos=1)
        with node.client() as sender:
            sender.published(f"new/{client_id}", client_id, qos=1)
        client.until(client_id.encode())
    return had


@pytest.mark.parametrize(("dies", "sets"), LOST)
def test_shards_whose_only_voter_is_gone_begin_anew_by_a_word(name, dies, sets):
    """P1: of the last of two nodes, what it has goes on; P2: all clients are served, those with a lost session or a lost
    inbox as well."""
    with Cluster(2, sets) as cluster:
        gone, node = cluster.nodes[dies], cluster.nodes[1 - dies]
        own, lost = node.id, gone.id
        kept = led_by(node, own)
        everything = kept | led_by(gone, lost)
        assert len(everything) == sum(sets.values()) and kept < everything
        # A replica that has moved away stays for a while, and would be recovered.
        if node is cluster.nodes[0]:
            until(lambda: removed_replicas(node) >= everything - kept, what=lambda: removed_replicas(node))
        clients = [f"{name}-{number}" for number in range(CLIENTS)]
        for client_id in clients:
            with node.client(client_id, clean=False, props=DURABLE) as client:
                client.subscribe(f"old/{client_id}", qos=1)
        with gone.client() as sender:
            for client_id in clients:
                for number in range(3):
                    sender.published(f"old/{client_id}", f"{client_id}-{number}", qos=1)
                sender.published(f"retained/{client_id}", client_id, qos=1, retain=True)
        gone.kill()
        node.stop()

        inboxes = stored_inboxes(node)
        assert inboxes > 0

        # Without the further word nothing begins.
        done = recover(node)
        assert done.returncode == 0, done.stderr
        assert "--begin-lost-shards-anew" in done.stdout and "BEGINS ANEW" not in done.stdout, done.stdout
        done = recover(node, "--begin-lost-shards-anew")
        assert done.returncode == 0, done.stderr
        began = {tuple(line.split(":")[0].split()) for line in done.stdout.splitlines() if "BEGINS ANEW; LOST" in line}
        assert began == {(store, str(shard)) for store, shard in everything - kept}, done.stdout
        removed = sum(map(int, re.findall(r"(\d+) inboxes on this node belong to its lost sessions", done.stdout)))
        assert (removed > 0) == any(store == "session" for store, _ in everything - kept), done.stdout
        whole = inboxes - removed
        assert 0 < whole < CLIENTS
        assert f"node {lost}: evicted" in done.stdout
        # Again: what has begun is here, and nothing is lost twice.
        done = recover(node, "--begin-lost-shards-anew")
        assert done.returncode == 0 and "ANEW" not in done.stdout, done.stdout
        verified = run("store", "verify", node.data_dir)
        assert verified.returncode == 0 and "OK" in verified.stdout, verified.stdout

        node.start()
        until(lambda: led_by(node, own) == everything, what=lambda: f"{everything}, not {led_by(node, own)}")
        assert lost not in {member["node"] for member in node.status()["nodes"]}
        # With its old folder the other one does not come back.
        gone.start(ready=False, seeds=[node.endpoint])
        assert gone.broker.wait(END_S) != 0
        assert says(gone, "evicted"), gone.broker.log_text
        # Inboxes without a session do not wait for their clients.
        until(lambda: count(node, "inboxes") == whole, what=lambda: f"{whole} inboxes, not {count(node, 'inboxes')}")

        had = [try_session(node, client_id) for client_id in clients]
        resumed = [client_id for client_id, messages in zip(clients, had, strict=True) if messages is not None]
        for client_id, messages in zip(clients, had, strict=True):
            assert messages in (None, [f"{client_id}-{number}" for number in range(3)])
        # Exactly the sessions of which both parts were kept.
        assert len(resumed) == whole
        keeps_retained = ("retain", 0) in kept and ("retain", 1) in kept
        assert (count(node, "retained_messages") == CLIENTS) == keeps_retained
        with node.client() as client:
            for client_id in clients:
                client.published(f"retained/{client_id}", client_id, qos=1, retain=True)
        until(lambda: count(node, "retained_messages") == CLIENTS, what="all retained messages")

        # Later connections of those that began anew are resumed, after a restart and by a new member, which gets
        # replicas as a snapshot.
        node.stop()
        node.start()
        until(lambda: led_by(node, own) == everything, what=lambda: f"{everything}, not {led_by(node, own)}")
        gone.wipe()
        gone.start(seeds=[node.endpoint])
        cluster.spread()
        for at, client_id in zip(itertools.cycle(cluster.nodes), clients, strict=False):
            with at.client(client_id, clean=False, props=DURABLE, session_present=True) as client:
                with node.client() as sender:
                    sender.published(f"new/{client_id}", "again", qos=1)
                client.until(b"again")


def test_the_word_is_not_needed_where_all_is_well(cluster, name, receiver):
    *others, node = cluster.nodes
    node.stop()
    accepted(node, ready=False)
    cluster.settled()
    assert says(node, "was not needed")
    send(node, name, 0)
    # It is no lever against the memory of the others.
    copied(cluster, node, f"{name}/other")
    accepted(node, ready=False)
    assert node.broker.wait(END_S) == OLD_FOLDER, node.broker.log_text
    cluster.settled()
    assert_all_there(others[0], name, SENT)


def down(node) -> set:
    return {member["node"] for member in node.status()["nodes"] if member["reach"] == "down"}
