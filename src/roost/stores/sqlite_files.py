"""The files of a SQLite journal: the lock that keeps other hosts out, and whether they are still the same.

The lock is an flock on `journal.db` itself, which any path, symbolic link or hard link leads to, and one on
`journal.lock` beside it, at which earlier releases look. Only Linux keeps flock apart from the POSIX locks that SQLite
takes on its file; on other systems there is only the second. See docs/adr/0030-journal-file.md.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from roost.engine.store_types import StoreMisplaced

JOURNAL, LOCK = "journal.db", "journal.lock"
LOG, INDEX = f"{JOURNAL}-wal", f"{JOURNAL}-shm"
LOOK_S = 1.0
"""Seconds between two looks at the files that are not looked at in each transaction."""
LOCK_WAIT_S = 2.0

FileId = tuple[int, int]
"""The device and the inode of a file."""

_locked: set[FileId] = set()
"""The journals that this process has locked. It must not open one of them again: to close any descriptor of a file is
to drop all POSIX locks of the process on it, and those are SQLite's."""


class StoreInUse(Exception):
    """Another host process has the journal open."""


class JournalLock:
    """The lock on the journal in a folder. It is held until `close`, and by processes that inherit the handles."""

    def __init__(self, folder: Path, *, create: bool = True) -> None:
        """Take the lock. Unless `create`, a journal that does not exist is not made, and only the folder is locked.

        The writer process of a host that was killed holds the lock until its last commit is done: this waits for it.
        """
        self.folder = folder
        self.journal: FileId | None = None
        self.handles: list[int] = []
        deadline = time.monotonic() + LOCK_WAIT_S
        try:
            self._take(folder / LOCK, deadline, lock=True)
            path = folder / JOURNAL
            if create or path.exists():
                with suppress(FileNotFoundError):
                    if _id(path) in _locked:
                        raise self._in_use()
                self.journal = self._take(path, deadline, lock=sys.platform == "linux")
                _locked.add(self.journal)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock. All connections to the journal must be closed before."""
        for handle in self.handles:
            os.close(handle)
        self.handles.clear()
        if self.journal is not None:
            _locked.discard(self.journal)

    def _take(self, path: Path, deadline: float, *, lock: bool) -> FileId:
        while True:
            handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            self.handles.append(handle)
            while lock and not _flock(handle):
                if time.monotonic() >= deadline:
                    raise self._in_use()
                time.sleep(0.02)
            found = os.fstat(handle)
            with suppress(FileNotFoundError):
                if _id(path) == (found.st_dev, found.st_ino):
                    return found.st_dev, found.st_ino
            self.handles.remove(handle)  # it was deleted before it was locked
            os.close(handle)

    def _in_use(self) -> StoreInUse:
        return StoreInUse(
            f"{self.folder} is in use by another roost process. Stop it, or choose another folder with --data."
        )


class JournalIds(Struct, array_like=True):
    """The files that a journal consists of while a host has it open."""

    journal: FileId
    log: FileId
    index: FileId
    lock: FileId


class JournalFiles:
    """Checks that the files at the journal's path are still those that SQLite has open, and keeps the lock file."""

    def __init__(self, path: Path, ids: JournalIds) -> None:
        """Expect the files to be those of `ids`, which `found_ids` returned while a connection was open."""
        journal, log, index, lock = map(str, _places(path))
        self.journal = (JOURNAL, journal, ids.journal)
        self.others = ((LOG, log, ids.log), (INDEX, index, ids.index))
        self.log_path, self.lock_path = log, lock
        self.lock = ids.lock
        self.handle: int | None = None
        """A lock file that was made anew."""
        self.looked_at = float("-inf")
        """When all files were last found in their places, by the monotonic clock."""

    def check(self) -> None:
        """Raise StoreMisplaced unless the files are in their places. It takes 5 microseconds of each transaction.

        Which file the log is, is looked up once a second only: Linux has to note finer times of a file that is written
        if somebody asks for them between two writes (since 6.13), and every commit would take half as long again.
        """
        _check(*self.journal)
        if not os.access(self.log_path, os.F_OK):
            raise StoreMisplaced(_gone(LOG))
        now = time.monotonic()
        if now - self.looked_at < LOOK_S:
            return
        for other in self.others:
            _check(*other)
        if _found(self.lock_path) != self.lock:
            self._lock_again()
        self.looked_at = now

    def close(self) -> None:
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None

    def _lock_again(self) -> None:
        """Make and lock a new lock file in place of one that was deleted, for earlier releases look at nothing else."""
        self.close()
        try:
            handle = os.open(self.lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreMisplaced(f"{LOCK} was deleted, and cannot be made again: {error.strerror}") from None
        if not _flock(handle):
            os.close(handle)
            raise StoreMisplaced(
                f"{LOCK} was deleted, and another roost process has locked a new one. Stop that process: two hosts"
                f" cannot have one journal"
            )
        found = os.fstat(handle)
        self.handle, self.lock = handle, (found.st_dev, found.st_ino)


def found_ids(path: Path) -> JournalIds:
    """Return which files are there now. Call it while a connection is open, which keeps them from being replaced."""
    return JournalIds(*map(_id, _places(path)))


def _places(path: Path) -> list[Path]:
    real = path.resolve()  # SQLite puts its other files beside the file that a symbolic link leads to
    return [path, real.with_name(f"{real.name}-wal"), real.with_name(f"{real.name}-shm"), path.with_name(LOCK)]


def _id(path: Path) -> FileId:
    found = path.stat()
    return found.st_dev, found.st_ino


def _flock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _check(name: str, path: str, expected: FileId) -> None:
    found = _found(path)
    if found is None:
        raise StoreMisplaced(_gone(name))
    if found != expected:
        raise StoreMisplaced(f"{name} was replaced while the host has another file open. {_advice(name)}")


def _found(path: str) -> FileId | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # it takes half as long as Path.stat, in each transaction
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _gone(name: str) -> str:
    return f"{name} was deleted or moved away while the host has it open. {_advice(name)}"


def _advice(name: str) -> str:
    if name != JOURNAL:
        return (
            "Nothing is accepted any more. Stop the host with SIGTERM, not SIGKILL: as it ends, it writes what it has"
            " committed into the journal. Then start it again"
        )
    return (
        "Nothing is accepted until that very file is back in its place. Move it back; or save what the host still has"
        " open (see docs/operations.md, When something is wrong), stop the host, restore a backup and start it again"
    )
