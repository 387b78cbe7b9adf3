"""V14: git works in a sandbox, with a token that no sandbox has (ADR 24)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from drover.hands.v1.hands_service_pb2 import VERDICT_CANCELLED
from tests.doubles.git_server import Repository, git
from tests.doubles.git_world import HOST, GitStage, git_stage
from tests.doubles.hands_stack import KINDS, HandsStack, Sandboxes, chosen, text

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOKEN = "ghp_canary0123456789"  # noqa: S105
ME = "git -c user.name=A -c user.email=a@example.com"
FORMS = (TOKEN.encode(), base64.b64encode(f"x-access-token:{TOKEN}".encode()).rstrip(b"="))
TOOLS = "cd /workspace/tools && "
FETCH = "service=git-upload-pack"


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> Sandboxes:
    return chosen(request)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    kind: Sandboxes, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GitStage]:
    """Another one for each kind: what is pushed stays."""
    async with git_stage(tmp_path_factory.mktemp(f"stage-{kind.kind}")) as made:
        made.server.add(
            "acme/tools",
            {"a.txt": "main", "src/deep/b.txt": "b"},
            tokens=[TOKEN, "ghp_second"],
            banned=["ghp_banned"],
            branches={"dev": {"dev.txt": "dev"}},
        )
        made.server.add("acme/other", {"a.txt": "other"}, tokens=[TOKEN])
        made.server.add("acme/open", {"a.txt": "open"}, public=True)
        made.session("sesn_1", "acme/tools", token=TOKEN)
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hands(
    kind: Sandboxes, stage: GitStage, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HandsStack]:
    place = tmp_path_factory.mktemp("hands")
    async with kind.stack(place, outside=stage.outside) as stack:
        yield stack


def tools(stage: GitStage) -> Repository:
    return stage.server.repositories["acme/tools"]


async def fails(hands: HandsStack, command: str, **given: str) -> str:
    """What a command prints that fails."""
    result = await hands.run("bash", command=command, **given)
    assert result.is_error, text(result)
    return text(result)


async def test_first_call_finds_the_repository_there(hands: HandsStack, stage: GitStage) -> None:
    """Whatever tool it is of, and though the session may reach no host at all."""
    shown = await hands.run("read", file_path="/workspace/tools/a.txt")
    assert text(shown).endswith("main"), text(shown)
    assert not shown.errors
    assert await hands.bash(f"{TOOLS}git status --short --branch") == "## main...origin/main"
    assert await hands.bash("ls -A /workspace") == "tools"
    assert await hands.bash(f"{TOOLS}git remote get-url origin") == f"https://{HOST}/acme/tools"
    asked = stage.server.asked("/git-upload-pack")
    assert {one.password for one in asked} == {TOKEN}
    assert {one.user for one in asked} == {"x-access-token"}


async def test_fetch_pull_push_and_clone_work_from_inside(
    hands: HandsStack, stage: GitStage
) -> None:
    await hands.bash(
        f"{TOOLS}echo pushed >c.txt && git add c.txt && {ME} commit -qm c && git push -q"
    )
    assert tools(stage).read("c.txt") == "pushed"
    await hands.bash(f"{TOOLS}git checkout -qb feature && git push -q -u origin feature")
    assert tools(stage).commit("feature") == tools(stage).commit("main")
    await hands.bash(f"{TOOLS}git fetch -q && git checkout -q dev && {ME} pull -q --rebase")
    assert await hands.bash(f"{TOOLS}cat dev.txt") == "dev"
    for suffix in ("", ".git"):
        again = (
            f"cd /tmp && git clone -q https://{HOST}/acme/tools{suffix} again && cat again/c.txt"
        )
        assert await hands.bash(f"{again}; rm -rf again") == "pushed"


async def test_packs_of_any_size_pass_both_ways(hands: HandsStack, stage: GitStage) -> None:
    """In chunks, since git cannot say how long they will be, and asks first whether it may send."""
    await hands.bash(
        f"{TOOLS}git checkout -q main && head -c 3000000 /dev/urandom >big.bin && git add big.bin"
        f" && {ME} commit -qm big && git push -q"
    )
    pushed = stage.server.asked("/git-receive-pack")[-1]
    assert pushed.headers["transfer-encoding"] == "chunked"
    again = f"cd /tmp && git clone -q https://{HOST}/acme/tools again && cmp again/big.bin"
    assert await hands.bash(f"{again} /workspace/tools/big.bin; rm -rf again") == ""


async def test_what_is_compressed_on_its_way_arrives(hands: HandsStack, stage: GitStage) -> None:
    """A long list of what is there already is sent gzipped."""
    commit = r'"commit refs/heads/many\ncommitter A <a@example.com> " 2e9 + $1 " +0000\ndata 1\nx"'
    await hands.bash(f"{TOOLS}seq 120 | awk '{{print {commit}}}' | git fast-import --quiet")
    work = stage.server.root / "acme" / "tools.work"
    git("commit", "--quiet", "--allow-empty", "--message", "new", cwd=work)
    git("push", "--quiet", tools(stage).path, "HEAD:refs/heads/new", cwd=work)
    before = len(stage.server.requests)
    await hands.bash(f"{TOOLS}git -c protocol.version=0 fetch -q origin new")
    sent = [one.headers.get("content-encoding") for one in stage.server.requests[before:]]
    assert "gzip" in sent
    fetched = await hands.bash(f"{TOOLS}git rev-parse FETCH_HEAD")
    assert fetched == tools(stage).commit("new")


async def test_no_file_process_environment_or_setting_holds_the_token(
    hands: HandsStack, stage: GitStage
) -> None:
    """Not while git is at it, either."""
    stage.server.holding.clear()
    stage.server.gate.clear()
    stage.server.held = "/git-upload-pack"
    try:
        clone = f"git clone -q https://{HOST}/acme/tools held >held.log 2>&1"
        await hands.bash(f"cd /tmp && {{ {clone} & }}")
        assert await asyncio.to_thread(stage.server.holding.wait, 20)
        assert await hands.bash(_SEARCH) == "git runs, nothing is found"
    finally:
        stage.server.held = ""
        stage.server.gate.set()
    await hands.bash("wait; test -e held/a.txt; rm -rf held held.log")
    volume = hands.pool._workspaces.find("sesn_1")
    assert volume is not None
    files = [path for path in volume.root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert any(path.name == "config" for path in files)
    for path in files:
        content = path.read_bytes()
        assert not any(form in content for form in FORMS), path


# The forms are put together inside, lest the command itself be found.
_SEARCH = f"""python3 - <<'EOF'
import glob, os
forms = [(a + b).encode() for a, b in {[(form[:7].decode(), form[7:].decode()) for form in FORMS]}]
files = glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline')
for root in ('/workspace', '/mnt', '/tmp', '/run', '/etc', '/dev/shm'):
    files += [os.path.join(top, name) for top, _, names in os.walk(root) for name in names]
found, git = [], False
for name in filter(os.path.isfile, files):
    try:
        content = open(name, 'rb').read()
    except OSError:
        continue
    git = git or (name.startswith('/proc/') and b'git-remote-https' in content)
    found += [name for form in forms if form in content]
print('git runs,' if git else 'no git runs,', str(found) if found else 'nothing is found')
EOF"""


@pytest.mark.parametrize(
    "asked",
    [
        f"git ls-remote https://{HOST}/acme/other",
        f"git ls-remote https://{HOST}/acme/open",
        "git ls-remote https://gitlab.example/acme/tools",
        f"git ls-remote http://{HOST}/acme/tools",
        f"git ls-remote https://{HOST}:8443/acme/tools",
        f"curl -sSf https://{HOST}/acme/tools/HEAD",
        f"curl -sSf https://{HOST}/acme/tools/info/refs",
        f"curl -sSf https://{HOST}/acme/tools/objects/info/packs",
        f"curl -sSf -X POST https://{HOST}/acme/tools/git-upload-archive",
        f"curl -sSf 'https://{HOST}/acme/tools/info/refs?service=git-upload-archive'",
        f"curl -sSf https://{HOST}/api/v3/user",
        f"curl -sSf --path-as-is 'https://{HOST}/acme/tools/../other/info/refs?{FETCH}'",
        f"curl -sSf --path-as-is 'https://{HOST}/acme/%74ools/info/refs?{FETCH}'",
        f"curl -sSf -H 'Host: {HOST}' 'https://evil.example/acme/tools/info/refs?{FETCH}'",
    ],
)
async def test_other_repositories_services_and_hosts_are_refused(
    hands: HandsStack, stage: GitStage, asked: str
) -> None:
    before = len(stage.server.requests)
    await fails(hands, asked)
    assert len(stage.server.requests) == before, "nothing of it has left"
    assert stage.world.trail[-1].verdict == "denied"


async def test_another_session_has_no_part_in_it(hands: HandsStack, stage: GitStage) -> None:
    stage.session("sesn_2")
    before = len(stage.server.requests)
    await fails(hands, f"git ls-remote https://{HOST}/acme/tools", session_id="sesn_2")
    assert len(stage.server.requests) == before


async def test_what_the_sandbox_says_of_itself_does_not_reach_the_host(
    hands: HandsStack, stage: GitStage
) -> None:
    own = "Authorization: Basic bWluZTptaW5l"
    more = f"-c http.extraHeader='{own}' -c http.extraHeader='Cookie: a=b'"
    await hands.bash(f"git {more} ls-remote https://mine:mine@{HOST}/acme/tools")
    last = stage.server.requests[-1]
    assert (last.user, last.password) == ("x-access-token", TOKEN)
    assert "cookie" not in last.headers


async def test_a_rotated_token_is_used_from_the_next_request_on(
    hands: HandsStack, stage: GitStage
) -> None:
    key = ("sesn_1", "sesrsc_acme_tools")
    try:
        stage.tokens.kept[key] = "ghp_revoked"
        shown = await fails(hands, f"{TOOLS}git fetch")
        assert "remote: The git host did not take the token" in shown
        stage.tokens.kept[key] = "ghp_banned"
        assert "does not let the token" in await fails(hands, f"{TOOLS}git fetch")
        stage.tokens.kept[key] = "ghp_second"
        await hands.bash(f"{TOOLS}git fetch -q")
        assert stage.server.requests[-1].password == "ghp_second"  # noqa: S105
    finally:
        stage.tokens.kept[key] = TOKEN


async def test_a_redirect_is_not_followed_with_the_token(
    hands: HandsStack, stage: GitStage
) -> None:
    stage.server.redirect = stage.server.url + "/elsewhere"
    try:
        shown = await fails(hands, f"{TOOLS}git fetch")
    finally:
        stage.server.redirect = ""
    assert "remote: The git host redirects" in shown
    assert not stage.server.asked("/elsewhere/acme/tools/info/refs")


async def test_every_request_is_in_the_audit_trail_without_its_token(
    hands: HandsStack, stage: GitStage
) -> None:
    await hands.bash(f"{TOOLS}git fetch -q")
    told = [entry for entry in stage.world.trail if entry.kind == "git"]
    assert {(entry.verdict, entry.host, entry.port) for entry in told} == {("allowed", HOST, 443)}
    assert told[-1].path.startswith("/acme/tools/")
    assert all(TOKEN not in str(entry) for entry in stage.world.trail)


async def test_clones_that_fail_are_told_of_and_the_session_goes_on(
    hands: HandsStack, stage: GitStage
) -> None:
    """All at once, each with its own kind of failure."""
    kinds = {
        "wrong": "authentication",
        "unknown": "authentication",
        "banned": "forbidden",
        "none": "not_found",
        "other": "checkout",
    }
    for name in ("wrong", "unknown", "banned"):
        stage.server.repositories[f"acme/{name}"] = tools(stage)
    stage.session("sesn_5", *(f"acme/{name}" for name in kinds), token=TOKEN, branch="no-such")
    del stage.tokens.kept["sesn_5", "sesrsc_acme_unknown"]
    stage.tokens.kept["sesn_5", "sesrsc_acme_wrong"] = "ghp_wrong"
    stage.tokens.kept["sesn_5", "sesrsc_acme_banned"] = "ghp_banned"
    result = await hands.run("bash", command="ls -A /workspace; echo on", session_id="sesn_5")
    assert text(result) == "on"
    told = {error.WhichOneof("error"): error for error in result.errors}
    assert set(told) == {f"repository_{kind}_error" for kind in kinds.values()}
    assert len(result.errors) == len(kinds)
    missing = told["repository_not_found_error"].repository_not_found_error
    assert missing.repository_url == f"https://{HOST}/acme/none"
    assert not any("ghp_" in error.message for error in result.errors)


async def test_what_failed_is_tried_again_when_the_hand_is_next_asked_for(
    hands: HandsStack, stage: GitStage
) -> None:
    stage.session("sesn_3", "acme/tools", token="ghp_wrong", branch="dev")
    hand, _ = await hands.executor.provision("sesn_3", 1)
    assert len(hand.problems) == 1
    stage.tokens.kept["sesn_3", "sesrsc_acme_tools"] = TOKEN
    before = len(stage.server.requests)
    assert (await hands.run("bash", command="ls tools", session_id="sesn_3")).errors
    assert len(stage.server.requests) == before, "not at every call"
    again, _ = await hands.executor.provision("sesn_3", 1)
    assert again is hand
    assert not hand.problems
    assert await hands.bash("cat tools/dev.txt", session_id="sesn_3") == "dev"


async def test_a_workspace_that_is_there_is_not_cloned_into_again(
    hands: HandsStack, stage: GitStage
) -> None:
    stage.session("sesn_4", "acme/tools", "acme/other", token=TOKEN)
    await hands.bash("rm -r tools/* && echo mine >tools/mine", session_id="sesn_4")
    await hands.pool.release("sesn_4")
    before = len(stage.server.requests)
    assert await hands.bash("ls tools; ls other", session_id="sesn_4") == "mine\na.txt"
    assert len(stage.server.requests) == before


@pytest_asyncio.fixture(loop_scope="module")
async def held(stage: GitStage) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """No packs come of the host until its gate is open; waits until it is asked for one."""
    server = stage.server
    server.holding.clear()
    server.gate.clear()
    server.held = "/git-upload-pack"

    async def asked() -> None:
        assert await asyncio.to_thread(server.holding.wait, 20)
        server.held = ""

    yield asked
    server.held = ""
    server.gate.set()


async def test_a_call_that_is_cancelled_does_not_wait_for_the_clone_which_goes_on(
    hands: HandsStack, stage: GitStage, held: Callable[[], Awaitable[None]]
) -> None:
    stage.session("sesn_6", "acme/tools", token=TOKEN)
    waiting = hands.run("bash", command="echo on", session_id="sesn_6", call_id="sevt_6")
    call = asyncio.create_task(waiting)
    await held()
    await hands.executor.cancel("sesn_6", 1, ["sevt_6"])
    assert (await call).verdict == VERDICT_CANCELLED
    assert hands.pool.mounts.busy("sesn_6")
    stage.server.gate.set()
    assert await hands.bash("cat tools/src/deep/b.txt", session_id="sesn_6") == "b"


async def test_a_sandbox_that_dies_over_a_clone_leaves_no_half_of_one(
    hands: HandsStack, stage: GitStage, held: Callable[[], Awaitable[None]]
) -> None:
    stage.session("sesn_7", "acme/tools", token=TOKEN)
    provision = asyncio.create_task(hands.executor.provision("sesn_7", 1))
    await held()
    await hands.pool.release("sesn_7")
    await provision
    stage.server.gate.set()
    shown = await hands.bash("ls -A; git -C tools status --short", session_id="sesn_7")
    assert shown == "tools"
