"""Clients and commands of a cluster that requires TLS, and the errors of those that it or they do not trust."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

from ringlog import AsyncClient, Client
from ringlog._cli import main
from ringlog.errors import InvalidArgument, RinglogError, Unauthenticated, Unavailable
from tests.cluster import Cluster, eventually, program, shared


class Secured(unittest.TestCase):
    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster(voters=1, tls="require")
        cls.addClassCleanup(cls.cluster.close)
        cls.tls = cls.cluster.folder / "tls"
        cls.cluster.cert("client", "trainer")
        cls.ca, cls.cert, cls.key = (str(cls.tls / f"{n}.pem") for n in ("ca", "client-trainer", "client-trainer-key"))
        cls.stranger = str(cls.tls / "stranger")
        for args in (["ca"], ["client", "trainer"], ["node", "n1", "--host", "127.0.0.1", "--valid", "1s"]):
            subprocess.run([program(), "cert", *args, "--dir", cls.stranger], check=True, capture_output=True)

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ringlog-tls-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_it(self, *args: str, code: int = 0, **env: str) -> str:
        """Run the command line and return what it has printed."""
        out = io.StringIO()
        with mock.patch.dict(os.environ, env), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            self.assertEqual(main(args), code, out.getvalue())
        return out.getvalue()

    def failure(self, url: str, **options: str) -> RinglogError:
        """Return the error of a call, which both clients report and neither repeats."""

        async def ask() -> None:
            async with AsyncClient(url, **options) as log:
                await log.cluster()

        began = time.monotonic()
        with self.assertRaises(RinglogError) as other:
            asyncio.run(ask())
        with self.assertRaises(RinglogError) as failed, Client(url, **options) as log:
            log.cluster()
        self.assertLess(time.monotonic() - began, 20)  # each would be repeated for 30 s
        self.assertEqual(failed.exception.remedy, other.exception.remedy)
        self.assertIs(type(failed.exception), type(other.exception))
        return failed.exception

    def test_clients_call_over_tls(self) -> None:
        with Client(self.cluster.urls, tls_ca=self.ca) as log:
            log.publish("DATA_SYNC_COMPLETED", {"host": "1"})
            # The strictest rules of X.509, which Python has by default from 3.13 on.
            strict = ssl.create_default_context(cafile=self.ca)
            strict.verify_flags |= ssl.VERIFY_X509_STRICT
            with Client(self.cluster.urls, tls=strict) as other:
                self.assertEqual(other.cluster()["leader_http"], self.cluster.nodes[0].url)

        async def publish() -> None:
            async with AsyncClient(self.cluster.urls, tls_ca=self.ca, tls_cert=self.cert, tls_key=self.key) as log:
                await log.publish("DATA_SYNC_COMPLETED", {"host": "2"})
                await log.publish_soon("DATA_SYNC_COMPLETED", {"host": "3"})

        asyncio.run(publish())
        files = {"RINGLOG_TLS_CA": self.ca, "RINGLOG_TLS_CERT": self.cert, "RINGLOG_TLS_KEY": self.key}
        with mock.patch.dict(os.environ, files), Client(self.cluster.urls) as log:
            events = log.tail("start", types=["DATA_SYNC_COMPLETED"], until_end=True)
            self.assertLessEqual({"1", "2", "3"}, {event.payload.get("host") for event in events})
            # What a client spools that trusts no node is delivered by one that does.
            foreign = self.tls / "stranger" / "ca.pem"
            with Client(self.cluster.urls, tls_ca=foreign, spool=self.folder / "spool") as away:
                self.assertTrue(away.publish("DATA_SYNC_COMPLETED", {"host": "4"}).spooled)
        self.run_it("spool", str(self.folder / "spool"), "--drain", "-e", self.cluster.urls, **files)
        with Client(self.cluster.urls, tls_ca=self.ca) as log:
            events = log.tail("start", types=["DATA_SYNC_COMPLETED"], until_end=True)
            self.assertIn("4", [event.payload.get("host") for event in events])

    def test_the_old_buses_call_over_tls(self) -> None:
        from ringlog.compat.event_router import UnifiedEventRouter

        variables = {"RINGLOG_TLS_CA": self.ca, "RINGLOG_ENDPOINTS": self.cluster.urls}
        with mock.patch.dict(os.environ, variables):
            router = UnifiedEventRouter()
            router.publish_sync("DATA_SYNC_COMPLETED", {"host": "5"}, "old")
            router.log.close()
        with Client(self.cluster.urls, tls_ca=self.ca) as log:
            events = log.tail("start", types=["DATA_SYNC_COMPLETED"], until_end=True)
            self.assertIn("5", [event.payload.get("host") for event in events])

    def test_commands_call_over_tls(self) -> None:
        end = "-e", self.cluster.urls
        files = "--tls-ca", self.ca, "--tls-cert", self.cert, "--tls-key", self.key
        self.run_it("publish", "MODEL_PROMOTED", "--payload", "{}", *end, *files)
        self.assertIn("MODEL_PROMOTED", self.run_it("tail", "--from", "start", "--until-end", *end, *files))
        # The child of react calls the cluster with the same files.
        child = 'test "$RINGLOG_TLS_CA $RINGLOG_TLS_CERT $RINGLOG_TLS_KEY" = "$0"'
        react = "react", "--group", "promoters", "--type", "MODEL_PROMOTED", "--until-end", *end, *files
        self.run_it(*react, "--", "sh", "-c", child, " ".join(files[1::2]))
        self.assertIn("not trusted here", self.run_it("publish", "X", "--payload", "{}", *end, code=3))

        # Doctor says until when the certificate is valid, and what is wrong with an endpoint.
        out = self.run_it("doctor", *end, *files)
        self.assertRegex(out, r"ok   tls: n1 has mode require, and a certificate that expires in 36\d days")
        with mock.patch("ringlog._cli.doctor.RENEW_WITHIN", 366 * 86400):
            out = self.run_it("doctor", *end, *files, code=1)
        self.assertIn("make a new one with ringlog cert node", out)
        self.assertIn("not trusted here", self.run_it("doctor", *end, code=3))

    def test_errors_say_what_is_not_trusted(self) -> None:
        url, plain = self.cluster.urls, shared(1).urls
        port = url.rpartition(":")[2]
        foreign = str(self.tls / "stranger" / "ca.pem")
        for address, options, remedy in (
            (url, {}, "give the cluster's in tls_ca or RINGLOG_TLS_CA"),
            (url, {"tls_ca": foreign}, "give the cluster's in tls_ca or RINGLOG_TLS_CA"),
            (f"https://localhost:{port}", {"tls_ca": self.ca}, "not of this name: use one of its names"),
            (plain.replace("http://", "https://"), {"tls_ca": self.ca}, "the node serves plain HTTP"),
            (
                url,
                {
                    "tls_ca": self.ca,
                    "tls_cert": str(self.tls / "stranger" / "client-trainer.pem"),
                    "tls_key": str(self.tls / "stranger" / "client-trainer-key.pem"),
                },
                "the node refuses the certificate of this client",
            ),
        ):
            error = self.failure(address, **options)
            self.assertIsInstance(error, Unavailable)
            self.assertIn(remedy, error.remedy)
        error = self.failure(url.replace("https://", "http://"))
        self.assertIsInstance(error, Unauthenticated)
        self.assertEqual((error.code, error.reason), ("forbidden", "tls_required"))
        self.assertIn("RINGLOG_TLS_CA", error.remedy)

    def listen(self, certificate: str, key: str) -> str:
        """Return the URL of a listener with a certificate, which ends each connection after the handshake."""
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(certificate, key)
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with contextlib.suppress(OSError), serving.wrap_socket(connection, server_side=True):
                        pass

        threading.Thread(target=serve, daemon=True).start()
        return f"https://127.0.0.1:{listener.getsockname()[1]}"

    def test_an_expired_certificate_is_named(self) -> None:
        folder = self.tls / "stranger"
        url = self.listen(str(folder / "node-n1.pem"), str(folder / "node-n1-key.pem"))

        def expired() -> bool:
            return "has expired" in self.failure(url, tls_ca=str(folder / "ca.pem"), timeout=1.0).remedy

        eventually("it has expired", expired)

    def test_a_node_that_is_not_trusted_does_not_stop_the_others(self) -> None:
        other = self.listen(str(self.tls / "stranger" / "node-n1.pem"), str(self.tls / "stranger" / "node-n1-key.pem"))
        with Client([other, self.cluster.urls], tls_ca=self.ca) as log:
            for i in range(6):  # whichever is asked first
                log.publish("DATA_SYNC_COMPLETED", {"host": str(i)})
        with Client([other, "https://127.0.0.1:1"], tls_ca=self.ca, timeout=0.5) as log:
            with self.assertRaises(Unavailable) as failed:
                log.cluster()
            self.assertEqual(failed.exception.code, "unreachable")

    def test_files_that_cannot_be_used_are_named(self) -> None:
        readable, text = str(self.folder / "key.pem"), str(self.folder / "text")
        shutil.copy(self.key, readable)
        os.chmod(readable, 0o644)
        Path(text).write_text("none")
        for options, field, message in (
            ({"tls_ca": str(self.folder / "none")}, "tls_ca", "No such file"),
            ({"tls_ca": text}, "tls_ca", "there is no certificate in PEM"),
            ({"tls_cert": self.cert}, "tls_cert", "it needs tls_key, or RINGLOG_TLS_KEY"),
            ({"tls_key": self.key}, "tls_key", "it needs tls_cert, or RINGLOG_TLS_CERT"),
            ({"tls_cert": self.cert, "tls_key": readable}, "tls_key", f"chmod 600 {readable}"),
            ({"tls_cert": self.cert, "tls_key": self.ca}, "tls_cert", "no certificate in PEM with its own key"),
            ({"tls_ca": self.ca, "tls": ssl.create_default_context()}, "tls", "beside files"),
        ):
            if options.get("tls_key") == self.ca:
                os.chmod(self.ca, 0o600)
                self.addCleanup(os.chmod, self.ca, 0o644)
            with self.subTest(field=field, message=message), self.assertRaises(InvalidArgument) as failed:
                Client(self.cluster.urls, **options)
            self.assertEqual(failed.exception.field, field)
            self.assertIn(message, failed.exception.message)
        self.assertIn("tls_ca", self.run_it("publish", "X", "-e", self.cluster.urls, "--tls-ca", text, code=2))

    def test_new_files_are_used_from_the_next_connection_on(self) -> None:
        ca = self.folder / "ca.pem"
        shutil.copy(self.tls / "stranger" / "ca.pem", ca)

        def replace(text: str) -> None:
            (self.folder / "new").write_text(text)
            os.replace(self.folder / "new", ca)

        with Client(self.cluster.urls, tls_ca=ca) as log:
            with self.assertRaises(Unavailable):
                log.cluster()
            replace(ca.read_text() + Path(self.ca).read_text())  # both, as while a CA is replaced
            log.cluster()
            # A bad file is not used, and a missing one neither.
            for node in log._operations._calls.nodes.all:
                node.idle.pop().close()
            replace("half a fi")
            log.cluster()
            for node in log._operations._calls.nodes.all:
                node.idle.pop().close()
            ca.unlink()
            log.cluster()
