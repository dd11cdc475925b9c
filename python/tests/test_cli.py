"""The command line, as processes against a real node."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from ringlog import Client
from ringlog._core.spool import Spool
from tests.cluster import Cluster, ClusterTest, eventually, program
from tests.test_faults import PACKAGE


class CommandLine(ClusterTest):
    """Runs the program."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="ringlog-cli-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.run_id = uuid.uuid4().hex
        self.log = Client(self.cluster.urls)
        self.addCleanup(self.log.close)

    def start(self, *args: str, **variables: str) -> subprocess.Popen[str]:
        return self.start_program([sys.executable, "-W", "error", "-m", "ringlog", *args], **variables)

    def start_program(self, program: list[str], **variables: str) -> subprocess.Popen[str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("RINGRIFT_")}
        env.update({"PYTHONPATH": str(PACKAGE), "RINGLOG_ENDPOINTS": self.cluster.urls, **variables})
        process = subprocess.Popen(
            program,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def run_it(self, *args: str, code: int = 0, stdin: str = "", **variables: str) -> tuple[str, str]:
        process = self.start(*args, **variables)
        out, err = process.communicate(stdin, timeout=90)
        self.assertEqual(process.returncode, code, f"{args}: {out}{err}")
        self.assertNotIn("Traceback", err)
        return out, err

    def publish(self, n: int, type: str = "DATA_SYNC_COMPLETED") -> None:
        events = [{"type": type, "payload": {"host": f"{self.run_id}-{i}"}, "key": self.run_id} for i in range(n)]
        self.log.publish_many(events)  # type: ignore[arg-type]


class PublishAndTail(CommandLine):
    def test_publish_and_tail(self) -> None:
        out, _ = self.run_it(
            "publish", "training.completed", "-p", f'{{"config_key": "{self.run_id}"}}', "--key", self.run_id, "--json"
        )
        offset = json.loads(out)["offset"]
        again, _ = self.run_it("publish", "TRAINING_COMPLETED", "-p", f'{{"config_key": "{self.run_id}"}}')
        self.assertEqual(again, f"{offset} duplicate\n")
        lines = [{"type": "DATA_SYNC_COMPLETED", "payload": {"host": f"{self.run_id}-{i}"}} for i in range(3)]
        stdin = "\n".join(
            [json.dumps(lines[0]), "no json", json.dumps({"type": "LEADER_ELECTED"}), *map(json.dumps, lines[1:])]
        )
        out, err = self.run_it("publish", "--stdin", stdin=stdin, code=2)
        self.assertEqual(len(out.splitlines()), 3)
        self.assertIn("line 2: ", err)
        self.assertIn("line 3: reserved", err)
        misspelt = "\n".join(
            json.dumps({**lines[0], "payload": {"host": f"{self.run_id}-x"}, name: "7"})
            for name in ("corelation_id", "keys", "host")
        )
        out, err = self.run_it("publish", "--stdin", stdin=misspelt, code=2)
        self.assertEqual(out, "")
        for text in (
            "line 1: an event has no 'corelation_id': did you mean correlation_id?",
            "line 2: an event has no 'keys': did you mean key?",
            "line 3: an event has no 'host': put it into the payload, or use causation_id",
        ):
            self.assertIn(text, err)
        out, _ = self.run_it("tail", "--from", "start", "--until-end", "--key", self.run_id, "--json")
        printed, _ = self.run_it("publish", "--stdin", stdin=out)  # what tail prints is read
        self.assertEqual(printed, f"{offset} duplicate\n")
        self.assertEqual([json.loads(line)["offset"] for line in out.splitlines()], [offset])
        out, _ = self.run_it("tail", "--from", str(offset), "--until-end", "-n", "1")
        self.assertIn(f"{offset} ", out)
        self.assertIn("TRAINING_COMPLETED", out)

    def test_a_cursor_resumes(self) -> None:
        self.publish(3)
        args = ["tail", "--cursor", self.run_id, "--key", self.run_id, "--until-end", "--json"]
        out, _ = self.run_it(*args, "-n", "2")
        self.assertEqual(len(out.splitlines()), 2)
        out, _ = self.run_it(*args)
        self.assertEqual(json.loads(out)["payload"]["host"], f"{self.run_id}-2")

    def test_exit_codes_and_errors_are_a_line_with_a_remedy(self) -> None:
        bad = self.folder / "bad.db"
        bad.write_text("no database, but text of some length")
        for args, code, text in (
            (["publish"], 2, "--stdin"),
            (["publish", "A", "-p", "{"], 2, "--payload is not JSON"),
            (["publish", "A", "-p", "[]"], 2, "payload"),
            (["publish", "A", "-p", "@/no/such"], 2, "/no/such"),
            (["publish", "LEADER_ELECTED"], 6, "another type"),
            (["tail", "--from", "soon"], 2, "from"),
            (["tail", "--frm", "1"], 2, "--help"),
            (["fly"], 2, "--help"),
            (["react", "--group", "g", "--", "/no/such/command"], 2, "on the PATH"),
            (["spool", str(self.folder / "none")], 4, "no folder"),
            (["import", "queue", "/no/such.db"], 4, "/no/such.db"),
            (["import", "queue", str(bad)], 2, "SQLite"),
            (["publish", "A", "-e", "http://127.0.0.1:1", "--timeout", "0.3"], 3, "check the endpoints"),
            (["publish", "A", "-e", "ftp://x"], 2, "http"),
        ):
            with self.subTest(args=args):
                out, err = self.run_it(*args, code=code)
                self.assertEqual(out, "")
                self.assertEqual(len(err.splitlines()), 1, err)
                self.assertTrue(err.startswith("ringlog: "))
                self.assertIn(text, err)


class React(CommandLine):
    def test_react_runs_a_command_for_each_event_and_makes_what_fails_a_dead_letter(self) -> None:
        self.publish(6)
        script = (
            f'cat >> {self.folder}/out; echo " $RINGLOG_OFFSET $RINGLOG_TYPE $RINGLOG_KEY $RINGLOG_GROUP" '
            f'>> {self.folder}/out; case "$(tail -n 1 {self.folder}/out)" in *) :; esac; '
            'test -z "$RINGLOG_TOKEN_FILE"'
        )
        flags = ["--key", self.run_id, "--until-end", "--retries", "1", "--backoff", "0.05"]
        out, err = self.run_it("react", "--group", self.run_id, *flags, "--json", "--", "sh", "-c", script)
        self.assertEqual(json.loads(out), {"handled": 6, "failed": 0}, err)
        lines = (self.folder / "out").read_text().splitlines()
        self.assertEqual(
            [json.loads(line.partition("} ")[0] + "}")["host"] for line in lines],
            [f"{self.run_id}-{i}" for i in range(6)],
        )
        self.assertTrue(lines[0].endswith(f"DATA_SYNC_COMPLETED {self.run_id} {self.run_id}"))

        # What a command publishes belongs to the run of its event.
        cause = self.log.publish("DATA_SYNC_STARTED", key=self.run_id + "-cause", correlation_id=self.run_id)
        child = [sys.executable, "-m", "ringlog", "publish", "DATA_SYNC_FAILED", "--key", self.run_id + "-child"]
        own = ["--key", self.run_id + "-cause", "--until-end"]
        self.run_it("react", "--cursor", self.run_id + "-cause", *own, "--", *child)
        [event] = self.log.tail("start", keys=[self.run_id + "-child"], until_end=True)
        self.assertEqual((event.correlation_id, event.causation_id), (self.run_id, str(cause.offset)))

        # What a daemon publishes, whose parent is not react any more, does not.
        other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.addCleanup(other.communicate)
        for reactor, cause_id in ((os.getpid(), "5"), (other.pid, "")):
            variables = {"RINGLOG_OFFSET": "5", "RINGLOG_REACTOR": str(reactor)}
            key = f"{self.run_id}-{reactor}"
            self.run_it("publish", "DATA_SYNC_FAILED", "--key", key, "-p", f'{{"host": "{key}"}}', **variables)
            [event] = self.log.tail("start", keys=[key], until_end=True)
            self.assertEqual(event.causation_id, cause_id)

        fail = ["--", "sh", "-c", "cat >/dev/null; echo no space left >&2; exit 7"]
        group = self.run_id + "-failing"
        self.run_it("react", "--group", group, *flags, "--max-deliver", "2", *fail, code=1)
        letters = self.log.dead_letters(cursor=group)
        self.assertEqual(len(letters), 6)
        self.assertIn("exit code 7: no space left", letters[0]["error"])
        out, _ = self.run_it("react", "--cursor", self.run_id + "-c", *flags, *fail, code=1)
        self.assertEqual(out, "handled 0\nfailed  6\n")
        self.assertEqual(len(self.log.dead_letters(cursor=self.run_id + "-c")), 6)
        self.assertEqual(self.log.get_cursor(self.run_id + "-c")["lag_events"], 0)

    def react_both(self, command: list[str], *flags: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
        """Start `ringlog react` and this package's, one after the other, on a key of its own."""
        for name, react in (("go", [program()]), ("python", [sys.executable, "-W", "error", "-m", "ringlog"])):
            with self.subTest(react=name, flags=flags):
                key = f"{self.run_id}-{name}-{len(flags)}"
                args = ["react", "--group", key, "--key", key, "--retries", "0", "-n", "1", *flags, "--", *command]
                yield key, self.start_program([*react, *args])

    def test_react_answers_calls_as_the_go_command_does(self) -> None:
        fail = ["sh", "-c", "echo no space left >&2; exit 7"]
        started = ["--type", "TRAINING_STARTED", "--answer"]
        own = ["--type", "REACT_ASKED", "--answer", "all", "--reply", "REACT_DONE", "--max-deliver", "1"]
        for command, flags, reply, error, code in (
            (["true"], [*started, "all"], "TRAINING_COMPLETED", "", 0),
            (fail, [*started, "failures", "--max-deliver", "1"], "TRAINING_FAILED", "no space left", 1),
            (["true"], own, "REACT_DONE", "", 0),
            (fail, own, "HANDLER_FAILED", "no space left", 1),
        ):
            answers: list[dict[str, object]] = []
            for key, process in self.react_both(command, *flags):
                named = ["REACT_DONE"] if "--reply" in flags else []
                payload = {"config_key": key, "command": command}
                result = self.log.call(flags[1], payload, key=key, reply=named, timeout=60, dedup=False)
                _, err = process.communicate(timeout=60)
                self.assertEqual(process.returncode, code, err)
                self.assertEqual((result.success, result.reply.type), (not error, reply))
                self.assertTrue(result.error.endswith(error), result.error)
                said = dict(result.reply.payload)
                self.assertEqual((said.pop("offset"), said.pop("handler")), (result.offset, key))
                self.assertLess(abs(said.pop("timestamp") - time.time()), 60)
                self.assertLess(said.pop("duration_seconds"), 60)
                self.assertTrue(str(said.pop("error", "")).endswith(error))
                answers.append(said)
                kept = result.reply
                self.assertEqual((kept.key, kept.correlation_id), (key, result.correlation_id))
                self.assertEqual(kept.causation_id, str(result.offset))
                self.assertEqual(kept.dedup_id, f"answer/{key}/{result.offset}{'/failed' if error else ''}")
                self.assertRegex(kept.source, r":\d+$")
                # The answer is there before the event is settled, and a dead letter comes after it.
                self.assertEqual(len(self.log.dead_letters(cursor=key)), bool(error))
            self.assertEqual(answers[0], answers[1])

    def test_react_answers_what_is_final_and_no_more(self) -> None:
        # A failure that the group redelivers is no outcome; a cursor redelivers nothing. The command publishes its
        # own success, and an event about a handler is not answered.
        flags = ["--answer", "failures", "--retries", "1", "--backoff", "0.05"]
        twice = ["sh", "-c", f'test "$RINGLOG_GROUP" != {self.run_id} -o "$RINGLOG_DELIVERY" = 2']
        failing = self.log.publish("HANDLER_FAILED", {"handler": self.run_id}, key=self.run_id)
        asked = self.log.publish("TRAINING_STARTED", {"config_key": self.run_id}, key=self.run_id)
        self.run_it("react", "--group", self.run_id, "--key", self.run_id, *flags, "-n", "4", "--", *twice, code=1)
        self.run_it(
            "react", "--cursor", self.run_id + "-c", "--key", self.run_id, *flags, "-n", "2", "--", "false", code=1
        )
        answers = [
            (event.type, event.causation_id, event.payload["attempts"])
            for event in self.log.tail(failing.offset, until_end=True)
            if event.dedup_id.startswith("answer/")
        ]
        self.assertEqual(answers, [("TRAINING_FAILED", str(asked.offset), 2)])

    def test_what_react_cannot_answer_is_redelivered(self) -> None:
        # Without a quorum the answer is not in the log, so the event is not acknowledged, and the command runs again.
        cluster = Cluster()
        self.addCleanup(cluster.close)
        ran = self.folder / "ran"
        with Client(cluster.urls) as log:
            asked = log.publish("TRAINING_STARTED", key=self.run_id, correlation_id=self.run_id)
            wait = f"echo >> {ran}; while test -e {ran}.hold; do sleep 0.02; done"
            Path(f"{ran}.hold").touch()
            process = self.start(
                "react", "-e", cluster.urls, "--timeout", "1", "--group", self.run_id, "--type", "TRAINING_STARTED",
                "--answer", "all", "--", "sh", "-c", wait,
            )  # fmt: skip
            eventually("the command runs", ran.exists)
            for node in cluster.nodes[1:]:
                node.send(signal.SIGSTOP)
            Path(f"{ran}.hold").unlink()
            assert process.stderr is not None
            line = next(line for line in process.stderr if "could not be answered" in line)
            self.assertIn(f"{asked.offset} TRAINING_STARTED: redelivered", line)
            for node in cluster.nodes[1:]:
                node.send(signal.SIGCONT)
            eventually("it is acknowledged", lambda: log.get_cursor(self.run_id)["lag_events"] == 0)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 0, err)
            self.assertIn("handled 1\n", out)
            self.assertGreaterEqual(len(ran.read_text().split("\n")), 3)
            [answer] = log.tail("start", types=["TRAINING_COMPLETED"], until_end=True)
            self.assertEqual(answer.correlation_id, self.run_id)

    def test_wrong_answers(self) -> None:
        react = ["react", "--group", self.run_id]
        for args, text in (
            (["--answer", "some", "--", "true"], "--help"),
            (["--reply", "REACT_DONE", "--answer", "failures", "--", "true"], "--reply needs --answer all"),
            (["--type", "REACT_ASKED", "--answer", "all", "--", "true"], "name it with --reply TYPE"),
            (["--answer", "all", "--reply", "leader.elected", "--", "true"], "only the cluster emits that type"),
        ):
            with self.subTest(args=args):
                _, err = self.run_it(*react, *args, code=2)
                self.assertEqual(len(err.splitlines()), 1, err)
                self.assertIn(text, err)
        # A reply that no node takes ends the run, which would repeat the command without end.
        self.log.publish("REACT_REFUSED", key=self.run_id)
        self.log.set_setting("validation.strict", True)
        self.addCleanup(self.log.set_setting, "validation.strict", "")
        reply = ["--type", "REACT_REFUSED", "--answer", "all", "--reply", "REACT_UNKNOWN"]
        _, err = self.run_it(*react, *reply, "--", "true", code=6)
        self.assertIn("unknown_type", err)

    def test_react_ends_what_takes_too_long_and_stops_at_a_signal(self) -> None:
        self.publish(1)
        pids = self.folder / "pids"
        hang = ["--", "sh", "-c", f"sleep 600 & echo $! >> {pids}; wait"]
        flags = ["--key", self.run_id, "--retries", "0", "--limit", "0.3", "-n", "1"]
        _, err = self.run_it("react", "--cursor", self.run_id, *flags, *hang, code=1)
        self.assertIn("timed out after 0.3 s", err)
        process = self.start("react", "--group", self.run_id + "-g", "--key", self.run_id, *hang)
        eventually("the command runs", lambda: len(pids.read_text().split()) == 2)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        self.assertEqual((process.returncode, "handled 0" in out), (0, True), err)
        for pid in pids.read_text().split():
            eventually("the command's child has ended", lambda pid=pid: not _runs(pid))
        # It was released: another member gets it as the same delivery.
        with self.log.group(self.run_id + "-g") as member:
            delivery = member.next(30)
            assert delivery is not None
            self.assertEqual(delivery.delivery, 1)
            delivery.ack()


class Upkeep(CommandLine):
    def test_spool_shows_and_drains(self) -> None:
        folder = self.folder / "spool"
        away = {"RINGLOG_ENDPOINTS": "http://127.0.0.1:1", "RINGLOG_SPOOL": str(folder)}
        out, _ = self.run_it(
            "publish", "DATA_SYNC_COMPLETED", "-p", f'{{"host": "{self.run_id}"}}', "--key", self.run_id, **away
        )
        self.assertEqual(out, "spooled\n")
        out, _ = self.run_it("spool", str(folder))
        self.assertRegex(out, r"(?s): 1 record, 1 event, \d+ bytes.*waiting  1 event in 1 file, .*rejected 0 events\n")
        self.run_it("publish", "LEADER_ELECTED", **away)
        out, _ = self.run_it("spool", str(folder))
        self.assertIn("waiting  2 events in 2 files", out)
        _, err = self.run_it("spool", str(folder), "--drain", "--timeout", "0.5", "-e", "http://127.0.0.1:1", code=5)
        self.assertIn("not all was delivered", err)
        out, _ = self.run_it("spool", "--drain", "--json", RINGLOG_SPOOL=str(folder))
        [state] = map(json.loads, out.splitlines())
        self.assertEqual((state["kind"], state["events"]), ("rejected", 1))
        self.assertEqual(
            [event.payload["host"] for event in self.log.tail("start", keys=[self.run_id], until_end=True)],
            [self.run_id],
        )
        spool = Spool(str(folder), 1 << 20)
        spool.commit(spool.enqueue([b"[]"]))
        out, _ = self.run_it("spool", str(folder))
        self.assertIn("in use by a process", out)

    def test_doctor(self) -> None:
        out, _ = self.run_it("doctor", RINGLOG_SPOOL=str(self.folder / "spool"))
        for subject in ("python", *self.cluster.urls.split(","), "token", "leader", "version", "spool"):
            self.assertIn(f"ok   {subject}: ", out)
        out, _ = self.run_it("doctor", "-e", "http://127.0.0.1:1", code=3)
        self.assertIn("FAIL cluster: no endpoint answers; ", out)
        with_token = Cluster(voters=1, token="secret")
        self.addCleanup(with_token.close)
        out, _ = self.run_it("doctor", "-e", with_token.urls, code=2)
        self.assertIn("FAIL token: ", out)
        out, _ = self.run_it("doctor", "-e", f"{with_token.urls},{self.cluster.nodes[0].url}", code=2)
        self.assertIn("2 clusters", out)

    def test_import_of_a_queue(self) -> None:
        file = self.folder / f"{self.run_id}.db"
        db = sqlite3.connect(file)
        db.execute(
            "CREATE TABLE events (event_id INTEGER PRIMARY KEY AUTOINCREMENT, event_type TEXT NOT NULL, "
            "payload TEXT NOT NULL, source TEXT NOT NULL, hostname TEXT NOT NULL DEFAULT '', created_at REAL NOT NULL)"
        )
        rows = [
            ("training_completed", f'{{"config_key": "{self.run_id}", "i": {i % 3}}}', "old", 1767607200.5 + i)
            for i in range(1200)
        ]
        rows[7] = ("leader_elected", "{}", "old", 1.0)
        rows[8] = ("training_completed", "{not json", "old", 1.0)
        rows[9] = ("training_completed", '{"x": NaN}', "old", 1.0)
        db.executemany("INSERT INTO events (event_type, payload, source, created_at) VALUES (?, ?, ?, ?)", rows[:600])
        db.commit()
        args = ["import", "queue", str(file), "--json"]
        out, _ = self.run_it(*args, "--dry-run", code=1)
        self.assertEqual(json.loads(out), {"imported": 599, "known": 0, "refused": 1, "dry_run": True})
        out, err = self.run_it(*args, code=1)
        self.assertEqual(json.loads(out), {"imported": 597, "known": 0, "refused": 3}, err)
        for row in (8, 9, 10):
            self.assertIn(f"row {row}: ", err)
        # A later run takes what was added, and nothing twice, also after the dedup window.
        db.executemany("INSERT INTO events (event_type, payload, source, created_at) VALUES (?, ?, ?, ?)", rows[600:])
        db.commit()
        self.log.set_setting("dedup.window", "1s")
        time.sleep(1.1)
        out, _ = self.run_it(*args, code=1)
        self.log.set_setting("dedup.window", "")
        self.assertEqual(json.loads(out), {"imported": 600, "known": 597, "refused": 3})
        marked = list(self.log.tail("start", correlation_ids=[f"import:{file.name}"], until_end=True))
        self.assertEqual(
            [event.dedup_id for event in marked], [f"{file.name}:{i + 1}" for i in range(1200) if i not in (7, 8, 9)]
        )
        assert marked[0].time is not None
        self.assertEqual(
            (marked[0].time.timestamp(), marked[0].source, marked[0].type), (1767607200.5, "old", "TRAINING_COMPLETED")
        )

    def test_import_of_dead_letters(self) -> None:
        file = self.folder / f"{self.run_id}.db"
        db = sqlite3.connect(file)
        db.execute(
            "CREATE TABLE dead_letter_queue (id INTEGER PRIMARY KEY, event_type TEXT, event_data TEXT, error TEXT, "
            "created_at TEXT, retry_count INTEGER)"
        )
        insert = "INSERT INTO dead_letter_queue VALUES (?, ?, ?, ?, ?, ?)"
        for i in range(3):
            db.execute(
                insert,
                (i, "training_completed", f'{{"config_key": "{self.run_id}"}}', "boom", "2026-01-05T10:00:00Z", i),
            )
        db.execute(insert, (3, "training_completed", "{not json", "boom", "2026-01-05T10:00:00Z", 0))
        db.commit()
        out, err = self.run_it("import", "dead-letters", str(file), "--json", code=1)
        self.assertEqual(json.loads(out), {"imported": 3, "known": 0, "refused": 1})
        self.assertIn("row 3: invalid_json", err)
        out, _ = self.run_it("import", "dead-letters", str(file), code=1)
        self.assertEqual(out, "imported 0\nknown already 3\nrefused 1\n")
        letters = [letter for letter in self.log.dead_letters(limit=1000) if file.name in json.dumps(letter)]
        self.assertEqual(len(letters), 3)
        _, err = self.run_it("import", "queue", str(file), code=2)
        self.assertIn("the table events is not there", err)


def _runs(pid: str) -> bool:
    """Report whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
