"""The attacks, as data. A module for each kind of packet or port; an attack is a class that says what it prepares,
what it sends, and what the protocol asks the broker to do for it.
"""

import importlib
import pkgutil

REGISTRY = []


class Attack:
    """`n` is its size by hand, `small` in continuous integration; what `n` counts is said by each.

    What is sent is counted by the stage. An attack adds to `stage.cause` what it legitimately asks for beyond its
    bytes, packets and connections.
    """

    n, small = 1000, 100
    versions = (4, 5)
    # Whether the cost of half of it is measured too.
    grows = True
    listeners = False

    def __init_subclass__(cls, **fields):
        super().__init_subclass__(**fields)
        if not cls.__name__.startswith("_"):
            REGISTRY.append(cls)

    # Whether the broker is to refuse it, by reason codes or by the end of its connections, or ends its connections because
    # the protocol asks for it. Any other attack has to be let in: one that is refused measures nothing (`measure/runner.py`).
    is_refused = False

    # Whether it is about client identifiers: it is played once more with short ones, and what each has written to the log of
    # the stores is compared.
    is_about_names = False

    # Whether it leaves so much behind that it needs a broker of its own.
    leaves = False

    @property
    def is_plain(self) -> bool:
        """Whether a broker without settings, that others use too, will do."""
        own = any(getattr(type(self), name) is not getattr(Attack, name) for name in ("sets", "broker_fields"))
        return not (own or self.leaves or self.listeners)

    @property
    def name(self) -> str:
        words = "".join(f" {c.lower()}" if c.isupper() else c for c in type(self).__name__)
        return words.strip()

    @property
    def group(self) -> str:
        return type(self).__module__.rsplit(".", 1)[1]

    @property
    def about(self) -> str:
        return " ".join((type(self).__doc__ or "").split())

    def sets(self, _folder) -> dict:
        """Settings of the broker."""
        return {}

    def broker_fields(self, _folder) -> dict:
        """Other arguments of the broker."""
        return {}

    def prepare(self, stage):
        """What is there before, by other clients; not counted."""

    def run(self, stage):
        """What is counted."""
        raise NotImplementedError

    def judge(self, stage, cost):
        """Adds faults to the cost that the readings do not show."""


def load() -> list[Attack]:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return [made() for made in REGISTRY]
