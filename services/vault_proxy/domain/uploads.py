"""Upload paths of hosts that anybody may have an account at: denied by default (case E11).

Whoever may reach such a host could put there what nobody else should have, under an account of
their own. The list makes that way out narrow and loud; it is no promise, since every host that
takes a request could keep it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from services.vault_proxy.domain.paths import PathRule

_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_PUSH = ("/*/git-receive-pack",)
_OBJECTS = "uploading to a store of objects"
_BUCKETS = (
    "*.storage.googleapis.com",
    "*.blob.core.windows.net",
    "*.r2.cloudflarestorage.com",
    "*.digitaloceanspaces.com",
    "*.backblazeb2.com",
)


def upload_rules(package_hosts: Mapping[str, tuple[str, ...]]) -> tuple[PathRule, ...]:
    """What is denied where no rule of the operator says otherwise; the first that fits counts.

    Packages are taken from indexes, never put there; of what npm asks with a body, the audit is
    let through.
    """
    indexes = tuple(chain.from_iterable(package_hosts.values()))
    uploading = tuple(
        f"upload.{name}" for name in package_hosts["pip"] if not name.startswith("*.")
    )
    return (
        PathRule.of(
            package_hosts["npm"],
            ("POST",),
            ("/-/npm/v1/security/*",),
            allow=True,
            about="the audit of packages",
        ),
        PathRule.of((*indexes, *uploading), _WRITES, about="publishing a package"),
        PathRule.of(("api.github.com",), _WRITES, ("/gists", "/gists/*"), about="writing a gist"),
        PathRule.of(("gist.github.com",), _WRITES, about="writing a gist"),
        PathRule.of(("uploads.github.com",), _WRITES, about="uploading a release's files"),
        PathRule.of(
            ("github.com", "gitlab.com", "bitbucket.org", "codeberg.org"),
            ("POST",),
            _PUSH,
            about="pushing to a repository that is not the session's",
        ),
        PathRule.of(
            ("api.anthropic.com",),
            ("POST",),
            ("/v1/files", "/v1/files/*", "/v1/skills", "/v1/skills/*"),
            about="uploading a file",
        ),
        PathRule.of(("*.amazonaws.com",), _WRITES, spelt=r"s3[.-]", about=_OBJECTS),
        PathRule.of(
            ("*.amazonaws.com",), _WRITES, spelt=r".+\.s3[.-]", about=_OBJECTS, tenants=True
        ),
        PathRule.of(("storage.googleapis.com",), _WRITES, about=_OBJECTS),
        PathRule.of(_BUCKETS, _WRITES, about=_OBJECTS, tenants=True),
        PathRule.of(
            ("huggingface.co",),
            _WRITES,
            ("/api/repos/*", "/api/*/commit/*", "/api/*/preupload/*", *_PUSH),
            about="publishing a model or data set",
        ),
        PathRule.of(
            ("registry-1.docker.io", "ghcr.io", "quay.io"),
            _WRITES,
            ("/v2/*",),
            about="pushing an image",
        ),
        PathRule.of(
            ("pastebin.com", "paste.rs", "dpaste.org", "transfer.sh", "file.io", "0x0.st"),
            _WRITES,
            about="leaving something in a public bin",
        ),
        PathRule.of(("*.pastebin.com",), _WRITES, about="leaving something in a public bin"),
    )
