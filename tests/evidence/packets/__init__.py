"""The packets of the adapter's contract, unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

NAMES = sorted(path.stem for path in HERE.glob("*.json"))


def packet(name: str) -> bytes:
    return (HERE / f"{name}.json").read_bytes()


def changed(name: str, **members: Any) -> bytes:
    """Return a packet with other members. None removes a member."""
    found = {**json.loads(packet(name)), **members}
    return json.dumps({key: value for key, value in found.items() if value is not None}).encode()
