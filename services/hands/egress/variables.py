"""What programs in a sandbox are told of their way out, by the variables that they read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from services.hands.backends import inside
from services.hands.backends.agent_files import FETCH_FILE
from services.hands.domain.packages import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

PORT: Final = 3128
"""Of the sandbox's loopback, where the agent forwards."""
SOCKET: Final = "proxy.sock"
BUNDLE: Final = "ca-certificates.crt"
"""The system's certificates, and the session's own authority before them."""
AUTHORITY: Final = "session.crt"
"""The session's own authority alone."""

FORWARD: Final = {"port": PORT, "path": f"{inside.EGRESS_DIRECTORY}/{SOCKET}"}
"""What the agent is told."""

_PROXY = f"http://127.0.0.1:{PORT}"
_DIRECT = "localhost,127.0.0.1,::1"
_BUNDLE = f"{inside.EGRESS_DIRECTORY}/{BUNDLE}"
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_BUNDLES: Final = (
    "SSL_CERT_FILE",  # OpenSSL, and with it Ruby and much else; Go; httpx; uv
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "npm_config_cafile",
    "CARGO_HTTP_CAINFO",
    "BUNDLE_SSL_CA_CERT",
    "AWS_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "DENO_CERT",
)
NETWORK: Final = (
    {name: _PROXY for proxy in _PROXIES for name in (proxy, proxy.lower())}
    | dict.fromkeys(("NO_PROXY", "no_proxy"), _DIRECT)
    | dict.fromkeys(_BUNDLES, _BUNDLE)
    | {
        # It adds to what Node has built in.
        "NODE_EXTRA_CA_CERTS": f"{inside.EGRESS_DIRECTORY}/{AUTHORITY}",
        "NODE_USE_ENV_PROXY": "1",
        "NODE_OPTIONS": f"--require={inside.AGENT_DIRECTORY}/{FETCH_FILE}",
    }
)
"""The same in every sandbox that has a way out, whose session may not be known yet."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST: Final = 32 * 1024


def placeholders(given: Mapping[str, str]) -> dict[str, str]:
    """Those of a session's placeholders that can be variables.

    Not what would undo the sandbox's own environment, nor what no shell can hold.
    """
    own = NETWORK.keys() | inside.ENVIRONMENT.keys() | VARIABLES
    return {
        name: value
        for name, value in given.items()
        if _NAME.fullmatch(name)
        and name not in own
        and "\0" not in value
        and len(value) <= _LONGEST
    }
