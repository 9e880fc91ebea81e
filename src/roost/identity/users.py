"""The users of this machine."""

from __future__ import annotations

import pwd
from functools import lru_cache


@lru_cache(1024)
def user_name(uid: int) -> str:
    """The name of a user, or the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
