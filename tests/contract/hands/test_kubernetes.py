"""What the kubernetes backend promises beside what every backend does (CASES S14, F6)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drover.hands.v1.hands_service_pb2 import (
    VERDICT_COMPLETED,
    VERDICT_NOT_RUN,
    VERDICT_OUTCOME_UNKNOWN,
    ExecuteResponse,
)
from services.hands.backends.kubernetes import manifest
from services.hands.domain.limits import MIB
from services.hands.domain.protections import Protection
from services.hands.domain.recipe import Recipe
from tests.doubles.hands_stack import SMALL, HandsStack, Sandboxes, hands_stack, running, text
from tests.doubles.hands_waiting import eventually
from tests.doubles.kubernetes_api import TOKEN, ApiServer
from tests.doubles.kubernetes_cluster import Cluster, running_cluster
from tests.doubles.kubernetes_objects import NAMESPACE

PODS = f"/namespaces/{NAMESPACE}/pods"


@pytest.fixture
def cluster(own_cluster: Cluster) -> Cluster:
    """One that the test may break."""
    return own_cluster


@pytest.fixture
def sandboxes(cluster: Cluster) -> Sandboxes:
    return Sandboxes("kubernetes", cluster=cluster)


def pod_of(hands: HandsStack, session_id: str = "sesn_1") -> str:
    return str(sandbox_of(hands, session_id)._name)


def sandbox_of(hands: HandsStack, session_id: str = "sesn_1") -> Any:
    return hands.pool._seats[session_id].hand.result()._sandbox


async def refused(sandboxes: Sandboxes, directory: Path, **settings: Any) -> str:
    """Why a call is not run."""
    backend = sandboxes.backend(directory / "hands", **settings)
    async with hands_stack(directory, backend=backend) as hands:
        return not_run(await hands.run("bash", command="true"))


def not_run(result: ExecuteResponse) -> str:
    assert result.verdict == VERDICT_NOT_RUN
    return text(result)


async def begun(hands: HandsStack) -> asyncio.Task[ExecuteResponse]:
    """A call that does not end by itself."""
    await hands.bash("echo kept >f; rm -f begun")
    asked = asyncio.create_task(hands.run("bash", command="touch begun; sleep 1000"))
    volume = hands.pool._workspaces.find("sesn_1")
    assert volume is not None
    await eventually((volume.root / "workspace" / "begun").exists)
    return asked


async def unknown(asked: asyncio.Task[ExecuteResponse]) -> str:
    async with asyncio.timeout(20):
        result = await asked
    assert result.verdict == VERDICT_OUTCOME_UNKNOWN
    return text(result)


async def test_pods_are_cut_off_by_a_policy_that_is_made_before_the_first(
    hands: HandsStack, cluster: Cluster
) -> None:
    await hands.bash("true")
    [policy] = cluster.do(
        lambda server: [made for key, made in server.objects.items() if key[0] == "networkpolicies"]
    )
    assert policy["spec"] == {
        "podSelector": {"matchLabels": {manifest.INSTALLATION: hands.backend._installation}},
        "policyTypes": ["Ingress", "Egress"],
    }
    assert await hands.bash("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '") == "lo"
    assert cluster.asked("POST", "networkpolicies") == 1


async def test_policy_that_lets_sandboxes_out_keeps_them_from_starting(
    hands: HandsStack, cluster: Cluster
) -> None:
    policy = {"metadata": {"name": "open"}, "spec": {"podSelector": {}, "egress": [{}]}}
    cluster.do(lambda server: server.put("networkpolicies", NAMESPACE, policy))
    why = not_run(await hands.run("bash", command="true"))
    assert "the network policy open lets sandboxes out" in why
    assert cluster.pods() == []


async def test_network_that_enforces_no_policy_is_noticed_from_inside(
    sandboxes: Sandboxes, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.do(lambda server: setattr(server, "enforces", False))
    why = await refused(sandboxes, tmp_path)
    assert "its network is open: it reached 127.0.0.1:" in why
    assert cluster.pods() == []
    backend = sandboxes.backend(tmp_path / "hands", probe="")
    async with hands_stack(tmp_path, backend=backend) as hands:
        assert await hands.bash("echo fine") == "fine"


async def test_all_of_it_goes_by_tls_and_only_with_a_certificate_that_is_trusted(
    tmp_path: Path,
) -> None:
    with running_cluster(tmp_path, tmp_path, tls=True) as cluster:
        sandboxes = Sandboxes("kubernetes", cluster=cluster)
        async with sandboxes.stack(tmp_path) as hands:
            assert await hands.bash("echo fine") == "fine"
            await hands.executor.release("sesn_1")
            assert cluster.pods() == []
        text_of = cluster.config.read_text()
        (tmp_path / "other").write_text(re.sub(", certificate-authority: '.*?'", "", text_of))
        why = await refused(sandboxes, tmp_path, config=str(tmp_path / "other"))
        assert "shows a certificate that is not trusted" in why


async def test_service_account_of_ones_own_pod_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_cluster(tmp_path, tmp_path, tls=True) as cluster:
        (tmp_path / "token").write_text(TOKEN)
        place = "kubernetes.config.incluster_config.SERVICE_"
        monkeypatch.setattr(f"{place}TOKEN_FILENAME", str(tmp_path / "token"))
        monkeypatch.setattr(f"{place}CERT_FILENAME", str(tmp_path / "certificate.pem"))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(cluster.do(lambda server: server.port)))
        sandboxes = Sandboxes("kubernetes", cluster=cluster)
        backend = sandboxes.backend(tmp_path / "hands", config=None)
        async with hands_stack(tmp_path, backend=backend) as hands:
            assert await hands.bash("echo fine") == "fine"


async def test_pod_that_admission_made_weaker_is_ended_before_anything_runs(
    hands: HandsStack, cluster: Cluster
) -> None:
    def inject(pod: dict[str, Any]) -> None:
        pod["spec"]["containers"].append({**pod["spec"]["containers"][0], "name": "proxy"})

    cluster.do(lambda server: server.mutations.append(inject))
    why = not_run(await hands.run("bash", command="true"))
    assert "less protection than it was told: containers are sandbox, proxy" in why
    assert cluster.pods() == []


CLAIMED = ("persistentvolumeclaims", NAMESPACE, "hands")
SHARED_BY_NONE = {"accessModes": ["ReadWriteOnce"]}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"minimum": "1.34"}, "it is of version v1.33.1, and 1.34 is the least allowed"),
        ({"namespace": "none"}, "it has no namespace none"),
        ({"pod_security": "restricted"}, "the namespace sandboxes takes baseline pods"),
        ({"claim": "none"}, "the namespace sandboxes has not the volume claim none"),
        ({"image": ""}, "name it in DROVER_SANDBOX_IMAGE"),
        ({"root": Path("/nowhere")}, "DROVER_KUBERNETES_VOLUME_ROOT is /nowhere"),
        ({"least": frozenset({Protection.KERNEL})}, "less than DROVER_SANDBOX_MINIMUM"),
        ({"config": "/nowhere"}, "no cluster is configured: /nowhere cannot be read"),
    ],
)
async def test_what_a_cluster_has_not_is_refused_and_named(
    sandboxes: Sandboxes, tmp_path: Path, settings: dict[str, Any], why: str
) -> None:
    assert why in await refused(sandboxes, tmp_path, **settings)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda server: server.denied.add(("create", "pods/attach")),
            "in the namespace sandboxes this process may not create pods/attach",
        ),
        (
            lambda server: server.objects[CLAIMED]["status"].update(phase="Pending"),
            "the volume claim hands is not bound",
        ),
        (
            lambda server: server.objects[CLAIMED]["status"].update(SHARED_BY_NONE),
            "the volume claim hands is ReadWriteOnce",
        ),
    ],
)
async def test_cluster_that_is_not_fit_is_refused_and_it_is_said_why(
    cluster: Cluster, tmp_path: Path, change: Callable[[ApiServer], object], why: str
) -> None:
    cluster.do(change)
    assert why in await refused(Sandboxes("kubernetes", cluster=cluster), tmp_path)
    assert cluster.pods() == []


async def test_image_that_cannot_be_pulled_is_told_at_once(
    hands: HandsStack, cluster: Cluster
) -> None:
    given = ("sesn_1", "c1", 1, "bash", '{"command":"true"}')
    result = await hands.executor.execute(*given, recipe=Recipe(image="team/none"))
    assert "ErrImagePull: failed to pull image team/none: not found" in not_run(result)
    assert cluster.pods() == []


async def test_image_without_python_says_what_it_lacks(hands: HandsStack, cluster: Cluster) -> None:
    cluster.do(lambda server: server.empty_images.add("team/empty"))
    given = ("sesn_1", "c1", 1, "bash", '{"command":"true"}')
    result = await hands.executor.execute(*given, recipe=Recipe(image="team/empty"))
    assert "the image team/empty has no python3" in not_run(result)


async def test_pod_that_no_node_takes_is_given_up_and_it_is_said_what_it_waited_for(
    sandboxes: Sandboxes, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.do(lambda server: setattr(server, "node_full", True))
    why = await refused(sandboxes, tmp_path, start_seconds=2.0)
    assert "did not run within 2 s: Unschedulable: 0/1 nodes are available" in why
    assert "(FailedScheduling: no room)" in why
    assert cluster.pods() == []


async def test_claim_that_is_another_one_is_noticed(cluster: Cluster, tmp_path: Path) -> None:
    cluster.do(lambda server: server.claims.update(hands=tmp_path / "elsewhere"))
    why = await refused(Sandboxes("kubernetes", cluster=cluster), tmp_path)
    assert "its volume claim is not the one that the hands have their directory on" in why


@pytest.mark.parametrize("kept", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_streams_of_both_versions_carry_much_both_ways(
    hands: HandsStack, cluster: Cluster, kept: str
) -> None:
    cluster.do(lambda server: setattr(server, "protocols", [kept]))
    content = "x" * 3_000_000
    assert not (await hands.run("write", file_path="big", content=content)).is_error
    assert await hands.bash("wc -c <big; head -c 90000 big | tail -c 5") == "3000000\nxxxxx"
    await hands.executor.release("sesn_1")
    assert cluster.pods() == []


async def test_unknown_stream_is_refused(hands: HandsStack, cluster: Cluster) -> None:
    cluster.do(lambda server: setattr(server, "protocols", []))
    why = not_run(await hands.run("bash", command="true"))
    assert "the cluster attaches nobody: unable to upgrade" in why
    assert cluster.pods() == []


async def test_running_out_of_memory_is_told(sandboxes: Sandboxes, tmp_path: Path) -> None:
    limits = replace(SMALL, memory_bytes=48 * MIB, tmp_bytes=512 * MIB)
    async with sandboxes.stack(tmp_path, limits=limits) as hands:
        for _ in range(20):
            result = await hands.run("bash", command="head -c 300M /dev/zero >>/tmp/x; true")
            if result.verdict == VERDICT_OUTCOME_UNKNOWN:
                break
        assert "it used more memory than it may" in text(result)


async def test_evicted_pod_is_told_and_replaced(hands: HandsStack, cluster: Cluster) -> None:
    asked = await begun(hands)
    cluster.do(lambda server: server.evict(pod_of(hands), "The node was low on memory"))
    assert "its node evicted it: The node was low on memory" in await unknown(asked)
    assert await hands.bash("cat f") == "kept"


async def test_pod_deleted_by_somebody_is_told_and_replaced(
    hands: HandsStack, cluster: Cluster
) -> None:
    asked = await begun(hands)
    pod = cluster.do(lambda server: server.pod(pod_of(hands)))
    cluster.do(lambda server: server.delete(pod, 1))
    assert "its pod was removed" in await unknown(asked)
    assert await hands.bash("cat f") == "kept"


async def test_pod_that_is_too_old_is_ended_by_the_cluster(
    hands: HandsStack, cluster: Cluster
) -> None:
    asked = await begun(hands)
    cluster.do(lambda server: server.overdue(pod_of(hands)))
    assert "it was older than a sandbox's pod may be" in await unknown(asked)


async def test_stream_that_is_cut_ends_its_sandbox_and_all_of_its_processes(
    hands: HandsStack, cluster: Cluster
) -> None:
    asked = await begun(hands)
    processes = hands.processes()
    cluster.do(lambda server: server.cut())
    await unknown(asked)
    assert not any(map(running, processes))
    assert await hands.bash("cat f") == "kept"
    assert len(cluster.pods()) == 1


async def test_api_server_that_dies_in_a_call_leaves_nothing_running_once_it_is_back(
    hands: HandsStack, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F6, with the server gone too: the agent ends with its stream, the pod when it is back."""
    monkeypatch.setattr("services.hands.backends.kubernetes.sandbox._GONE_SECONDS", 0.5)
    asked = await begun(hands)
    processes, pod = hands.processes(), pod_of(hands)
    cluster.do(lambda server: server.stop())
    assert "no API server of Kubernetes answers" in await unknown(asked)
    await eventually(lambda: not any(map(running, processes)))
    assert "no API server" in not_run(await hands.run("bash", command="true"))
    monkeypatch.undo()
    cluster.do(lambda server: server.start())
    assert await hands.bash("cat f") == "kept"
    assert pod not in cluster.pods()


async def test_answer_that_is_lost_after_a_pod_was_made_leaves_none(
    hands: HandsStack, cluster: Cluster
) -> None:
    cluster.fail("POST", PODS, 0, after=True, times=1)
    assert "no API server" in not_run(await hands.run("bash", command="true"))
    assert len(cluster.pods()) == 1
    await hands.bash("true")
    assert len(cluster.pods()) == 1


async def test_answer_that_is_lost_to_a_question_is_asked_for_again(
    hands: HandsStack, cluster: Cluster
) -> None:
    cluster.fail("GET", "networkpolicies", 0, times=1)
    assert await hands.bash("echo fine") == "fine"


async def test_server_that_puts_off_is_asked_again_after_the_time_that_it_says(
    hands: HandsStack, cluster: Cluster
) -> None:
    fault = cluster.fail("POST", PODS, 429, headers={"Retry-After": "1"}, times=1)
    started = asyncio.get_running_loop().time()
    assert await hands.bash("echo fine") == "fine"
    assert fault.times == 0
    assert asyncio.get_running_loop().time() - started >= 1


async def test_server_that_puts_off_for_too_long_is_given_up(
    sandboxes: Sandboxes, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.fail("POST", PODS, 429, message="slow down", headers={"Retry-After": "3600"})
    assert "the cluster refuses: slow down" in await refused(sandboxes, tmp_path, seconds=5.0)


async def test_conflict_about_a_quota_passes_and_an_exceeded_quota_is_told(
    hands: HandsStack, cluster: Cluster
) -> None:
    cluster.fail("POST", PODS, 409, reason="Conflict", message="on resourcequotas", times=2)
    assert await hands.bash("echo fine") == "fine"
    cluster.fail("POST", PODS, 403, reason="Forbidden", message="exceeded quota: pods")
    other = await hands.run("bash", command="true", session_id="sesn_2")
    assert "the cluster refuses: exceeded quota: pods" in not_run(other)


async def test_server_that_never_answers_is_given_up(
    sandboxes: Sandboxes, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.fail("POST", PODS, -1)
    assert "did not answer in 0.3 s" in await refused(sandboxes, tmp_path, seconds=0.3)


async def test_attaching_that_is_never_answered_is_given_up_and_leaves_no_pod(
    sandboxes: Sandboxes, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.fail("GET", "/attach", -1)
    backend = sandboxes.backend(tmp_path / "hands")
    backend._settings = replace(backend._settings, seconds=0.5)  # the calls before have longer
    async with hands_stack(tmp_path, backend=backend) as hands:
        why = not_run(await hands.run("bash", command="true"))
    assert "did not attach to a pod in 0.5 s" in why
    assert cluster.pods() == []


@pytest.mark.parametrize("status", [410, 403, 0])
async def test_watch_that_fails_is_begun_anew(
    hands: HandsStack, cluster: Cluster, status: int
) -> None:
    fault = cluster.fail("GET", r"/pods\?watch", status, reason="Expired", times=1)
    assert await hands.bash("echo fine") == "fine"
    await eventually(lambda: fault.times == 0)
    cluster.do(lambda server: server.expire())
    assert await hands.bash("echo fine", session_id="sesn_2") == "fine"
    await hands.executor.release("sesn_1")
    assert len(cluster.pods()) == 1


async def test_watch_that_is_silent_holds_nothing_up_for_long(
    hands: HandsStack, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.hands.backends.kubernetes.pods._LOOK_SECONDS", 0.1)
    cluster.fail("GET", r"/pods\?watch", -1)
    assert await hands.bash("echo fine") == "fine"
    await hands.executor.release("sesn_1")
    assert cluster.pods() == []


async def test_cancelled_start_leaves_no_pod(
    sandboxes: Sandboxes, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.do(lambda server: setattr(server, "node_full", True))
    async with sandboxes.stack(tmp_path) as hands:
        asked = asyncio.create_task(hands.run("bash", command="true"))
        await eventually(cluster.pods)
        asked.cancel()
        await asyncio.wait([asked])
        for task in asyncio.all_tasks():
            if task.get_name().startswith("start "):
                task.cancel()
        await eventually(lambda: not cluster.pods())


async def test_pod_that_a_dead_service_left_is_removed_by_the_next_before_it_serves(
    sandboxes: Sandboxes, cluster: Cluster, tmp_path: Path
) -> None:
    async with sandboxes.stack(tmp_path) as hands:
        await hands.bash("true")
        label = {manifest.INSTALLATION: hands.backend._installation}

    def leave(server: Any) -> None:
        for name, labels in (("ours", label), ("other", {manifest.INSTALLATION: "other"})):
            metadata = {"name": name, "labels": labels}
            server.put("pods", NAMESPACE, {"metadata": metadata, "spec": {}, "status": {}})

    cluster.do(leave)
    backend = sandboxes.backend(tmp_path / "hands")
    await backend.start()
    assert cluster.pods() == ["other"]
    await backend.close()


async def test_node_that_is_away_is_waited_for_and_then_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch, hands: HandsStack, cluster: Cluster
) -> None:
    """A pod is never forgotten while its node may run it: that is for whoever knows the node."""
    monkeypatch.setattr("services.hands.backends.kubernetes.sandbox._GONE_SECONDS", 0.5)
    await hands.bash("true")
    cluster.do(lambda server: setattr(server, "node_away", True))
    await hands.executor.release("sesn_1")
    [pod] = cluster.pods()
    assert await hands.bash("echo fine", session_id="sesn_2") == "fine"
    # Where the release was too late to ask for it, the start that came next has.
    await eventually(
        lambda: cluster.do(lambda server: server.pod(pod))["metadata"].get("deletionTimestamp")
    )


async def test_host_that_lets_go_of_the_stream_ends_the_sandbox(hands: HandsStack) -> None:
    """As when its hands process is killed: nothing goes on without it."""
    result = await hands.run("bash", command="true")
    assert result.verdict == VERDICT_COMPLETED
    processes = hands.processes()
    sandbox_of(hands).writer.transport.abort()
    await eventually(lambda: not any(map(running, processes)))


async def test_workspace_goes_from_pods_to_this_machine_byte_for_byte(
    hands: HandsStack, tmp_path: Path
) -> None:
    await hands.bash("head -c 100000 /dev/urandom >data; ln -s data link; mkdir -p a/b")
    command = "cat link | sha256sum; find . | sort"
    before = await hands.bash(command)
    await hands.executor.release("sesn_1")
    local = Sandboxes("local").backend(tmp_path / "hands")
    hands.pool._backend = local
    await local.start()
    assert await hands.bash(command) == before
    await hands.executor.release("sesn_1")
    await local.close()
