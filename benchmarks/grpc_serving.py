"""Runs the SDK's own gRPC server, with the event loop and the garbage collector settings of `roost serve`."""

from __future__ import annotations

import gc
import logging
import sys

import grpc
import uvloop
from a2a.server.request_handlers import RequestHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server


def run(handler: RequestHandler) -> None:
    logging.basicConfig(level=logging.WARNING)
    uvloop.run(_serve(handler))


async def _serve(handler: RequestHandler) -> None:
    server = grpc.aio.server()
    add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    print(f"gRPC: 127.0.0.1:{port}", file=sys.stderr, flush=True)
    await server.wait_for_termination()
