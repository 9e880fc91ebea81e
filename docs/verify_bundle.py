"""Verifies a bundle: python verify_bundle.py FILE [JWKS]. Needs `cryptography`. Exit code 0: valid. 1: not valid."""

import base64
import hashlib
import io
import json
import sys
import tarfile
import zlib
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils
from cryptography.hazmat.primitives.hashes import SHA256


def require(condition, problem):
    if not condition:
        sys.exit(f"not valid: {problem}")


def b64(text):
    data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    require(base64.urlsafe_b64encode(data).rstrip(b"=").decode() == text, "a base64url value is not canonical")
    return data


def thumbprint(key):
    fields = {name: key[name] for name in ("crv", "kty", "x", "y") if name in key}
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def check_signature(signed, payload, keys):
    header = json.loads(b64(signed["protected"]))
    require(header["typ"] == "application/vnd.roost.manifest+jws", "the signature has another purpose")
    key = next((key for key in keys if thumbprint(key) == header["kid"]), None)
    require(key, f"the key {header['kid']} is not among the known keys")
    message = signed["protected"].encode() + b"." + base64.urlsafe_b64encode(payload).rstrip(b"=")
    value = b64(signed["signature"])
    if header["alg"] == "EdDSA":
        ed25519.Ed25519PublicKey.from_public_bytes(b64(key["x"])).verify(value, message)
    else:
        x, y = (int.from_bytes(b64(key[name])) for name in ("x", "y"))
        pair = utils.encode_dss_signature(int.from_bytes(value[:32]), int.from_bytes(value[32:]))
        ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key().verify(pair, message, ec.ECDSA(SHA256()))
    return header["kid"]


def main(path, jwks=None):
    inflate, members, end = zlib.decompressobj(31), {}, 0
    unpacked = inflate.decompress(Path(path).read_bytes())
    require(inflate.eof and not inflate.unused_data, "the compressed data is truncated, or data follows it")
    for member in tarfile.TarFile(fileobj=io.BytesIO(unpacked)):
        require(member.isreg() and member.name not in members, f"{member.name} is not a regular file, or occurs twice")
        start, end = member.offset_data, member.offset_data + -(-member.size // 512) * 512
        members[member.name] = unpacked[start : start + member.size]
    require(unpacked[end:] == bytes(1024), "the archive does not end after its last member")
    keys = json.loads(Path(jwks).read_bytes() if jwks else members["keys/jwks.json"])["keys"]
    signer = check_signature(json.loads(members["manifest.json.sig"]), members["manifest.json"], keys)
    listed = {one["name"]: (one["sha256"], one["size"]) for one in json.loads(members["manifest.json"])["members"]}
    require(listed.keys() == members.keys() - {"manifest.json", "manifest.json.sig"}, "members are missing or unknown")
    for name, expected in listed.items():
        require((hashlib.sha256(members[name]).hexdigest(), len(members[name])) == expected, f"{name} was changed")
    heads = {task["task"]: task for task in map(json.loads, members["tasks.ndjson"].splitlines())}
    chains, counts = dict.fromkeys(heads, bytes(32)), dict.fromkeys(heads, 0)
    for line in members["events.ndjson"].split(b"\n")[:-1]:
        one = json.loads(line)
        raw = one["raw"] if isinstance(one["raw"], dict) else {"hex": one["raw"].encode().hex()}
        if raw.get("where") != "redacted":
            data = bytes.fromhex(raw["hex"]) if "hex" in raw else members[f"raw/{raw['sha256']}"]
            numbers = " ".join(str(one[name]) for name in ("seq", "sub", "time", "ordinal"))
            link = hashlib.sha256(chains[one["task"]] + f"{one['kind']} {numbers}\n".encode() + data).hexdigest()
            require(link == one["chain"], f"task {one['task']}, entry {one['seq']}.{one['sub']} was changed")
        chains[one["task"]], counts[one["task"]] = bytes.fromhex(one["chain"]), counts[one["task"]] + 1
    for name, task in heads.items():
        require(
            (chains[name].hex(), counts[name]) == (task["chain"], task["entries"]),
            f"the head of task {name} does not match its entries",
        )
    return f"valid: {len(heads)} tasks, signed by {signer}, {'a key that you gave' if jwks else 'not anchored'}"


if __name__ == "__main__":
    try:
        sys.stdout.write(main(*sys.argv[1:3]) + "\n")
    except Exception as error:
        sys.exit(f"not valid: {type(error).__name__} {error}")
