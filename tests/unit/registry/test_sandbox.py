from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.api.v1.metadata_pb2 import MetadataPatch
from tests.unit.registry.test_environment import create_refusal, stored, update


def test_metadata_chooses_the_kind_of_sandbox_and_its_image() -> None:
    environment = stored(
        metadata={"drover.sandbox": "docker", "drover.sandbox_image": "team/box:1"}
    )
    assert environment.config.cloud.sandbox == "docker"
    assert environment.config.cloud.image == "team/box:1"
    assert environment.metadata["drover.sandbox"] == "docker"


def test_environment_without_a_word_of_it_gets_the_installations() -> None:
    cloud = stored(metadata={"team": "a"}).config.cloud
    assert (cloud.sandbox, cloud.image) == ("", "")


def test_changed_metadata_changes_the_sandbox_of_later_sessions() -> None:
    environment = stored(metadata={"drover.sandbox": "docker"})
    patch = MetadataPatch(set={"drover.sandbox": "local"})
    changed = update(environment, "metadata", metadata=patch)
    assert changed.config.cloud.sandbox == "local"
    removed = update(changed, "metadata", metadata=MetadataPatch(remove=["drover.sandbox"]))
    assert removed.config.cloud.sandbox == ""
    assert update(changed, "name", name="other").config.cloud.sandbox == "local"


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        (
            {"drover.sandbox": "vmware"},
            "metadata.drover.sandbox: must be one of local, docker, kubernetes",
        ),
        (
            {"drover.sandbox": "local", "drover.sandbox_image": "x"},
            "metadata.drover.sandbox_image: local sandboxes are made of no image",
        ),
        (
            {"drover.sandbox": "docker", "drover.sandbox_image": "--privileged"},
            "metadata.drover.sandbox_image: not the name of an image",
        ),
        (
            {"drover.memory": "512"},
            (
                "metadata.drover.memory: not known, only drover.cpus, drover.file_mib, "
                "drover.memory_mib, drover.processes, drover.sandbox, drover.sandbox_image, "
                "drover.tmp_mib, drover.workspace_mib"
            ),
        ),
    ],
)
def test_what_no_sandbox_can_be_made_of_is_refused(metadata: dict[str, str], text: str) -> None:
    refused = create_refusal(metadata=metadata)
    assert isinstance(refused, DroverError)
    assert refused.reason is Reason.INVALID_ARGUMENT
    assert str(refused).endswith(text)


def test_metadata_says_how_large_the_sandbox_may_be() -> None:
    asked = {"drover.memory_mib": "512", "drover.cpus": "0.5", "drover.workspace_mib": "100"}
    limits = stored(metadata=asked).config.cloud.limits
    assert (limits.memory_mib, limits.cpus, limits.workspace_mib) == (512, 0.5, 100)
    assert (limits.processes, limits.file_mib, limits.tmp_mib) == (0, 0, 0)


def test_limit_that_is_taken_back_is_the_installations_again() -> None:
    environment = stored(metadata={"drover.memory_mib": "512", "drover.processes": "20"})
    patch = MetadataPatch(remove=["drover.memory_mib"])
    limits = update(environment, "metadata", metadata=patch).config.cloud.limits
    assert (limits.memory_mib, limits.processes) == (0, 20)
    patch = MetadataPatch(remove=["drover.memory_mib", "drover.processes"])
    assert not update(environment, "metadata", metadata=patch).config.cloud.HasField("limits")


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"drover.memory_mib": "63"}, "metadata.drover.memory_mib: must be a whole number from 64"),
        ({"drover.memory_mib": "16385"}, "from 64 to 16384"),
        ({"drover.memory_mib": "lots"}, "must be a whole number from 64 to 16384"),
        ({"drover.memory_mib": "512.5"}, "must be a whole number from 64 to 16384"),
        ({"drover.memory_mib": "1_000"}, "must be a whole number from 64 to 16384"),
        ({"drover.processes": "-20"}, "metadata.drover.processes: must be a whole number from 16"),
        ({"drover.cpus": "nan"}, "metadata.drover.cpus: must be a number from 0.1 to 16"),
        ({"drover.cpus": "inf"}, "metadata.drover.cpus: must be a number from 0.1 to 16"),
        ({"drover.cpus": " 1"}, "metadata.drover.cpus: must be a number from 0.1 to 16"),
        ({"drover.tmp_mib": "0"}, "metadata.drover.tmp_mib: must be a whole number from 1 to 4096"),
    ],
)
def test_limit_out_of_range_is_refused_with_the_range(metadata: dict[str, str], text: str) -> None:
    refused = create_refusal(metadata=metadata)
    assert isinstance(refused, DroverError)
    assert refused.reason is Reason.INVALID_ARGUMENT
    assert text in str(refused)
