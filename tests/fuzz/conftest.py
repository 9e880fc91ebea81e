"""One host of each kind for all of these tests: what one did to it, the next must not notice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.target import Target, closed_host, large_host, open_host


@pytest.fixture(scope="package")
def opened() -> Iterator[Target]:
    with open_host() as target:
        yield target


@pytest.fixture(scope="package")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with closed_host(tmp_path_factory.mktemp("data")) as target:
        yield target


@pytest.fixture(scope="package")
def large_target() -> Iterator[Target]:
    with large_host() as target:
        yield target


@pytest.fixture(params=["opened", "closed"])
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.getfixturevalue(request.param)
    return found
