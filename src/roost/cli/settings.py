"""Settings on the command line: as options of commands, and as `roost config` shows them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from roost.cli.errors import CommandFailed
from roost.cli.options import Json
from roost.cli.output import json_line, table
from roost.protocol.codec import encode
from roost.settings import SETTINGS, Setting, Settings
from roost.settings_reading import SettingError, Sourced, check_together, read, settings_of, shown

FLAGS = tuple(name for name, setting in SETTINGS.items() if setting.flag)
STORE = ("data", "store", "secret_file")
"""The settings that say where the store is, for commands that work on the store itself."""
STORE_AND_KEYS = (*STORE, "card_alg")


def with_settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the `**flags` of a command one option for each of the settings."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        parameters = [*own, *(_parameter(SETTINGS[name]) for name in names)]

        def run(**values: Any) -> None:
            command(**values)

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _parameter(setting: Setting) -> inspect.Parameter:
    """An option that passes on its text, so that `read` reports a bad value from any source in the same words."""
    if isinstance(setting.default, bool):
        kind: Any = bool | None
        flag = f"{setting.flag}/--no-{setting.flag[2:]}" if setting.default else setting.flag
        option = typer.Option(flag, help=setting.sentence, show_default=False)
    else:
        kind = str | None
        bounds = "" if setting.choices or isinstance(setting.default, str) else f" ({setting.expected})"
        option = typer.Option(
            setting.flag,
            metavar="|".join(setting.choices) or type(setting.default).__name__.upper(),
            help=setting.sentence + bounds,
            show_default=str(setting.default) or False,
        )
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def read_settings(flags: dict[str, Any]) -> Settings:
    """The settings that `roost serve` with these flags would run with here."""
    with _reported():
        return settings_of(read(flags))


def serving_settings(flags: dict[str, Any]) -> Settings:
    """The same, refused if they cannot be used together."""
    settings = read_settings(flags)
    with _reported():
        check_together(settings)
    return settings


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except SettingError as error:
        raise CommandFailed(str(error)) from error


def config(as_json: Json = False) -> None:
    """Show what `roost serve` would run with here: each setting, its value, and where that came from."""
    with _reported():
        found = read({})
    if as_json:
        json_line(encode({item.name: _described(item) for item in found}))
    else:
        rows = [(item.name, _text(item), item.source, SETTINGS[item.name].sentence) for item in found]
        table(("SETTING", "VALUE", "FROM", "WHAT IT IS"), rows)


def _described(item: Sourced) -> dict[str, object]:
    setting = SETTINGS[item.name]
    return {"value": shown(item), "source": item.source, "doc": setting.sentence, "expected": setting.expected}


def _text(item: Sourced) -> str:
    if isinstance(item.value, bool):
        return str(item.value).lower()
    return str(shown(item)) or '""'
