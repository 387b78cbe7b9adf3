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
        ({"drover.sandbox": "vmware"}, "metadata.drover.sandbox: must be one of local, docker"),
        (
            {"drover.sandbox": "local", "drover.sandbox_image": "x"},
            "metadata.drover.sandbox_image: local sandboxes are made of no image",
        ),
        (
            {"drover.sandbox": "docker", "drover.sandbox_image": "--privileged"},
            "metadata.drover.sandbox_image: not the name of an image",
        ),
    ],
)
def test_what_no_sandbox_can_be_made_of_is_refused(metadata: dict[str, str], text: str) -> None:
    refused = create_refusal(metadata=metadata)
    assert isinstance(refused, DroverError)
    assert refused.reason is Reason.INVALID_ARGUMENT
    assert str(refused).endswith(text)
