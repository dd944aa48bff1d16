"""Attacks that exceed a bar today, each with what was measured at its small size, and why. An entry goes when its attack is
mended: one that does not exceed its bars fails."""

KNOWN: dict[str, str] = {
    "RetainedReplayToDurable": (
        "twice the subscribers cost 4 to 9 times the memory: a retained message is queued once for each durable subscriber "
        "(decision 11)"
    ),
}

KNOWN_OF_NODES: dict[str, str] = {}

# Why attacks exceed a bar at their full size, by their names: what docs/internals/adversary.md says below its tables.
CAUSES: dict[str, str] = {
    "retained replay to durable": "a retained message is queued once for each durable subscriber (decision 11)",
    "retained big pages": "a retained message is queued once for each durable subscriber (decision 11)",
    "shared groups": "all groups of a session that match a topic get a message in one turn of the event loop",
    "subscribe long filters durable": "5.9 bytes of memory for a byte of filter; not looked into yet",
    "takeover storm": "at the limit of 2.2 times for twice the input; not looked into",
    "expiry storm": "at the limit of 2.2 times for twice the input; not looked into",
    "publish aliases": "at the limit of 2.2 times for twice the input; not looked into",
    "subscribe churn durable": "at the limit of 2.2 times for twice the input; not looked into",
    "unsubscribe all durable": "at the limit of 2.2 times for twice the input; not looked into",
}
