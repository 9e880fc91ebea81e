"""Encryption of secrets at rest: AES-256-GCM under a key in a file of its own, never in the store."""

from __future__ import annotations

import base64
import binascii
import errno
import os
import re
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
VERSION = b"\x01"
_HEX = re.compile(r"[0-9a-fA-F]{64}")
_MAX_FILE = 4096


class KeyFileError(Exception):
    """The file has no usable key; the message says what to do."""


class WrongKey(Exception):
    """The data was sealed with another key or for something else, or it is damaged."""


class Seal:
    def __init__(self, key: bytes) -> None:
        self.cipher = AESGCM(key)

    def seal(self, data: bytes, about: bytes) -> bytes:
        """Encrypt data. It can be opened only with the same `about`, which says what the secret belongs to."""
        nonce = os.urandom(NONCE_BYTES)
        return VERSION + nonce + self.cipher.encrypt(nonce, data, VERSION + about)

    def open(self, sealed: bytes, about: bytes) -> bytes:
        if sealed[:1] != VERSION:
            raise WrongKey("it was sealed by another release of Roost, or it is damaged")
        nonce, encrypted = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
        try:
            return self.cipher.decrypt(nonce, encrypted, VERSION + about)
        except (InvalidTag, ValueError):
            raise WrongKey("it was sealed with another key: check the setting secret_file") from None


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def load_key(path: Path, *, create: bool) -> bytes:
    """Read the key in the file. With `create`, make a missing file."""
    if create and not path.exists():
        try:
            make_key(path)
        except FileExistsError:
            pass  # another process has made it in this moment
        except OSError as error:
            raise KeyFileError(f"cannot create {path}: {error.strerror}") from error
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_MAX_FILE)
    except FileNotFoundError:
        raise KeyFileError(f"{path} does not exist. Create it with: roost secret {path}") from None
    except OSError as error:
        raise KeyFileError(f"cannot read {path}: {error.strerror}") from error
    if mode & 0o077:
        raise KeyFileError(f"other users can read or write {path}. Restrict it with: chmod 600 {path}")
    key = _decoded(text)
    if key is None:
        raise KeyFileError(
            f"{path} does not hold {KEY_BYTES} bytes in hex or base64. Create such a file with: roost secret FILE"
        )
    return key


def make_key(path: Path) -> None:
    """Write a new key into a new file, which is never seen half-written. FileExistsError if the file exists."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, f"{path.parent} is not a folder") from error
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(new_key().hex().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    finally:
        draft.unlink()


def _decoded(text: bytes) -> bytes | None:
    try:
        line = text.decode("ascii").strip()
        if _HEX.fullmatch(line):
            return bytes.fromhex(line)
        key = base64.b64decode(line.replace("-", "+").replace("_", "/") + "=" * (-len(line) % 4), validate=True)
    except (UnicodeDecodeError, binascii.Error):
        return None
    return key if len(key) == KEY_BYTES else None
