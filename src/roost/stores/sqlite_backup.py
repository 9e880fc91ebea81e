"""Backups of a SQLite journal: made while a host writes, restored while no host runs.

A backup is one SQLite file, the journal at one moment. The secret of the folder, without which the secrets of webhooks
cannot be read, is copied to `<backup>.key` only on request.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from roost.stores import sqlite_schema
from roost.stores.sqlite_files import JOURNAL, JournalLock
from roost.stores.sqlite_schema import NotAJournal
from roost.stores.sqlite_writer import reason

SECRET = "secret.key"  # noqa: S105  # the name of a file
STEP_PAGES = 1024

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class BackupError(Exception):
    """Nothing was backed up or restored; the message says why."""


def backup_sqlite(folder: Path, target: Path, *, include_secret: bool = False) -> None:
    """Copy the journal in `folder` to `target`, which is replaced if it exists. A host may be running."""
    journal, secret = folder / JOURNAL, folder / SECRET
    if not journal.is_file():
        raise BackupError(f"there is no journal in {folder}")
    if target.resolve().parent == folder.resolve():
        raise BackupError(f"{target} is in the folder of the journal itself: choose another folder")
    if include_secret and not secret.is_file():
        raise BackupError(f"there is no {SECRET} in {folder}")
    with _partial(target) as partial:
        _copy_database(journal, partial)
        _check(partial, "quick_check")
        if include_secret:
            _copy_file(secret, _key_of(target))
        _put(partial, target)


def restore_sqlite(file: Path, folder: Path, *, force: bool = False) -> None:
    """Make a backup the journal of `folder`; a journal that exists is replaced only with `force`. No host may run."""
    if not file.is_file():
        raise BackupError(f"there is no backup {file}")
    _check(file, "integrity_check")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = JournalLock(folder, create=False)
    try:
        journal, secret, key = folder / JOURNAL, folder / SECRET, _key_of(file)
        if not force:
            _refuse_to_replace(journal, secret, key)
        with _partial(journal) as partial:
            _copy_file(file, partial)
            _forget_served(partial)
            if journal.exists():
                _empty_log(journal)
            if key.is_file():
                _copy_file(key, secret)  # before the journal: a host that found no secret would make a new one
            _put(partial, journal)
    finally:
        lock.close()


def _refuse_to_replace(journal: Path, secret: Path, key: Path) -> None:
    if journal.exists():
        raise BackupError(f"{journal.parent} already has a journal: choose another folder, or use --force")
    if key.is_file() and secret.is_file() and key.read_bytes() != secret.read_bytes():
        raise BackupError(f"{secret} is not the secret of the backup: choose another folder, or use --force")


def _copy_database(source: Path, target: Path) -> None:
    """Copy in one read transaction, so that concurrent writes are neither copied nor make the copy start again."""
    with _backup_errors(source), closing(_read_only(source)) as reading, closing(sqlite3.connect(target)) as writing:
        reading.execute("BEGIN")
        reading.execute("SELECT count(*) FROM sqlite_master").fetchone()
        reading.backup(writing, pages=STEP_PAGES)
        reading.execute("ROLLBACK")
        writing.execute("PRAGMA journal_mode = DELETE")  # in WAL mode, opening it would make files beside it


def _check(file: Path, pragma: str) -> None:
    """Check that the file is an undamaged journal of a schema that this release knows, and complete."""
    log = file.with_name(f"{file.name}-wal")
    if log.exists():
        raise BackupError(f"{file} is not a backup: a part of it is in {log.name}")
    try:
        with _backup_errors(file), closing(_read_only(file, immutable=True)) as connection:
            if sqlite_schema.schema_of(connection) == 0:
                raise BackupError(f"{file} is not a backup: it is empty")
            [size] = connection.execute(
                "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
            ).fetchone()
            if size != file.stat().st_size:
                raise BackupError(f"{file} is damaged: it has {file.stat().st_size} bytes, not {size}")
            [result] = connection.execute(f"PRAGMA {pragma}(1)").fetchone()
    except NotAJournal as error:
        raise BackupError(f"{file} is not a backup: {error}") from error
    if result != "ok":
        raise BackupError(f"{file} is damaged: {result}")


def _forget_served(journal: Path) -> None:
    """Delete when agents were served: nobody could serve them since the backup, so their time begins anew."""
    with _backup_errors(journal), closing(sqlite3.connect(journal, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")  # no file beside it that a crash would leave
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'served_agents'").fetchone():
            connection.execute("DELETE FROM served_agents")


def _empty_log(journal: Path) -> None:
    """Write the log of a journal into its file: SQLite would take a log that is left for the new journal's."""
    log, index = (journal.with_name(f"{journal.name}{end}") for end in ("-wal", "-shm"))
    try:
        with closing(sqlite3.connect(journal)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF not in _DAMAGED:
            raise BackupError(reason(journal, error)) from error
        log.unlink(missing_ok=True)
        index.unlink(missing_ok=True)
    if log.exists() or index.exists():
        raise BackupError(f"another program has {journal} open: stop it first")


def _read_only(path: Path, *, immutable: bool = False) -> sqlite3.Connection:
    url = f"file:{quote(os.fsencode(path.resolve()))}?mode=ro{'&immutable=1' if immutable else ''}"
    return sqlite3.connect(url, uri=True, isolation_level=None)


def _key_of(backup: Path) -> Path:
    return backup.with_name(f"{backup.name}.key")


@contextmanager
def _backup_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into BackupError."""
    try:
        yield
    except sqlite3.Error as error:
        raise BackupError(reason(path, error)) from error


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """Make a file beside the target that only this user may read, and delete it at the end unless it was moved."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    os.close(os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600))
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def _copy_file(source: Path, target: Path) -> None:
    with _partial(target) as partial:
        shutil.copyfile(source, partial)
        _put(partial, target)


def _put(partial: Path, target: Path) -> None:
    """Move the file to its place, at once or not at all even if the power fails."""
    _sync(partial)
    partial.replace(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
