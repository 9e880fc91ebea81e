"""The hosts under attack, which are started when a case needs them."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from benchmarks.hostile.case import Stage
from benchmarks.hostile.host import Arena
from benchmarks.hostile.issuer import Issuer
from benchmarks.hostile.messages import warm_up
from roost.identity.seal import make_key

ADMIN_TOKEN = "an-admin-token-for-hostile-requests"
LIMITS = ("--auth-failures", "1000000", "--min-free-mb", "0", "--push-allow-hosts", "127.0.0.1", "--log-level", "error")


class Hosts:
    def __init__(self, folder: Path, store: tuple[str, ...]) -> None:
        self.folder = folder
        self.store = store
        self.running: dict[str, Stage] = {}
        self.issuer = Issuer()
        self.numbers = count()
        self.secret = folder / "secret.key"
        make_key(self.secret)

    def stage(self, name: str) -> Stage:
        if name not in self.running:
            folder = self.folder / f"{name}-{next(self.numbers)}"
            folder.mkdir()
            place = self.store or ("--data", str(folder / "data"))
            options = [*LIMITS, *place, "--secret-file", str(self.secret)]
            token = ""
            if name == "jwt":
                token = self.issuer.token()
                options += ["--jwt-issuer", self.issuer.url, "--jwt-audience", "roost"]
            arena = Arena(folder, options, admin_token=ADMIN_TOKEN, token=token)
            arena.__enter__()
            stage = self.running[name] = Stage(arena, self.issuer)
            if name == "open":
                warm_up(stage)
        return self.running[name]

    def stop(self, name: str) -> None:
        self.running.pop(name).arena.__exit__(None, None, None)

    def close(self) -> None:
        for name in [*self.running]:
            self.stop(name)
        self.issuer.close()
