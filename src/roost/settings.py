"""Every setting, read once: flag, then ROOST_* variable, then roost.toml, then default."""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

DOCS: dict[str, str] = {
    "host": "Address to listen on. Without credentials only a loopback address is allowed.",
    "port": "Port to listen on.",
    "data": "Folder of the journal.",
    "memory": "Keep nothing on disk; all tasks end with the process.",
    "root": "Agent that the root path serves; implied when one .py file is served.",
    "public_url": "URL under which clients reach this host; cards say it. The bound address by default.",
    "trusted_proxy": "CIDRs of proxies whose forwarded headers are accepted, comma separated.",
    "max_body": "Longest request body in bytes; longer ones get 413.",
    "log_level": "debug, info, warning or error; debug logs every request.",
    "log_format": "text, json, or auto: text on a terminal, JSON otherwise.",
    "drain_s": "Seconds that running requests are given when the host is told to stop.",
}


class Settings(Struct, frozen=True, kw_only=True):
    host: str = "127.0.0.1"
    port: int = 8080
    data: str = "./.roost"
    memory: bool = False
    root: str = ""
    public_url: str = ""
    trusted_proxy: str = ""
    max_body: int = 8 * 1024 * 1024
    log_level: str = "info"
    log_format: str = "auto"
    drain_s: float = 5.0

    def networks(self) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        return [ipaddress.ip_network(item.strip()) for item in self.trusted_proxy.split(",") if item.strip()]


class Sourced(NamedTuple):
    name: str
    value: Any
    source: str
    """default, roost.toml, the variable's name, or the flag's name."""


class SettingError(Exception):
    """A setting has a value that cannot be used; the message says where it came from."""


def read(
    flags: Mapping[str, Any], environ: Mapping[str, str] = os.environ, folder: Path | None = None
) -> list[Sourced]:
    """Each setting with its value and where it came from. A flag that is None was not given."""
    file = (folder or Path.cwd()) / "roost.toml"
    in_file = _read_file(file)
    found = []
    for name, default in _defaults().items():
        variable, flag = f"ROOST_{name.upper()}", f"--{name.replace('_', '-')}"
        if flags.get(name) is not None:
            found.append(Sourced(name, _typed(name, flags[name], flag), flag))
        elif variable in environ:
            found.append(Sourced(name, _typed(name, environ[variable], variable), variable))
        elif name in in_file:
            found.append(Sourced(name, _typed(name, in_file[name], str(file)), "roost.toml"))
        else:
            found.append(Sourced(name, default, "default"))
    _check(found)
    return found


def settings_of(sourced: list[Sourced]) -> Settings:
    return Settings(**{item.name: item.value for item in sourced})


def replace(settings: Settings, **changes: Any) -> Settings:
    return msgspec.structs.replace(settings, **changes)


def _defaults() -> dict[str, Any]:
    return {field.name: field.default for field in msgspec.structs.fields(Settings)}


def _read_file(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingError(f"{file}: {error}") from error
    unknown = sorted(set(values) - set(_defaults()))
    if unknown:
        raise SettingError(f"{file}: unknown setting {', '.join(unknown)}; `roost config` lists those there are")
    return values


def _typed(name: str, value: Any, source: str) -> Any:
    kind = get_type_hints(Settings)[name]
    if kind is bool and isinstance(value, str):
        value = {"1": True, "0": False, "true": True, "false": False}.get(value.strip().lower(), value)
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SettingError(f"{source}: {value!r} cannot be {name}: {error}") from None


def _check(found: list[Sourced]) -> None:
    by_name = {item.name: item for item in found}

    def require(name: str, holds: bool, what: str) -> None:
        if not holds:
            item = by_name[name]
            raise SettingError(f"{name} is {item.value!r} (from {item.source}): {what}")

    require("port", 0 <= by_name["port"].value <= 65535, "it must be 0 to 65535")
    require("max_body", by_name["max_body"].value > 0, "it must be positive")
    require("drain_s", by_name["drain_s"].value >= 0, "it must not be negative")
    require("log_level", by_name["log_level"].value in ("debug", "info", "warning", "error"), "see --help")
    require("log_format", by_name["log_format"].value in ("text", "json", "auto"), "see --help")
    url = by_name["public_url"].value
    if url:
        parts = urlsplit(url)
        require("public_url", parts.scheme in ("http", "https") and bool(parts.hostname), "give http(s)://host[:port]")
        require("public_url", not parts.query and not parts.fragment, "it must have no query and no fragment")
    for item in by_name["trusted_proxy"].value.split(","):
        try:
            if item.strip():
                ipaddress.ip_network(item.strip())
        except ValueError as error:
            require("trusted_proxy", False, str(error))
