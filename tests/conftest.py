"""Stacks for the suites that drive real processes."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.doubles import kubernetes_cluster
from tests.doubles.docker_engine import Engine, lacking, one_for_all, reserved, shared_engine
from tests.doubles.kubernetes_cluster import Cluster as KubernetesCluster
from tests.doubles.postgres import Cluster, shared_cluster
from tests.doubles.standing import Watch
from tests.doubles.trust import nobody_trusted
from tests.e2e.forked import warm_for_all
from tests.e2e.mcp_stack import McpStack, mcp_stack
from tests.e2e.stack import Stack, running_stack
from tests.e2e.web_stack import WebStack

_WATCH = pytest.StashKey[Watch]()
_WHOLE_RUN = pytest.StashKey[ExitStack]()
_TELL_BEFORE = 5.0
"""Seconds before a test's time is up when it is told where everything stands."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_WATCH] = Watch()
    # Of several processes this is the first, whose environment the others have.
    config.stash[_WHOLE_RUN] = whole_run = ExitStack()
    whole_run.enter_context(nobody_trusted())
    whole_run.enter_context(one_for_all())
    whole_run.enter_context(warm_for_all())


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_WHOLE_RUN].close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Next to nothing that is imported or collected is garbage: it is not searched meanwhile."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A hang shows in the report where it hung."""
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0] if marker else item.config.getini("timeout"))

    def tell(stacks: str) -> None:
        item.add_report_section("hang", "where everything stood", stacks)

    with item.config.stash[_WATCH].over(seconds - _TELL_BEFORE, tell):
        return (yield)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """One PostgreSQL server for every test that does not break it."""
    with shared_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def docker_engine() -> Engine:
    """One container engine for every test that does not break it, whichever process it runs in."""
    if why := lacking():
        pytest.skip(f"no container engine for tests: {why}")
    return shared_engine()


@pytest.fixture
def own_engine(docker_engine: Engine) -> Iterator[Engine]:
    """A container engine for a test that breaks it."""
    with reserved() as engine:
        engine.start()
        engine.take_image(docker_engine)
        yield engine


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """One cluster's API, with a node, for every test that does not break it.

    What its pods share with the tests is all that is below the tests' own directory.
    """
    if why := kubernetes_cluster.lacking():
        pytest.skip(f"no node for tests: {why}")
    place = tmp_path_factory.mktemp("cluster")
    with kubernetes_cluster.running_cluster(place, tmp_path_factory.getbasetemp()) as cluster:
        yield cluster


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[KubernetesCluster]:
    """A cluster that a test may break."""
    if why := kubernetes_cluster.lacking():
        pytest.skip(f"no node for tests: {why}")
    with kubernetes_cluster.running_cluster(tmp_path, tmp_path) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def live_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One stack for every test that breaks nothing."""
    with running_stack(tmp_path_factory.mktemp("stack")) as stack:
        yield stack


@pytest.fixture
def stack(live_stack: Stack) -> Iterator[Stack]:
    """The shared stack with a script of its own."""
    live_stack.model.reset()
    yield live_stack
    live_stack.model.reset()


@pytest.fixture(scope="session")
def live_mcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpStack]:
    """One stack with an MCP server and a web site, whose services may be killed."""
    with mcp_stack(tmp_path_factory.mktemp("mcp")) as running:
        yield running


@pytest.fixture
def mcp(live_mcp: McpStack) -> Iterator[McpStack]:
    """The shared stack with an MCP server, whole again, with a script of its own."""
    live_mcp.reset()
    yield live_mcp
    live_mcp.reset()


@pytest.fixture
def own_stack(mcp: McpStack) -> Stack:
    """The stack whose services may be killed, whole again and with a script of its own."""
    return mcp.stack


@pytest.fixture
def web(mcp: McpStack) -> WebStack:
    """The same with its web site, which is as if it were new."""
    return WebStack(mcp.stack, mcp.site)
