"""Waiting for a condition with a deadline: the only way in which tests wait."""

import time


def until(condition, timeout=20.0, what="the condition"):
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
    """Seconds since it was made."""

    def __init__(self):
        self.start = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self.start
