"""What published texts print works as it is printed: files are beside this one in `printed/`, byte for byte.

Invariant: each thing that a text prints is a row of `PRINTED`, with the text's name. What only a running broker shows is
a test of its own below, with the same file; there, only addresses and ports are replaced, by those of this machine.
"""

import os
import pathlib
import random
import socket
import subprocess
import typing

import pytest

from harness.broker import Broker, run
from harness.wait import until

HERE = pathlib.Path(__file__).resolve().parent
CONF = HERE.parent.parent / "conf"
OPEN = "THE CLUSTER IS OPEN"


# The process that is started becomes the broker.
APART = ("unshare", "--net")


def may_be_apart() -> bool:
    return os.geteuid() == 0 and subprocess.run([*APART, "true"], capture_output=True).returncode == 0


class Row(typing.NamedTuple):
    """`command`: arguments of `heraldmq`, with `{file}` for the file; `says`: what standard error has."""

    source: str
    file: pathlib.Path
    command: str
    code: int = 0
    env: dict = {}
    says: tuple = ()


REPORT = "BifroMQ's cluster report"
NODES = [HERE / "printed" / f"cluster-node{number}.yml" for number in (1, 2, 3)]
CHECK = "check-config {file}"

PRINTED = [
    *(Row(REPORT, node, CHECK, says=(OPEN, "secretFile", "8899")) for node in NODES),
    Row(REPORT, NODES[0], CHECK, env={"inbox_store_replica_voter_count": "3"}),
    # The variable is read: where it is wrong, the message says where it comes from.
    Row(
        REPORT,
        NODES[0],
        CHECK,
        code=2,
        env={"inbox_store_replica_voter_count": "4"},
        says=("environment variable inbox_store_replica_voter_count", "expected 1, 3 or 5"),
    ),
    Row(
        REPORT,
        NODES[0],
        CHECK,
        env={"inbox_store_replica_voters_count": "3"},
        says=("inbox_store_replica_voters_count has no effect", "INBOX_STORE_REPLICA_VOTER_COUNT"),
    ),
    Row(
        REPORT,
        NODES[0],
        CHECK + " --set clusterConfig.host=192.0.2.1",
        code=2,
        says=("--set clusterConfig.host=192.0.2.1", "public address", "openssl rand"),
    ),
    Row(
        REPORT,
        NODES[0],
        CHECK,
        code=2,
        env={"HERALDMQ_CLUSTERCONFIG__SEEDENDPOINTS": "192.0.2.1:8899"},
        says=("environment variable HERALDMQ_CLUSTERCONFIG__SEEDENDPOINTS", "192.0.2.1 is a public address"),
    ),
    Row("conf", CONF / "cluster.yml", CHECK, says=(OPEN,)),
    Row("conf", CONF / "standalone.yml", CHECK),
    *(
        Row(
            "conf",
            CONF / "production" / "heraldmq.yml",
            CHECK,
            env=dict(line.split("=") for line in node.read_text().splitlines() if not line.startswith("#")),
        )
        for node in sorted((CONF / "production").glob("*.env"))
    ),
]


@pytest.mark.parametrize("row", PRINTED, ids=lambda row: f"{row.source}-{row.file.name}-{row.code}-{' '.join(row.env)}")
def test_printed(row):
    if "production" in row.file.parts and pathlib.Path("/etc/heraldmq").exists():
        pytest.skip("on a machine with /etc/heraldmq, the files that it names have to be there")
    got = run(*row.command.format(file=row.file).split(), env=row.env)
    assert got.returncode == row.code, got.stderr
    assert (got.stdout == "OK\n") == (row.code == 0)
    for words in row.says:
        assert words in got.stderr, got.stderr


BIFROMQ, EMQX, TBMQ = "BifroMQ's reports", "EMQX's benchmark", "TBMQ's 100M test"
GROUPS = HERE / "printed" / "tbmq-configuration.json"

# Names and files as printed, and what standard output has of them.
READ = [
    (REPORT, "bench plan 5k_5k_qos0_p32_100mps_3n", ("500000 msg/s", "nodes         3")),
    (REPORT, "bench plan 30k_30k_qos1_p256_1mps_3n_3v", ("voters        3", "persistent")),
    (REPORT, "bench plan 30k_30k_qos1_p256_1mps_3n_1v_cold", ("data folder   new",)),
    (REPORT, "bench plan 300k_3000_qos0_p256_1mps_3n", ("shared",)),
    (BIFROMQ, "bench plan conn-tcp-1M-5K_1n_true", ("1000000", "5000/s")),
    (BIFROMQ, "bench plan 40k_400_qos1_p1024_1mps", ("40000 msg/s",)),
    (EMQX, "bench plan qos1-p256-30K-0", ("30000 msg/s", "100,000 connections")),
    (EMQX, "bench plan qos0-p64-20K-20K", ("20000 msg/s",)),
    (TBMQ, f"bench plan {GROUPS}", ("messages of each publisher, which must be acknowledged",)),
    (REPORT, "size 15k_15k_qos1_p256_1mps_3n_3v", ("3 voters", "durable_us", "a month")),
    (BIFROMQ, "size conn-tcp-1M-5K_1n_true", ("1,000,000 connections", "socket_bytes")),
    (
        BIFROMQ,
        "bench doctor --connections 1000000 --side broker",
        ("nf_conntrack_tcp_timeout_established", "221184", "optmem_max", "16777216", "netdev_max_backlog"),
    ),
    (BIFROMQ, "bench doctor --connections 9 --side broker --print", ("net.core.rmem_max = 16777216", "sysctl --system")),
]


@pytest.mark.parametrize("source, command, says", READ, ids=lambda of: of if isinstance(of, str) else "")
def test_printed_names_are_read(source, command, says):
    got = run(*command.split())
    assert got.returncode == 0, got.stderr
    for words in says:
        assert words in got.stdout, got.stdout


def free_port() -> int:
    """A port that is free for TCP and UDP at 127.0.0.1."""
    while True:
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            try:
                udp.bind(tcp.getsockname())
            except OSError:
                continue
            return tcp.getsockname()[1]


def on_this_machine(file, network) -> str:
    """A printed file whose seeds are here: 127.`network`.11 to 13."""
    return file.read_text().replace("192.168.0.", f"127.{network}.")


def free(sets) -> dict:
    """What keeps brokers of one machine apart, beside addresses."""
    return {"mqttServerConfig.tcpListener.host": "127.0.0.1", "mqttServerConfig.tcpListener.port": 0, "http.port": 0, **sets}


def test_a_node_without_host_and_secret_serves_and_says_that_it_is_open():
    config = on_this_machine(NODES[0], "0.0")
    with Broker(free({"clusterConfig.port": free_port()}), config=config) as node:
        status = node.api("/api/v1/cluster")
        assert status["env"] == "Test"
        assert [member["address"].split(":")[0] for member in status["nodes"]] == ["127.0.0.1"]
        said = [line for line in node.log_lines if OPEN in line.get("message", "")]
        assert [line["level"] for line in said] == ["WARN"], node.log_text
        assert all(words in said[0]["message"] for words in ("become a member", "clusterConfig.secretFile"))
        assert node.metric("heraldmq_cluster_open_to_strangers") == 1


@pytest.mark.skipif(not may_be_apart(), reason="only root has a network of its own")
@pytest.mark.parametrize(
    "number, says",
    [(1, "waits for other nodes before it founds a cluster"), (2, "waits for a member of the cluster to join"), (3, "waits for a member of the cluster to join")],
)
def test_a_node_starts_with_the_file_as_printed(number, says):
    """In a network of its own, where the machine has the address of one of the seeds, and is the only one."""
    address = f"192.168.0.{10 + number}"
    setup = f'ip link set lo up && ip addr add {address}/32 dev lo && exec "$@"'
    prefix = (*APART, "sh", "-c", setup, "sh")
    with Broker(config=NODES[number - 1].read_text(), prefix=prefix, ready=False) as node:
        until(lambda: node.find(says), what=lambda: f"{says}: {node.log_text}")
        chosen = [line["host"] for line in node.log_lines if "host" in line]
        assert chosen == [address]
        assert any(OPEN in line for line in node.log_text)


def test_a_node_with_a_secret_is_not_open(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("known to all nodes\n")
    sets = free({"clusterConfig.port": free_port(), "clusterConfig.secretFile": secret})
    with Broker(sets, config=on_this_machine(NODES[0], "0.0")) as node:
        assert not [line for line in node.log_text if OPEN in line]
        assert node.metric("heraldmq_cluster_open_to_strangers") == 0


def test_an_empty_secret_is_none(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("\n")
    for command in (
        ("check-config", NODES[0]),
        ("serve", "--config", NODES[0], "--data-dir", tmp_path / "data", "--set", "clusterConfig.host=127.0.0.1"),
    ):
        got = run(*command, env={"HERALDMQ_CLUSTERCONFIG__SECRETFILE": str(secret)})
        assert got.returncode == 2 and f"{secret} (cluster secret): it is empty" in got.stderr, got


def test_the_bare_variable_is_in_effect():
    """Of three nodes: the file has one voter for shards of inboxes, the environment three."""
    network = f"{random.randint(100, 254)}.{random.randint(1, 254)}"
    nodes = []
    try:
        for number, file in enumerate(NODES, 11):
            host = f"127.{network}.{number}"
            nodes.append(
                Broker(
                    free({"clusterConfig.host": host}),
                    config=on_this_machine(file, network) + "inbox_store_replica_voter_count: 1\n"
                    "retain_store_replica_voter_count: 1\n",
                    env={"inbox_store_replica_voter_count": "3"},
                )
            )

        def voters() -> dict:
            shards = nodes[0].api("/api/v1/cluster")["shards"]
            return {shard["store"]: len(shard["voters"]) for shard in shards}

        expected = {"session": 3, "inbox": 3, "retain": 1}
        until(lambda: voters() == expected, what="the voters of the variable and of the file")
    finally:
        for node in nodes:
            node.close()
