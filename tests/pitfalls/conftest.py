"""Uses the hosts of the door tests."""

from tests.doors.conftest import door, http, rest, rpc, server

__all__ = ["door", "http", "rest", "rpc", "server"]
