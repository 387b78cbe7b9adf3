"""Settings of the packages of environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from chassis.settings import Settings
from services.hands.domain.limits import MIB
from services.hands.packages.builder import Bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

_MANAGERS: Final = ("cargo", "gem", "go", "npm", "pip")
_DAY: Final = 24 * 3600.0


def indexes(text: str) -> Mapping[str, str]:
    """Indexes by manager, from `manager=URL`, comma separated. Raises `ValueError`."""
    found: dict[str, str] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        manager, equals, url = entry.partition("=")
        parts = urlsplit(url)
        if not equals or manager not in _MANAGERS:
            msg = f"{manager!r} must be one of {', '.join(_MANAGERS)}, =, and a URL"
            raise ValueError(msg)
        if parts.scheme != "https" or not parts.hostname or "@" in parts.netloc:
            msg = f"{manager}: must be an https URL without a user or a password"
            raise ValueError(msg)
        found[manager] = url
    return found


def _checked(text: str) -> str:
    indexes(text)
    return text


class PackageOptions(Settings):
    """How packages of environments are installed."""

    package_indexes: Annotated[str, AfterValidator(_checked)] = Field(
        default="",
        description="Indexes in place of the managers' own, where environments' packages are "
        "installed from: pip=https://packages.corp.example/simple, …; there are cargo, gem, go, "
        "npm and pip. Their hosts belong in DROVER_PACKAGE_HOSTS, too.",
    )
    hands_packages_seconds: float = Field(
        default=1800.0,
        gt=0,
        le=86_400,
        description="How long it may take to install an environment's packages.",
    )
    hands_packages_mib: int = Field(
        default=10_240,
        ge=16,
        description="Disk that an environment's packages may take, and what installing them needs.",
    )
    hands_packages_days: float = Field(
        default=7.0,
        gt=0,
        description="Days after which installed packages are deleted that no sandbox was started "
        "with.",
    )

    def package_bounds(self, free_mib: int) -> Bounds:
        """What installing may take, and for how long it is kept. Some disk must stay free."""
        return Bounds(
            seconds=self.hands_packages_seconds,
            disk_bytes=self.hands_packages_mib * MIB,
            free_bytes=free_mib * MIB,
            keep_seconds=self.hands_packages_days * _DAY,
        )
