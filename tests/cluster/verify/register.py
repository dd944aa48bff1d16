"""Whether operations on one register can have happened at instants between their beginnings and ends.

The algorithm of Wing and Gong with Lowe's memory of states seen: which operations are done, and the value.
Exponential at worst, so histories are to be short: some hundred operations, few at the same time.
"""

from .history import NEVER


def is_linearizable(operations, initial=None) -> bool:
    """Operations have `kind` (read, write), `value`, `start` and `end`; see `history.Operation`."""
    read = {o.value for o in operations if o.kind == "read"}
    # A write without answer that nobody has seen can come last; so can the others after what is to be explained.
    operations = sorted((o for o in operations if o.end != NEVER or o.value in read), key=lambda o: o.start)
    everything = (1 << len(operations)) - 1
    seen, waiting = set(), [(0, initial)]
    while waiting:
        state = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        done, value = state
        if done == everything:
            return True
        waiting += _next(operations, done, value)
    return False


def _next(operations, done, value):
    """The states after each operation that can be the next."""
    left = [(n, o) for n, o in enumerate(operations) if not done >> n & 1]
    first_end = min(o.end for _, o in left)
    for n, operation in left:
        if operation.start > first_end:
            break
        if operation.kind == "write":
            yield done | 1 << n, operation.value
        elif operation.value == value:
            yield done | 1 << n, value
