"""What one client can cause, in small: each attack once, against the bars of `measure/bars.py`.

Memory, log and folder are counted. What a busy machine makes dearer, CPU seconds and waits, has room (`bars.BUSY`):
what is quadratic exceeds it all the same, and `full.py` judges it without. A bar that is exceeded is measured twice
more before it counts.
"""

import attacks
import pytest
from known import KNOWN
from measure.bars import BUSY
from measure.runner import judge

# What the quick suite has of them: one for each kind of cost.
QUICK = {
    "ConnectFlood",
    "HttpUnfinished",
    "LoginWrongPasswords",
    "LongNameMember",
    "LongNameQos2ToItself",
    "LongNameSubscribes",
    "MalformedFlags",
    "PingreqUnread",
    "PublishAtStalledSubscribersDurable",
    "PublishFanOutDurable",
    "PublishPastStalled",
    "PublishQos2Durable",
    "RetainedChurn",
    "SharedGroups",
    "SubscribeManyFilters",
    "SubscribeNearlyMatching",
    "SubscribeRefusedPackets",
    "TakeoverStormDurable",
    "TlsHandshakes",
    "WebsocketTinyFrames",
    "WillsStorm",
}


def cases():
    missing = QUICK - {type(attack).__name__ for attack in attacks.load()}
    assert not missing, f"there is no attack {missing}"
    for number, attack in enumerate(attacks.load()):
        # Another version of the protocol for each.
        version = attack.versions[number % len(attack.versions)]
        reason = KNOWN.get(type(attack).__name__)
        marks = [pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason)] if reason else []
        if type(attack).__name__ in QUICK:
            marks.append(pytest.mark.quick)
        yield pytest.param(attack, version, marks=marks, id=f"{attack.name.replace(' ', '-')}-{version}")


@pytest.mark.parametrize("attack, version", list(cases()))
def test_costs_what_it_weighs(place, attack, version):
    # What is expected to fail needs no second look.
    again = 0 if type(attack).__name__ in KNOWN else 2
    verdict = judge(attack, version, attack.small, again, place, BUSY)
    assert not verdict.broken(), f"{attack.about}: {verdict.broken()}; {verdict.cost.seconds:.1f} s; threads: {verdict.cost.threads}"
