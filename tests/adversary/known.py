"""Attacks that exceed a bar today, each with what was measured at its small size, and why. An entry goes when its attack is
mended: one that does not exceed its bars fails."""

KNOWN: dict[str, str] = {
    "RetainedReplayToDurable": (
        "twice the subscribers cost 4 to 9 times the memory: a retained message is queued once for each durable subscriber "
        "(decision 11)"
    ),
}

KNOWN_OF_NODES: dict[str, str] = {}
