from __future__ import annotations

import pytest

from gateway.transcode.shape import ContractError
from gateway.transcode.template import NoRouteError, Router, WrongVerbError


def router(*routes: str) -> Router[str]:
    made: Router[str] = Router()
    for route in routes:
        verb, template = route.split()
        made.add(verb, template, route)
    return made


def test_a_literal_segment_goes_before_a_variable_one() -> None:
    made = router(
        "GET /e/{id}/work/{work_id}", "GET /e/{id}/work/poll", "POST /e/{id}/work/{work_id}"
    )
    assert made.find("GET", b"/e/1/work/poll") == ("GET /e/{id}/work/poll", {"id": "1"})
    assert made.find("GET", b"/e/1/work/2")[1] == {"id": "1", "work_id": "2"}
    assert made.find("POST", b"/e/1/work/poll")[1] == {"id": "1", "work_id": "poll"}


def test_a_percent_encoded_slash_is_part_of_its_segment() -> None:
    made = router("GET /a/{id}", "GET /a/{id}/b")
    assert made.find("GET", b"/a/x%2Fb")[1] == {"id": "x/b"}
    assert made.find("GET", "/a/é".encode())[1] == {"id": "é"}


@pytest.mark.parametrize(
    "path", [b"/", b"", b"/a", b"/a/", b"/a//b", b"/a/1/", b"/a/1/c", b"/A/1", b"/a/%FF"]
)
def test_other_paths_are_none_of_ours(path: bytes) -> None:
    with pytest.raises(NoRouteError):
        router("GET /a/{id}", "GET /a/{id}/b").find("GET", path)


def test_the_wrong_verb_learns_which_are_right() -> None:
    with pytest.raises(WrongVerbError) as wrong:
        router("GET /a/{id}", "POST /a/{id}", "DELETE /a/b").find("PUT", b"/a/b")
    assert wrong.value.allowed == ("DELETE", "GET", "HEAD", "POST")


@pytest.mark.parametrize(
    "routes", [("GET /a", "GET /a"), ("GET /a/{id=b/*}",), ("GET /a/{x}", "GET /a/{y}")]
)
def test_a_template_that_cannot_be_served_stops_the_start(routes: tuple[str, ...]) -> None:
    with pytest.raises(ContractError):
        router(*routes)
