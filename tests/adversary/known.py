"""Attacks that pass a bar today, each with what was measured at its small size. An entry goes when its attack is
mended."""

KNOWN: dict[str, str] = {
    "AuthUnexpected": "0.1 MiB of log, 0.1 MiB allowed",
    "ConnectTwice": "0.1 MiB of log, 0.1 MiB allowed",
    "MalformedFlags": "0.1 MiB of log, 0.1 MiB allowed",
    "MalformedLength": "0.1 MiB of log, 0.1 MiB allowed",
    "MalformedPacketForServer": "0.1 MiB of log, 0.1 MiB allowed",
    "MalformedPuback": "0.1 MiB of log, 0.1 MiB allowed",
    "MalformedSubscribe": "0.1 MiB of log, 0.1 MiB allowed",
    "MalformedType": "0.1 MiB of log, 0.1 MiB allowed",
    "MalformedUnsubscribe": "0.1 MiB of log, 0.1 MiB allowed",
    "PublishAtStalledSubscribers": "a bystander waited 4994 ms, 9 ms beside the control",
    "PublishEmptyTopic": "0.1 MiB of log, 0.1 MiB allowed",
    "PublishFanOut": "a bystander waited 133 ms, 2 ms beside the control",
    "PublishMalformed": "0.1 MiB of log, 0.1 MiB allowed",
    "RetainedEmptyPages": "a bystander waited 454 ms, 13 ms beside the control",
    "RetainedEmptyPagesDurable": "a bystander waited 400 ms, 7 ms beside the control",
    "RetainedReplayToDurable": "0.19 s of CPU, 0.11 s allowed; 90.6 MiB of memory, 48.5 MiB allowed; 98.2 MiB of folder, 64.3 MiB allowed",
    "SubscribeBranching": "0.09 s of CPU, 0.08 s allowed; a bystander waited 104 ms, 2 ms beside the control",
    "SubscribeEmpty": "0.1 MiB of log, 0.1 MiB allowed",
    "SubscribeLongFiltersDurable": "twice the input costs 2.7 times the memory; twice the input costs 2.3 times the folder",
    "SubscribeNearlyMatching": "0.06 s of CPU, 0.06 s allowed",
    "SubscribeNearlyMatchingDurable": "0.06 s of CPU, 0.06 s allowed",
    "SubscribeOnePacket": "0.57 s of CPU, 0.36 s allowed; a bystander waited 1192 ms, 29 ms beside the control",
    "SubscribeRefused": "19.2 MiB of log, 0.1 MiB allowed",
    "SubscribeSameDurable": "a bystander waited 105 ms, 3 ms beside the control",
    "SubscribeSameDurableAtOnce": "0.92 s of CPU, 0.69 s allowed; a bystander waited 847 ms, 6 ms beside the control",
    "SubscribeTenThousand": "0.74 s of CPU, 0.71 s allowed; a bystander waited 534 ms, 12 ms beside the control",
    "SubscribeTenThousandDurable": "1.45 s of CPU, 1.11 s allowed; a bystander waited 952 ms, 3 ms beside the control",
    "SubscribedReconnects": "0.64 s of CPU, 0.08 s allowed",
    "TooLarge": "0.1 MiB of log, 0.1 MiB allowed",
    "UnreleasedReconnects": "1.27 s of CPU, 0.06 s allowed",
    "UnsubscribeAll": "a bystander waited 759 ms, 2 ms beside the control",
    "UnsubscribeAllDurable": "a bystander waited 811 ms, 17 ms beside the control",
}

KNOWN_OF_NODES: dict[str, str] = {}
