"""How endpoints with https are reached: from files, which may be replaced while the program runs."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from ringlog.errors import InvalidArgument

if TYPE_CHECKING:
    import ssl

Path = str | os.PathLike[str] | None

EXPIRED, NOT_YET_VALID, OTHER_NAME, OTHER_ADDRESS = 10, 9, 62, 64
"""X509_V_ERR_… of OpenSSL, which Python has no names for."""
PLAIN = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")
"""What versions of OpenSSL call an answer that is not of TLS."""


def remedy(error: BaseException | None) -> str:
    """Return what to do about TLS that fails until somebody changes something, "" for other errors."""
    ssl = sys.modules.get("ssl")  # without it there was no TLS
    if ssl is None or not isinstance(error, ssl.SSLError):
        return ""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in (EXPIRED, NOT_YET_VALID):
            return (
                "the node's certificate or its CA has expired, or the clock of this machine is wrong: make a new one "
                "with ringlog cert, which the node takes in by itself"
            )
        if error.verify_code in (OTHER_NAME, OTHER_ADDRESS):
            return (
                "the node has a certificate, but not of this name: use one of its names as the endpoint, or make it "
                "one with --host"
            )
        return (
            "the node's certificate is of a CA that is not trusted here: give the cluster's in tls_ca or "
            "RINGLOG_TLS_CA, or a context that trusts it, tls=ssl.create_default_context(cafile=...)"
        )
    reason = str(error.reason or "")
    if reason in PLAIN:
        return "the node serves plain HTTP: give its address as http://…"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return (
            "the node refuses the certificate of this client: give one that the cluster's CA has signed and that has "
            "not expired, in tls_cert and tls_key or RINGLOG_TLS_CERT and RINGLOG_TLS_KEY"
        )
    return ""


class Secure:
    """The TLS of a client: the context that it was given, else that of the files, else Python's default."""

    def __init__(self, context: ssl.SSLContext | None, ca: Path, cert: Path, key: Path) -> None:
        if context is not None and (ca or cert or key):
            raise _wrong("tls", "it is given beside files: load them into the context, or leave it out")
        names = {"tls_ca": ca, "tls_cert": cert, "tls_key": key}
        self._files: dict[str, str] = {}
        for name, file in names.items():
            if context is None and (file := os.environ.get("RINGLOG_" + name.upper(), "") if file is None else file):
                self._files[name] = os.fspath(file)
        for one, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
            if one in self._files and other not in self._files:
                raise _wrong(one, f"it needs {other}, or RINGLOG_{other.upper()}")
        self._given = self._context = context
        self._seen: object = None  # what the files were like that the context was made from
        self._lock = threading.RLock()  # the handler of a signal may call, too

    def after_fork(self) -> None:
        """Renew the lock, which a thread of the parent may have held."""
        self._lock = threading.RLock()

    def context(self) -> ssl.SSLContext:
        """Return the context of the next connection. Files that have changed and cannot be used change nothing."""
        if self._given is not None:
            return self._given
        with self._lock:
            try:
                seen = [(s.st_mtime_ns, s.st_size, s.st_ino) for s in map(os.stat, self._files.values())]
                if self._context is None or seen != self._seen:
                    self._context, self._seen = self._load(), seen
            except (OSError, InvalidArgument) as e:
                if self._context is None:
                    raise self._named(e) from e
            return self._context

    def _load(self) -> ssl.SSLContext:
        import ssl  # takes long to import, and many clusters are used without it

        context = ssl.create_default_context(cafile=self._checked("tls_ca"))
        if cert := self._checked("tls_cert"):
            key = self._files["tls_key"]
            mode = os.stat(key).st_mode & 0o777
            if os.name == "posix" and mode & 0o037:
                raise _wrong("tls_key", f"{key} can be read by others (mode {mode:04o}): chmod 600 {key}")
            try:
                # With a password, OpenSSL does not ask the terminal for one.
                context.load_cert_chain(cert, key, password="")
            except ssl.SSLError as e:
                raise _wrong("tls_cert", f"{cert} and {key} are no certificate in PEM with its own key: {e}") from e
        return context

    def _checked(self, name: str) -> str | None:
        """Return a file of certificates, None if there is none."""
        file = self._files.get(name)
        if file is not None:
            with open(file, "rb") as f:
                if b"-----BEGIN CERTIFICATE-----" not in f.read(1 << 20):
                    raise _wrong(name, f"{file}: there is no certificate in PEM in it")
        return file

    def _named(self, error: Exception) -> InvalidArgument:
        """Return the error of a file that cannot be read."""
        if isinstance(error, InvalidArgument):
            return error
        file = getattr(error, "filename", None)
        name = next((name for name, named in self._files.items() if named == file), "tls_ca")
        return _wrong(name, str(error))


def _wrong(field: str, message: str) -> InvalidArgument:
    return InvalidArgument(
        message,
        code="invalid_argument",
        field=field,
        remedy="name files in PEM in tls_ca, tls_cert and tls_key, or RINGLOG_TLS_CA, RINGLOG_TLS_CERT and "
        "RINGLOG_TLS_KEY; ringlog cert makes them",
    )
