"""The Helm chart: what it renders, judged as Kubernetes and the broker would.

Invariant: `helm` is in the path (`need_helm` of scripts/tools.sh), and nothing here reaches a network. Absent on purpose: whether
pods live with it, which tests/cluster plays (`test_pods.py`).
"""

import base64
import filecmp
import http.server
import itertools
import json
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import threading

import kubernetes_validate
import pytest
import yaml

from harness.broker import run
from harness.pki import Authority

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "packaging/helm/heraldmq"
KUBERNETES = ROOT / "packaging/kubernetes"
PAGE = ROOT / "docs/operate/kubernetes.md"

# The oldest that the chart is for, and the newest that the schemas are there for.
OLDEST = "1.29.0"
VERSIONS = [OLDEST, kubernetes_validate.latest_version()]
# Their schemas belong to others: the Prometheus operator, and cert-manager.
FOREIGN = {"monitoring.coreos.com/v1", "cert-manager.io/v1"}
DOMAIN = "heraldmq-nodes.here.svc.cluster.local"

ISSUER = {"enabled": True, "issuer": {"name": "ours"}}
TLS = {"tls": {"clients": ISSUER, "nodes": {"enabled": True, "issuer": {"name": "nodes", "kind": "ClusterIssuer"}}}}
USERS = {"users": {"passwords": "demo:$argon2id$x\n", "rules": "allow all all\n"}}
EVERYTHING = {
    **TLS,
    **USERS,
    "replicas": 5,
    "image": {"digest": "sha256:" + "0" * 64, "pullSecrets": ["registry"]},
    "config": {
        "mqttServerConfig": {"tcpListener": [{"port": 1883}, {"port": 1884}], "wsListener": {"port": 9001}},
        "clusterConfig": {"port": 9899, "env": "shop"},
        "http": {"port": 9091},
        "stop": {"drainSeconds": 200, "majoritySeconds": 10},
        "mqtt": {"sessionExpiryMaximum": 2592000},
    },
    "env": [{"name": "HERALDMQ_LOG__FORMAT", "value": "json"}],
    "storage": {"className": "fast", "accessMode": "ReadWriteOnce"},
    "service": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "annotations": {"a": "b"}},
    "monitoring": {name: {"enabled": True} for name in ("serviceMonitor", "rules", "dashboards")},
    "networkPolicy": {"clients": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "monitoring": []},
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "nodeSelector": {"disk": "nvme"},
    "tolerations": [{"key": "mqtt", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "update": {"partition": 4},
    "volumes": [{"name": "jwt", "secret": {"secretName": "jwt"}}],
    "volumeMounts": [{"name": "jwt", "mountPath": "/etc/heraldmq/jwt"}],
}
EXISTING = {
    "secret": {"existing": "mine"},
    "users": {"existing": "people"},
    "tls": {"clients": {"enabled": True, "existing": "front"}, "nodes": {"enabled": True, "existing": "back"}},
    "networkPolicy": {"enabled": False},
}
VALUES = {"default": {}, "one": {"replicas": 1}, "tls": TLS, "everything": EVERYTHING, "existing": EXISTING}


def helm(*args, values=None) -> subprocess.CompletedProcess:
    assert shutil.which("helm"), "there is no helm in the path: scripts/tools.sh has need_helm"
    text = yaml.safe_dump(values or {})
    return subprocess.run(["helm", *map(str, args)], input=text, capture_output=True, text=True, timeout=60)


def template(values, *args, version=OLDEST) -> subprocess.CompletedProcess:
    options = ["--namespace", "here", "--kube-version", version, "--values", "-", *args]
    return helm("template", "heraldmq", CHART, *options, values=values)


def rendered(values=None, *args, version=OLDEST) -> dict:
    """The objects, by kind and name."""
    done = template(values, *args, version=version)
    assert done.returncode == 0, done.stderr
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    objects = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    assert len(objects) == len(documents), "two objects have one name"
    return objects


def pod_of(objects) -> dict:
    return objects["StatefulSet", "heraldmq"]["spec"]["template"]["spec"]


def broker_of(objects) -> dict:
    [container] = pod_of(objects)["containers"]
    return container


def config_of(objects) -> dict:
    return yaml.safe_load(objects["ConfigMap", "heraldmq"]["data"]["heraldmq.yml"])


def annotations_of(objects) -> dict:
    return objects["StatefulSet", "heraldmq"]["spec"]["template"]["metadata"]["annotations"]


def checked(objects, folder) -> subprocess.CompletedProcess:
    """What the init container says of the configuration, as pod 1."""
    [container] = pod_of(objects)["initContainers"]
    assert container["env"] == broker_of(objects)["env"]
    env = {entry["name"]: entry.get("value", "").replace("$(POD_NAME)", "heraldmq-1") for entry in container["env"]}
    file = folder / "heraldmq.yml"
    file.write_text(objects["ConfigMap", "heraldmq"]["data"]["heraldmq.yml"])
    command, path = container["args"]
    assert path == "/etc/heraldmq/config/heraldmq.yml"
    return run(command, file, env=env)


# -- all of it


def test_helm_finds_no_fault():
    for name, values in VALUES.items():
        done = helm("lint", "--strict", "--kube-version", OLDEST, CHART, "--values", "-", values=values)
        assert done.returncode == 0 and "[WARNING]" not in done.stdout, (name, done.stdout, done.stderr)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", VALUES)
def test_kubernetes_knows_each_field(name, version):
    for document in rendered(VALUES[name], "--is-upgrade", version=version).values():
        assert document["metadata"]["namespace"] == "here", document
        if document["apiVersion"] not in FOREIGN:
            kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("name", VALUES)
def test_the_broker_takes_its_configuration(name, tmp_path):
    done = checked(rendered(VALUES[name]), tmp_path)
    assert done.returncode == 0 and done.stdout.strip().endswith("OK"), done


def test_the_broker_refuses_an_option_that_it_does_not_know(tmp_path):
    done = checked(rendered({"config": {"mqtt": {"maximumQoS": 1}}}), tmp_path)
    assert done.returncode == 2 and "maximumQoS" in done.stderr, done


@pytest.mark.parametrize("name", VALUES)
def test_what_is_named_is_there(name):
    """Volumes of mounts, ports of Services and probes, and pods of selectors."""
    objects = rendered(VALUES[name], "--is-upgrade")
    labels = objects["StatefulSet", "heraldmq"]["spec"]["template"]["metadata"]["labels"]
    pod = pod_of(objects)
    volumes = {volume["name"] for volume in pod["volumes"]} | {"data"}
    ports = {port["name"]: port for port in broker_of(objects)["ports"]}
    assert all(len(port) <= 15 for port in ports)
    for container in (*pod["initContainers"], *pod["containers"]):
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    for (kind, _), document in objects.items():
        spec = document.get("spec", {})
        if kind == "Service":
            assert spec["selector"].items() <= labels.items()
            for port in spec["ports"]:
                of_pod = ports[port["targetPort"]]
                assert of_pod["containerPort"] == port["port"]
                assert of_pod.get("protocol") == port.get("protocol")
        if kind in ("PodDisruptionBudget", "StatefulSet"):
            assert spec["selector"]["matchLabels"].items() <= labels.items()
        if kind == "NetworkPolicy":
            assert spec["podSelector"]["matchLabels"].items() <= labels.items()
            opened = {port["port"] for rule in spec["ingress"] for port in rule["ports"]}
            assert opened == {port["containerPort"] for port in ports.values()}
        if kind == "ServiceMonitor":
            [found] = [
                service
                for (of, _), service in objects.items()
                if of == "Service" and spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
            ]
            assert found["metadata"]["name"] == "heraldmq-nodes"
    assert {probe: broker_of(objects)[probe]["httpGet"]["port"] for probe in PROBES} == dict.fromkeys(PROBES, "http")


@pytest.mark.parametrize(
    "values, expect",
    [
        ({"replica": 3}, "replica"),
        ({"tls": {"client": {}}}, "client"),
        ({"replicas": "3"}, "replicas"),
        ({"replicas": 0}, "replicas"),
        ({"resources": {"limit": {}}}, "limit"),
        ({"spread": {"host": "Never"}}, "host"),
        ({"storage": {"size": "20 GB"}}, "size"),
        ({"users": {"passwords": ["a"]}}, "passwords"),
        ({"image": {"digest": "0123"}}, "digest"),
        ({"tls": {"clients": {"enabled": True}}}, "tls.clients.issuer.name"),
        ({"tls": {"nodes": {"enabled": True}}}, "tls.nodes.issuer.name"),
        ({"config": {"http": {"enable": False}}}, "config.http.enable"),
        ({"config": {"http": {"sslConfig": {"certFile": "/x"}}}}, "config.http.sslConfig"),
        ({"config": {"mqttServerConfig": {"tcpListener": {"enable": False}}}}, "no listener for clients"),
    ],
)
def test_wrong_values_are_refused(values, expect):
    done = template(values)
    assert done.returncode != 0 and expect in done.stderr, done


def test_the_schema_has_each_value_and_no_other():
    def keys(schema, values, path=""):
        if "properties" not in schema:
            return
        assert schema["additionalProperties"] is False, path
        assert set(schema["properties"]) - {"global"} == set(values), path
        for name, value in values.items():
            keys(schema["properties"][name], value, f"{path}.{name}")

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    keys(json.loads((CHART / "values.schema.json").read_text()), values)


# -- the objects, one by one

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def test_pods_are_what_a_cluster_needs():
    objects = rendered()
    spec = objects["StatefulSet", "heraldmq"]["spec"]
    assert (spec["replicas"], spec["podManagementPolicy"], spec["serviceName"]) == (3, "Parallel", "heraldmq-nodes")
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    [claim] = spec["volumeClaimTemplates"]
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOncePod"],
        "resources": {"requests": {"storage": "20Gi"}},
    }
    env = {entry["name"]: entry.get("value") for entry in broker_of(objects)["env"]}
    assert env["HERALDMQ_CLUSTERCONFIG__HOST"] == f"$(POD_NAME).{DOMAIN}"
    config = config_of(objects)
    assert config["bootstrap"] is True and config["allowAnonymous"] is False
    cluster = config["clusterConfig"]
    assert cluster["seedEndpoints"] == ",".join(f"heraldmq-{number}.{DOMAIN}:8899" for number in range(3))
    assert cluster["clusterDomainName"] == DOMAIN and cluster["afterLeave"] == "wait"
    one = config_of(rendered({"replicas": 1}))["clusterConfig"]
    assert one["seedEndpoints"] == f"heraldmq-0.{DOMAIN}:8899"


def test_a_pod_has_time_to_end():
    objects = rendered()
    stop = config_of(objects)["stop"]
    assert stop == {"drainSeconds": 60, "majoritySeconds": 30}
    assert pod_of(objects)["terminationGracePeriodSeconds"] == 120
    assert pod_of(rendered(EVERYTHING))["terminationGracePeriodSeconds"] == 240


def test_probes_ask_what_they_should():
    broker = broker_of(rendered())
    seconds = {}
    for name in PROBES:
        probe = broker[name]
        seconds[probe["httpGet"]["path"], name] = probe["periodSeconds"] * probe["failureThreshold"]
    assert seconds == {
        ("/healthz", "startupProbe"): 300,
        ("/healthz", "livenessProbe"): 60,
        ("/readyz", "readinessProbe"): 4,
    }
    assert broker["readinessProbe"]["periodSeconds"] == 2


@pytest.mark.parametrize("name", VALUES)
def test_no_container_may_do_more_than_it_has_to(name):
    objects = rendered(VALUES[name], "--is-upgrade")
    pods = {key: document["spec"]["template"]["spec"] for key, document in objects.items() if key[0] in ("Job", "StatefulSet")}
    assert ("Job", "heraldmq-resize") in pods
    for (kind, of), pod in pods.items():
        security = pod["securityContext"]
        assert security["runAsUser"] == security["runAsGroup"] == security["fsGroup"] == 65532
        assert security["runAsNonRoot"] is True and security["fsGroupChangePolicy"] == "OnRootMismatch"
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is (of == "heraldmq-secret"), of
        assert pod["enableServiceLinks"] is False
        for container in (*pod.get("initContainers", []), *pod["containers"]):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
            assert "cpu" not in container["resources"]["limits"] and container["resources"]["limits"]["memory"]
            assert "command" not in container, "the image has no shell"
    assert objects["ServiceAccount", "heraldmq"]["automountServiceAccountToken"] is False


def test_services_are_for_nodes_clients_and_people():
    objects = rendered()
    headless = objects["Service", "heraldmq-nodes"]["spec"]
    assert headless["clusterIP"] == "None" and headless["publishNotReadyAddresses"] is True
    assert {(port["port"], port.get("protocol", "TCP")) for port in headless["ports"]} == {
        (8899, "TCP"),
        (8899, "UDP"),
        (8091, "TCP"),
    }
    clients = objects["Service", "heraldmq"]["spec"]
    assert clients["type"] == "ClusterIP" and "publishNotReadyAddresses" not in clients
    assert [(port["name"], port["port"]) for port in clients["ports"]] == [("mqtt", 1883)]
    of_all = rendered(EVERYTHING)["Service", "heraldmq"]["spec"]
    assert {port["name"]: port["port"] for port in of_all["ports"]} == {
        "mqtt": 1883,
        "mqtt-2": 1884,
        "mqtts": 8883,
        "ws": 9001,
    }
    assert (of_all["type"], of_all["externalTrafficPolicy"]) == ("LoadBalancer", "Local")
    people = objects["Service", "heraldmq-http"]["spec"]
    assert people["type"] == "ClusterIP" and [port["port"] for port in people["ports"]] == [8091]


def test_one_pod_at_a_time_is_away_and_hosts_differ():
    objects = rendered()
    budget = objects["PodDisruptionBudget", "heraldmq"]["spec"]
    assert budget["maxUnavailable"] == 1 and "minAvailable" not in budget
    assert ("PodDisruptionBudget", "heraldmq") not in rendered({"replicas": 1})
    spread = {entry["topologyKey"]: entry for entry in pod_of(objects)["topologySpreadConstraints"]}
    assert {key: entry["whenUnsatisfiable"] for key, entry in spread.items()} == {
        "topology.kubernetes.io/zone": "ScheduleAnyway",
        "kubernetes.io/hostname": "DoNotSchedule",
    }


def test_the_network_lets_in_nodes_clients_and_monitoring():
    rules = rendered()["NetworkPolicy", "heraldmq"]["spec"]["ingress"]
    by_ports = {tuple((port["port"], port["protocol"]) for port in rule["ports"]): rule.get("from") for rule in rules}
    [nodes] = by_ports[(8899, "TCP"), (8899, "UDP")]
    assert nodes["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "broker"
    own, monitoring = by_ports[((8091, "TCP"),)]
    assert own == {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "heraldmq", "app.kubernetes.io/instance": "heraldmq"}}
    }
    assert "namespaceSelector" in monitoring
    assert by_ports[((1883, "TCP"),)] is None
    [clients] = [rule["from"] for rule in rendered(EVERYTHING)["NetworkPolicy", "heraldmq"]["spec"]["ingress"][2:]]
    assert clients == EVERYTHING["networkPolicy"]["clients"]
    assert ("NetworkPolicy", "heraldmq") not in rendered(EXISTING)


def test_the_secret_is_made_once_by_who_may_do_nothing_else():
    objects = rendered()
    role = objects["Role", "heraldmq-secret"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}]
    job = objects["Job", "heraldmq-secret"]
    hooks = [objects[kind, "heraldmq-secret"]["metadata"]["annotations"] for kind in ("ServiceAccount", "Role", "RoleBinding")]
    assert all(int(hook["helm.sh/hook-weight"]) < int(job["metadata"]["annotations"]["helm.sh/hook-weight"]) for hook in hooks)
    assert {hook["helm.sh/hook"] for hook in (*hooks, job["metadata"]["annotations"])} == {"pre-install,pre-upgrade"}
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["secrets", "--kubernetes", "heraldmq-secret"]
    # When it has run, nobody may create Secrets any more; a Job that has failed stays, with its log.
    policies = {hook["helm.sh/hook-delete-policy"] for hook in (*hooks, job["metadata"]["annotations"])}
    assert policies == {"before-hook-creation,hook-succeeded"}
    # Nothing random is rendered.
    assert not any(kind == "Secret" for kind, _ in objects)
    of_mine = rendered(EXISTING)
    assert not any(name == "heraldmq-secret" for _, name in of_mine)
    volumes = {volume["name"]: volume.get("secret", {}).get("secretName") for volume in pod_of(of_mine)["volumes"]}
    assert volumes == {"config": None, "secrets": "mine", "users": "people", "clients-tls": "front", "nodes-tls": "back"}


def test_users_are_in_a_secret_whose_change_restarts_pods():
    objects = rendered(USERS)
    data = objects["Secret", "heraldmq-users"]["data"]
    assert {key: base64.b64decode(value).decode() for key, value in data.items()} == USERS["users"]
    config = config_of(objects)
    assert config["authentication"]["chain"] == [
        {"kind": "passwordFile", "file": "/etc/heraldmq/users/passwords"},
        {"kind": "control"},
    ]
    assert config["authorization"] == {"file": "/etc/heraldmq/users/rules", "noMatch": "deny"}
    before = annotations_of(objects)["checksum/users"]
    other = {"users": {**USERS["users"], "rules": "deny all all\n"}}
    assert annotations_of(rendered(other))["checksum/users"] != before
    assert annotations_of(rendered(USERS))["checksum/users"] == before


def test_pods_restart_for_another_configuration_but_not_for_another_number_of_them():
    before = annotations_of(rendered())["checksum/config"]
    assert annotations_of(rendered({"config": {"log": {"level": "debug"}}}))["checksum/config"] != before
    # All of the pod, not only the annotation.
    of = [rendered({"replicas": replicas})["StatefulSet", "heraldmq"]["spec"]["template"] for replicas in (3, 5)]
    assert of[0] == of[1]


def test_certificates_name_what_they_are_for():
    objects = rendered(TLS)
    clients = objects["Certificate", "heraldmq"]["spec"]
    assert clients["usages"] == ["server auth"] and "heraldmq.here.svc.cluster.local" in clients["dnsNames"]
    assert clients["issuerRef"] == {"name": "ours", "kind": "Issuer"}
    nodes = objects["Certificate", "heraldmq-nodes"]["spec"]
    assert nodes["dnsNames"] == [f"*.{DOMAIN}", DOMAIN] and nodes["usages"] == ["server auth", "client auth"]
    assert nodes["issuerRef"] == {"name": "nodes", "kind": "ClusterIssuer"}
    volumes = {volume["name"]: volume["secret"]["secretName"] for volume in pod_of(objects)["volumes"] if "secret" in volume}
    assert volumes["clients-tls"] == clients["secretName"] and volumes["nodes-tls"] == nodes["secretName"]
    config = config_of(objects)
    listeners = config["mqttServerConfig"]
    assert listeners["tcpListener"]["enable"] is False and listeners["tlsListener"]["port"] == 8883
    mounts = {mount["mountPath"] for mount in broker_of(objects)["volumeMounts"]}
    for file in (*listeners["tlsListener"]["sslConfig"].values(), *config["clusterConfig"]["sslConfig"].values()):
        assert str(pathlib.PurePath(file).parent) in mounts, file


def test_monitoring_is_what_the_package_has():
    objects = rendered(EVERYTHING)
    [endpoint] = objects["ServiceMonitor", "heraldmq"]["spec"]["endpoints"]
    set_labels = {entry["targetLabel"]: entry.get("replacement") for entry in endpoint["relabelings"]}
    assert set_labels == {"job": "heraldmq", "instance": None, "cluster": "here/heraldmq"}
    rules = yaml.safe_load((ROOT / "packaging/prometheus/heraldmq-alerts.yml").read_text())
    assert objects["PrometheusRule", "heraldmq"]["spec"] == rules
    dashboards = objects["ConfigMap", "heraldmq-dashboards"]
    assert dashboards["metadata"]["labels"]["grafana_dashboard"] == "1"
    shipped = {path.name: json.loads(path.read_text()) for path in (ROOT / "packaging/grafana").glob("*.json")}
    assert {name: json.loads(text) for name, text in dashboards["data"].items()} == shipped
    assert not any(document["apiVersion"] in FOREIGN for document in rendered().values())


def test_nodes_leave_before_an_upgrade_with_fewer_pods():
    assert ("Job", "heraldmq-resize") not in rendered()
    job = rendered({"replicas": 3}, "--is-upgrade")["Job", "heraldmq-resize"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["args"][:3] == ["cluster", "resize", "3"]
    assert "--url=http://heraldmq-http.here.svc.cluster.local:8091" in container["args"]
    assert job["spec"]["activeDeadlineSeconds"] > 600
    # The command line is one that the broker knows; nobody answers.
    args = [arg for arg in container["args"] if not arg.startswith(("--url", "--key-file", "--wait="))]
    done = run(*args, "--wait=1", "--url=http://127.0.0.1:1")
    assert done.returncode == 1, done
    assert ("Job", "heraldmq-resize") not in rendered({"resize": {"enabled": False}}, "--is-upgrade")


# -- what is made of other files


def test_files_that_are_made_of_others_are_current(tmp_path):
    into = ROOT / "packaging" if os.environ.get("UPDATE_GENERATED") else tmp_path
    env = {**os.environ, "PATH": os.environ["PATH"]}
    subprocess.run([ROOT / "packaging/helm/render", into], check=True, timeout=600, env=env)
    for made, kept in [(into / "helm/heraldmq/files", CHART / "files"), (into / "kubernetes", KUBERNETES)]:
        compared = filecmp.dircmp(made, kept)
        different = compared.left_only + compared.right_only + compared.diff_files
        assert not different, f"UPDATE_GENERATED=1 writes {different} in {kept}"


def test_the_version_is_that_of_the_broker():
    version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M).group(1)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


# -- `heraldmq size --values`, and the page


def test_values_by_size_are_values_of_the_chart():
    done = run("size", "15k_15k_qos1_p256_1mps_3n_3v", "--values")
    assert done.returncode == 0 and done.stdout.count("#") > 3, done
    objects = rendered(yaml.safe_load(done.stdout))
    assert broker_of(objects)["resources"] == yaml.safe_load(done.stdout)["resources"]


def blocks(language) -> list[str]:
    return re.findall(rf"```{language}[^\n]*\n(.*?)```", PAGE.read_text(), re.S)


def test_the_values_of_the_page_are_values_of_the_chart(tmp_path):
    shown = [yaml.safe_load(block) for block in blocks("yaml")]
    assert len(shown) >= 3
    for values in shown:
        objects = rendered(values)
        assert checked(objects, tmp_path).returncode == 0, values


def test_the_commands_of_the_page_are_commands():
    """Those of `heraldmq` have options that it knows, and those of `helm` set values that there are."""
    text = "\n".join(blocks("sh")).replace("\\\n", " ")
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    sets = [found for line in lines for found in re.findall(r"--set (\S+)", line)]
    assert sets
    for one in sets:
        done = template({}, "--set", one)
        assert done.returncode == 0, (one, done.stderr)
    asked = [line.split("-- heraldmq ", 1)[1] for line in lines if "-- heraldmq " in line]
    assert asked
    for line in asked:
        words = list(itertools.takewhile(lambda word: re.fullmatch("[a-z][a-z-]*", word), line.split()))
        options = re.findall(r"--[a-z-]+", line)
        # The last of the words may be an argument.
        helps = [run(*words[:count], "--help") for count in (len(words), len(words) - 1) if count > 0]
        known = next((it.stdout for it in helps if it.returncode == 0), "")
        assert known and all(option in known for option in options), line


# -- `heraldmq secrets --kubernetes`


class Api:
    """Context manager: the part of Kubernetes that makes Secrets, which are in `made`."""

    def __init__(self, folder, status=None):
        self.made, self.status, api = {}, status, self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                name = body["metadata"]["name"]
                status = api.status or (409 if name in api.made else 201)
                if self.headers["Authorization"] != "Bearer pod" or self.path != "/api/v1/namespaces/here/secrets":
                    status = 401
                if status == 201:
                    kubernetes_validate.validate(body, OLDEST, strict=True)
                    api.made[name] = body
                answer = json.dumps({"kind": "Status", "message": f"said {status}"}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args):
                pass

        authority = Authority(folder)
        self.account = folder / "account"
        self.account.mkdir()
        for name, text in [("token", "pod\n"), ("namespace", "here"), ("ca.crt", pathlib.Path(authority.path).read_text())]:
            (self.account / name).write_text(text)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.issue("kubernetes").files)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def asked(self) -> subprocess.CompletedProcess:
        env = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.server.server_port)}
        return run("secrets", "--kubernetes", "mine", "--service-account", self.account, env=env)


def test_a_secret_is_made_in_kubernetes_once(tmp_path):
    with Api(tmp_path) as api:
        done = api.asked()
        assert done.returncode == 0 and done.stdout == "made mine\n", done
        made = api.made["mine"]["stringData"]
        assert set(made) == {"cluster-secret", "token"} and made["token"] != made["cluster-secret"]
        assert all(re.fullmatch("[0-9a-f]{64}", text) and text not in done.stdout for text in made.values())
        before = json.dumps(api.made)
        kept = api.asked()
        assert kept.returncode == 0 and kept.stdout == "kept mine\n", kept
        assert json.dumps(api.made) == before


def test_what_kubernetes_refuses_is_said(tmp_path):
    with Api(tmp_path, status=403) as api:
        done = api.asked()
        assert done.returncode == 1 and "403" in done.stderr and "said 403" in done.stderr, done
    outside = run("secrets", "--kubernetes", "mine")
    assert outside.returncode == 2 and "for pods only" in outside.stderr, outside
