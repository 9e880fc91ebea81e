"""The JavaScript SDK's client: one process of it, told what to do."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.cards.javascript import NODE, SOURCE, installed

_numbers = itertools.count(1)


class Refused(Exception):
    """An error of the client's own: which of its classes, and what it says."""

    def __init__(self, kind: str, reason: str | None, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.reason = reason
        self.message = message


class JavaScript:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def tell(self, does: str, **given: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"does": does, **given}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the JavaScript SDK has died"
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(**answer["error"])
        return answer["value"]


class Stream(NamedTuple):
    javascript: JavaScript
    number: int
    opening: dict[str, Any]

    def rest(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.javascript.tell("rest", stream=self.number)
        return found

    def leave(self) -> None:
        self.javascript.tell("leave", stream=self.number)


class Remote:
    """One agent, as the client sees it over one transport."""

    def __init__(self, javascript: JavaScript, card: str, transport: str, secret: str) -> None:
        self.javascript = javascript
        self.place = {"url": card, "transport": transport}
        self.headers = {"Authorization": f"Bearer {secret}"}

    def call(self, method: str, params: dict[str, Any], **headers: str) -> Any:
        return self.javascript.tell("call", method=method, params=params, headers=self._with(headers), **self.place)

    def open(self, method: str, params: dict[str, Any], **headers: str) -> Stream:
        number, more = next(_numbers), self._with(headers)
        command = {"method": method, "params": params, "headers": more, "stream": number}
        return Stream(self.javascript, number, self.javascript.tell("open", **command, **self.place))

    def protocol(self) -> list[str]:
        found: list[str] = self.javascript.tell("protocol", **self.place)
        return found

    def _with(self, headers: dict[str, str]) -> dict[str, str]:
        return {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}


@contextmanager
def javascript(program: str) -> Iterator[JavaScript]:
    with subprocess.Popen(
        [NODE, SOURCE / program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=installed()
    ) as process:
        try:
            yield JavaScript(process)
        finally:
            process.kill()
