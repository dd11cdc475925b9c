"""What a node answers is what /openapi.json says, for requests that schemathesis makes from it."""

from __future__ import annotations

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from tests.cluster import Cluster

PROGRAM = os.environ.get("RINGLOG_SCHEMATHESIS", "")


@unittest.skipUnless(PROGRAM, "RINGLOG_SCHEMATHESIS names no program")
class Document(unittest.TestCase):
    def test_answers_are_what_it_says(self) -> None:
        cluster = Cluster(voters=1)
        self.addCleanup(cluster.close)
        config = Path(__file__).with_name("document.toml")
        with tempfile.TemporaryDirectory(prefix="ringlog-document-") as folder:
            done = subprocess.run(
                [PROGRAM, "--config-file", str(config), "run", f"{cluster.urls}/openapi.json"],
                cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout)
