"""The peer of a connection, as far as the connection itself identifies it."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from cryptography import x509

from roost.identity.principal import user_name


class Certificate(NamedTuple):
    """A client certificate whose chain the server's TLS has verified."""

    subject: str
    """The first URI among its alternative names (SPIFFE), else the first DNS name, else its RFC 4514 subject."""
    not_after: int
    """When it expires, in seconds since 1970. A connection can outlive it."""
    fingerprint: str
    """SHA-256 of the certificate, in hex."""


class Peer(NamedTuple):
    """The identity of a peer: a certificate on TLS, a user on a Unix socket."""

    certificate: Certificate | None = None
    uid: int | None = None
    user: str = ""
    """The name of the uid, or its number where it has none."""


class NamesNobody(Exception):
    """A certificate that names no subject."""


def certified(der: bytes) -> Peer:
    """Return the peer with this certificate. NamesNobody if it has no readable name."""
    try:
        found = x509.load_der_x509_certificate(der)
        subject = _subject(found)
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise NamesNobody(f"the certificate cannot be read: {error}") from error
    if not subject:
        raise NamesNobody("the certificate has neither a subject nor an alternative name")
    not_after = int(found.not_valid_after_utc.timestamp())
    return Peer(Certificate(subject, not_after, hashlib.sha256(der).hexdigest()))


def local_user(uid: int) -> Peer:
    """Return the peer that runs as this user."""
    return Peer(uid=uid, user=user_name(uid))


def _subject(certificate: x509.Certificate) -> str:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        found = []
    else:
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        found = [*uris, *names.get_values_for_type(x509.DNSName)]
    return next(filter(None, found), "") or certificate.subject.rfc4514_string()
