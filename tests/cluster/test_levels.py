"""A cluster of the program `HERALDMQ_BEFORE` that is upgraded, goes back, and has its level raised.

Before the level is raised nodes of both programs work together, and each of them goes back; afterwards the program before is
refused. Which level the cluster has before is what this version notes in the file `level` of a data folder.
"""

import re
import signal

import pytest
from harness.broker import BEFORE, BINARY, run
from harness.wait import DEADLINE_S, until
from staged.cluster import HTTP, STORES, Cluster
from staged.load import FOREVER, Load
from staged.upgrade import (
    NEWEST,
    STEP_S,
    Reborn,
    beside,
    change,
    finish,
    follow,
    format_of,
    in_step,
    is_raised,
    level_of,
    levels,
    raised,
    say_nothing_wrong,
    upgrade,
)
from test_access import add, asked, control, done as ask, remove, secret, users
from test_audit import entries, export, whole

pytestmark = [
    pytest.mark.skipif(not BEFORE, reason="HERALDMQ_BEFORE names no program of an earlier version"),
    pytest.mark.timeout(500),
]

# Bytes of client identifiers.
LENGTHS = (0, 36, 41, 60_000)
QUEUED, RETAINED = 20, 30
# The level of the first programs whose command line shows its key also when it only reads.
SENDS_KEYS = 3
# The level of the first programs that know of levels.
SAYS_LEVELS = 4
# The level of the first programs that have users in the store, and that of the first ones that have people and keys there.
HAS_USERS, HAS_PEOPLE = 6, 7
RAISE_AFTER = "clusterConfig.raiseLevelAfterSeconds"


class Belongings:
    """What clients leave at a cluster, a part at each step of an upgrade: sessions that are away and have messages, and
    retained messages."""

    def __init__(self, name):
        self.root = f"{name}-k"
        self.steps = []

    def _clients(self, step):
        """Their identifiers, and the topics by which they know the end of their queues."""
        for length in LENGTHS:
            yield f"{self.root}{step}-{length}-".ljust(length, "x"), f"{self.root}/{step}/end/{length}"

    def leave(self, step, node):
        self.steps.append(step)
        for client_id, end in self._clients(step):
            with node.client(client_id, clean=False, props=FOREVER, session_present=False) as away:
                away.subscribe(f"{self.root}/{step}/queue/#", qos=2)
                away.subscribe(end, qos=1)
                away.disconnect()
        with node.client(f"{self.root}{step}p") as publisher:
            for n in range(QUEUED):
                publisher.published(f"{self.root}/{step}/queue/{n % 3}", f"{n}", qos=1 + n % 2)
            for n in range(RETAINED):
                publisher.published(f"{self.root}/{step}/kept/{n}", f"{n}", qos=1 + n % 2, retain=True)
            publisher.disconnect()

    def expect_queues(self, step, node):
        """Once: they are empty then."""
        for client_id, end in self._clients(step):
            with node.client(client_id, clean=False, props=FOREVER, session_present=True) as back:
                assert [m.payload for m in back.take(QUEUED)] == [b"%d" % n for n in range(QUEUED)]
                with node.client(f"{self.root}{step}p") as publisher:
                    publisher.published(end, b"end", qos=1)
                assert back.until("end") == []
                back.disconnect()

    def expect_retained(self, node):
        for step in self.steps:
            with node.client(f"{self.root}{step}r") as reader:
                reader.subscribe(f"{self.root}/{step}/kept/+", qos=1)
                got = {m.topic: m.payload for m in reader.take(RETAINED)}
                assert got == {f"{self.root}/{step}/kept/{n}": b"%d" % n for n in range(RETAINED)}

    def expect_all(self, nodes):
        for step, node in zip(self.steps, [*nodes] * len(self.steps), strict=False):
            self.expect_queues(step, node)
        for node in nodes:
            self.expect_retained(node)


@pytest.fixture
def cluster():
    with Cluster(3, binary=BEFORE) as cluster:
        yield cluster


@pytest.fixture
def load(cluster, name):
    with Load(cluster.nodes, name, rate=10, lengths=LENGTHS) as load:
        load.reborn = [Reborn(load, f"{name}a{n}", f"{name}/m/#") for n in range(len(LENGTHS))]
        load.begin()
        yield load


@pytest.fixture
def belongings(name):
    return Belongings(name)


def end(load, cluster):
    """Judges what the clients have seen, and what the nodes have said."""
    load.finish()
    begun = [client.begun for client in load.reborn]
    assert min(begun) > 1, f"sessions begun by clean starts: {begun}"
    say_nothing_wrong(cluster)


def goes_by(nodes) -> int:
    """The level that all these nodes have noted; it is one of before there were levels."""
    (noted,) = {level_of(node.data_dir) for node in nodes}
    assert noted < NEWEST
    return noted


def is_as_before(nodes) -> bool:
    """Whether nothing of the newest level is in the folders of these nodes."""
    return all(format_of(node.data_dir) < NEWEST for node in nodes)


def said_by(done) -> str:
    return done.stdout + done.stderr


@pytest.mark.full
def test_nodes_are_upgraded_while_leads_move_and_nodes_are_killed(cluster, load, belongings):
    first, second, last = cluster.nodes
    beside(load, belongings.leave, "old", first)
    change(load, cluster, first, BINARY)
    for store in STORES:
        beside(load, cluster.move, store)
    load.go_on()
    change(load, cluster, second, BINARY)
    for store in STORES:
        beside(load, cluster.move, store)
    beside(load, belongings.leave, "mixed", second)
    # The only one of the program before, then one of this.
    for node in (last, first):
        node.kill()
        load.go_on()
        node.start(ready=False)
        follow(load, cluster)
    change(load, cluster, last, BINARY)

    before = goes_by(cluster.nodes)
    tried = beside(load, lambda: finish(first, dry_run=True))
    assert tried.returncode == 0, said_by(tried)
    assert f"level {before} of {NEWEST} (" in tried.stdout and f"\nlevel {NEWEST} (programs: " in tried.stdout
    assert f"no node goes back to a program that does not know level {NEWEST}" in tried.stdout
    load.go_on()
    assert levels(first) == (before, before) and is_as_before(cluster.nodes)

    done = beside(load, finish, second)
    assert done.returncode == 0, said_by(done)
    beside(load, raised, cluster)
    again = beside(load, lambda: finish(last, dry_run=True))
    assert again.returncode == 0 and again.stdout == f"level {NEWEST}\nthere is nothing to raise\n", said_by(again)
    follow(load, cluster)
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        node.start(ready=False)
    follow(load, cluster)
    assert is_raised(cluster)
    end(load, cluster)
    belongings.expect_all(cluster.nodes)
    verify(cluster)


def verify(cluster):
    """Ends the nodes, and checks what is on their disks."""
    for node in cluster.nodes:
        node.stop()
        done = run("store", "verify", node.data_dir, binary=node.binary)
        assert done.returncode == 0, said_by(done)


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.quick), 2, 3])
def test_nodes_go_back_before_the_level_is_raised(count, cluster, load, belongings):
    there_and_back = cluster.nodes[:count]
    beside(load, belongings.leave, "old", cluster.nodes[-1])
    for node in there_and_back:
        change(load, cluster, node, BINARY)
    goes_by(there_and_back)
    beside(load, belongings.leave, "new", there_and_back[0])
    for store in STORES:
        beside(load, cluster.move, store)
    for node in there_and_back:
        change(load, cluster, node, BEFORE)
    beside(load, belongings.leave, "back", there_and_back[0])
    assert is_as_before(cluster.nodes)
    end(load, cluster)
    belongings.expect_all(cluster.nodes)
    say_nothing_wrong(cluster)
    verify(cluster)


@pytest.mark.full
def test_a_node_goes_there_and_back_and_there_again(cluster, load, belongings):
    first, second, last = cluster.nodes
    for step, (node, binary) in enumerate(
        [(first, BINARY), (first, BEFORE), (second, BINARY), (first, BINARY), (second, BEFORE)]
    ):
        change(load, cluster, node, binary, is_spread=False)
        beside(load, belongings.leave, f"{step}", node)
    for node in (second, last):
        change(load, cluster, node, BINARY, is_spread=False)
    goes_by(cluster.nodes)
    assert beside(load, finish, first).returncode == 0
    beside(load, raised, cluster)
    follow(load, cluster, is_spread=False)
    end(load, cluster)
    belongings.expect_all(cluster.nodes)
    say_nothing_wrong(cluster)
    verify(cluster)


def expect_held_up(cluster, asked, culprit, why):
    """The command is refused, says who holds the level up, and has raised nothing."""
    before = levels(asked)
    for dry_run in (True, False):
        done = finish(asked, dry_run=dry_run)
        assert done.returncode == 1, said_by(done)
        assert f"held up by node {culprit}" in done.stdout and why in done.stdout, said_by(done)
    assert f"node {culprit}" in done.stderr and why in done.stderr, said_by(done)
    (holds,) = asked.status()["level"]["held_up_by"]
    assert holds["node"] == culprit and holds["reason"].startswith(why), holds
    status = asked.command("status")
    assert "held up by 1 of the nodes" in status, status
    assert levels(asked) == before and before[1] < NEWEST and is_as_before(cluster.nodes)


@pytest.mark.full
def test_a_node_of_the_program_before_holds_the_level_up(cluster, load):
    first, second, last = cluster.nodes
    change(load, cluster, first, BINARY)
    change(load, cluster, second, BINARY)
    culprit, level = last.id, goes_by([first, second])
    why = f"it knows the levels up to {level}"
    for node in (first, second):
        beside(load, expect_held_up, cluster, node, culprit, why)

    # Those who are asked have met it, and then not.
    last.kill()
    beside(load, cluster.settled, [first, second])
    for node in (first, second):
        beside(load, expect_held_up, cluster, node, culprit, why)
    for node in (first, second):
        node.broker.signal(signal.SIGTERM)
        load.until(lambda node=node: node.broker.process.poll() is not None, STEP_S, "the end of the process")
        node.start(ready=False)
        beside(load, cluster.settled, [first, second])
    for node in (first, second):
        beside(load, expect_held_up, cluster, node, culprit, "it ")

    upgrade(last)
    follow(load, cluster)
    assert is_as_before(cluster.nodes)
    done = beside(load, finish, first)
    assert done.returncode == 0, said_by(done)
    beside(load, raised, cluster)
    follow(load, cluster)
    end(load, cluster)


@pytest.mark.full
def test_the_level_is_raised_without_a_node_that_was_evicted(cluster, load):
    first, second, last = cluster.nodes
    change(load, cluster, first, BINARY)
    change(load, cluster, second, BINARY)
    culprit = last.id
    last.kill()
    load.nodes = [first, second]
    beside(load, lambda: first.command("evict", culprit))
    beside(load, cluster.settled, [first, second])

    def is_done():
        return finish(second).returncode == 0

    beside(load, until, is_done)
    beside(load, until, lambda: levels(first) == levels(second) == (NEWEST, NEWEST))
    load.go_on()
    # With its folder it does not come back.
    last.binary = BINARY
    last.start(ready=False, seeds=[first.endpoint])
    assert beside(load, last.broker.wait) != 0
    assert any("evicted" in line for line in last.broker.log_text), last.broker.log_text
    end(load, cluster)


@pytest.mark.full
def test_the_level_is_raised_by_itself_when_all_nodes_know_it(cluster, load):
    for node in cluster.nodes:
        node.sets = {**node.sets, RAISE_AFTER: 1}
    *others, last = cluster.nodes
    for node in others:
        change(load, cluster, node, BINARY)
    assert is_as_before(cluster.nodes)
    change(load, cluster, last, BINARY)
    beside(load, raised, cluster)
    follow(load, cluster)
    end(load, cluster)


@pytest.mark.full
def test_the_program_before_is_refused_after_the_level(cluster, load):
    first, second, last = cluster.nodes
    for node in cluster.nodes:
        change(load, cluster, node, BINARY)
    before = goes_by(cluster.nodes)
    assert beside(load, finish, last).returncode == 0
    beside(load, raised, cluster)

    members = {member["node"] for member in first.status()["nodes"]}
    load.nodes = [first, second]
    last.stop()
    last.binary = BEFORE
    last.start(ready=False)
    assert beside(load, last.broker.wait) == 1
    said = "\n".join(last.broker.log_text)
    known = re.search(rf"has format {NEWEST}; this HeraldMQ knows formats up to (\d)", said)
    assert known and int(known[1]) == before, said

    stranger = cluster.add()
    load.nodes = [first, second]
    stranger.binary = BEFORE
    for member in (first, second):
        stranger.start(ready=False, seeds=[member.endpoint])
        waits = beside(
            load, until, lambda: stranger.broker.find("waits for a member of the cluster to join"), DEADLINE_S
        )
        refused = r"it speaks the versions 1 to \d+ of the protocol, the one that refuses (\d+) to \1$"
        assert re.search(refused, waits[0]["tried"]), waits
        stranger.kill()
    assert {member["node"] for member in first.status()["nodes"]} == members

    # The folder is as good as before, and the stranger comes in with this program.
    upgrade(last)
    stranger.wipe()
    upgrade(stranger)
    follow(load, cluster)
    assert is_raised(cluster)
    load.nodes = cluster.nodes
    follow(load, cluster)
    end(load, cluster)
    verify(cluster)


@pytest.mark.full
def test_the_program_before_takes_what_nodes_of_this_one_hold(cluster, load, belongings):
    """As a new member it gets all replicas from leaders of this version, and then is needed for each majority."""
    first, second, last = cluster.nodes
    beside(load, belongings.leave, "old", last)
    change(load, cluster, first, BINARY)
    change(load, cluster, second, BINARY)
    beside(load, belongings.leave, "mixed", first)
    gone = last.id
    last.kill()
    load.nodes = [first, second]
    beside(load, lambda: first.command("evict", gone))
    last.wipe()
    last.start(ready=False)
    load.nodes = cluster.nodes
    follow(load, cluster)
    assert last.id != gone
    second.kill()
    load.go_on(timeout=STEP_S)
    second.start(ready=False)
    follow(load, cluster, is_spread=False)
    for store in STORES:
        shards = [s["shard"] for s in first.status()["shards"] if s["store"] == store]
        for shard in shards:
            beside(load, has_lead, cluster, last, store, shard)
    load.go_on()
    end(load, cluster)
    belongings.expect_all([last])
    say_nothing_wrong(cluster)
    verify(cluster)


def has_lead(cluster, node, store, shard):
    """The node has led it for a moment; balancing may take it away again."""

    def leads():
        now = cluster.leads_now(store, shard)
        if now not in (None, node):
            now.asked("transfer-leader", store, str(shard), node.id)
        return now is node

    until(leads, what=f"{node} as the leader of {store} {shard}")


@pytest.mark.full
@pytest.mark.parametrize("through", ["this", "before"])
def test_a_new_node_joins_a_cluster_of_both_programs(through, cluster, load, belongings):
    first, second, last = cluster.nodes
    change(load, cluster, first, BINARY)
    beside(load, belongings.leave, "mixed", first)
    newcomer = cluster.add()
    load.nodes = [first, second]
    newcomer.binary = BINARY
    newcomer.start(ready=False, seeds=[(first if through == "this" else second).endpoint])
    beside(load, cluster.settled)
    goes_by([first, newcomer])
    # Its replicas are those of a node that is gone.
    gone = last.id
    last.kill()
    beside(load, lambda: first.command("evict", gone))
    cluster.nodes.remove(last)
    load.nodes = cluster.nodes

    def votes() -> bool:
        return all(newcomer.id in s["voters"] and gone not in s["voters"] for s in first.status()["shards"])

    load.until(votes, STEP_S, lambda: f"votes of {newcomer}: {first.status()}")
    follow(load, cluster, is_spread=False)
    # One of both programs each is needed for a majority.
    first.kill()
    load.go_on(timeout=STEP_S)
    first.start(ready=False, seeds=[second.endpoint])
    follow(load, cluster, is_spread=False)
    assert is_as_before(cluster.nodes)
    goes_by([first, newcomer])
    # And back to the program before.
    change(load, cluster, newcomer, BEFORE, is_spread=False)
    change(load, cluster, first, BEFORE, is_spread=False)
    end(load, cluster)
    belongings.expect_all(cluster.nodes)
    say_nothing_wrong(cluster)


@pytest.mark.full
@pytest.mark.parametrize("is_empty", [True, False], ids=["nothing", "something"])
def test_all_nodes_are_upgraded_at_once(is_empty, cluster, name, belongings):
    """Only one of them has rows on its disk that show the level."""
    first, second, last = cluster.nodes
    if not is_empty:
        belongings.leave("old", first)
    last.stop()
    first.kill()
    second.kill()
    for node in cluster.nodes:
        upgrade(node)
    with Load(cluster.nodes, name, rate=10, lengths=LENGTHS) as load:
        load.reborn = [Reborn(load, f"{name}a{n}", f"{name}/m/#") for n in range(2)]
        load.until(lambda: in_step(cluster), STEP_S, lambda: f"replicas: {cluster.views(cluster.nodes)}")
        goes_by(cluster.nodes)
        load.begin()
        change(load, cluster, first, BEFORE)
        beside(load, belongings.leave, "back", first)
        change(load, cluster, first, BINARY)
        assert beside(load, finish, first).returncode == 0
        beside(load, raised, cluster)
        follow(load, cluster)
        end(load, cluster)
    belongings.expect_all(cluster.nodes)
    say_nothing_wrong(cluster)
    verify(cluster)


@pytest.mark.full
def test_command_lines_and_settings_of_both_programs(cluster, name):
    first, second, last = cluster.nodes
    # This one at the program before.
    assert all(node.id in first.command("status") for node in cluster.nodes)
    for dry_run in (True, False):
        done = finish(first, dry_run=dry_run)
        if level_of(first.data_dir) >= SAYS_LEVELS:
            assert done.returncode == 0 and "there is nothing to raise" in done.stdout, said_by(done)
        else:
            assert done.returncode == 1 and "a version without levels: upgrade it first" in done.stderr, said_by(done)
    cluster.move()
    with first.client(name, clean=False, props=FOREVER) as client:
        client.subscribe(name, qos=1)

    first.stop()
    upgrade(first)
    cluster.settled(timeout=STEP_S)
    until(lambda: in_step(cluster), STEP_S, "replicas")
    # Each at each.
    for node in cluster.nodes:
        for binary in (BINARY, BEFORE):
            for args in (["status"], ["status", "--json"]):
                done = node.asked(*args, binary=binary)
                if binary == BEFORE and level_of(first.data_dir) < SENDS_KEYS and done.returncode:
                    # It shows its key only when it changes something.
                    assert done.returncode == 1 and any(title in done.stderr for title in ("A key is needed", "Authentication required")), said_by(done)
                    continue
                assert done.returncode == 0 and all(n.id in done.stdout for n in cluster.nodes), said_by(done)
    # The program before at this one.
    done = first.asked("upgrade", "finish", binary=BEFORE)
    if level_of(first.data_dir) >= SAYS_LEVELS:
        assert done.returncode == 1 and "409 Conflict" in done.stderr, said_by(done)
    else:
        assert done.returncode == 2 and "upgrade" in done.stderr, said_by(done)

    def is_moved(wanted):
        first.asked("transfer-leader", "inbox", "0", wanted.id, binary=BEFORE)
        return cluster.leads_now() is wanted

    for wanted in (last, first):
        until(lambda wanted=wanted: is_moved(wanted), what="a transfer by the program before")
    done = first.asked("drain", binary=BEFORE)
    assert done.returncode == 0, said_by(done)
    states = lambda: {n["node"]: n["state"] for n in second.status()["nodes"]}  # noqa: E731
    until(lambda: states()[first.id] == "draining", what=lambda: f"a node that drains: {states()}")

    last.stop()
    if level_of(first.data_dir) < SAYS_LEVELS:
        # A setting of this version in the configuration of the program before.
        last.sets = {**last.sets, RAISE_AFTER: 0}
        last.start(ready=False)
        assert last.broker.wait() == 2 and any("raiseLevelAfterSeconds" in line for line in last.broker.log_text)
    upgrade(last)
    cluster.settled(timeout=STEP_S)
    say_nothing_wrong(cluster)


@pytest.mark.full
def test_people_and_keys_wait_for_the_level_and_the_audit_is_one(cluster, name):
    first, second, last = cluster.nodes
    first.stop()
    upgrade(first)
    cluster.settled(timeout=STEP_S)
    if not HAS_USERS <= goes_by([first]) < HAS_PEOPLE:
        pytest.skip("HERALDMQ_BEFORE is no program with users of the store and without people")
    wanted, changes = set(), 0

    def has_all():
        nonlocal changes
        known = lambda: [view and view["revision"] for view in map(control, cluster.nodes)]  # noqa: E731
        until(lambda: known() == [changes] * 3, STEP_S, lambda: f"revision {changes}: {known()}")
        assert [set(users(node)) for node in cluster.nodes] == [wanted] * 3

    def change_users(step):
        """At nodes of both programs. The first of all changes begins the store."""
        nonlocal changes
        for number, node in enumerate(cluster.nodes):
            user = f"{name}{step}{number}"
            add(node, user)
            add(node, f"{user}gone")
            remove(cluster.nodes[number - 1], f"{user}gone")
            wanted.add(user)
            changes += 3
        has_all()

    person = {"name": "anna", "password": secret("anna"), "must_change": False}
    key = {"name": "key", "role": "administrator"}

    def expect_unfinished(node):
        for path, body in (("/people", person), ("/keys", key)):
            status, problem = asked(node, "POST", path, body)
            assert (status, problem["reason"]) == (409, "upgrade_unfinished"), problem
        for words, given in ((["person", "add", "anna", "--stdin"], secret("anna")), (["key", "add", "--name", "key"], "")):
            at = ["--url", f"http://{node.place.address}:{HTTP}", "--token-file", cluster.token]
            refused = run(*words, *at, input=f"{given}\n")
            assert refused.returncode == 1 and "upgrade" in refused.stderr, said_by(refused)

    change_users("a")
    expect_unfinished(first)
    change_users("b")
    second.stop()
    upgrade(second)
    cluster.settled(timeout=STEP_S)
    change_users("c")
    for node in (first, second):
        expect_unfinished(node)
    # What would be noted is not, as the node that has no such entries could not read them.
    assert asked(first, "POST", "/bans", {"client": f"{name}early"})[0] == 201
    last.stop()
    upgrade(last)
    cluster.settled(timeout=STEP_S)
    until(lambda: in_step(cluster, is_spread=False), STEP_S, "replicas")
    change_users("d")
    for node in cluster.nodes:
        expect_unfinished(node)
    assert is_as_before(cluster.nodes)
    done = finish(first)
    assert done.returncode == 0, said_by(done)
    raised(cluster)
    for number, node in enumerate(cluster.nodes):
        ask(node, "POST", "/people", {**person, "name": f"anna{number}"})
        made = ask(node, "POST", "/keys", {**key, "name": f"key{number}"})
        changes += 2
        at = [*("--url", f"http://{cluster.nodes[number - 1].place.address}:{HTTP}"), "--key-file", cluster.folder / "key"]
        (cluster.folder / "key").write_text(made["secret"])
        listed = run("key", "list", *at)
        assert listed.returncode == 0 and f"key{number}" in listed.stdout, said_by(listed)
    change_users("e")
    texts = [export(node) for node in cluster.nodes]
    assert texts[0] == texts[1] == texts[2]
    assert whole(texts[0])
    kept = entries(texts[0])
    assert [entry["number"] for entry in kept] == list(range(len(kept)))
    assert [entry["revision"] for entry in kept if entry["action"].partition(".")[0] in ("user", "person", "key")] == [
        *range(1, changes + 1)
    ]
    assert not any(entry["action"] == "bans.add" for entry in kept)
    say_nothing_wrong(cluster)
    verify(cluster)
