"""What every door is given."""

from __future__ import annotations

from roost.doors.sse import Heartbeat
from roost.engine.engine import Engine
from roost.identity.principal import Principal


class Context:
    def __init__(self, engine: Engine, principal: Principal, max_body: int) -> None:
        self.engine = engine
        self.principal = principal
        self.max_body = max_body
        self.heartbeat = Heartbeat()
