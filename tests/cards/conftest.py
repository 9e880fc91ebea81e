from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cards.javascript import JavaScript, javascript


@pytest.fixture(scope="session")
def js() -> Iterator[JavaScript]:
    with javascript() as running:
        yield running
