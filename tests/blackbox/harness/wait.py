"""Waiting for a condition with a deadline: the only way in which tests wait."""

import time

# How long a condition is waited for. It only says when a test that fails does so: nothing is claimed by it. Long, because a
# machine may have half a core for four tests at a time.
DEADLINE_S = 60.0


def until(condition, timeout=DEADLINE_S, what="the condition"):
    """Returns the first true value of `condition()`; fails at the deadline. `what` names it."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(
                f"{what() if callable(what) else what} did not come true in {timeout} s (last: {value!r})"
            )
        time.sleep(0.01)


def elapse(seconds):
    """Lets an interval of the protocol itself pass (an expiry, a delay). Never a stand-in for
    waiting until the broker has done something."""
    time.sleep(seconds)


class Stopwatch:
    """Seconds since it was made, for claims that something did not come earlier. It is made before the packet is sent
    from which the broker counts, so that a machine that is busy can only make the time longer. Never claim that
    something came soon: say what else had not happened yet, or count."""

    def __init__(self):
        self.start = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self.start
