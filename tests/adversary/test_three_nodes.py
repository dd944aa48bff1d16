"""What one client can cause over three nodes: leaders stay, and nobody waits for a second."""

import attacks
import pytest
from known import KNOWN_OF_NODES
from measure.bars import BUSY
from measure.nodes import NAMES, Place
from measure.runner import judge


@pytest.fixture(scope="module")
def place():
    made = Place()
    yield made
    made.close()


def cases():
    by_name = {type(attack).__name__: attack for attack in attacks.load()}
    for number, name in enumerate(NAMES):
        attack = by_name[name]
        reason = KNOWN_OF_NODES.get(name)
        marks = [pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason)] if reason else []
        yield pytest.param(attack, attack.versions[number % len(attack.versions)], marks=marks, id=name)


# One cluster for all of them, in one worker.
@pytest.mark.xdist_group("nodes")
@pytest.mark.parametrize("attack, version", list(cases()))
def test_leaders_stay(place, attack, version):
    again = 0 if type(attack).__name__ in KNOWN_OF_NODES else 2
    verdict = judge(attack, version, attack.small, again, place, BUSY)
    assert not verdict.broken(), f"{attack.about}: {verdict.broken()}; {verdict.cost.seconds:.1f} s; threads: {verdict.cost.threads}"
