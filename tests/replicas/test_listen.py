"""Workers share all listening sockets of their parent, TLS and Unix ones too."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx
import trustme

from tests.replicas.conftest import Start
from tests.replicas.test_replicas import _children
from tests.waiting import PATIENCE_S, eventually


def test_workers_share_several_listeners_and_the_parent_removes_what_it_made(start: Start, tmp_path: Path) -> None:
    made = trustme.CA().issue_cert("127.0.0.1")
    cert, key, path = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "socket"
    made.cert_chain_pems[0].write_to_path(cert)
    made.private_key_pem.write_to_path(key)
    key.chmod(0o600)
    args = ("--workers", "2", "--listen", f"127.0.0.1:0,unix:{path}", "--tls-cert", str(cert), "--tls-key", str(key))
    with start(*args) as host:
        assert host.url.startswith("https://127.0.0.1:")
        pids = eventually(lambda: len(found := _children(host.process.pid)) == 2 and found, "two workers")
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        eventually(
            lambda: len(found := _children(host.process.pid)) == 2 and not {*pids} & {*found}, "two other workers"
        )
        assert host.send("counter", "3")["status"]["state"] == "TASK_STATE_COMPLETED"
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=PATIENCE_S) as client:
            assert client.get("http://localhost/healthz").status_code == 200
        assert host.stop() == 0
    assert not path.exists()
