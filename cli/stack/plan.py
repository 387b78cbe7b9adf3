"""What a stack consists of: which processes, where they listen, what each is told."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chassis.errors import CannotStartError
from chassis.settings import host_and_port
from cli.databases import SERVICES, VARIABLES, servers, variables
from cli.stack.order import Order
from cli.stack.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chassis.secret import Secret
    from cli.stack.installation import Installation

# In the order in which they start. Brains come last: what they need is slow to import.
_ALONE = ("registry", "session", "vault_proxy", "hands")
GATEWAY = "gateway"
_BRAIN_MODULE = "services.brain.main"
# The brain's model client imports these with its first request: a second or two, which a brain that
# takes over from another does not have.
MODEL_CLIENT = ("anthropic", "httpcore2", "anyio._backends._asyncio")

# What speaks to a model needs its credentials; nothing else is given them.
_MODEL_PREFIXES = ("ANTHROPIC_", "AWS_", "GOOGLE_", "CLOUD_ML_", "CLOUDSDK_")
_KEY = "DROVER_API_KEY"
# The keys of stored secrets, and what opens the place where they are.
_VAULT_KEYS = ("DROVER_VAULT_KEYS", "DROVER_VAULT_TRANSIT_TOKEN")
_SEARCH_KEY = "DROVER_SEARCH_API_KEY"
# Of these, each process is given its own.
_OWN = {_KEY, *VARIABLES, *_VAULT_KEYS, _SEARCH_KEY}
_METRICS = "DROVER_METRICS_LISTEN"
_HANDS = "hands"
_STORES = {_HANDS: "DROVER_HANDS_CHECKPOINTS", "registry": "DROVER_FILES_URL"}
_STOP_SECONDS = 10.0
_DRAIN = "DROVER_DRAIN_SECONDS"
# What a process of a kind may take beyond that, and takes if it is not told.
_OWN_DRAINS = {
    "brain": ("DROVER_BRAIN_DRAIN_SECONDS", 2.0),
    _HANDS: ("DROVER_HANDS_DRAIN_SECONDS", 3.0),
}
_VAULT_PROXY, _OWN_ADDRESSES = "vault_proxy", "DROVER_EGRESS_OWN_ADDRESSES"


@dataclass(frozen=True, slots=True)
class Part:
    """One process of the stack."""

    name: str
    module: str
    address: str

    @property
    def kind(self) -> str:
        """What it is one of: `brain` for `brain-1`."""
        return self.name.partition("-")[0]

    @property
    def is_brain(self) -> bool:
        """Whether it is one of the interchangeable brains."""
        return self.module == _BRAIN_MODULE


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole stack."""

    parts: tuple[Part, ...]

    @classmethod
    def make(cls, *, host: str, port: int, brains: int, ports: Sequence[int]) -> Plan:
        """A stack whose gateway listens at `host:port`, and all else on loopback `ports`."""
        names = [*_ALONE, *(f"brain-{number + 1}" for number in range(brains))]
        parts = [
            Part(name, f"services.{name.partition('-')[0]}.main", f"{LOOPBACK}:{free}")
            for name, free in zip(names, ports, strict=True)
        ]
        shown = f"[{host}]" if ":" in host else host
        parts.insert(len(_ALONE), Part(GATEWAY, "gateway.main", f"{shown}:{port}"))
        return cls(tuple(parts))

    @property
    def gateway(self) -> Part:
        """The one that clients talk to."""
        return next(part for part in self.parts if part.name == GATEWAY)

    @property
    def modules(self) -> tuple[str, ...]:
        """Every module that a part runs, once."""
        return tuple(dict.fromkeys(part.module for part in self.parts))

    @property
    def imports(self) -> tuple[str, ...]:
        """All that parts import, now or later."""
        return (*self.modules, *MODEL_CLIENT)

    def orders(
        self, installation: Installation, environment: Mapping[str, str], key: Secret
    ) -> list[Order]:
        """What to start, in order. `environment` is this process's, secrets included.

        Secrets go to those that need them: `key`, the first client's, to the gateway.
        """
        shared = self._addresses() | {
            "DROVER_DATA_DIR": str(installation.root),
            "DROVER_TOKEN_FILE": str(installation.token_file),
        }
        return [
            Order(
                name=part.name,
                module=part.module,
                log=str(installation.log_file(part.name)),
                environment=shared
                | {
                    "DROVER_LISTEN": part.address,
                    "DROVER_TLS_DIR": str(installation.tls_dir(part.kind)),
                }
                | ({"DROVER_BRAIN_NAME": part.name} if part.is_brain else {})
                | _metrics(environment, number)
                | self._egress(part, installation, environment)
                | _secrets_for(part, environment, key),
                imports=MODEL_CLIENT if part.is_brain else (),
                stop_seconds=_stop_seconds(part, environment),
            )
            for number, part in enumerate(self.parts)
        ]

    def _addresses(self) -> dict[str, str]:
        single = {
            f"DROVER_{part.name.upper()}_ADDRESS": part.address
            for part in self.parts
            if part.name in _ALONE
        }
        brains = ",".join(part.address for part in self.parts if part.is_brain)
        return single | {"DROVER_BRAIN_ADDRESSES": brains}

    def _egress(
        self, part: Part, installation: Installation, environment: Mapping[str, str]
    ) -> dict[str, str]:
        """The sandboxes' way out, from the hands to the vault proxy, and what it never leads to."""
        place = f"unix:{installation.egress_socket}"
        if part.name == _HANDS:
            return {"DROVER_EGRESS_ADDRESS": place}
        if part.name != _VAULT_PROXY:
            return {}
        scraped = [_metrics(environment, number).get(_METRICS) for number in range(len(self.parts))]
        databases = servers(environment[name] for name in VARIABLES if environment.get(name))
        own = [environment.get(_OWN_ADDRESSES), self.gateway.address, *scraped, *databases]
        return {
            "DROVER_EGRESS_LISTEN": place,
            _OWN_ADDRESSES: ",".join(one for one in own if one),
        }


def public(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that every process may see."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _OWN and not _is_model_access(name)
    }


def _stop_seconds(part: Part, environment: Mapping[str, str]) -> float:
    """As the process itself reckons it (`PeerSettings.stop_seconds`)."""
    drains = [(_DRAIN, 0.0), *([_OWN_DRAINS[part.kind]] if part.kind in _OWN_DRAINS else [])]
    seconds = _STOP_SECONDS
    for variable, default in drains:
        with suppress(ValueError):  # no process starts with that
            seconds += float(environment.get(variable) or default)
    return seconds


def _metrics(environment: Mapping[str, str], number: int) -> dict[str, str]:
    """Where a part is scraped: the first at the port that is set, the others at the next ones."""
    listen = environment.get(_METRICS, "")
    if not listen:
        return {}
    try:
        host, port = host_and_port(listen)
    except ValueError as error:
        msg = f"{_METRICS} {error}"
        raise CannotStartError(msg) from error
    return {_METRICS: f"{host}:{port + number if port else 0}"}


def _secrets_for(part: Part, environment: Mapping[str, str], key: Secret) -> dict[str, str]:
    if part.name == GATEWAY:
        return {_KEY: key.open()}
    if part.is_brain:
        return {name: value for name, value in environment.items() if _is_model_access(name)}
    names = [*(variables(part.name) if part.name in SERVICES else ())]
    if part.name == _VAULT_PROXY:
        names.extend((*_VAULT_KEYS, _SEARCH_KEY))
    own = {name: environment[name] for name in names if name in environment}
    return own | _store_access(part, environment)


def _store_access(part: Part, environment: Mapping[str, str]) -> dict[str, str]:
    """What a process needs that keeps objects in a bucket."""
    if not environment.get(_STORES.get(part.name, ""), "").startswith("s3://"):
        return {}
    return {
        name: value
        for name, value in environment.items()
        if name.startswith("AWS_") and "BEDROCK" not in name
    }


def _is_model_access(name: str) -> bool:
    return name.startswith(_MODEL_PREFIXES)
