"""Several replicas behind one channel."""

from __future__ import annotations

import asyncio
import json

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from chassis.errors import Reason
from chassis.grpc.channel import open_channel
from chassis.grpc.server import GrpcServer
from chassis.grpc.status import from_rpc_error
from chassis.grpc.target import resolve
from chassis.secret import Secret

TOKEN = Secret("installation-secret")
CHECK = health_pb2.HealthCheckRequest()

# What is sent in the moment in which a replica ends is lost with it, and only sent anew if it may.
CALLED = "grpc.health.v1.Health/Check"


class Replica(health_pb2_grpc.HealthServicer):
    """A replica that says who it is by the calls that it counts."""

    def __init__(self, listen="127.0.0.1:0"):
        self.calls = 0
        self.failures = 0
        self._server = grpc.aio.server()
        self.port = self._server.add_insecure_port(listen)
        self.address = f"127.0.0.1:{self.port}"

    async def Check(self, request, context):
        self.calls += 1
        if self.failures:
            self.failures -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        return health_pb2.HealthCheckResponse()

    async def __aenter__(self):
        health_pb2_grpc.add_HealthServicer_to_server(self, self._server)
        await self._server.start()
        return self

    async def __aexit__(self, *_error):
        await self.stop()

    async def stop(self):
        await self._server.stop(0)


@pytest.fixture
async def replicas():
    async with Replica() as one, Replica() as other:
        yield one, other


def listed(replicas):
    return ",".join(replica.address for replica in replicas)


async def connected(stub, replicas):
    """Calls until each replica has had a call."""
    async with asyncio.timeout(30):
        while not all(replica.calls for replica in replicas):
            await stub.Check(CHECK)


async def test_calls_go_to_every_replica_in_turns(replicas):
    async with open_channel(listed(replicas), TOKEN) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        await connected(stub, replicas)
        before = [replica.calls for replica in replicas]
        for _ in range(10):
            await stub.Check(CHECK)
        assert [one.calls - calls for one, calls in zip(replicas, before, strict=True)] == [5, 5]


async def test_with_one_replica_gone_the_other_answers_at_once(replicas):
    one, other = replicas
    async with open_channel(listed(replicas), TOKEN, retried=[CALLED]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        await connected(stub, replicas)
        await one.stop()
        other.calls = 0
        async with asyncio.timeout(20):
            for _ in range(20):
                await stub.Check(CHECK)
        assert other.calls == 20


async def test_a_replica_that_comes_back_is_called_again(replicas):
    one, _ = replicas
    async with open_channel(listed(replicas), TOKEN, retried=[CALLED]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        await connected(stub, replicas)
        await one.stop()
        await stub.Check(CHECK)
        async with Replica(one.address) as again:
            await connected(stub, [again])


async def test_a_read_is_repeated_at_another_replica_and_nothing_else_is(replicas):
    one, other = replicas
    for retried, calls in (((CALLED,), 2), ((), 1)):
        async with open_channel(listed(replicas), TOKEN, retried=retried) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            one.calls = other.calls = 0
            await connected(stub, replicas)
            one.calls = other.calls = 0
            one.failures = other.failures = 10
            with pytest.raises(grpc.RpcError) as caught:
                await stub.Check(CHECK)
            assert from_rpc_error(caught.value).reason is Reason.UNAVAILABLE
            assert one.calls + other.calls == calls
            one.failures = other.failures = 0


async def test_servers_of_our_own_take_calls_by_a_list():
    servers = [GrpcServer("127.0.0.1:0", TOKEN, reflection=False) for _ in range(2)]
    for server in servers:
        await server.start()
    address = ", ".join(server.address for server in servers)
    async with open_channel(address, TOKEN) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(CHECK)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    for server in servers:
        await server.stop(0)


def test_one_address_is_called_as_it_is():
    where, options = resolve("session:7000", ["a.B/Get"])
    assert where == "session:7000"
    config = json.loads(dict(options)["grpc.service_config"])
    assert "loadBalancingConfig" not in config
    assert config["methodConfig"][0]["name"] == [{"service": "a.B", "method": "Get"}]


def test_a_name_stands_for_all_that_it_resolves_to():
    where, options = resolve("dns:///session:7000")
    assert where == "dns:///session:7000"
    config = json.loads(dict(options)["grpc.service_config"])
    assert config == {"loadBalancingConfig": [{"round_robin": {}}]}


@pytest.mark.parametrize(
    ("address", "where"),
    [
        ("127.0.0.1:1, localhost:2", "ipv4:127.0.0.1:1,127.0.0.1:2"),
        ("[::1]:1,[::1]:2", "ipv6:[::1]:1,[::1]:2"),
    ],
)
def test_addresses_are_listed_by_their_kind(address, where):
    assert resolve(address)[0] == where


@pytest.mark.parametrize("address", ["session-1:7000,session-2:7000", "127.0.0.1:1,[::1]:2"])
def test_a_list_that_grpc_cannot_resolve_is_refused(address):
    with pytest.raises(ValueError, match="address"):
        resolve(address)
