"""Every setting is a flag of `roost serve`; the commands that work on the store have those that say where it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Annotated, Any, get_type_hints

import typer

from roost.settings import DOCS, NO_FLAG, Settings

FLAGS = tuple(name for name in DOCS if name not in NO_FLAG)


def with_settings(command: Callable[..., None], names: Collection[str] = FLAGS) -> Callable[..., None]:
    """`command` as typer sees it: its `**flags` are one option for each of the settings in `names`."""
    hints = get_type_hints(Settings)
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    flags = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[hints[name] | None, typer.Option(_flag(name), help=DOCS[name])],
        )
        for name in names
    ]
    parameters = own + flags

    def run(**values: Any) -> None:
        command(**values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _flag(name: str) -> str:
    """What is on by default has a flag that switches it off."""
    flag = name.replace("_", "-")
    return f"--{flag}/--no-{flag}" if getattr(Settings(), name) is True else f"--{flag}"
