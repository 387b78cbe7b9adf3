"""What of a request's mounts is taken, and what it makes of a sandbox."""

from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.hands.v1 import hands_service_pb2 as hands_pb
from drover.hands.v1.mounts_pb2 import MountedFile, MountedMemoryStore, MountedSkill
from drover.hands.v1.mounts_pb2 import Mounts as Asked
from services.hands.domain import mounts
from services.hands.domain.handover import Generations, HandOver
from services.hands.domain.recipe import DEFAULT, Recipe
from services.hands.pool import PoolSize
from services.hands.rpc import HandsRpc
from tests.doubles.hands_waiting import eventually, ready_spares
from tests.unit.hands.conftest import World

UPLOADS, MEMORY = "/mnt/session/uploads", "/mnt/memory"


def asked(*paths: str) -> Asked:
    files = [MountedFile(file_id=f"file_{at}", mount_path=path) for at, path in enumerate(paths)]
    return Asked(files=files)


def test_all_that_is_asked_for_is_below_its_place() -> None:
    wanted = asked(f"{UPLOADS}/a/b.csv", f"{UPLOADS}/ü “x”")
    wanted.skills.append(MountedSkill(skill_id="skill_1", version="1", directory="adding"))
    wanted.memory_stores.append(
        MountedMemoryStore(memory_store_id="memstore_1", mount_path=f"{MEMORY}/notes")
    )
    wanted.memory_stores.append(
        MountedMemoryStore(memory_store_id="m2", mount_path=f"{MEMORY}/facts", read_only=True)
    )
    found = mounts.check(wanted, "wrkspc_1")
    assert [file.path for file in found.files] == ["a/b.csv", "ü “x”"]
    assert found.skills == (mounts.MountedSkill("skill_1", "1", "adding"),)
    assert [store.directory for store in found.stores] == ["notes", "facts"]
    assert found.writable == ("notes",)
    assert found.workspace_id == "wrkspc_1"
    assert mounts.check(wanted, "wrkspc_1") is found
    assert mounts.check(wanted, "wrkspc_2").workspace_id == "wrkspc_2"
    assert mounts.check(Asked(), "wrkspc_1") is mounts.NONE


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        UPLOADS,
        f"{UPLOADS}/",
        f"{UPLOADS}x/a",
        f"{UPLOADS}/../../etc",
        f"{UPLOADS}/./a",
        f"{UPLOADS}//a",
        f"{UPLOADS}/a/",
        f"{UPLOADS}/a\nb",
        f"{UPLOADS}/a\0b",
        f"{UPLOADS}/{'x' * 256}",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused_and_named(path: str) -> None:
    with pytest.raises(DroverError) as refused:
        mounts.check(asked(f"{UPLOADS}/fine", path), "wrkspc_1")
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    assert refused.value.message.startswith("mounts.files.1.mount_path: ")


@pytest.mark.parametrize("other", ["a", "a/b", "a/b/c"])
def test_two_files_in_one_place_are_refused(other: str) -> None:
    with pytest.raises(DroverError, match="in the place of another"):
        mounts.check(asked(f"{UPLOADS}/a/b", f"{UPLOADS}/a-b", f"{UPLOADS}/{other}"), "wrkspc_1")


async def test_without_a_registry_mounts_are_refused_and_nothing_runs(world: World) -> None:
    rpc = HandsRpc(world.executor, has_registry=False)
    wanted = asked(f"{UPLOADS}/a")
    execute = hands_pb.ExecuteRequest(session_id="sesn_1", call_id="c", name="bash", mounts=wanted)
    provision = hands_pb.ProvisionRequest(session_id="sesn_1", mounts=wanted)
    context: object = None
    for attempt in (rpc.Execute(execute, context), rpc.Provision(provision, context)):  # type: ignore[arg-type]
        with pytest.raises(DroverError, match="DROVER_REGISTRY_ADDRESS"):
            await attempt
    assert not world.journal.calls
    assert not world.backend.launched


async def test_memory_that_may_be_written_is_mounted_over_the_rest_and_takes_no_spare(
    world: World,
) -> None:
    await world.restart(PoolSize(spares=1, max_live=3))
    world.pool.fill()
    await eventually(lambda: ready_spares(world.pool) == 1)
    with_memory = Recipe(stores=("notes",))
    async with world.pool.use("sesn_1", with_memory) as hand:
        assert hand.stores == ("notes",)
        spec = next(one.spec for one in world.backend.launched if one.spec.hand_id == hand.id)
        places = [(place, writable) for _, place, writable in spec.mounts]
        assert places.index((MEMORY, False)) < places.index((f"{MEMORY}/notes", True))
        assert (spec.volume.root / "memory/notes").is_dir()
    assert ready_spares(world.pool) == 1
    async with world.pool.use("sesn_2", DEFAULT) as hand:
        assert hand.is_fresh
    assert world.pool.spares.shelves[0].claims == 1


async def test_volume_of_an_earlier_release_gets_what_it_lacks(world: World) -> None:
    volume = await world.workspaces.make("sesn_1")
    for part in ("skills", "memory", "uploads"):
        (volume.root / part).rmdir()
    async with world.pool.use("sesn_1", Recipe(stores=("notes",))) as hand:
        assert not hand.is_fresh
        [sandbox] = world.backend.launched
        assert all(source.is_dir() for source, _, _ in sandbox.spec.mounts)


async def test_hand_with_memory_stores_is_not_handed_on(world: World) -> None:
    await world.executor.provision("sesn_2", 1)
    await world.executor.provision("sesn_1", 1, Recipe(stores=("notes",)))
    handover = HandOver("sesn_1", "", "sesn_2", "theirs")
    for _ in range(2):
        with pytest.raises(DroverError) as refused:
            await world.executor.hand_over(handover, Generations(1), "wrkspc_default")
        assert refused.value.rule.grpc == "FAILED_PRECONDITION"
        assert refused.value.error_code == "hand_has_memory_stores"
        await world.executor.release("sesn_1")  # nor is what it leaves
    _, existing = await world.executor.provision("sesn_1", 1, Recipe(stores=("notes",)))
    assert not existing  # it is the giver's still
