"""Runs the servers that Roost is compared with in the way `roost serve` runs its own."""

from __future__ import annotations

import gc
import logging
import socket
import sys
from typing import Any

import uvicorn


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, port: int) -> None:
        super().__init__(config)
        self.port = port

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        print(f"Serves at http://127.0.0.1:{self.port}/", file=sys.stderr, flush=True)


def run(app: Any) -> None:
    logging.basicConfig(level=logging.WARNING)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=2048,
        timeout_keep_alive=75,
    )
    _Server(config, listener.getsockname()[1]).run(sockets=[listener])
