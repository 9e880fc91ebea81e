"""Every setting is a flag of `roost serve`; the commands that work on the store have those that say where it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Annotated, Any, get_type_hints

import typer

from roost.settings import DOCS, Settings

PATHS = Annotated[list[str], typer.Argument(help="A .py file, a folder of them, or module:attribute.")]
RELOAD = Annotated[bool, typer.Option("--reload", help="Restart when a file changes.")]


def with_settings(command: Callable[..., None], names: Collection[str] = DOCS) -> Callable[..., None]:
    """`command` as typer sees it: its `**flags` are one option for each of the settings in `names`."""
    hints = get_type_hints(Settings)
    given = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    own = [_annotated(parameter) for parameter in given]
    flags = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[hints[name] | None, _option(name, hints[name])],
        )
        for name in names
    ]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + flags

    def run(**values: Any) -> None:
        command(**values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _annotated(parameter: inspect.Parameter) -> inspect.Parameter:
    if parameter.name == "paths":
        return parameter.replace(annotation=PATHS)
    if parameter.name == "reload":
        return parameter.replace(annotation=RELOAD, default=False)
    return parameter


def _option(name: str, kind: Any) -> Any:
    flag = f"--{name.replace('_', '-')}"
    return typer.Option(flag, help=DOCS[name])
