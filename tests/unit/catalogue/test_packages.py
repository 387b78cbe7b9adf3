from __future__ import annotations

import pytest

from catalogue.package_hosts import MANAGERS
from catalogue.packages import check_package

FIT = {
    "apt": ("jq", "libssl-dev", "curl=7.88.1-10+deb12u5", "libc6:i386", "g++"),
    "cargo": ("ripgrep", "ripgrep@14.1.0", "cargo-edit@=0.12.2", "tokio_console@1"),
    "gem": ("rake", "rails:7.1.3", "rack-test:2.1.0.rc1"),
    "go": (
        "golang.org/x/tools/cmd/goimports@latest",
        "example.com/tool/v2/cmd/tool@v2.0.1",
        "example.com/tool",
    ),
    "npm": ("typescript", "typescript@5.4.0", "@scope/name@^1.2", "left-pad@latest", "a@~1.0.x"),
    "pip": ("numpy", "numpy==2.1.0", "uvicorn[standard]>=0.30,<1", "zope.interface~=6.0", "a!=1.*"),
}
NOWHERE = (
    *("", "-e", "--index-url=https://evil.example", "a b", "a\nb", "a\tb", "a;id", "$(id)", "`id`"),
    *("../x", "./x", "/etc/passwd", "~/x", "a'b", 'a"b', "a|b", "a&b", "é", "a\0b", ".", ".."),
    *("https://evil.example/x.tgz", "git+https://evil.example/x", "file:/x", "a@file:../x", "a@-e"),
)
OF_ONE = {
    "npm": ("user/repository", "a@npm:b", "a@https://evil.example/x", "github:user/x", "@scope"),
    "pip": ("a @ https://evil.example/x", "a[b", "a==", "a==1;python_version>'3'", "./x.whl"),
    "go": ("fmt", "./...", "example.com/../x@v1", "example.com/x@v1@v2", "example.com//x"),
    "gem": ("a:>=1", "a:b:c"),
    "cargo": ("a@", "serde/derive"),
    "apt": ("A", "a/testing", "curl-"),
}


@pytest.mark.parametrize("manager", MANAGERS)
def test_names_with_their_managers_own_versions_are_fit(manager: str) -> None:
    for package in FIT[manager]:
        check_package(manager, package)


@pytest.mark.parametrize("manager", MANAGERS)
def test_what_is_an_option_or_comes_from_elsewhere_is_refused(manager: str) -> None:
    for package in (*NOWHERE, *OF_ONE[manager], "x" * 300 + " "):
        with pytest.raises(ValueError, match=f"the name of a package in {manager}'s index"):
            check_package(manager, package)
