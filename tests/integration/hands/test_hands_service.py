from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from chassis.context import CallContext, call_context
from chassis.errors import Reason
from chassis.grpc.status import from_rpc_error
from drover.hands.v1 import hands_service_pb2 as pb
from services.hands.domain.execution import SANDBOX_LOST
from tests.integration.hands.conftest import call


async def refusal(attempt: Any) -> tuple[Reason, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await attempt
    error = from_rpc_error(refused.value)
    return error.reason, error.message


def text(result: pb.ExecuteResponse) -> str:
    return "".join(block.text.text for block in result.content)


async def test_hand_is_provisioned_once_and_named(hands: Any) -> None:
    first = await hands.Provision(pb.ProvisionRequest(session_id="sesn_1", generation=1))
    second = await hands.Provision(pb.ProvisionRequest(session_id="sesn_1", generation=1))
    assert (first.backend, first.existing, second.existing) == ("local", False, True)
    assert first.hand_id == second.hand_id


async def test_execute_needs_no_provision(hands: Any) -> None:
    result = await hands.Execute(call("c1", command="echo out"))
    assert (text(result), result.verdict) == ("out", pb.VERDICT_COMPLETED)
    assert result.duration.ToTimedelta().total_seconds() > 0


async def test_call_asked_for_many_times_runs_once(hands: Any) -> None:
    request = call("c1", command="echo ran >>log; cat log")
    results = await asyncio.gather(*(hands.Execute(request) for _ in range(10)))
    later = await hands.Execute(request)
    assert {text(result) for result in (*results, later)} == {"ran"}
    assert later.replayed


async def test_client_that_hangs_up_stops_nothing(hands: Any) -> None:
    request = call("c1", command="while [ ! -e /tmp/go ]; do :; done; echo ran >>log; cat log")
    await hands.Provision(pb.ProvisionRequest(session_id="sesn_1", generation=1))
    with pytest.raises(grpc.aio.AioRpcError) as gone:
        await hands.Execute(request, timeout=0.3)
    assert gone.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await hands.Execute(call("c2", "write", file_path="/tmp/go", content=""))  # noqa: S108
    assert text(await hands.Execute(request)) == "ran"


async def test_followers_see_output_before_the_result_and_may_hang_up(hands: Any) -> None:
    request = pb.FollowRequest(
        call=call("c1", command="echo begun; until [ -e /tmp/go ]; do :; done; echo ended")
    )
    stream = hands.Follow(request)
    assert (await stream.read()).output.text == "begun\n"
    leaves = hands.Follow(request)
    assert (await leaves.read()).output.text == "begun\n"
    leaves.cancel()
    await hands.Execute(call("c2", "write", file_path="/tmp/go", content=""))  # noqa: S108
    assert (await stream.read()).output.text == "ended\n"
    last = await stream.read()
    assert text(last.result) == "begun\nended"
    assert await stream.read() is grpc.aio.EOF
    (recorded,) = [update async for update in hands.Follow(request)]
    assert recorded.result.replayed
    assert recorded.result.content == last.result.content


async def test_follower_of_an_older_generation_is_refused_with_its_reason(hands: Any) -> None:
    await hands.Execute(
        pb.ExecuteRequest(session_id="sesn_1", call_id="c1", generation=5, name="x")
    )
    stream = hands.Follow(pb.FollowRequest(call=call("c2", command="true")))
    assert (await refusal(stream.read()))[0] is Reason.LEASE_LOST
    missing = await refusal(hands.Follow(pb.FollowRequest()).read())
    assert missing[0] is Reason.INVALID_ARGUMENT


async def test_older_generation_is_refused_with_its_reason(hands: Any) -> None:
    await hands.Provision(pb.ProvisionRequest(session_id="sesn_1", generation=2))
    cancel = pb.CancelRequest(session_id="sesn_1", generation=1, call_ids=["c1"])
    provision = pb.ProvisionRequest(session_id="sesn_1", generation=1)
    for attempt in (
        hands.Execute(call("c1", command="touch /workspace/ran")),
        hands.Cancel(cancel),
        hands.Provision(provision),
    ):
        reason, _ = await refusal(attempt)
        assert reason is Reason.LEASE_LOST


async def test_bad_requests_are_refused_by_path(hands: Any) -> None:
    request = call("c1", command="x")
    request.environment.self_hosted.SetInParent()
    reason, message = await refusal(hands.Execute(request))
    assert reason is Reason.INVALID_ARGUMENT
    assert message.startswith("environment.self_hosted: ")
    for session_id in ("", "../../etc", "a/b", "x" * 129):
        reason, message = await refusal(
            hands.Execute(pb.ExecuteRequest(session_id=session_id, call_id="c", name="bash"))
        )
        assert reason is Reason.INVALID_ARGUMENT
        assert message.startswith("session_id: ")


async def test_packages_without_a_network_are_told_of_and_the_call_runs(hands: Any) -> None:
    request = call("c1", command="echo ran")
    request.environment.cloud.packages.pip.append("numpy")
    result = await hands.Execute(request)
    assert not result.is_error
    (error,) = result.errors
    assert error.WhichOneof("error") == "unknown_error"
    assert "pip has not installed numpy" in error.message
    assert "DROVER_EGRESS_ADDRESS" in error.message


async def test_bad_input_of_a_model_is_a_result(hands: Any) -> None:
    for request in (
        pb.ExecuteRequest(session_id="sesn_1", call_id="a", name="bash", input="{"),
        pb.ExecuteRequest(session_id="sesn_1", call_id="b", name="paint", input="{}"),
    ):
        result = await hands.Execute(request)
        assert (result.verdict, result.is_error) == (pb.VERDICT_NOT_RUN, True)


async def test_cancelled_call_ends_and_its_tombstone_stays(hands: Any) -> None:
    running = asyncio.ensure_future(_result(hands, call("c1", command="sleep 1000")))
    await hands.Execute(call("c0", "glob", pattern="*"))
    await hands.Cancel(pb.CancelRequest(session_id="sesn_1", generation=1, call_ids=["c1", "c2"]))
    assert (await running).verdict == pb.VERDICT_CANCELLED
    assert (await hands.Execute(call("c2", command="echo no"))).verdict == pb.VERDICT_CANCELLED


async def _result(hands: Any, request: pb.ExecuteRequest) -> pb.ExecuteResponse:
    result: pb.ExecuteResponse = await hands.Execute(request)
    return result


async def test_released_session_goes_on_in_a_new_hand_and_purged_one_begins_anew(
    hands: Any,
) -> None:
    await hands.Execute(call("c1", command="echo kept >f"))
    await hands.Release(pb.ReleaseRequest(session_id="sesn_1"))
    assert text(await hands.Execute(call("c2", command="cat f"))) == f"kept\n{SANDBOX_LOST}"
    await hands.Release(pb.ReleaseRequest(session_id="sesn_1", purge=True))
    assert text(await hands.Execute(call("c1", command="ls"))) == ""
    await hands.Release(pb.ReleaseRequest(session_id="sesn_never", purge=True))


@pytest.mark.parametrize("purge", [False, True])
async def test_session_that_has_ended_gets_no_hand_any_more(
    hands: Any, tmp_path: Path, *, purge: bool
) -> None:
    await hands.Execute(call("c1", command="echo kept >f"))
    end = pb.ReleaseRequest(session_id="sesn_1", purge=purge, generation=1)
    await hands.Release(end)
    for late in (
        hands.Execute(call("c2", command="touch late")),
        hands.Execute(call("c2", "read", file_path="f")),
        hands.Provision(pb.ProvisionRequest(session_id="sesn_1", generation=1)),
    ):
        assert (await refusal(late))[0] is Reason.LEASE_LOST
    await hands.Release(end)
    kept = list(tmp_path.rglob("workspaces/sesn_1/workspace/*"))
    assert [path.name for path in kept] == ([] if purge else ["f"])


async def test_environment_that_asks_for_another_kind_of_sandbox_gets_that_or_none(
    hands: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    request = call("c1", command="true")
    request.environment.cloud.sandbox = "docker"
    result = await hands.Execute(request)
    assert result.verdict == pb.VERDICT_NOT_RUN
    assert "no container engine answers" in text(result)
    request = call("c2", command="true")
    request.environment.cloud.sandbox = "local"
    assert (await hands.Execute(request)).verdict == pb.VERDICT_COMPLETED
    hand = await hands.Provision(pb.ProvisionRequest(session_id="sesn_1", generation=1))
    assert (hand.backend, hand.existing) == ("local", True)


async def test_hands_are_named_and_handed_over_within_a_workspace(hands: Any) -> None:
    named = await hands.Provision(
        pb.ProvisionRequest(session_id="sesn_1", generation=1, hand="build")
    )
    assert (named.hand, named.existing) == ("build", False)
    await hands.Provision(pb.ProvisionRequest(session_id="sesn_2", generation=1))
    request = call("c1", command="echo kept >f")
    request.hand = "build"
    await hands.Execute(request)
    give = pb.HandOverRequest(
        session_id="sesn_1", generation=1, hand="build", to_session_id="sesn_2", to_hand="tools"
    )
    with call_context(CallContext("wrkspc_other")):
        assert (await refusal(hands.HandOver(give)))[0] is Reason.NOT_FOUND
    assert (await hands.HandOver(give)).hand_id == named.hand_id
    request.call_id = "c2"
    reason, message = await refusal(hands.Execute(request))
    assert reason is Reason.ARCHIVED
    assert message == "the hand build was handed over to session sesn_2"
    read = call("c1", command="cat f")
    read.session_id, read.hand = "sesn_2", "tools"
    assert text(await hands.Execute(read)) == "kept"
    await hands.Release(pb.ReleaseRequest(session_id="sesn_2", generation=1, hand="tools"))
    await hands.Release(pb.ReleaseRequest(session_id="sesn_2", purge=True))
    with_name = pb.ProvisionRequest(session_id="sesn_1", generation=1, hand="No Name")
    assert (await refusal(hands.Provision(with_name)))[1].startswith("hand: must match")
