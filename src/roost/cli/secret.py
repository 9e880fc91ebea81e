"""`roost secret`: the key that secrets in the store are sealed with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roost.cli.errors import CommandFailed
from roost.identity.seal import make_key


def secret(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that does not exist yet.")],
) -> None:
    """Make a key file for --secret-file, that only you can read."""
    try:
        make_key(file)
    except FileExistsError:
        raise CommandFailed(
            f"{file} exists; what is sealed with the key in it would be lost. Choose another name"
        ) from None
    except OSError as error:
        raise CommandFailed(f"cannot make {file}: {error.strerror}") from error
    print(f"{file} has a new key. Give the same file to every host: --secret-file {file}")
