"""What clients did and saw, with monotonic times in seconds. Nothing is judged here."""

import dataclasses
import math

NEVER = math.inf


@dataclasses.dataclass
class Publication:
    """A message, by its payload, which no other message has."""

    payload: bytes
    topic: str
    publisher: str
    qos: int
    sent: float
    # The first PUBACK, or PUBREC, that accepts it.
    acked: float = NEVER


@dataclasses.dataclass(frozen=True)
class Subscription:
    """Of a durable session: what is published after `since`, the time of SUBACK, is to arrive."""

    subscriber: str
    filter: str
    qos: int
    since: float


@dataclasses.dataclass(frozen=True)
class Receipt:
    """A message that came; a QoS 2 message that was sent again with the same identifier is not one."""

    subscriber: str
    topic: str
    payload: bytes
    qos: int
    at: float


@dataclasses.dataclass
class Tenure:
    """A connection that was accepted. It certainly owned its client identifier from CONNACK to the
    beginning of the last exchange that the broker answered on it."""

    client_id: str
    place: str
    connack: float
    answered: float = 0.0

    def __post_init__(self):
        self.answered = max(self.answered, self.connack)


@dataclasses.dataclass
class Mourned:
    """A client with a will: `died` if its connection ended without DISCONNECT."""

    client_id: str
    topic: str
    payload: bytes
    since: float
    died: bool = False


@dataclasses.dataclass(frozen=True)
class Operation:
    """On a retained topic. A write without an answer ends `NEVER`: it may count at any time, or not at
    all."""

    topic: str
    kind: str  # "write" or "read"
    value: bytes | None
    start: float
    end: float = NEVER


@dataclasses.dataclass
class History:
    publications: dict[bytes, Publication] = dataclasses.field(default_factory=dict)
    subscriptions: list[Subscription] = dataclasses.field(default_factory=list)
    receipts: list[Receipt] = dataclasses.field(default_factory=list)
    tenures: list[Tenure] = dataclasses.field(default_factory=list)
    mourned: list[Mourned] = dataclasses.field(default_factory=list)
    operations: list[Operation] = dataclasses.field(default_factory=list)
