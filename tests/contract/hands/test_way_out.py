"""Programs in a sandbox, through its way out: what they are told, and what they trust (ADR 21)."""

from __future__ import annotations

import ensurepip
import io
import json
import shutil
import zipfile
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio

from services.hands.domain.limits import MIB, Limits
from services.hands.egress.variables import NETWORK
from tests.adversarial.sandbox.probes import probe
from tests.doubles import soak
from tests.doubles.egress_outside import Outside, running_outside
from tests.doubles.hands_stack import KINDS, HandsStack, Sandboxes, chosen

pytestmark = pytest.mark.asyncio(loop_scope="module")
# Node reserves gigabytes that it never uses.
ROOMY = Limits(memory_bytes=1024 * MIB, processes=256, tmp_bytes=128 * MIB)
PLACEHOLDER = "drover_placeholder_01'$x"


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> Sandboxes:
    return chosen(request)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside() -> AsyncIterator[Outside]:
    async with running_outside() as running:
        running.granter.variables["sesn_1"] = {"API_KEY": PLACEHOLDER}
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hands(
    kind: Sandboxes, outside: Outside, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HandsStack]:
    place = tmp_path_factory.mktemp("way-out")
    async with kind.stack(place, limits=ROOMY, outside=outside) as stack:
        yield stack


async def put(hands: HandsStack, source: Path) -> None:
    """Copies something of the tests' own into the session's workspace."""
    await hands.bash(":")
    volume = hands.pool._workspaces.find("sesn_1")
    assert volume is not None
    target = volume.root / "workspace" / source.name
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copyfile(source, target)


async def told(hands: HandsStack, command: str) -> dict[str, object]:
    """What the outside says it was sent, which the command prints."""
    shown = await hands.bash(command)
    answer: dict[str, object] = json.loads(shown)
    return answer


async def test_curl_reaches_the_proxy_with_and_without_tls(hands: HandsStack) -> None:
    answer = await told(hands, "curl -sS https://tls.example.com/a?b=c")
    assert (answer["host"], answer["path"]) == ("tls.example.com", "/a?b=c")
    answer = await told(hands, "curl -sS http://plain.example.com/a")
    assert answer["path"] == "http://plain.example.com/a"


async def test_proxy_is_told_of_no_session_but_the_hands_own(
    hands: HandsStack, outside: Outside
) -> None:
    outside.sessions.clear()
    await hands.bash("curl -sS https://example.com/", session_id="sesn_2")
    await hands.bash("curl -sS https://example.com/")
    assert outside.sessions == ["sesn_2", "sesn_1"]


async def test_what_connects_to_the_socket_itself_is_no_more_than_who_uses_the_port(
    hands: HandsStack, outside: Outside
) -> None:
    outside.sessions.clear()
    program = (
        "import socket; s = socket.socket(socket.AF_UNIX)\n"
        "s.connect('/run/drover/egress/proxy.sock')\n"
        "s.sendall(b'DROVER/1 forged\\nGET http://example.com/ HTTP/1.1\\r\\n\\r\\n')\n"
        "print(s.recv(100))\n"
    )
    await hands.run("write", file_path="/workspace/forge.py", content=program)
    await hands.bash("python3 forge.py")
    assert outside.sessions == ["sesn_1"]


async def test_shell_has_the_variables_of_the_network_and_the_sessions_placeholders(
    hands: HandsStack,
) -> None:
    shown = await hands.bash("env -0 | tr '\\0' '\\n'")
    variables = dict(line.partition("=")[::2] for line in shown.split("\n"))
    assert NETWORK.items() <= variables.items()
    assert variables["API_KEY"] == PLACEHOLDER
    shown = await hands.bash("echo -$API_KEY-", session_id="sesn_2")
    assert shown == "--"


async def test_system_bundle_is_there_with_the_sessions_authority(
    hands: HandsStack, outside: Outside
) -> None:
    """What is told nothing of variables trusts it too."""
    own = outside.granter.authorities["sesn_1"].certificate
    for place in ("/etc/ssl/certs", "/run/drover/egress"):
        shown = await hands.bash(f"grep -c BEGIN {place}/ca-certificates.crt")
        assert int(shown) > 1
        assert (await hands.bash(f"head -c {len(own)} {place}/ca-certificates.crt")) == own.strip()
    bare = "env -i https_proxy=$https_proxy curl -sS https://bare.example.com/"
    assert (await told(hands, bare))["host"] == "bare.example.com"


async def test_certificates_and_socket_cannot_be_changed_from_inside(hands: HandsStack) -> None:
    told = await probe(
        hands,
        "for name in ('/etc/ssl/certs/ca-certificates.crt', *('/run/drover/egress/' + name\n"
        "        for name in ('ca-certificates.crt', 'session.crt', 'proxy.sock'))):\n"
        "    found[name] = [failed(os.open, name, os.O_WRONLY), failed(os.unlink, name),\n"
        "        failed(os.rename, name, '/run/drover/egress/x'), failed(os.chmod, name, 0o777)]\n"
        "found['new'] = [failed(os.mkdir, '/run/drover/egress/new')]\n",
    )
    assert len(told) == 5
    for name, errors in told.items():
        assert all(errors), name


async def test_python_of_the_system_reaches_the_proxy(hands: HandsStack) -> None:
    command = "python3 -c 'import urllib.request as u; print(u.urlopen(\"{}\").read().decode())'"
    assert (await told(hands, command.format("https://u.example.com/")))["host"] == "u.example.com"


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("requests", ("requests", "urllib3", "idna", "certifi", "charset_normalizer")),
        (
            "httpx2",
            ("httpx2", "httpcore2", "h11", "anyio", "idna", "certifi", "truststore", "sniffio"),
        ),
    ],
)
async def test_python_clients_reach_the_proxy(
    hands: HandsStack, name: str, needs: tuple[str, ...]
) -> None:
    for package in (*needs, "typing_extensions"):
        spec = find_spec(package)
        if spec is not None and spec.origin is not None:
            origin = Path(spec.origin)
            await put(hands, origin.parent if origin.name == "__init__.py" else origin)
            for about in Path(spec.origin).parents[1].glob(f"{package}-*.dist-info"):
                await put(hands, about)
    command = (
        f"""python3 -c 'import {name}; print({name}.get("https://{name}.example.com/").text)'"""
    )
    assert (await told(hands, command))["host"] == f"{name}.example.com"


async def test_pip_installs_from_an_index(
    hands: HandsStack, outside: Outside, kind: Sandboxes
) -> None:
    if kind.kind != "local" and soak.share(1) < 1:
        return  # the image has no pip that is compiled: it takes seconds
    wheel = "demo-1.0-py3-none-any.whl"
    outside.pages["index.example.com/simple/demo/"] = f'<a href="/{wheel}">{wheel}</a>'.encode()
    outside.pages[f"index.example.com/{wheel}"] = _wheel()
    bundled = Path(ensurepip.__file__).parent / "_bundled"
    places = [*bundled.glob("pip-*.whl"), *Path("/usr/share/python-wheels").glob("pip-*.whl")]
    await put(hands, places[0])
    await hands.bash(
        f"pip=$(python3 -m pip --version >&/dev/null && echo -m pip || echo {places[0].name}/pip)\n"
        "python3 $pip install --quiet --disable-pip-version-check --no-cache-dir "
        "--index-url https://index.example.com/simple/ --target site demo"
    )
    assert await hands.bash("PYTHONPATH=site python3 -c 'import demo; print(demo.VALUE)'") == "42"


async def test_git_asks_over_a_connection_that_it_trusts(
    hands: HandsStack, outside: Outside
) -> None:
    refs = "git.example.com/o/r/info/refs?service=git-upload-pack"
    outside.pages[refs] = b"0" * 40 + b"\trefs/heads/main\n"
    shown = await hands.bash("git ls-remote https://git.example.com/o/r")
    assert shown.endswith("refs/heads/main")


async def test_node_fetches_through_the_proxy(hands: HandsStack, kind: Sandboxes) -> None:
    if kind.kind != "local":
        return  # the image has none
    assert shutil.which("node", path="/usr/bin:/bin"), "no node: apt-get install nodejs"
    await hands.run(
        "write",
        file_path="/workspace/fetch.mjs",
        content="const answer = await fetch(process.argv[2], {headers: {'x-key': 'v'}});\n"
        "console.log(await answer.text());\n",
    )
    answer = await told(hands, "node fetch.mjs https://node.example.com/a")
    assert (answer["host"], answer["path"]) == ("node.example.com", "/a")
    answer = await told(hands, "node fetch.mjs http://node.example.com/b?c")
    assert answer["path"] == "http://node.example.com/b?c"
    headers = answer["headers"]
    assert isinstance(headers, dict)
    assert (headers["host"], headers["x-key"]) == ("node.example.com", "v")


async def test_large_download_comes_whole(hands: HandsStack) -> None:
    shown = await hands.bash("curl -sS https://x.example.com/download | wc -c")
    assert int(shown) == 64 * 1024 * 1024


def _wheel() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("demo.py", "VALUE = 42\n")
        archive.writestr(
            "demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n"
        )
        archive.writestr(
            "demo-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("demo-1.0.dist-info/RECORD", "demo.py,,\n")
    return content.getvalue()
