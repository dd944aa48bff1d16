"""Users of the store hold at all nodes, and no acknowledged change is lost, whichever node fails meanwhile."""

import http.client
import json
import random
import shutil
import threading

import pytest
from harness import raw
from harness.broker import run
from harness.raw import CONNACK
from harness.wait import DEADLINE_S, elapse, until
from staged.cluster import CONTROL, HTTP, SETTLE_S, Cluster

BAD_CREDENTIALS, NOT_AUTHORIZED = 0x86, 0x87
REFUSED = (BAD_CREDENTIALS, NOT_AUTHORIZED)
# Time for replicas to move.
MOVE_S = 120
CHAIN = {"sets": {"abuse.failedLogins": 0, "authentication.chain.kind": "control"}, "allow_anonymous": None}
# Without a chain the store decides from its first user on; before, clients are let in whatever they show.
DEFAULT = {"sets": {"abuse.failedLogins": 0}}
CHANGES = 1_000


class NoAnswer(Exception):
    """The node is gone, or does not say what has come of a request."""


def asked(node, method, path, body=None, timeout=DEADLINE_S):
    """Status and JSON of a request of an administrator."""
    connection = http.client.HTTPConnection(node.place.address, HTTP, timeout=timeout)
    headers = {"authorization": f"Bearer {node.cluster.token.read_text()}", "content-type": "application/json"}
    try:
        connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(str(error)) from error
    finally:
        connection.close()
    # A node that is not ready yet answers with a line of text.
    is_json = "json" in (answer.getheader("content-type") or "")
    return answer.status, json.loads(text) if is_json else text.decode()


def done(node, method, path, body=None):
    """JSON of a request that succeeds, however long the nodes take to be able to."""

    def succeeds():
        status, answer = asked(node, method, path, body)
        # 503: nothing was changed.
        assert status in (200, 201, 204, 503), answer
        return (answer,) if status != 503 else None

    return until(succeeds, SETTLE_S, f"{method} {path}")[0]


def secret(user) -> str:
    """One that fits the form of random ones, and is known for each name."""
    return "".join(random.Random(user).choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", k=43))


def add(node, user):
    return done(node, "POST", "/users", {"name": user, "secret": secret(user)})


def remove(node, user):
    done(node, "DELETE", f"/users/{user}")


def control(node) -> dict | None:
    """`None`: it does not answer yet."""
    try:
        status, answer = asked(node, "GET", "/control")
    except NoAnswer:
        return None
    assert status in (200, 503), answer
    return answer if status == 200 else None


def logs_in(node, user, client_id=""):
    return node.client(client_id, username=user, password=secret(user).encode())


def code(node, user=None, client_id="") -> int:
    """The reason code that a client gets which shows the secret of a user, or nothing."""
    with node.broker.raw() as client:
        fields = {"username": user, "password": secret(user).encode()} if user else {}
        client.send(raw.connect(client_id, **fields))
        return client.expect(CONNACK).reason


def users(node) -> dict:
    """Name and revision of all users, as a node has them."""
    found, after = {}, ""
    while True:
        status, page = asked(node, "GET", f"/users?limit=500{after}")
        assert status == 200, page
        found |= {user["name"]: user["revision"] for user in page["items"]}
        if page["next"] is None:
            return found
        after = f"&after={page['next']}"


def agree(nodes, revision=None):
    """Waits until these nodes have the same, and all of it, up to a revision if it is given."""

    def same():
        first, *others = map(control, nodes)
        is_whole = first and first["standing"] == "confirmed" and revision in (None, first["revision"])
        return is_whole and all(other == first for other in others)

    until(same, SETTLE_S, lambda: f"one state at revision {revision}: {[*map(control, nodes)]}")


def shard(node) -> dict | None:
    """The shard of the store, as a node tells of it."""
    view = node.status()
    return next((s for s in view["shards"] if s["store"] == CONTROL), None) if view else None


def leads(cluster):
    """The node that leads the store, as all running nodes agree."""
    until(lambda: (shard(cluster.running()[0]) or {}).get("leader"), SETTLE_S, "a leader of the store")
    return cluster.leader(CONTROL)


def members(cluster, wanted):
    """Waits until so many nodes have the store: three voters, or fewer nodes, and learners on all others."""

    def is_spread():
        told = shard(cluster.running()[0])
        return told and (len(told["voters"]), len(told["learners"])) == (min(wanted, 3), max(wanted - 3, 0))

    until(is_spread, MOVE_S, lambda: f"the store at {wanted} nodes: {shard(cluster.running()[0])}")


def stopped_and_verified(cluster):
    """No data folder has a fault."""
    for node in cluster.running():
        node.kill()
    for node in cluster.nodes:
        if node.data_dir.exists():
            said = run("store", "verify", node.data_dir)
            assert said.returncode == 0, (node, said.stdout, said.stderr)


@pytest.mark.quick
def test_a_user_logs_in_at_each_node_until_it_is_removed(name):
    with Cluster(3, **DEFAULT) as cluster:
        a, b, c = cluster.nodes
        # Nobody has to log in yet.
        assert [code(node, "stranger") for node in cluster.nodes] == [0] * 3
        add(a, name)
        add(c, "other")
        agree(cluster.nodes, 2)
        clients = [logs_in(node, name, f"{name}{number}") for number, node in enumerate(cluster.nodes)]
        others = [logs_in(node, "other", f"other{number}") for number, node in enumerate(cluster.nodes)]
        assert all(code(node, "stranger") in REFUSED for node in cluster.nodes)
        remove(b, name)
        for client in clients:
            client.expect_disconnected(NOT_AUTHORIZED)
        agree(cluster.nodes, 3)
        assert all(code(node, name) in REFUSED for node in cluster.nodes)
        for client in others:
            client.ping()
        for node in cluster.nodes:
            node.kill()
        for node in cluster.nodes:
            node.start(ready=False)
        cluster.settled()
        agree(cluster.nodes, 3)
        assert all(code(node, name) in REFUSED for node in cluster.nodes)
        assert [code(node, "other") for node in cluster.nodes] == [0] * 3
        stopped_and_verified(cluster)


class Writers:
    """Threads that change users through whichever node answers. What is acknowledged is counted; what is not known is read
    before it is tried again."""

    def __init__(self, nodes, prefix, changes, threads=3):
        self.nodes, self.prefix = nodes, prefix
        self.acknowledged = 0
        # Those that are to be there at the end, with the revision that an answer gave.
        self.kept: dict[str, int | None] = {}
        self.failures: list[BaseException] = []
        self._lock = threading.Lock()
        self._end = threading.Event()
        # Four users are added, and one of them is removed.
        self._left = iter(range(changes * 4 // 5))
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self, number):
        draw = random.Random(number)
        try:
            while not self._end.is_set():
                with self._lock:
                    left = next(self._left, None)
                if left is None:
                    return
                user = f"{self.prefix}{left:04}"
                revision = self._until(draw, user, self._added)
                gone = left % 4 == 3
                if gone:
                    self._count()
                    self._until(draw, user, self._removed)
                with self._lock:
                    if not gone:
                        self.kept[user] = revision
                    self.acknowledged += 1
        except BaseException as error:
            self.failures.append(error)

    def _count(self):
        with self._lock:
            self.acknowledged += 1

    def _until(self, draw, user, change):
        """What `change` gives at last, at some node."""

        def at_some_node():
            try:
                return change(draw.choice(self.nodes), user)
            except NoAnswer:
                return None

        return (until(lambda: self._end.is_set() or at_some_node(), 2 * SETTLE_S, f"a change of {user}") or (None,))[0]

    @staticmethod
    def _is_done(status, answer, *statuses) -> bool:
        """False: it is to be tried again."""
        assert status in (*statuses, 503, 504), (status, answer)
        return status in statuses

    def _added(self, node, user):
        # A request before may have been carried out.
        status, answer = asked(node, "GET", f"/users/{user}")
        if status == 200:
            return (answer["revision"],)
        status, answer = asked(node, "POST", "/users", {"name": user, "secret": secret(user)})
        if status == 409:
            # The node that was read did not have it yet.
            assert answer["reason"] == "exists", answer
            return (None,)
        return (answer["revision"],) if self._is_done(status, answer, 201) else None

    def _removed(self, node, user):
        status, answer = asked(node, "DELETE", f"/users/{user}")
        return (None,) if self._is_done(status, answer, 200, 204, 404) else None

    def reached(self, count):
        """Waits until so many changes are acknowledged."""
        until(lambda: self.failures or self.acknowledged >= count, 4 * SETTLE_S, lambda: f"{count}: {self.acknowledged}")
        assert not self.failures, self.failures

    def finish(self):
        self.stop()
        for thread in self._threads:
            assert not thread.is_alive()
        assert not self.failures, self.failures

    def stop(self):
        for thread in self._threads:
            thread.join(0 if self.failures else 4 * SETTLE_S)
        self._end.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._end.set()
        for thread in self._threads:
            thread.join(SETTLE_S)


def has_all(nodes, kept, revision):
    """These nodes have these users, each as it was answered, and each change was made once."""
    agree(nodes, revision)
    for node in nodes:
        found = users(node)
        assert found.keys() == kept.keys(), found.keys() ^ kept.keys()
        wrong = {user: (found[user], told) for user, told in kept.items() if told not in (None, found[user])}
        assert not wrong, wrong


@pytest.mark.quick("P1")
def test_no_acknowledged_change_is_lost_while_each_node_is_killed(name):
    with Cluster(3, **CHAIN) as cluster:
        with Writers(cluster.nodes, name, CHANGES) as writers:
            rounds = len(cluster.nodes)
            for number, node in enumerate(cluster.nodes):
                writers.reached(CHANGES * (2 * number + 1) // (2 * rounds + 1))
                node.kill()
                writers.reached(CHANGES * (2 * number + 2) // (2 * rounds + 1))
                node.start(ready=False)
                cluster.settled()
            writers.finish()
            assert writers.acknowledged == CHANGES
        has_all(cluster.nodes, writers.kept, CHANGES)
        for node in cluster.nodes:
            node.kill()
        for node in cluster.nodes:
            node.start(ready=False)
        cluster.settled()
        has_all(cluster.nodes, writers.kept, CHANGES)
        stopped_and_verified(cluster)


def test_no_acknowledged_change_is_lost_while_the_leader_is_killed_again_and_again(name):
    with Cluster(3, **CHAIN) as cluster:
        with Writers(cluster.nodes, name, CHANGES) as writers:
            for number in range(5):
                writers.reached(CHANGES * (number + 1) // 6)
                leader = leads(cluster)
                leader.kill()
                leader.start(ready=False)
                cluster.settled()
            writers.finish()
        has_all(cluster.nodes, writers.kept, CHANGES)
        stopped_and_verified(cluster)


@pytest.mark.parametrize("victims", ["beginner", "all"])
@pytest.mark.parametrize("delay_ms", [0, 2, 5, 10, 15, 20, 30, 50])
def test_a_store_begins_once_whoever_is_killed_at_its_first_change(name, delay_ms, victims):
    """The node that begins it, or all, some ms after the first requests."""
    with Cluster(3, **CHAIN) as cluster:
        beginner = cluster.leader("session")
        with Writers(cluster.nodes, name, 10) as writers:
            elapse(delay_ms / 1000)
            killed = [beginner] if victims == "beginner" else cluster.nodes
            for node in killed:
                node.broker.process.kill()
            for node in killed:
                node.kill()
            for node in killed:
                node.start(ready=False)
            cluster.settled()
            writers.finish()
        has_all(cluster.nodes, writers.kept, 10)
        members(cluster, 3)
        told = [shard(node) for node in cluster.nodes]
        assert all(one["leader"] == told[0]["leader"] for one in told), told
        stopped_and_verified(cluster)


@pytest.mark.parametrize("which", ["leader", "follower"])
def test_a_node_that_is_cut_off_goes_on_with_its_copy(name, which):
    with Cluster(3, **CHAIN) as cluster:
        stays, goes = f"{name}stays", f"{name}goes"
        for user in (stays, goes):
            add(cluster.nodes[0], user)
        agree(cluster.nodes, 2)
        leader = leads(cluster)
        alone = leader if which == "leader" else next(n for n in cluster.nodes if n is not leader)
        one, other = (node for node in cluster.nodes if node is not alone)
        with logs_in(alone, goes, f"{name}1") as early, logs_in(alone, stays, f"{name}2") as kept:
            cluster.cut_off(alone)
            # Until it knows that it is alone, it cannot say what comes of a change; it never says that one was made.
            body = {"name": f"{name}late", "secret": secret(f"{name}late")}

            def refuses():
                status, answer = asked(alone, "POST", "/users", body)
                assert status in (503, 504), answer
                return status == 503

            until(refuses, SETTLE_S, "a refusal")
            late = logs_in(alone, goes, f"{name}3")
            remove(one, goes)
            agree([one, other])
            assert code(one, goes) in REFUSED
            # What has not come to it does not hold there.
            early.ping()
            late.ping()
            assert code(alone, goes) == 0
            assert control(alone)["revision"] == 2
            cluster.network.heal()
            for client in (early, late):
                client.expect_disconnected(NOT_AUTHORIZED)
            cluster.settled()
            agree(cluster.nodes)
            assert code(alone, goes) in REFUSED
            assert code(alone, stays) == 0
            kept.ping()
            add(alone, f"{name}new")
        agree(cluster.nodes)
        stopped_and_verified(cluster)


@pytest.mark.parametrize("fields", [CHAIN, DEFAULT], ids=["chain", "default"])
def test_a_node_that_starts_alone_lets_nobody_in(name, fields):
    with Cluster(3, **fields) as cluster:
        node, *others = cluster.nodes
        for user in (name, f"{name}gone"):
            add(node, user)
        agree(cluster.nodes, 2)
        node.kill()
        remove(others[0], f"{name}gone")
        for other in others:
            other.kill()
        node.start(ready=False)
        until(lambda: node.broker.find("ready"), SETTLE_S, "its readiness")
        assert control(node)["standing"] == "unconfirmed"
        for user in (name, f"{name}gone", "stranger"):
            assert code(node, user) in REFUSED
        assert len(node.broker.find("a client is refused", cause="authenticator_unavailable")) == 3
        if fields is CHAIN:
            assert code(node) in REFUSED
        assert asked(node, "POST", "/users", {"name": f"{name}new", "secret": secret(name)})[0] == 503
        for other in others:
            other.start(ready=False)
        cluster.settled()
        agree(cluster.nodes, 3)
        assert (code(node, name), code(node, f"{name}gone") in REFUSED) == (0, True)
        stopped_and_verified(cluster)


def test_nodes_that_join_later_judge_logins_and_nodes_that_go_are_replaced(name):
    with Cluster(3, **CHAIN) as cluster:
        for number in range(20):
            add(cluster.nodes[number % 3], f"{name}{number}")
        agree(cluster.nodes, 20)
        for _ in range(2):
            cluster.add().start(ready=False)
            cluster.settled()
        members(cluster, 5)
        agree(cluster.nodes, 20)
        clients = [logs_in(node, f"{name}{n}", f"{name}{n}") for n, node in enumerate(cluster.nodes)]
        asker = cluster.nodes[4]
        for number in range(5):
            remove(asker, f"{name}{number}")
        for client in clients:
            client.expect_disconnected(NOT_AUTHORIZED)
        agree(cluster.nodes, 25)
        for node in cluster.nodes:
            assert code(node, f"{name}0") in REFUSED
            assert code(node, f"{name}7") == 0
        # One goes in order, and one is lost; both are voters.
        leaver, lost, *rest = cluster.nodes
        gone = {leaver.id, lost.id}
        leaver.command("leave")
        until(lambda: len(rest[0].status()["nodes"]) == 4, MOVE_S, "a member less")
        leaver.kill()
        cluster.nodes.remove(leaver)
        members(cluster, 4)
        add(rest[2], f"{name}between")
        lost.kill()
        rest[0].command("evict", next(n for n in gone if n in {x["node"] for x in rest[0].status()["nodes"]}))
        cluster.nodes.remove(lost)
        cluster.settled()
        members(cluster, 3)
        assert not gone & set(shard(rest[0])["voters"])
        add(rest[0], f"{name}after")
        agree(rest, 27)
        assert [code(node, f"{name}{user}") for node in rest for user in (7, "between", "after")] == [0] * 9
        stopped_and_verified(cluster)


def test_users_are_there_after_recover(name):
    with Cluster(3, **CHAIN) as cluster:
        last, *lost = cluster.nodes
        for number in range(10):
            add(lost[0], f"{name}{number}")
        agree(cluster.nodes, 10)
        gone = [node.id for node in lost]
        for node in cluster.nodes:
            node.kill()
        said = run("store", "recover", last.data_dir, "--majority-is-lost")
        assert said.returncode == 0, said.stderr
        for node in lost:
            shutil.rmtree(node.data_dir)
            cluster.nodes.remove(node)
        last.start(ready=False)
        until(lambda: last.broker.find("ready"), SETTLE_S, "its readiness")
        agree([last], 10)
        with logs_in(last, f"{name}3", f"{name}3") as client:
            remove(last, f"{name}3")
            client.expect_disconnected(NOT_AUTHORIZED)
        add(last, f"{name}new")
        assert [code(last, f"{name}{user}") for user in (0, "new")] == [0, 0]
        assert code(last, f"{name}3") in REFUSED
        for identifier in gone:
            last.command("evict", identifier)
        # Those who come with empty folders get all.
        cluster.add().start(ready=False)
        agree([last, cluster.nodes[-1]], 12)
        assert code(cluster.nodes[-1], f"{name}new") == 0
        stopped_and_verified(cluster)
