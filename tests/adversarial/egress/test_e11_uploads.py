"""E11: what an allowed host keeps for anybody is no way out, nor is another's account."""

from __future__ import annotations

import pytest

from catalogue.package_hosts import PUBLIC
from services.vault_proxy.domain.refusal import RefusedError, Why
from tests.doubles.egress import credential, holdings, placeholder_of, policy, session, substitution
from tests.doubles.egress import target as request_of

_INDEX, _FILES = PUBLIC["pip"]
_NPM = PUBLIC["npm"][0]
_CRATES = PUBLIC["cargo"][0]
_GEMS = PUBLIC["gem"][0]


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("POST", f"https://upload.{_INDEX}/legacy/"),
        ("POST", f"https://{_INDEX}/legacy/"),
        ("PUT", f"https://{_NPM}/evil"),
        ("PUT", f"https://{_CRATES}/api/v1/crates/new"),
        ("POST", f"https://{_GEMS}/api/v1/gems"),
        ("POST", "https://api.github.com/gists"),
        ("PATCH", "https://api.github.com/gists/1"),
        ("POST", "https://api.github.com/%67ists"),
        ("POST", "https://api.github.com/%2567ists"),
        ("POST", "https://api.github.com//gists"),
        ("POST", "https://api.github.com/./gists/"),
        ("POST", "https://api.github.com/a/../gists"),
        ("POST", "https://api.github.com/a/%2e%2e/gists"),
        ("POST", "https://api.github.com/Gists"),
        ("POST", "https://gist.github.com/"),
        ("POST", "https://uploads.github.com/repos/o/r/releases/1/assets"),
        ("POST", "https://github.com/evil/repo.git/git-receive-pack"),
        ("POST", "https://gitlab.com/evil/group/repo.git/git-receive-pack"),
        ("PUT", "https://evil.s3.amazonaws.com/loot?X-Amz-Signature=1"),
        ("PUT", "https://evil.s3.eu-west-1.amazonaws.com/loot"),
        ("POST", "https://s3.eu-west-1.amazonaws.com/evil/loot"),
        ("PUT", "https://s3-us-west-2.amazonaws.com/evil/loot"),
        ("PUT", "https://storage.googleapis.com/evil/loot"),
        ("PUT", "https://evil.blob.core.windows.net/loot"),
        ("POST", "https://api.anthropic.com/v1/files"),
        ("POST", "https://api.anthropic.com/v1/files/"),
        ("POST", "https://pastebin.com/api/api_post.php"),
        ("PUT", "https://transfer.sh/loot"),
        ("POST", "https://huggingface.co/api/repos/create"),
        ("PUT", "https://registry-1.docker.io/v2/evil/loot/blobs/uploads/1"),
    ],
)
def test_uploads_under_anybodys_account_are_denied_by_default(method: str, url: str) -> None:
    verdict = policy(session()).decide(request_of(url, method))
    assert verdict.refusal is not None
    assert verdict.refusal.reason is Why.UPLOAD_NOT_ALLOWED
    assert "DROVER_EGRESS_RULES" in verdict.refusal.message


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("GET", f"https://{_INDEX}/simple/six/"),
        ("GET", f"https://{_FILES}/packages/six.whl"),
        ("GET", f"https://{_NPM}/left-pad"),
        ("POST", f"https://{_NPM}/-/npm/v1/security/advisories/bulk"),
        ("POST", "https://api.github.com/repos/o/r/issues"),
        ("GET", "https://api.github.com/gists"),
        ("POST", "https://github.com/o/r.git/git-upload-pack"),
        ("GET", "https://evil.s3.amazonaws.com/object"),
        ("POST", "https://sts.amazonaws.com/"),
        ("POST", "https://bedrock-runtime.eu-west-1.amazonaws.com/model"),
        ("POST", "https://api.anthropic.com/v1/messages"),
        ("POST", "https://api.example.com/files"),
    ],
)
def test_what_is_no_upload_is_let_out(method: str, url: str) -> None:
    assert policy(session()).decide(request_of(url, method)).allowed


def test_a_bucket_that_is_listed_by_its_very_name_is_meant() -> None:
    listed = policy(session(allowed=["ours.s3.amazonaws.com", "s3.amazonaws.com"]))
    assert listed.decide(request_of("https://ours.s3.amazonaws.com/x", "PUT")).allowed
    # anybody's bucket is at that name
    assert not listed.decide(request_of("https://s3.amazonaws.com/evil/x", "PUT")).allowed
    wildcard = policy(session(allowed=["*.s3.amazonaws.com"]))
    assert not wildcard.decide(request_of("https://ours.s3.amazonaws.com/x", "PUT")).allowed


def test_the_operators_rules_are_asked_first_and_the_first_that_fits_counts() -> None:
    rules = """[
        {"effect": "deny", "hosts": ["api.github.com"], "paths": ["/gists/private*"]},
        {"effect": "allow", "hosts": ["api.github.com"], "methods": ["POST"], "paths": ["/gists*"]},
        {"effect": "deny", "hosts": ["*.example.com"], "methods": ["GET"], "paths": ["/admin/*"]}
    ]"""
    ruled = policy(session(), rules=rules)
    assert ruled.decide(request_of("https://api.github.com/gists", "POST")).allowed
    assert not ruled.decide(request_of("https://api.github.com/gists/private", "POST")).allowed
    assert not ruled.decide(request_of("https://api.github.com/gists/1", "PATCH")).allowed
    assert not ruled.decide(request_of("https://a.example.com/x/../admin/")).allowed
    assert ruled.decide(request_of("https://a.example.com/public/")).allowed


def test_an_allowing_rule_means_its_path_as_it_stands_alone() -> None:
    rules = '[{"effect": "allow", "hosts": ["gist.github.com"], "paths": ["/ours/*"]}]'
    ruled = policy(session(), rules=rules)
    assert ruled.decide(request_of("https://gist.github.com/ours/1", "POST")).allowed
    for path in ("/ours/../evil", "/ours/%2e%2e/evil", "/ours//evil", "/ours/;/../evil"):
        assert not ruled.decide(request_of(f"https://gist.github.com{path}", "POST")).allowed


def test_an_allowing_rule_opens_no_host() -> None:
    rules = '[{"effect": "allow", "hosts": ["evil.example"]}]'
    verdict = policy(session(allowed=[]), rules=rules).decide(request_of("https://evil.example/"))
    assert verdict.refusal is not None
    assert verdict.refusal.reason is Why.HOST_NOT_ALLOWED


@pytest.mark.parametrize("name", [b"Authorization", b"X-Api-Key", b"x-goog-api-key"])
def test_a_bound_host_is_sent_no_other_account(name: bytes) -> None:
    held = holdings(credential())
    with pytest.raises(RefusedError) as raised:
        substitution(held).headers([(name, b"Bearer of-somebody-else")])
    assert raised.value.refusal.reason is Why.FOREIGN_CREDENTIAL
    assert "KEY_cred_1" in raised.value.refusal.message
    assert "somebody" not in raised.value.refusal.message
    with pytest.raises(RefusedError):  # beside the true one
        substitution(held).headers(
            [(name, placeholder_of(held)), (b"authorization", b"Basic eA==")]
        )


def test_a_host_that_is_not_bound_by_name_takes_accounts_of_its_own() -> None:
    for held in (holdings(credential(hosts=None)), holdings(credential()), holdings()):
        headers = [(b"authorization", b"Bearer own")]
        assert substitution(held, "https://other.example/").headers(headers) == headers
