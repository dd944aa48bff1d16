"""What only concurrency shows: sessions taken over by many at once, churn, load between event loops,
queues that fill and drain, sessions that come and go, shared groups whose members change.

Each test prints its seed, which `HERALD_SEED` sets: the same seed makes the same choices, though not the same timing of
the broker.
`HERALD_STRESS_SCALE` multiplies the work (default 1: a few seconds each).
"""

import collections
import os
import random
import threading

import pytest

from harness import raw
from harness.broker import Broker
from harness.crowd import Crowd, Peer, Publisher, Session, Sink
from harness.raw import CONNACK, DISCONNECT, Closed, Raw
from harness.wait import DEADLINE_S, Stopwatch, elapse, until

# Minutes of load: `scripts/test --all` and `scripts/soak` have them.
pytestmark = pytest.mark.full

MIB = 1 << 20
SCALE = float(os.environ.get("HERALD_STRESS_SCALE", 1))

# Four loops, and nothing that wakes one by itself: a wake-up that is lost must not be made up for.
SETS = {
    "eventLoops": 4,
    "sys.intervalSeconds": 0,
    "limits.connection.bytesPerSecondIn": 0,
    "limits.connection.bytesPerSecondOut": 0,
}

NOTHING = {"connections_open": 0, "clients_connected": 0, "sessions": 0, "subscriptions": 0, "shared_groups": 0}


def scaled(count) -> int:
    return max(1, int(count * SCALE))


@pytest.fixture
def rng():
    seed = int(os.environ.get("HERALD_SEED", 1))
    print(f"HERALD_SEED={seed}")
    return random.Random(seed)


def start(**sets):
    return Broker({**SETS, **{name.replace("__", "."): value for name, value in sets.items()}})


def gauges(broker, *names) -> dict:
    values = {}
    for line in broker.http("/metrics")[1].splitlines():
        key, _, value = line.rpartition(" ")
        if key.removeprefix("heraldmq_") in names:
            values[key.removeprefix("heraldmq_")] = float(value)
    return values


def settled(broker, timeout=DEADLINE_S, **expected):
    """Waits until the gauges say this, and nothing else is left over."""
    wanted = {**NOTHING, **expected}
    until(lambda: gauges(broker, *wanted) == wanted, timeout, lambda: f"{wanted}, but {gauges(broker, *wanted)}")


def no_complaints(broker):
    """The broker found nothing wrong with itself, nor with the clients."""
    complaints = [line for line in broker.log_lines if line.get("level") in ("WARN", "ERROR")]
    # A broker without people says how somebody becomes the first one.
    complaints = [line for line in complaints if not line["message"].startswith("nobody can change anything over HTTP yet")]
    assert not complaints, complaints
    assert gauges(broker, "violations_total") == {"violations_total": 0}


def in_order(numbers) -> bool:
    return all(a < b for a, b in zip(numbers, numbers[1:]))


def all_connected(crowd, peers):
    crowd.run(lambda: all(p.connack for p in peers), what="CONNACKs")
    assert all(p.connack.reason == 0 for p in peers)


def all_answered(crowd, waiting):
    """`waiting`: (peer, packet identifier) pairs of SUBSCRIBE and UNSUBSCRIBE."""
    crowd.run(lambda: all(pid in p.answered for p, pid in waiting), what="SUBACKs")


def in_threads(*works):
    """Runs all at once; the first failure is the test's."""
    failures = []

    def guarded(work):
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * DEADLINE_S)
    assert not any(thread.is_alive() for thread in threads), "a client is stuck"
    if failures:
        raise failures[0]


# ---- 1. takeover -----------------------------------------------------------------------------------


def fate(client: Raw) -> bool:
    """Whether a connection lives; if not, it has ended as the standard says. [MQTT-3.1.4-3]"""
    try:
        try:
            got = client.recv(0)
        except TimeoutError:
            client.send(raw.PING)
            got = client.recv(10)
    except (Closed, ConnectionError):
        assert client.version < 5, "closed without DISCONNECT"
        return False
    if got.kind == raw.PINGRESP:
        return True
    assert (client.version, got.kind, got.reason) == (5, DISCONNECT, 0x8E), got
    client.expect_closed(10)
    return False


def test_takeover_storm(name, rng):
    # P5: however many connect with one client identifier at once, one stays
    ids, threads, waves, each = 20, 6, 4, scaled(60)
    with start() as broker:
        alive: dict[str, Raw] = {}
        for wave in range(waves):
            opened = collections.defaultdict(list)
            for client_id, client in alive.items():
                opened[client_id].append(client)
            seeds = [rng.random() for _ in range(threads)]

            def storm(seed):
                own = random.Random(seed)
                for _ in range(each):
                    client_id = f"{name}{own.randrange(ids)}"
                    version, clean = own.choice((4, 5, 5)), own.random() < 0.5
                    client = broker.raw(version)
                    props = {"session_expiry": own.choice((0, 60))} if version == 5 else None
                    client.send(raw.connect(client_id, version=version, clean=clean, props=props))
                    # Whoever is taken over has had its CONNACK.
                    client.expect(CONNACK, reason=0)
                    opened[client_id].append(client)
                    if own.random() < 0.1:
                        client.reset()

            in_threads(*(lambda seed=seed: storm(seed) for seed in seeds))
            for number in range(ids):
                # Who came last is known only of this one.
                last = broker.client(f"{name}{number}", clean=False, props={"session_expiry": 60})
                opened[f"{name}{number}"].append(last)
            alive = {}
            for client_id, clients in opened.items():
                living = [c for c in clients if c.socket.fileno() >= 0 and fate(c)]
                assert living == [clients[-1]], f"{len(living)} connections of {client_id} live"
                for client in clients[:-1]:
                    client.close()
                alive[client_id] = living[0]
            for client_id, client in alive.items():
                client.subscribe(f"{name}/{client_id}", qos=1)
            settled(broker, clients_connected=ids, connections_open=ids, sessions=ids, subscriptions=ids)
            with broker.client(name + "p") as publisher:
                for client_id in alive:
                    assert publisher.published(f"{name}/{client_id}", f"{wave}").reason == 0
                publisher.disconnect()
            for client_id, client in alive.items():
                client.message(topic=f"{name}/{client_id}", payload=f"{wave}")
                client.ping()
        for client_id, client in alive.items():
            with broker.client(client_id) as last:
                assert not fate(client)
                client.close()
                last.disconnect()
        settled(broker)
        no_complaints(broker)


# ---- 2. churn --------------------------------------------------------------------------------------


def visit(broker, name, own):
    """One client comes, does something and is gone, in one of many ways."""
    client = broker.raw(own.choice((4, 5)))
    version = client.version
    whole = raw.connect(f"{name}{own.randrange(200)}", version=version, keep_alive=60)
    way = own.random()
    if way < 0.1:
        client.send(whole[: own.randrange(1, len(whole))])
        return own.choice((client.reset, client.close))()
    will = {"topic": f"{name}/will", "payload": b"gone", "qos": own.randrange(3)} if own.random() < 0.3 else None
    client.send(raw.connect(f"{name}{own.randrange(200)}", version=version, keep_alive=60, will=will))
    packets = []
    for _ in range(own.randrange(6)):
        topic = f"{name}/{own.randrange(5)}/{own.randrange(5)}"
        match own.randrange(4):
            case 0:
                filters = [topic, f"{name}/+/{own.randrange(5)}", f"{name}/#", f"{name}/{own.randrange(5)}/#"]
                packets.append(raw.subscribe(client.next_pid(), [(own.choice(filters), 2)], version=version))
            case 1:
                shared = f"$share/g{own.randrange(4)}/{name}/{own.choice('01234+')}/#"
                packets.append(raw.subscribe(client.next_pid(), [(shared, 1)], version=version))
            case 2:
                packets.append(raw.unsubscribe(client.next_pid(), [f"{name}/#"], version=version))
            case 3:
                for _ in range(own.randrange(20)):
                    qos = own.randrange(3)
                    pid = client.next_pid() if qos else None
                    packets.append(raw.publish(topic, b"x" * 100, qos=qos, pid=pid, version=version))
    data = b"".join(packets)
    try:
        if way < 0.4:
            client.send(data[: own.randrange(len(data) + 1)])
        else:
            client.send(data)
            if own.random() < 0.7:
                client.expect(CONNACK, 10, reason=0)
        if way > 0.8:
            client.send(raw.disconnect())
    except OSError:
        pass  # taken over by another visitor with the same identifier
    except AssertionError as error:
        if "the broker closed" not in str(error):
            raise
    own.choice((client.reset, client.close))()


def test_churn(name, rng):
    # P8: nothing remains of those who have gone, whichever way they went
    with start() as broker:
        memory = []
        for _ in range(6):
            seeds = [rng.random() for _ in range(5)]

            def churn(seed):
                own = random.Random(seed)
                for _ in range(scaled(150)):
                    visit(broker, name, own)

            in_threads(*(lambda seed=seed: churn(seed) for seed in seeds))
            settled(broker)
            memory.append(broker.rss())
        # The first rounds fill the caches and what the allocator keeps in hand.
        assert max(memory[3:]) - max(memory[:3]) < 4 * MIB, memory
        no_complaints(broker)


# ---- 3. order and loss under load between loops --------------------------------------------------------


def noise(crowd, name, count=4):
    """Connections that load the loops when `blast` is called, in bursts with pauses between."""
    sinks = [Sink(crowd, f"noise{name}s{n}") for n in range(count)]
    talkers = [Peer(crowd, f"noise{name}t{n}") for n in range(count)]
    all_connected(crowd, sinks + talkers)
    all_answered(crowd, [(sink, sink.subscribe(f"noise/{name}/#")) for sink in sinks])
    burst = raw.publish(f"noise/{name}/x", b"x" * 40) * 500

    def blast(clock=Stopwatch()):
        if clock.seconds() % 0.5 < 0.25:
            for talker in talkers:
                if not talker.unsent():
                    talker.send(burst)

    return blast


def dropped(broker, name) -> list:
    """What was dropped, but for the noise."""
    return [d for d in broker.drops() if d["client_id"].startswith(name)]


def test_order_and_loss_between_loops(name, rng):
    # P3, P7; [MQTT-4.6.0-5] order per publisher, nothing lost, nothing twice
    count, rooms = scaled(500), 3
    with start() as broker, Crowd(broker.port) as crowd:
        blast = noise(crowd, name)
        publishers = [Publisher(crowd, f"{name}p{n}") for n in range(8)]
        subscribers = [Peer(crowd, f"{name}s{n}") for n in range(8)]
        all_connected(crowd, publishers + subscribers)
        wanted, waiting = {}, []
        for number, subscriber in enumerate(subscribers):
            of, room = number % 8, number % rooms
            filters, wants = [
                ([f"{name}/#"], lambda p, r: True),
                ([f"{name}/#", f"{name}/+/{room}"], lambda p, r: True),
                ([f"{name}/{of}/+", f"{name}/+/{room}"], lambda p, r, of=of, room=room: p == of or r == room),
                ([f"{name}/+/{room}"], lambda p, r, room=room: r == room),
            ][number % 4]
            waiting.append((subscriber, subscriber.subscribe(*filters, qos=2)))
            wanted[subscriber] = wants
        all_answered(crowd, waiting)
        sent = collections.defaultdict(list)
        for p, publisher in enumerate(publishers):
            for seq in range(count):
                room, qos = rng.randrange(rooms), rng.randrange(3)
                publisher.backlog.append((f"{name}/{p}/{room}", f"{p} {seq}".encode(), qos))
                sent[p].append((room, qos, seq))
        expected = {
            s: sum(wants(p, room) for p, list_ in sent.items() for room, _, _ in list_) for s, wants in wanted.items()
        }
        clock = Stopwatch()

        def each_turn():
            blast()
            # Bursts with pauses: the loops have much to do, then nothing.
            if clock.seconds() % 0.4 < 0.3:
                for publisher in publishers:
                    if rng.random() < 0.5:
                        publisher.go_on(rng.randrange(1, 40))

        def done():
            return all(p.idle() for p in publishers) and all(
                len(s.session.seen) >= expected[s] for s in subscribers
            )

        def state():
            seen = [f"{len(s.session.seen)}/{expected[s]}" for s in subscribers]
            return f"{seen}, in flight {[len(p.flying) for p in publishers]}, drops {dropped(broker, name)[:3]}"

        crowd.run(done, 45, state, each_turn)
        for subscriber, wants in wanted.items():
            got = collections.defaultdict(list)
            for topic, payload, qos, dup in subscriber.session.seen:
                p, seq = map(int, payload.split())
                assert not dup and topic.startswith(f"{name}/{p}/")
                got[p, qos].append(seq)
            for p, list_ in sent.items():
                for qos in range(3):
                    # QoS 0 has a queue of its own; within it, and within that of QoS 1 and 2, order is kept.
                    right = [seq for room, q, seq in list_ if q == qos and wants(p, room)]
                    assert got[p, qos] == right, f"publisher {p}, QoS {qos}: {difference(got[p, qos], right)}"
        assert dropped(broker, name) == []
        no_complaints(broker)


def difference(got, right) -> str:
    lost, extra = set(right) - set(got), collections.Counter(got) - collections.Counter(right)
    order = "" if in_order(got) else ", out of order"
    return f"lost {sorted(lost)[:10]}, too much {sorted(extra)[:10]}{order}"


# ---- 4. full queues --------------------------------------------------------------------------------


def test_many_publishers_to_one_full_queue(name):
    # P7: the first message of a publisher that nobody holds yet finds the queue full already, by those
    # of others that were on their way; it is kept like theirs, and its publisher held.
    with (
        start(limits__session__queueMessages=20, limits__connection__holdPublisherMs=60_000) as broker,
        broker.client(name, props={"receive_maximum": 1}) as slow,
    ):
        slow.subscribe(name, qos=1)
        publishers = [broker.client(f"{name}p{n}") for n in range(5)]
        for n, publisher in enumerate(publishers):
            publisher.send(*(raw.publish(name, f"{n} {seq}", qos=1, pid=seq + 1) for seq in range(30)))
            publisher.expect(raw.PUBACK, pid=1)
        assert broker.drops() == []
        got = [m.payload.decode().split() for m in slow.take(150)]
        assert all([int(seq) for p, seq in got if p == str(n)] == list(range(30)) for n in range(5))
        assert broker.drops() == []


@pytest.mark.parametrize("limit", [40, 400])
def test_hold_and_release_storm(name, rng, limit):
    # P7, P8: slow consumers slow their publishers down, and let them go again; nothing is lost
    count = scaled(400)
    with (
        start(
            limits__session__queueMessages=limit,
            limits__connection__holdPublisherMs=60_000,
            limits__connection__holdUnearnedMs=60_000,
        ) as broker,
        Crowd(broker.port) as crowd,
    ):
        publishers = [Publisher(crowd, f"{name}p{n}") for n in range(8)]
        slow = [Peer(crowd, f"{name}s{n}", props={"receive_maximum": 5}) for n in range(6)]
        doomed = [Peer(crowd, f"{name}d{n}", props={"receive_maximum": 5}) for n in range(4)]
        all_connected(crowd, publishers + slow + doomed)
        waiting = []
        for number, peer in enumerate(slow + doomed):
            peer.acknowledge = False
            waiting.append((peer, peer.subscribe(f"{name}/{number % 4}", f"{name}/{(number + 1) % 4}", qos=1)))
        all_answered(crowd, waiting)
        sent = collections.defaultdict(list)
        for p, publisher in enumerate(publishers):
            for seq in range(count):
                room = rng.randrange(4)
                publisher.backlog.append((f"{name}/{room}", f"{p} {seq}".encode(), 1))
                sent[room].append((p, seq))
        rooms = {peer: (n % 4, (n + 1) % 4) for n, peer in enumerate(slow)}
        expected = {peer: sum(len(sent[room]) for room in rooms[peer]) for peer in slow}

        def each_turn():
            for publisher in publishers:
                publisher.go_on(32)
            for peer in slow:
                if rng.random() < (0.02 if len(peer.session.seen) < expected[peer] / 2 else 0.2):
                    peer.pause(not peer.paused)
                if rng.random() < 0.3:
                    peer.pay(rng.randrange(1, 20))
            # These acknowledge nothing and go when they are full, to come back: each end is a release.
            for number, peer in enumerate(doomed):
                if rng.random() < 0.05:
                    rng.choice((peer.reset, peer.close))()
                    again = Peer(crowd, f"{name}d{number}", props={"receive_maximum": 5})
                    again.acknowledge = False
                    again.subscribe(f"{name}/{number % 4}", f"{name}/{(number + 1) % 4}", qos=1)
                    doomed[number] = again

        def state():
            seen = [f"{len(s.session.seen)}/{expected[s]}" for s in slow]
            unsent = [len(p.backlog) + len(p.flying) for p in publishers]
            return f"{seen}, unsent {unsent}, drops {broker.drop_totals()}"

        crowd.run(lambda: all(p.idle() for p in publishers), 45, state, each_turn)
        for peer in slow:
            peer.pause(False)
            peer.acknowledge = True
            peer.pay()
        crowd.run(lambda: all(len(s.session.seen) >= expected[s] for s in slow), 10, state)
        for peer in slow:
            got = collections.defaultdict(list)
            for topic, payload, _, dup in peer.session.seen:
                assert not dup
                p, seq = map(int, payload.split())
                got[p].append(seq)
            for p in range(len(publishers)):
                right = sorted(seq for room in rooms[peer] for q, seq in sent[room] if q == p)
                assert got[p] == right, f"publisher {p}: {difference(got[p], right)}"
        lost = [d for d in broker.drops() if not d["client_id"].startswith(f"{name}d")]
        assert lost == []
        assert gauges(broker, "publisher_backpressure_total")["publisher_backpressure_total"] > 0
        no_complaints(broker)


def test_clients_that_flood_each_other(name, rng):
    # P8: rings of clients that fill each other's queues hold each other; their acknowledgements are
    # handled all the same, so all goes on, and nothing is lost.
    count, rings = scaled(300), 4
    with (
        start(limits__session__queueMessages=40, limits__connection__holdPublisherMs=60_000) as broker,
        Crowd(broker.port) as crowd,
    ):
        peers = [Publisher(crowd, f"{name}{n}", props={"receive_maximum": 5}) for n in range(rings * 3)]
        all_connected(crowd, peers)
        all_answered(crowd, [(p, p.subscribe(f"{name}/{n}", qos=1)) for n, p in enumerate(peers)])
        for n, peer in enumerate(peers):
            # 0 → 1 → 2 → 0 and so on; the last ring also the other way round.
            ahead = n // 3 * 3 + (n + 1) % 3
            behind = n // 3 * 3 + (n + 2) % 3
            to = (ahead, behind) if n // 3 == rings - 1 else (ahead,)
            peer.backlog.extend((f"{name}/{rng.choice(to)}", f"{n} {seq}".encode(), 1) for seq in range(count))

        def state():
            unsent = [len(p.backlog) + len(p.flying) for p in peers]
            return f"unsent {unsent}, drops {broker.drop_totals()['queue_full_messages']}"

        def arrived():
            drops = broker.drop_totals()["queue_full_messages"]
            return sum(len(p.session.seen) for p in peers) + drops == count * len(peers)

        crowd.run(lambda: all(p.idle() for p in peers), 20, state, lambda: [p.go_on() for p in peers])
        crowd.run(arrived, 10, state)
        for peer in peers:
            got = collections.defaultdict(list)
            for _, payload, _, dup in peer.session.seen:
                p, seq = map(int, payload.split())
                got[p].append(seq)
            assert all(in_order(seqs) for seqs in got.values())
        assert broker.drop_totals()["queue_full_messages"] == 0
        no_complaints(broker)


# ---- 5. sessions that come and go ----------------------------------------------------------------------


def test_flapping_sessions(name, rng):
    # P4: what was acknowledged to a publisher is delivered, at QoS 2 exactly once, across reconnects
    count, rooms = scaled(500), 4
    with start() as broker, Crowd(broker.port) as crowd:
        publishers = [Publisher(crowd, f"{name}p{n}") for n in range(4)]
        sessions = [Session(f"{name}s{n}") for n in range(8)]
        expiry = {"session_expiry": 300, "receive_maximum": 20}
        peers = [Peer(crowd, s.client_id, session=s, props=expiry) for s in sessions]
        all_connected(crowd, publishers + peers)
        all_answered(crowd, [(p, p.subscribe(f"{name}/#", qos=1 + n % 2)) for n, p in enumerate(peers)])
        for p, publisher in enumerate(publishers):
            for seq in range(count):
                qos = rng.choice((1, 2))
                publisher.backlog.append((f"{name}/{rng.randrange(rooms)}", f"{p} {seq} {qos}".encode(), qos))
        clock = Stopwatch()
        flaps = 0

        def each_turn():
            nonlocal flaps
            for publisher in publishers:
                if rng.random() < 0.3:
                    publisher.go_on(rng.randrange(1, 8))
            for number, peer in enumerate(peers):
                if peer.connack:
                    assert peer.connack.session_present
                if peer.open and rng.random() < 0.1:
                    peer.acknowledge = not peer.acknowledge
                    peer.pay(rng.randrange(5))
                if not peer.open or rng.random() < 0.02:
                    # An old connection that is still open is taken over.
                    if peer.open and rng.random() < 0.7:
                        rng.choice((peer.reset, peer.close, peer.disconnect))()
                    if rng.random() < 0.3:
                        flaps += 1
                        old, session = peers[number], sessions[number]
                        # From here on nothing is read of the old one: its session is the new one's.
                        old.reset() if rng.random() < 0.5 else old.pause()
                        peers[number] = Peer(crowd, session.client_id, session=session, clean=False, props=expiry)
                        old.close()

        for peer in peers:
            peer.connack.session_present = True  # the first connection had nothing to resume
        crowd.run(lambda: all(p.idle() for p in publishers), 2 * DEADLINE_S, "PUBACKs", each_turn)
        for number, session in enumerate(sessions):
            peers[number].close()
            peers[number] = Peer(crowd, session.client_id, session=session, clean=False, props=expiry)

        def missing():
            everything = {payload for p in publishers for payload in p.acked}
            return [len(everything - {m[1] for m in s.seen}) for s in sessions]

        crowd.run(
            lambda: not any(missing()),
            20,
            lambda: f"missing {missing()} of {count * len(publishers)}, drops {broker.drop_totals()}",
        )
        print(f"{flaps} reconnects in {clock.seconds():.1f} s")
        for number, session in enumerate(sessions):
            first = collections.defaultdict(list)
            copies = collections.Counter()
            for _, payload, qos, _ in session.seen:
                p, seq, published = map(int, payload.split())
                assert qos == min(published, 1 + number % 2)
                copies[payload] += 1
                if copies[payload] == 1:
                    first[p].append(seq)
                assert qos < 2 or copies[payload] == 1, f"{payload!r} came twice at QoS 2 to session {number}"
            for p, seqs in first.items():
                assert in_order(seqs), f"first copies from publisher {p} out of order"
        assert dropped(broker, name) == []
        no_complaints(broker)


# ---- 6. shared groups ------------------------------------------------------------------------------


def test_shared_group_with_changing_members(name, rng):
    # [MQTT-4.8.2-4] [MQTT-4.8.2-6] whatever was acknowledged is received by a member, or passed on
    count = scaled(700)
    with start() as broker, Crowd(broker.port) as crowd:
        publishers = [Publisher(crowd, f"{name}p{n}") for n in range(4)]
        topics = [f"{name}/{n}" for n in range(3)]
        # One member of each group stays, so that there is always somebody.
        steady = [Peer(crowd, f"{name}m{n}", session=Session(t)) for n, t in enumerate(topics)]
        all_connected(crowd, publishers + steady)
        all_answered(crowd, [(m, m.subscribe(f"$share/g/{t}", qos=1)) for m, t in zip(steady, topics)])
        for p, publisher in enumerate(publishers):
            for seq in range(count):
                publisher.backlog.append((rng.choice(topics), f"{p} {seq}".encode(), 1))
        passing: list[Peer] = []
        sessions: list[Session] = [m.session for m in steady]
        born = 0

        def each_turn():
            nonlocal born
            for publisher in publishers:
                if rng.random() < 0.3:
                    publisher.go_on(rng.randrange(1, 8))
            passing[:] = [m for m in passing if m.open]
            if len(passing) < 12 and rng.random() < 0.5:
                born += 1
                # Groups `h…` have no steady member: they come and go, and their numbers are used again.
                group, topic = rng.choice(("g", "g", f"h{rng.randrange(9)}")), rng.choice(topics)
                member = Peer(crowd, f"{name}x{born}", session=Session(topic), props={"receive_maximum": 10})
                sessions.append(member.session)
                member.group = f"$share/{group}/{topic}"
                member.subscribe(member.group, qos=1)
                member.acknowledge = rng.random() < 0.6
                passing.append(member)
            for member in passing:
                way = rng.random()
                if way < 0.02:
                    member.reset()
                elif way < 0.04:
                    member.close()
                elif way < 0.06:
                    member.disconnect()
                elif way < 0.08:
                    member.unsubscribe(member.group)
                elif way < 0.2:
                    member.pay(rng.randrange(5))

        def received():
            return {message[1] for session in sessions for message in session.seen}

        crowd.run(lambda: all(p.idle() for p in publishers), 2 * DEADLINE_S, "PUBACKs", each_turn)
        for member in passing:
            member.close()
        acked = {payload for p in publishers for payload in p.acked}
        assert len(acked) == count * len(publishers)
        crowd.run(
            lambda: acked <= received(),
            10,
            lambda: f"lost: {sorted(acked - received())[:10]}, drops {broker.drop_totals()}",
        )
        for session in sessions:
            strangers = {topic for topic, *_ in session.seen} - {session.client_id}
            assert not strangers, f"a member for {session.client_id} got {strangers}"
        for peer in list(crowd.peers):
            peer.close()
        settled(broker)
        no_complaints(broker)


def test_a_group_gets_nothing_of_another(name, broker):
    # What is in flight to the last member of a group outlives the group; when it is to be passed on at
    # last, it must not go to a group that was made meanwhile.
    with broker.client(name) as last, broker.client(name + "n") as other, broker.client(name + "p") as publisher:
        last.subscribe(f"$share/g/{name}/old", qos=1)
        publisher.published(f"{name}/old", b"old")
        got = last.expect(raw.PUBLISH, payload="old")
        assert got.qos == 1  # and is not acknowledged
        last.unsubscribe(f"$share/g/{name}/old")
        other.subscribe(f"$share/g/{name}/new", qos=1)
        last.disconnect()
        publisher.published(f"{name}/new", b"new")
        other.message(topic=f"{name}/new", payload="new")
        other.ping()


# ---- 7. retained messages --------------------------------------------------------------------------


def test_retained_under_concurrency(name, rng):
    # [MQTT-3.3.1-5] [MQTT-3.3.1-6] the last one stays; nobody sees an older one after a newer one
    count, topics = scaled(600), 30
    with start() as broker, Crowd(broker.port) as crowd:
        publishers = [Publisher(crowd, f"{name}p{n}") for n in range(5)]
        all_connected(crowd, publishers)
        last, finals = {}, collections.defaultdict(set)
        for p, publisher in enumerate(publishers):
            contested = {}
            for seq in range(count):
                # Each publisher has topics of its own, and all share some.
                own = rng.random() < 0.8
                topic = f"{name}/{p}/{rng.randrange(topics)}" if own else f"{name}/all/{rng.randrange(5)}"
                payload = b"" if rng.random() < 0.25 else f"{p} {seq}".encode()
                publisher.backlog.append((topic, payload, 1))
                (last if own else contested)[topic] = payload
            for topic, payload in contested.items():
                finals[topic].add(payload)
        visitors, watchers = [], []

        def each_turn():
            for publisher in publishers:
                if rng.random() < 0.5:
                    retained(publisher, rng.randrange(1, 10))
            if len(visitors) < 6:
                visitor = Peer(crowd, f"{name}v{len(watchers)}")
                visitor.subscribe(rng.choice((f"{name}/#", f"{name}/{rng.randrange(5)}/+")), qos=1)
                visitors.append(visitor)
                watchers.append(visitor.session)
            for visitor in list(visitors):
                if rng.random() < 0.03:
                    visitor.close()
                    visitors.remove(visitor)

        crowd.run(lambda: all(p.idle() for p in publishers), 2 * DEADLINE_S, "PUBACKs", each_turn)
        for session in watchers:
            newest: dict = {}
            for topic, payload, *_ in session.seen:
                if payload and "/all/" not in topic:
                    seq = int(payload.split()[1])
                    assert seq >= newest.get(topic, -1), f"{topic}: {seq} after {newest[topic]}"
                    newest[topic] = seq
        fresh = [Peer(crowd, f"{name}f{n}") for n in range(3)]
        all_connected(crowd, fresh)
        for peer in fresh:
            peer.subscribe(f"{name}/#", qos=1)
        kept = int(gauges(broker, "retained_messages")["retained_messages"])
        crowd.run(lambda: all(len(f.session.seen) >= kept for f in fresh), what="the retained messages")
        views = [{topic: payload for topic, payload, *_ in f.session.seen} for f in fresh]
        assert all(len(f.session.seen) == kept for f in fresh) and views[0] == views[1] == views[2]
        own = {topic: payload for topic, payload in views[0].items() if "/all/" not in topic}
        assert own == {topic: payload for topic, payload in last.items() if payload}
        for topic, payloads in finals.items():
            assert views[0].get(topic, b"") in payloads, f"{topic}: {views[0].get(topic)} is nobody's last"
        no_complaints(broker)


def retained(publisher, most):
    """As `go_on`, with RETAIN."""
    for _ in range(most):
        if publisher.backlog and len(publisher.flying) < publisher.window:
            topic, payload, qos = publisher.backlog.popleft()
            pid = next(n for n in range(1, 1000) if n not in publisher.flying)
            publisher.flying[pid] = payload
            publisher.send(raw.publish(topic, payload, qos=qos, pid=pid, retain=True))


# ---- 8. deadlines ----------------------------------------------------------------------------------


def test_no_deadline_is_missed_under_load(name, rng):
    # A loop goes on by deadlines alone when a rate has stopped a connection; each must wake it, also
    # when another thread ran its turn. Nothing else wakes it here once the load pauses.
    rate = 200
    with start(limits__connection__publishesPerSecond=rate) as broker, Crowd(broker.port) as crowd:
        peers = [Peer(crowd, f"{name}{n}") for n in range(12)]
        all_connected(crowd, peers)
        all_answered(crowd, [(p, p.subscribe(f"{name}/{n}")) for n, p in enumerate(peers)])
        clock, sent = Stopwatch(), 0
        while clock.seconds() < 6 * max(SCALE, 0.5):
            # A burst over the rate, to a neighbour that most likely lives in another loop.
            sent += (burst := rng.randrange(20, 60))
            for n, peer in enumerate(peers):
                peer.send(raw.publish(f"{name}/{(n + 1) % len(peers)}", b"x") * burst)
            crowd.run(
                lambda: all(len(p.session.seen) == sent for p in peers),
                # At the rate, and as much again.
                burst / rate * 2 + 1,
                lambda: f"{[sent - len(p.session.seen) for p in peers]} of {burst} missing; all",
            )
            # Now and then long enough for threads to park.
            elapse(rng.random() * 0.05)
        assert dropped(broker, name) == []
        no_complaints(broker)
