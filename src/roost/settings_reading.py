"""Reads the settings. A flag comes first, then the ROOST_* variable, then roost.toml, then the default."""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from roost.identity.quotas import parse as parse_quotas
from roost.settings import SETTINGS, Mark, Setting, Settings, Value

HIDDEN = "***"
_SECRET = re.compile("pass|secret|token|key", re.IGNORECASE)


class Sourced(NamedTuple):
    """A value and where it came from."""

    name: str
    value: Value
    source: str
    """default, roost.toml, the variable's name, or the flag's name."""


class SettingError(Exception):
    """A setting has a value that cannot be used. The message says which, where it came from and what to give."""


def read(
    flags: Mapping[str, Any], environ: Mapping[str, str] = os.environ, folder: Path | None = None
) -> list[Sourced]:
    """Each setting with its value and where it came from. A flag that is None was not given."""
    file = (folder or Path.cwd()) / "roost.toml"
    in_file = _read_file(file)
    found = []
    for name, setting in SETTINGS.items():
        given = next((one for one in (setting.variable, setting.alias) if one in environ), None)
        if flags.get(name) is not None:
            found.append(Sourced(name, _checked(setting, flags[name], setting.flag), setting.flag))
        elif given is not None:
            found.append(Sourced(name, _checked(setting, environ[given], given), given))
        elif name in in_file:
            found.append(Sourced(name, _checked(setting, in_file[name], str(file)), file.name))
        else:
            found.append(Sourced(name, setting.default, "default"))
    return found


def settings_of(sourced: list[Sourced]) -> Settings:
    return Settings(**{item.name: item.value for item in sourced})  # type: ignore[arg-type]  # `read` checked them


def shown(item: Sourced) -> Value:
    """The value without any secret in it."""
    return _shown(SETTINGS[item.name], item.value)


def without_password(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    if not parts.netloc:
        return HIDDEN if _SECRET.search(url) else url
    query = [item for item in parts.query.split("&") if not _SECRET.search(item.partition("=")[0])]
    parts = parts._replace(query="&".join(query))
    user, _, place = parts.netloc.rpartition("@")
    user, password, _ = user.partition(":")
    if parts.scheme == "nats" and not password:
        user = HIDDEN if user else ""  # a token
    return parts._replace(netloc=f"{user}@{place}" if user else place).geturl()


def check_together(settings: Settings) -> None:
    """Refuse values that are good alone but not together."""
    if settings.store and settings.memory:
        raise SettingError("store and memory exclude each other: choose where the journal is kept")
    if settings.wake and not settings.store:
        raise SettingError("wake is for several hosts on one PostgreSQL: give --store postgresql://... too")
    if settings.workers > 1 and not settings.store:
        raise SettingError("more than one worker needs PostgreSQL: give --store postgresql://... too")
    if settings.token and settings.token == settings.admin_token:
        raise SettingError("token and admin_token are the same, so every caller of an agent would be an admin")
    if settings.workers > 1 and settings.grpc and not settings.grpc_address()[1]:
        raise SettingError("several workers share one port for gRPC: give --grpc a port other than 0")
    if settings.jwt_issuer and not settings.jwt_audience:
        raise SettingError(
            "jwt_issuer without jwt_audience would accept tokens that were issued for others: give --jwt-audience too"
        )
    if settings.jwt_audience and not settings.jwt_issuer:
        raise SettingError("jwt_audience is set, but no issuer whose JWTs to accept: give --jwt-issuer too")
    if settings.ownership == "tenant" and any(
        kind == "principal" and what == "mb" for kind, _, what in parse_quotas(settings.quotas).limits
    ):
        raise SettingError(
            "quotas has principal.mb, but with ownership=tenant no task belongs to a principal: use tenant.mb"
        )
    if settings.store and not settings.secret_file:
        raise SettingError(
            "PostgreSQL needs a key file for the secrets in it: give every host the same --secret-file."
            " `roost secret FILE` makes one"
        )


def _read_file(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingError(f"{file}: {error}") from error
    unknown = sorted(set(values) - set(SETTINGS))
    if unknown:
        raise SettingError(f"{file}: unknown setting {', '.join(unknown)}; docs/settings.md lists the settings")
    return values


def _checked(setting: Setting, value: Any, source: str) -> Value:
    said = f"{setting.name} is {_shown(setting, value)!r} (from {source})"
    if isinstance(value, str) and not isinstance(setting.default, str):
        value = value.strip()
    try:
        found: Value = msgspec.convert(value, setting.type, strict=False)
    except msgspec.ValidationError:
        raise SettingError(f"{said}: it must be {setting.expected}") from None
    if isinstance(found, float) and math.isinf(found):
        raise SettingError(f"{said}: it must be {setting.expected}")
    if setting.check is not None and found != setting.default:
        try:
            setting.check(str(found))
        except ValueError as error:
            raise SettingError(f"{said}: {error}") from None
    return found


def _shown(setting: Setting, value: Value) -> Value:
    if Mark.SECRET in setting.marks and value:
        return HIDDEN
    return without_password(value) if isinstance(value, str) else value
