"""docs/routes.md lists the routes of the doors, all of them and no others."""

from __future__ import annotations

import re

from tools.routes import PAGE, read_routes, written

from tests.routes import all_routes


def test_the_routes_on_the_page_are_those_of_the_doors() -> None:
    page = PAGE.read_text()
    assert written(page, read_routes()) == page, "run `python -m tools.routes`"


def test_every_door_is_on_the_page() -> None:
    named = {door for doors in re.findall(r"<!-- routes: ([\w ]+) -->", PAGE.read_text()) for door in doors.split()}
    assert named == {door for door, routes in read_routes().items() if routes}


def test_every_route_says_who_is_let_in_and_what_it_does() -> None:
    scopes = {"admin", "audit", "metrics", "operate"}
    for route in all_routes():
        assert route.access in ("public", "known", "agent") or {*route.access.split()} <= scopes, route
        assert route.summary
        assert route.describe is not None
