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
    # Message expiry interval in seconds.
    expiry: float = NEVER
    # How often it was sent.
    copies: int = 1
    # Orders its publisher's messages only among those of the same connection; 0: the session goes on.
    connection: int = 0
    # When the connection began by which it was sent first.
    way: float = 0.0
    # Of a clean session: a node without a majority accepts it by what it knew last (P10).
    is_clean: bool = False


@dataclasses.dataclass(frozen=True)
class Subscription:
    """Of a durable session: what is published after `since`, the time of SUBACK, is to arrive. If its client begins another
    session in its place, it is what was published until then."""

    subscriber: str
    filter: str
    qos: int
    since: float
    until: float = NEVER


@dataclasses.dataclass
class Member:
    """A session in a shared group. `until` is the time of its UNSUBSCRIBE, if there was one. Each member gets messages
    by this subscription only. A clean one is over with its connection."""

    subscriber: str
    group: str
    filter: str
    qos: int
    since: float
    until: float = NEVER
    is_clean: bool = False


@dataclasses.dataclass(frozen=True)
class Receipt:
    """A message that came; a QoS 2 message that was sent again with the same identifier is not one. Each clean session
    is a subscriber of its own."""

    subscriber: str
    topic: str
    payload: bytes
    qos: int
    at: float


@dataclasses.dataclass
class Tenure:
    """A connection that was accepted. It certainly owned its client identifier from CONNACK to the
    beginning of the last exchange that the broker answered on it; if there was none, at some time from CONNECT to
    CONNACK."""

    client_id: str
    place: str
    connack: float
    answered: float = 0.0
    connect: float = NEVER

    def __post_init__(self):
        self.answered = max(self.answered, self.connack)
        self.connect = min(self.connect, self.connack)


@dataclasses.dataclass
class Mourned:
    """A client with a will: `died` if its connection ended without DISCONNECT."""

    client_id: str
    topic: str
    payload: bytes
    since: float
    died: bool = False


@dataclasses.dataclass(frozen=True)
class Return:
    """A client whose session expires, and that was accepted again."""

    client_id: str
    expiry: float
    # The last time at which the connection before was certainly there.
    alive: float
    # When the broker closed it after DISCONNECT, if no other CONNECT of the client was sent since.
    ended: float
    connect: float
    connack: float
    session_present: bool


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
    members: list[Member] = dataclasses.field(default_factory=list)
    returns: list[Return] = dataclasses.field(default_factory=list)
    # What came in other words than it was sent, told in sentences.
    damaged: list[str] = dataclasses.field(default_factory=list)
    # Until then no fault had begun, so that all nodes knew of all subscriptions.
    calm: float = NEVER
    # When processes ended without notice.
    deaths: list[float] = dataclasses.field(default_factory=list)
    # Members of a group have their inboxes in several shards.
    members_are_apart: bool = False
