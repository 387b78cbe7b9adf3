"""What the doctor and the stack make of stores for workspaces, and for files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chassis.secret import Secret
from cli.doctor.finding import Verdict
from cli.doctor.stores import checkpoints, files
from cli.stack.installation import Installation
from cli.stack.plan import Plan
from tests.doubles.s3 import S3, SECRET_KEY, running_s3

STORE, FILES = "DROVER_HANDS_CHECKPOINTS", "DROVER_FILES_URL"


@pytest.fixture
def s3() -> Iterator[S3]:
    with running_s3() as server:
        yield server


def test_nothing_is_said_without_a_store() -> None:
    assert checkpoints({}) == files({}) == []


def test_store_that_works_is_fine(s3: S3, tmp_path: Path) -> None:
    for url in ("s3://bucket/drover", f"file://{tmp_path}/store"):
        environment = {STORE: url, FILES: url, **s3.environment}
        for found in (*checkpoints(environment), *files(environment)):
            assert found.verdict is Verdict.FINE
            assert url in found.detail
    assert not s3.objects


def test_store_that_refuses_is_told_without_its_secrets(s3: S3) -> None:
    s3.status = 403
    url = "s3://bucket/drover"
    (workspaces,) = checkpoints({STORE: url, **s3.environment})
    (bytes_of_files,) = files({FILES: url, **s3.environment})
    assert workspaces.verdict is Verdict.OPTIONAL
    assert bytes_of_files.verdict is Verdict.MISSING  # the registry would not serve them
    for found in (workspaces, bytes_of_files):
        assert "403 Forbidden" in found.detail
        assert SECRET_KEY not in found.detail + found.remedy


def test_url_that_is_no_store_is_told() -> None:
    for found in (*checkpoints({STORE: "ftp://bucket"}), *files({FILES: "ftp://bucket"})):
        assert found.verdict is Verdict.MISSING
        assert "s3://bucket/prefix" in found.detail


@pytest.mark.parametrize(("setting", "user"), [(STORE, "hands"), (FILES, "registry")])
@pytest.mark.parametrize("url", ["s3://bucket/drover", "file:///store", ""])
def test_only_who_uses_a_bucket_is_given_access_to_it(
    url: str, setting: str, user: str, tmp_path: Path
) -> None:
    access = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"}
    shell = {setting: url, **access, "AWS_BEARER_TOKEN_BEDROCK": "a model's"}
    plan = Plan.make(host="127.0.0.1", port=8080, brains=1, ports=[1, 2, 3, 4, 5])
    orders = plan.orders(Installation(tmp_path), shell, Secret("key of a client"))
    given = {
        order.name: {name: order.environment[name] for name in shell if name in order.environment}
        for order in orders
    }
    assert given.pop(user) == (access if url.startswith("s3:") else {})
    assert given.pop("brain-1").keys() == shell.keys() - {setting}
    assert not any(given.values())
