"""The API server as the official client speaks to it: addresses, certificates, tokens, HTTP.

The client is slow to import, so only threads import this module, and its models are not used: they
drop what they do not know, and what a pod must not have may be just that. It blocks, and nothing of
its exceptions leaves.
"""

from __future__ import annotations

import json
import ssl
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import urllib3
from kubernetes import client, config

from services.hands.backends.kubernetes.errors import ClusterAway, ClusterRefused
from services.hands.backends.port import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OK = range(200, 300)
_LONGEST_TEXT = 1000


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a connection of one's own needs: `context` is None without TLS."""

    host: str
    port: int
    context: ssl.SSLContext | None
    server_name: str
    headers: Mapping[str, str]
    prefix: str


class Connection:
    """A pool of connections. `seconds` bounds each connecting and each wait for an answer."""

    def __init__(self, config_file: str | None, *, seconds: float, connections: int) -> None:
        self._seconds = seconds
        self._configuration = _configured(config_file)
        # Told of here: the client would sleep for as long as it is told to, and ask again.
        self._configuration.retries = False
        self._configuration.connection_pool_maxsize = connections
        self._client = client.ApiClient(self._configuration)

    @property
    def host(self) -> str:
        """The API server's URL."""
        return str(self._configuration.host)

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The answer, which is an object. Raises `ClusterAway` and `ClusterRefused`."""
        with self._translated():
            response = self._send(method, path, query or {}, body, self._seconds)
            answer = _parsed(response.read())
            if response.status not in _OK:
                raise _refusal(response.status, answer, response.headers)
            return answer

    def watch(self, path: str, query: Mapping[str, str], seconds: float) -> Watch:
        """Follows a collection until the server ends it, after `seconds` at the latest.

        Raises as `call`.
        """
        with self._translated():
            asked = {**query, "watch": "true", "timeoutSeconds": str(max(1, int(seconds)))}
            response = self._send("GET", path, asked, None, seconds + self._seconds)
            if response.status not in _OK:
                raise _refusal(response.status, _parsed(response.read()), response.headers)
            return Watch(self, response.response)

    def endpoint(self) -> Endpoint:
        """For a connection that is no request and answer. Raises `BackendUnavailable`."""
        given = self._configuration
        url = urlsplit(given.host)
        if given.proxy and not client.rest.should_bypass_proxies(given.host, given.no_proxy or ""):
            raise BackendUnavailable(
                "the API server is behind a proxy, which sandboxes' streams do not go through: "
                "name it in NO_PROXY"
            )
        token = given.get_api_key_with_prefix("BearerToken", alias="authorization")
        headers = {"Authorization": token} if token else {}
        context = None
        if url.scheme == "https":
            with self._translated():
                context = _context(given)
        port = url.port or (443 if context else 80)
        name = given.tls_server_name or url.hostname or ""
        return Endpoint(url.hostname or "", port, context, name, headers, url.path.rstrip("/"))

    def close(self) -> None:
        """Lets go of the connections."""
        self._client.rest_client.close()

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
        seconds: float,
    ) -> Any:  # noqa: ANN401  # the client's own
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        told = self._client.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        _, url, sent, content, _ = told
        return self._client.call_api(
            method, url, sent, content, _request_timeout=(self._seconds, seconds)
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except client.ApiException as error:  # of TLS alone: every answer is an answer
            raise ClusterAway(
                f"the API server at {self.host} shows a certificate that is not trusted"
            ) from error
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # Not the error's text: it is an HTTP client's, and says less than this.
            if isinstance(error, urllib3.exceptions.TimeoutError | TimeoutError) and not isinstance(
                error, urllib3.exceptions.NewConnectionError
            ):
                text = f"the API server at {self.host} did not answer in {self._seconds:g} s"
            else:
                text = (
                    f"no API server of Kubernetes answers at {self.host}: see that it runs, or set "
                    "KUBECONFIG"
                )
            raise ClusterAway(text) from error


class Watch:
    """Changes of a collection, as they come."""

    def __init__(self, connection: Connection, response: urllib3.HTTPResponse) -> None:
        self._connection = connection
        self._response = response

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Kinds of change and objects, until the server or `stop` ends it.

        Raises `ClusterAway`, and `ClusterRefused` with 410 when too much has changed meanwhile.
        """
        rest = b""
        with self._connection._translated():  # noqa: SLF001  # its own
            for piece in self._response.stream(65536):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    change = _parsed(line)
                    what = change.get("object") or {}
                    if change.get("type") == "ERROR":
                        raise _refusal(int(what.get("code") or 0), what, {})
                    yield str(change.get("type")), what

    def stop(self) -> None:
        """Ends it from another thread."""
        with suppress(ValueError, OSError, RuntimeError):  # it has ended
            self._response.shutdown()

    def close(self) -> None:
        """Lets go of its connection."""
        self._response.close()


def _configured(config_file: str | None) -> client.Configuration:
    given = client.Configuration()
    try:
        if config_file is None:
            config.load_incluster_config(given)  # type: ignore[no-untyped-call]
        else:
            config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=config_file, client_configuration=given, persist_config=False
            )
    except Exception as error:  # the client's parsers raise what they like
        place = config_file or "this pod's service account"
        raise BackendUnavailable(
            f"no cluster is configured: {place} cannot be read "
            f"({type(error).__name__}); run in a pod with a service account, or set KUBECONFIG"
        ) from error
    return given


def _context(given: client.Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=given.ssl_ca_cert, cadata=given.ca_cert_data or None
    )
    if not given.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif given.assert_hostname is False:
        context.check_hostname = False
    if given.cert_file:
        context.load_cert_chain(given.cert_file, given.key_file)
    return context


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except ValueError:
        return {"message": data[:_LONGEST_TEXT].decode("utf-8", "replace").strip()}
    return answer if isinstance(answer, dict) else {}


def _refusal(status: int, answer: Mapping[str, Any], headers: Mapping[str, str]) -> ClusterRefused:
    text = str(answer.get("message") or f"HTTP status {status}")[:_LONGEST_TEXT]
    told = str(headers.get("Retry-After") or "")
    details = answer.get("details") or {}
    after = float(told) if told.isdigit() else details.get("retryAfterSeconds")
    return ClusterRefused(
        f"the cluster refuses: {text}",
        status,
        str(answer.get("reason") or ""),
        float(after) if after is not None else None,
    )
