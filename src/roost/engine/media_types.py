"""Media types: what an agent takes."""

from __future__ import annotations

from msgspec import UNSET

from roost.engine.hosted import Profile
from roost.protocol.errors import ContentTypeNotSupported
from roost.protocol.types import Message, Part


def check_input(profile: Profile, message: Message) -> None:
    modes = profile.input_modes
    if "*/*" in modes:
        return
    for index, part in enumerate(message.parts):
        kind = _kind(part)
        if kind and not any(_matches(kind, mode) for mode in modes):
            field = f"message.parts[{index}].mediaType"
            raise ContentTypeNotSupported(
                f"{field}: agent {profile.id!r} does not take {kind}; it takes {', '.join(modes)}", field=field
            )


def accepts(modes: list[str], kind: str) -> bool:
    """May a client that sent acceptedOutputModes be given this type?"""
    return not modes or any(_matches(kind, mode) for mode in modes)


def _kind(part: Part) -> str:
    if part.media_type:
        return part.media_type.split(";")[0].strip().lower()
    if part.text is not UNSET:
        return "text/plain"
    if part.data is not UNSET:
        return "application/json"
    return ""


def _matches(kind: str, mode: str) -> bool:
    mode = mode.split(";")[0].strip().lower()
    if mode.endswith("/*"):
        return mode == "*/*" or kind.startswith(mode[:-1])
    return kind == mode or (mode == "text/plain" and kind.startswith("text/"))
