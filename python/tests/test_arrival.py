"""How the package reaches a host: from a node with pip, and from the ringlog program without."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.request
import zipfile
from pathlib import Path
from unittest import mock

import ringlog
from ringlog import Client
from ringlog.errors import NotFound
from tests.cluster import Cluster, program

USE = """
import sys, ringlog
with ringlog.Client(sys.argv[1], token=sys.argv[2]) as log:
    offset = log.publish("TRAINING_COMPLETED", {"by": ringlog.__version__}, dedup=False).offset
    assert log.get(offset).payload == {"by": ringlog.__version__}
    with log.cursor("arrival-" + ringlog.__version__, types=["training.*"]) as cursor:
        event = next(iter(cursor))
        cursor.commit()
    with log.group("group-" + ringlog.__version__, types=["training.*"]) as member:
        next(iter(member)).ack()
    log.publish_soon("DATA_SYNC_COMPLETED", {"host": "gpu-1"})
print(ringlog.__version__, ringlog.__file__)
"""


class Arrival(unittest.TestCase):
    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        # With a token, which pip does not have.
        cls.cluster = Cluster(voters=1, token="secret")
        cls.addClassCleanup(cls.cluster.close)
        folder = tempfile.TemporaryDirectory(prefix="ringlog-arrival-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.index = cls.cluster.nodes[0].url + "/python/"

    def run_python(self, *args: str, **environment: str) -> str:
        """Run a Python that has nothing of this source tree, and return what it prints."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "RING"))}
        # Whatever is not on this host cannot be reached.
        env |= dict.fromkeys(("http_proxy", "https_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
        env |= {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1", "PIP_CONFIG_FILE": os.devnull, **environment}
        done = subprocess.run([*args], env=env, cwd=self.folder, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, f"{args}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def use(self, python: str, **environment: str) -> str:
        """Publish, read and share work with the package that a Python has, and return its version."""
        version, file = self.run_python(python, "-c", USE, self.cluster.urls, "secret", **environment).split()
        self.assertTrue(file.startswith(str(self.folder)), file)
        return version

    def wheel(self) -> Path:
        """Return the wheel that the index leads to."""
        with urllib.request.urlopen(self.index + "ringlog/") as page:
            text = page.read().decode()
        found = re.search(r'href="([^"#]+)#sha256=([0-9a-f]{64})"', text)
        assert found is not None, text
        with urllib.request.urlopen(self.index + "ringlog/" + found[1]) as answer:
            content = answer.read()
        self.assertEqual(hashlib.sha256(content).hexdigest(), found[2])
        path = self.folder / found[1]
        path.write_bytes(content)
        return path

    def older(self, wheel: Path) -> Path:
        """Return a wheel of the same package under an older version, with a module that is gone since."""
        path = self.folder / wheel.name.replace(ringlog.__version__, "0.0.9")
        with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(path, "w") as to:
            rows = []
            for name in source.namelist():
                content = source.read(name)
                if name.endswith("/RECORD"):
                    continue
                if name in ("ringlog/__init__.py", f"ringlog-{ringlog.__version__}.dist-info/METADATA"):
                    content = content.replace(ringlog.__version__.encode(), b"0.0.9", 1)
                rows.append((name.replace(f"-{ringlog.__version__}.", "-0.0.9."), content))
            rows.append(("ringlog/gone.py", b""))
            for name, content in rows:
                to.writestr(name, content)
            record = "".join(f"{name},{digest(content)},{len(content)}\n" for name, content in rows)
            to.writestr("ringlog-0.0.9.dist-info/RECORD", record + "ringlog-0.0.9.dist-info/RECORD,,\n")
        return path

    def test_the_wheel_is_what_its_record_says(self) -> None:
        wheel = self.wheel()
        self.run_python(sys.executable, "-m", "zipfile", "-t", str(wheel))
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            rows = list(csv.reader(io.StringIO(archive.read(names[-1]).decode())))
            self.assertEqual([row[0] for row in rows], names)
            for name, sum_, size in rows[:-1]:
                content = archive.read(name)
                self.assertEqual((sum_, size), (digest(content), str(len(content))), name)
            self.assertTrue(rows[-1][0].endswith(".dist-info/RECORD") and rows[-1][1:] == ["", ""], rows[-1])

    @unittest.skipUnless(importlib.util.find_spec("ensurepip"), "needs python3-venv")
    def test_pip_installs_it_from_a_node_and_replaces_an_older_one(self) -> None:
        self.run_python(sys.executable, "-m", "venv", str(self.folder / "venv"))
        python = str(self.folder / "venv" / "bin" / "python")
        pip = (python, "-m", "pip", "--isolated", "--disable-pip-version-check", "--no-input")

        # A program with an older package works with this node.
        self.run_python(*pip, "install", "--no-index", "--no-deps", str(self.older(self.wheel())))
        self.assertEqual(self.use(python), "0.0.9")

        install = (*pip, "install", "--no-cache-dir", "--index-url", self.index, "--upgrade", "ringlog")
        self.run_python(*install)
        self.assertEqual(self.use(python), ringlog.__version__)
        self.run_python(*pip, "check")
        self.assertNotIn("gone.py", self.run_python(*pip, "show", "--files", "ringlog"))

        # pip itself compares the digest: what was changed on the way is refused.
        wheel = self.wheel()
        link = f"{wheel.as_uri()}#sha256={'0' * 64}"
        with self.assertRaisesRegex(AssertionError, "DO NOT MATCH THE HASHES"):
            self.run_python(*pip, "install", "--no-index", "--force-reinstall", link)

    def test_the_program_installs_it_without_pip(self) -> None:
        target = self.folder / "lib"
        self.run_python(program(), "python", "install", "--target", str(target))
        (target / "ringlog" / "mine.py").write_text("")
        refused = subprocess.run(
            [program(), "python", "install", "--target", str(target)], capture_output=True, text=True
        )
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("mine.py belongs to no ringlog package", refused.stderr)
        (target / "ringlog" / "mine.py").unlink()
        out = self.run_python(program(), "python", "install", "--target", str(target))
        self.assertIn(f"in place of {ringlog.__version__}", out)
        self.assertEqual(self.use(sys.executable, PYTHONPATH=str(target)), ringlog.__version__)

    def test_a_newer_package_says_that_the_node_is_older(self) -> None:
        with Client(self.cluster.urls, token="secret") as log:
            with self.assertRaises(NotFound) as same:
                log.request("GET", "/v1/later")
            self.assertNotIn("older", str(same.exception))
            self.assertIn("/v1/later", str(same.exception))
            with mock.patch("ringlog._core.calls.FEATURE_LEVEL", 99), self.assertRaises(NotFound) as newer:
                log.request("GET", "/v1/later")
            self.assertRegex(
                str(newer.exception),
                r"nothing at /v1/later: this node is older than ringlog \S+ for Python, it is \S+ of feature level \d+",
            )
            self.assertIn("upgrade the nodes", newer.exception.remedy)
            # A thing that is missing says nothing of versions.
            with mock.patch("ringlog._core.calls.FEATURE_LEVEL", 99), self.assertRaises(NotFound) as thing:
                log.get_cursor("none")
            self.assertNotIn("older", str(thing.exception))


def digest(content: bytes) -> str:
    """Return the digest of a file as RECORD has it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
