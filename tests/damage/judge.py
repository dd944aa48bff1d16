"""What a data folder promises, what was seen of it after damage, and which outcome that is: pure functions.

Outcomes:

    harmless  all is there and served, and nothing was said
    said      something is missing, or is not served, or all is there; and the log of the broker, the line it ends with or
              `heraldmq store verify` names what is damaged
    silent    something acknowledged is missing or not served, and nothing says so: no line names what is damaged, or none names
              the store that serves without it, the log or the folder as a whole
    changed   a client was given something that nobody has published
    died      the process ended and named neither a file nor a shard, or ended by a panic
    lost      in a cluster: something acknowledged is missing, whatever was said
    hurt      in a cluster: the node runs, and has not replaced a damaged table or log from the others

Absent on purpose: any I/O.
"""

import copy
import dataclasses
import re

HARMLESS, SAID, SILENT, CHANGED, DIED, LOST, HURT = OUTCOMES = ("harmless", "said", "silent", "changed", "died", "lost", "hurt")
FAILURES = {SILENT, CHANGED, DIED, LOST, HURT}

# Words by which a line says that something is damaged.
DAMAGE = re.compile(
    r"damag|corrupt|checksum|is missing|are missing|is lost|may be lost|cannot be read|cannot be used|cannot be opened|is not in "
    r"|cannot open the store|No such file|Invalid argument|do not belong together|things? (is|are) wrong"
    r"|has no FORMAT|no FORMAT file|not HeraldMQ|does not fit|is not whole|old copy|LogTooShort|ends before|differs",
    re.IGNORECASE,
)
# The folders above a data folder; `node1/data` is one of a cluster.
FOLDER = re.compile(r"/\S*/(?=round-\d+\b|node\d/data\b)")
# How a line names a file of a data folder, or a shard.
PLACE = re.compile(
    r"\.raftlog|\.rewrite|/tables/|/shard-|\bFORMAT\b|\bSHARDS\b|\bincarnation\b|\balive\b|\bcluster\b|\blevel\b|\bfounded\b|\.made\b"
    r"|\blog\b|\bshard\b|\bdata folder\b|\b(session|inbox|retain) store\b",
)


@dataclasses.dataclass
class Promised:
    """What is acknowledged: the payloads of each session's queue by client identifier, retained payloads by topic, and
    the payloads of wills that are to be published. `replaced`: retained payloads of the topics before."""

    queues: dict[str, list[bytes]] = dataclasses.field(default_factory=dict)
    retained: dict[str, bytes] = dataclasses.field(default_factory=dict)
    wills: set[bytes] = dataclasses.field(default_factory=set)
    replaced: dict[str, set[bytes]] = dataclasses.field(default_factory=dict)

    def copy(self) -> "Promised":
        return copy.deepcopy(self)

    def retain(self, topic: str, payload: bytes):
        if topic in self.retained:
            self.replaced.setdefault(topic, set()).add(self.retained[topic])
        self.retained[topic] = payload


@dataclasses.dataclass
class Seen:
    """What clients were given. `sessions`: whether each session was there; one that is not among them was not served.
    `whole`: sessions whose queues came to their ends."""

    sessions: dict[str, bool] = dataclasses.field(default_factory=dict)
    whole: set[str] = dataclasses.field(default_factory=set)
    queues: dict[str, list[bytes]] = dataclasses.field(default_factory=dict)
    retained: dict[str, bytes] = dataclasses.field(default_factory=dict)
    is_retain_served: bool = False
    wills: set[bytes] = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class Missing:
    """What is promised and was not seen. `unserved`: sessions that nothing can be said of yet."""

    sessions: int = 0
    messages: int = 0
    retained: int = 0
    wills: int = 0
    unserved: int = 0
    changed: int = 0

    @property
    def anything(self) -> bool:
        return any((self.sessions, self.messages, self.retained, self.wills, self.unserved))

    @property
    def is_lost(self) -> bool:
        """Something that is served lacks something."""
        return any((self.sessions, self.messages, self.wills))


def compare(promised: Promised, seen: Seen) -> Missing:
    """A session that was not served is unserved, whatever it lacks; so is each retained message if none was to be had."""
    missing = Missing()
    for name, wanted in promised.queues.items():
        got = seen.queues.get(name, [])
        missing.changed += len(set(got) - set(wanted))
        if name not in seen.sessions:
            missing.unserved += 1
        elif not seen.sessions[name]:
            missing.sessions += 1
            missing.messages += len(wanted)
        elif name not in seen.whole:
            missing.unserved += 1
        else:
            missing.messages += len(set(wanted) - set(got))
    for topic, wanted in promised.retained.items():
        if topic in seen.retained:
            # A message that was replaced is none that nobody has published: the one that replaced it is missing.
            is_before = seen.retained[topic] in promised.replaced.get(topic, ())
            missing.retained += is_before
            missing.changed += seen.retained[topic] != wanted and not is_before
        elif seen.is_retain_served:
            missing.retained += 1
        else:
            missing.unserved += 1
    missing.changed += len(set(seen.retained) - set(promised.retained)) + len(seen.wills - promised.wills)
    missing.wills = len(promised.wills - seen.wills)
    return missing


def names_damage(line: str) -> bool:
    """Whether a line says that something is damaged or gone, and what. Where folders are says nothing."""
    return bool(DAMAGE.search(FOLDER.sub("", line)) and PLACE.search(line))


def words(line: dict) -> str:
    """A line of the log as text, without what each has."""
    return " ".join(f"{name}={value}" for name, value in line.items() if name not in ("timestamp", "level", "target"))


def said_by(log: list[dict], text: list[str], verdict: str, verify_code: int | None) -> list[str]:
    """Who names what is damaged: the log at WARN or ERROR, other text on standard error (what a process ends with), `verify`.
    A note of `verify` beside OK says nothing."""
    by = []
    if any(line.get("level") in ("WARN", "ERROR") and names_damage(words(line)) for line in log):
        by.append("log")
    if any(not line.startswith("{") and names_damage(line) for line in text):
        by.append("end")
    if verify_code and names_damage(verdict):
        by.append("verify")
    return by


def names_stores(missing: Missing, text: str) -> bool:
    """Whether what was said names each store that serves and lacks something, or the log or the folder as a whole."""
    if re.search(r"\.raftlog|\.rewrite|/log/entries|\bthe log:|the data folder:|\bincarnation\b", text):
        return True
    lacks = {"session": missing.sessions, "inbox": missing.messages and not missing.sessions, "retain": missing.retained}
    return all(re.search(rf"store={store}\b|\b{store} store", text) for store, count in lacks.items() if count)


def outcome_of_one(missing: Missing, by: list[str], *, ended: bool, panicked: bool, text: str = "") -> str:
    """Of a lone node. `ended`: its process has ended by itself. `text`: all that names damage."""
    if panicked or (ended and not {"log", "end"} & set(by)):
        return DIED
    if missing.changed:
        return CHANGED
    if by:
        return SAID if names_stores(missing, text) else SILENT
    return SILENT if missing.anything else HARMLESS


def outcome_of_three(missing: Missing, by: list[str], *, is_whole: bool, ended: bool, panicked: bool, is_hurt: bool = False) -> str:
    """Of a cluster of which one node's folder is damaged. `is_whole`: all nodes serve, as far as they say. `is_hurt`: the damaged
    one runs with a replica that does not serve."""
    if panicked or (ended and not {"log", "end"} & set(by)):
        return DIED
    if missing.changed:
        return CHANGED
    if missing.anything:
        return LOST
    if is_hurt:
        return HURT
    if by:
        return SAID
    return HARMLESS if is_whole else SILENT
