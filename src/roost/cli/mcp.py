"""`roost mcp serve`: the tools of a host, for an MCP client that starts its servers itself."""

from __future__ import annotations

import asyncio
import signal

from roost.cli.errors import CommandFailed
from roost.cli.options import DEFAULT_URL, Tenant, Token, Url


def serve(url: Url = DEFAULT_URL, token: Token = "", tenant: Tenant = "") -> None:
    """Serve MCP on stdin and stdout for a running host, until stdin ends."""
    from roost.cli.mcp_proxy import async_client  # the SDK of MCP is slow to load
    from roost.cli.mcp_proxy import serve as serve_streams

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # otherwise the exit would wait for the thread that reads stdin
    try:
        asyncio.run(serve_streams(async_client(url, token, tenant), url))
    except* BrokenPipeError:
        raise CommandFailed("the MCP client closed its end of stdout") from None
