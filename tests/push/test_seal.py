"""A sealed secret can be opened only with the same key and for the same purpose."""

from __future__ import annotations

import base64
import multiprocessing
from pathlib import Path

import pytest

from roost.identity.seal import KeyFileError, Seal, WrongKey, load_key, make_key, new_key
from tests.processes import roost


def test_what_is_sealed_can_be_opened() -> None:
    seal = Seal(new_key())
    for data in (b"", b"secret", bytes(range(256)) * 100):
        assert seal.open(seal.seal(data, b"task 1"), b"task 1") == data


def test_a_seal_is_never_the_same_twice_and_shows_nothing() -> None:
    seal = Seal(new_key())
    sealed = [seal.seal(b"secret", b"task 1") for _ in range(100)]
    assert len(set(sealed)) == 100
    assert not any(b"secret" in piece or b"task" in piece for piece in sealed)


@pytest.mark.parametrize("at", [0, 1, 5, 13, -1])
def test_a_seal_that_was_touched_cannot_be_opened(at: int) -> None:
    seal = Seal(new_key())
    touched = bytearray(seal.seal(b"secret", b"task 1"))
    touched[at] ^= 1
    with pytest.raises(WrongKey):
        seal.open(bytes(touched), b"task 1")


@pytest.mark.parametrize("short", [b"", b"\x01", b"\x01" + bytes(12), b"\x01" + bytes(20)])
def test_what_is_too_short_to_be_a_seal_cannot_be_opened(short: bytes) -> None:
    with pytest.raises(WrongKey):
        Seal(new_key()).open(short, b"")


def test_another_key_or_another_thing_does_not_open_it() -> None:
    key = new_key()
    sealed = Seal(key).seal(b"secret", b"task 1")
    with pytest.raises(WrongKey, match="another key"):
        Seal(new_key()).open(sealed, b"task 1")
    with pytest.raises(WrongKey):
        Seal(key).open(sealed, b"task 2")


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "secret.key"
    key = load_key(file, create=True)
    assert len(key) == 32
    assert load_key(file, create=True) == load_key(file, create=False) == key
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_processes_that_make_it_at_the_same_time_have_the_same_key(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        keys = pool.map(_load, [tmp_path / "secret.key"] * 8, chunksize=1)
    assert len(set(keys)) == 1


def _load(file: Path) -> bytes:
    return load_key(file, create=True)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    make_key(file)
    file.chmod(mode)
    with pytest.raises(KeyFileError, match=f"chmod 600 {file}"):
        load_key(file, create=True)


@pytest.mark.parametrize(
    "encode",
    [
        bytes.hex,
        lambda key: key.hex().upper(),
        lambda key: base64.b64encode(key).decode(),
        lambda key: base64.urlsafe_b64encode(key).decode().rstrip("="),
    ],
)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_key_may_be_written_in_hex_or_base64(tmp_path: Path, encode, end: str) -> None:
    file = tmp_path / "key"
    key = new_key()
    file.touch(0o600)
    file.write_text(encode(key) + end, newline="")
    assert load_key(file, create=False) == key


@pytest.mark.parametrize("text", [b"", b"short", b"00" * 31, b"0" * 10_000, b"\xff" * 32, b"?" * 44])
def test_what_is_no_key_is_refused(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "key"
    file.touch(0o600)
    file.write_bytes(text)
    with pytest.raises(KeyFileError, match="32 bytes"):
        load_key(file, create=True)


def test_a_key_that_is_not_there_is_made_only_where_that_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="roost secret"):
        load_key(tmp_path / "key", create=False)
    with pytest.raises(KeyFileError):
        load_key(tmp_path, create=True)


def test_roost_secret_makes_a_key_and_never_overwrites_one(tmp_path: Path) -> None:
    file = tmp_path / "key"
    done = roost("secret", file)
    assert (done.returncode, str(file) in done.stdout) == (0, True)
    key = load_key(file, create=False)
    assert key.hex() not in done.stdout
    done = roost("secret", file)
    assert (done.returncode, "exists" in done.stderr) == (1, True)
    assert load_key(file, create=False) == key
    done = roost("secret", file / "below")
    assert (done.returncode, "cannot write" in done.stderr, "Traceback" in done.stderr) == (1, True, False)
