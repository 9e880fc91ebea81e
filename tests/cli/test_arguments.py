"""Arguments that could be taken for options."""

from __future__ import annotations

import pytest

from roost.cli import keys
from roost.cli.main import main


@pytest.mark.parametrize("kid", ["-Jx4_hQ", "--J", "-data"])
def test_the_id_of_a_key_may_begin_with_a_dash(kid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    monkeypatch.setattr(keys, "with_store", lambda flags, work: given.append(flags["data"]))
    monkeypatch.setattr("sys.argv", ["roost", "keys", "retire", "hello", kid, "--data", "there"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, given) == (0, ["there"])


def test_an_unknown_option_is_an_error_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["roost", "keys", "rotate", "hello", "-Jx4_hQ"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "No such option" in capsys.readouterr().err
