"""RFC 8785, fast: msgspec writes the same bytes where three things do not occur, and rfc8785 the rest.

They differ in floats, in integers beyond what a double holds (which have no canonical form), and in the order of names
with characters beyond the first plane. All three can be seen in what msgspec has written: where the pattern finds
something in a string, only time is lost.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from roost.protocol.canonical import NotCanonical, jcs

_in_order = msgspec.json.Encoder(order="sorted").encode
_NUMBER = re.compile(rb"[:,\[]-?\d")
"""Quicker than the other, and enough for most: they hold no number."""
_DOUBTFUL = re.compile(rb'(?:^|":|[,\[])-?(?:\d+[.eE]|9\d{15}|\d{17})|[\xf0-\xf4]')


def canonical(value: Any) -> bytes:
    """Of what was read from JSON: dicts, lists, str, int, float, bool and None. NotCanonical if there is no such form.

    The same as `jcs`, byte for byte.
    """
    written = _in_order(value)
    if isinstance(value, dict | list) and written.isascii() and not _NUMBER.search(written):
        return written
    return jcs(value) if _DOUBTFUL.search(written) else written


def is_form(value: Any, written: bytes) -> bool:
    """Whether `written` is a canonical form of `value`: by the quicker of the two where it is the same."""
    if _in_order(value) == written:
        return True
    try:
        return jcs(value) == written
    except NotCanonical:
        return False
