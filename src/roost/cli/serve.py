"""`roost serve`: the one command that is a host."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from roost.cli.errors import CommandFailed
from roost.cli.settings import FLAGS, read_settings, serving_settings, with_settings

Paths = Annotated[
    list[str], typer.Argument(metavar="PATH...", help="A .py file, a folder of them, or module:attribute.")
]
Reload = Annotated[bool, typer.Option("--reload", help="Restart when a Python file changes.")]


@with_settings(*FLAGS)
def serve(paths: Paths, reload: Reload = False, **flags: Any) -> None:
    """Serve agents until stopped."""
    settings = serving_settings(flags)
    if reload:
        _serve_and_watch(paths, flags)
        return
    from roost.cli.host_server import run  # it imports the whole host, which --help does not need

    run(paths, settings)


def _serve_and_watch(sources: Sequence[str], flags: dict[str, Any]) -> None:
    """Serve in a child process, and start it again whenever a Python file changes. The journal changes all the time."""
    import watchfiles

    watched = [Path(source.partition(":")[0]).resolve() for source in sources]
    folders = {str(path if path.is_dir() else path.parent) for path in watched}
    print(f"Watching {', '.join(sorted(folders))} for changes", file=sys.stderr)
    only_python = watchfiles.PythonFilter()
    watchfiles.run_process(*folders, target=_serve_child, args=(list(sources), flags), watch_filter=only_python)


def _serve_child(sources: list[str], flags: dict[str, Any]) -> None:
    from roost.cli.host_server import run

    try:
        run(sources, read_settings(flags), watched=True)
    except KeyboardInterrupt:
        return  # the watcher ends it that way
    except CommandFailed as error:
        print(f"roost: {error}", file=sys.stderr)
