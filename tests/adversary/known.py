"""Attacks that exceed a bar today, each with what was measured at its small size. An entry goes when its attack is
mended."""

KNOWN: dict[str, str] = {
    "RetainedReplayToDurable": "0.19 s of CPU, 0.11 s allowed; 90.6 MiB of memory, 48.5 MiB allowed; 98.2 MiB of folder, 64.3 MiB allowed",
}

KNOWN_OF_NODES: dict[str, str] = {
    "RetainedBigPages": "sometimes over a bar, behind the attack before it: the cluster is the same",
    "RetainedReplayToDurable": "15.57 s of CPU, 0.32 s allowed; 1045 MiB of memory, 146 MiB allowed",
    "SubscribedReconnects": "0.23 s of CPU, 0.25 s allowed, on a busy machine",
}
