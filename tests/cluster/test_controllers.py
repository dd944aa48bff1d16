"""HeraldMQ under the controllers of Kubernetes (`staged/controllers.py`), while clients publish: no acknowledged message is lost.

A stage of its own in scripts/test, `controllers`; `controllers.sh` runs it, and builds Kubernetes once.
"""

import contextlib
import time

import pytest
from staged.controllers import BROKEN_IMAGE, IMAGE, NEXT_IMAGE, Installed, Rig, comes_true
from staged.kubernetes import PROGRAM
from staged.network import may_isolate
from staged.pods import WHOLE_S, PodLoad
from verify import checks

pytestmark = [
    pytest.mark.skipif(not PROGRAM, reason="HERALD_KUBERNETES is not set: controllers.sh sets it"),
    pytest.mark.skipif(not may_isolate(), reason="only root can give pods a network of their own"),
]

LAST = "heraldmq-2"
# For how long nothing may happen to the other pods while one does not start.
HELD_S = 10.0


@pytest.fixture(scope="module")
def rig():
    with Rig() as rig:
        yield rig


@pytest.fixture
def installed(rig, name):
    """Three pods, which were empty and started at once."""
    with Installed(rig, name) as installed:
        began = time.monotonic()
        installed.install()
        installed.rolled_out()
        print(f"installed in {time.monotonic() - began:.1f} s")
        installed.whole(3)
        yield installed


@contextlib.contextmanager
def loaded(installed, name):
    """Clients at the Service, and what they lose and how long they wait as the judgement at the end."""
    with PodLoad(installed, name) as load:
        load.begin()
        began = time.monotonic()
        yield load
        load.answered()
        tell(load, "of all", began)
        load.finish()


def tell(load, what, began):
    """Prints how long publishers had to wait since then."""
    taken = time.monotonic() - began
    gaps = checks.distribution(load.gaps(began))
    print(f"{what}: {taken:.1f} s, gaps {gaps}; {len(load.history.publications)} messages", flush=True)


def during(load, what, action):
    """Clients go on meanwhile."""
    began = time.monotonic()
    done = load.during(action)
    tell(load, what, began)
    return done


def test_three_empty_pods_are_one_cluster(installed):
    assert len({view["cluster"] for view in installed.views()}) == 1
    assert installed.restarts() == 0
    pods = installed.pods().values()
    assert len({pod["status"]["podIP"] for pod in pods}) == len({pod["spec"]["nodeName"] for pod in pods}) == 3


def test_a_changed_template_rolls_through_all_pods_and_loses_nothing(installed, name):
    before, revisions = installed.identifiers(), installed.revisions()
    with loaded(installed, name) as load:
        installed.change(image=NEXT_IMAGE)
        during(load, "rolling upgrade", installed.rolled_out)
        during(load, "all replicas", lambda: installed.whole(3))
        after = installed.identifiers()
        assert after.keys() == before.keys() and not set(after.values()) & set(before.values())
        assert len(installed.revisions()) == 1 and not installed.revisions() & revisions
    ends = [code for namespace, _, code in installed.rig.kubelet.ends if namespace == installed.namespace]
    assert ends == [0, 0, 0], ends


def test_three_pods_become_five_and_three_again(installed, name):
    with loaded(installed, name) as load:
        installed.change(replicas=5)
        during(load, "3 to 5", installed.rolled_out)
        during(load, "all replicas", lambda: installed.whole(5))
        during(load, "resize", lambda: installed.resize(3))
        # They wait for SIGTERM: were they started again, they would join.
        assert len(installed.pods()) == 5 and installed.restarts() == 0
        installed.change(replicas=3)
        during(load, "5 to 3", installed.rolled_out)
        during(load, "all replicas", lambda: installed.whole(3))


def test_the_budget_refuses_a_second_eviction_while_the_first_pod_is_away(installed, name):
    first, second = "heraldmq-2", "heraldmq-1"
    before = installed.identifiers()
    with loaded(installed, name) as load:
        during(load, "budget", lambda: comes_true(lambda: installed.disruptions_allowed() == 1, what="a budget"))
        assert installed.evict(first)
        refused = 0

        def is_evicted():
            nonlocal refused
            if not installed.evict(second):
                refused += 1
                return False
            # Only when the first has come back.
            pod = installed.pods()[first]
            assert pod["metadata"]["uid"] != before[first] and installed.is_ready(pod), "the budget let two pods go at a time"
            return True

        during(load, "first eviction", lambda: comes_true(is_evicted, WHOLE_S, installed.told))
        assert refused
        during(load, "second eviction", installed.rolled_out)
        assert not set(installed.identifiers().values()) & {before[first], before[second]}
        during(load, "all replicas", lambda: installed.whole(3))


def test_an_image_that_does_not_start_holds_the_rollout_at_one_pod(installed, name):
    before = installed.identifiers()
    with loaded(installed, name) as load:
        installed.change(image=BROKEN_IMAGE)

        def waits() -> str | None:
            statuses = installed.pods().get(LAST, {}).get("status", {}).get("containerStatuses", ())
            return next((c["state"].get("waiting", {}).get("reason") for c in statuses if c["name"] == "heraldmq"), None)

        during(load, "stop", lambda: comes_true(lambda: waits() == "ImagePullBackOff", WHOLE_S, installed.told))
        watched = time.monotonic() + HELD_S

        def is_held():
            now = installed.identifiers()
            assert {n: i for n, i in now.items() if n != LAST} == {n: i for n, i in before.items() if n != LAST}
            assert installed.ready() == before.keys() - {LAST}
            return time.monotonic() > watched

        during(load, "held", lambda: comes_true(is_held, WHOLE_S))
        assert installed.stateful_set()["status"]["updatedReplicas"] == 1
        # Pods that start in parallel: the controller deletes the one that does not start by itself.
        installed.change(image=IMAGE)
        during(load, "back", installed.rolled_out)
        assert {n: i for n, i in installed.identifiers().items() if n != LAST} == {
            n: i for n, i in before.items() if n != LAST
        }
        during(load, "all replicas", lambda: installed.whole(3))
