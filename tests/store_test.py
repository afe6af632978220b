"""Jobs whose coordinator keeps its state in etcd, and guards that take its place.

store_test.py PROGRAM [CLASS]    the distbelief executable
"""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import job_test
from control_test import BACK, ControlTest, coordinator_of
from job_test import DEADLINE, SURVIVABLE, processes_in
from test_main import main


class Etcd:
    """One server on loopback."""

    def __init__(self, folder):
        self.folder = folder
        self.process = None
        for _ in range(20):  # another process may take a port that was free just now
            with socket.create_server(("127.0.0.1", 0)) as client, socket.create_server(("127.0.0.1", 0)) as peer:
                self.port, self.peer = client.getsockname()[1], peer.getsockname()[1]
            if self.start():
                return
        raise RuntimeError("etcd does not start: see " + folder + "/etcd.log")

    def start(self):
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer}"
        with open(self.folder + "/etcd.log", "ab") as log:
            self.process = subprocess.Popen(
                ["etcd", "--name", "t", "--data-dir", self.folder + "/etcd", "--listen-client-urls", client,
                 "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                 "--initial-cluster", "t=" + peer], stdout=log, stderr=log)
        deadline = time.monotonic() + DEADLINE
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                self.keys()
                return True
            except OSError:
                time.sleep(0.02)
        self.kill()
        return False

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def url(self, name):
        return f"etcd://127.0.0.1:{self.port}/{name}"

    def keys(self):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v3/kv/range", method="POST",
                                         data=json.dumps({"key": "AA==", "range_end": "AA==", "keys_only": True}).encode())
        with urllib.request.urlopen(request, timeout=5) as answer:
            return [base64.b64decode(pair["key"]).decode() for pair in json.load(answer).get("kvs", [])]


class StoreTest(ControlTest):
    TEAM = ["--algorithm", "allreduce", "--workers", "3"]

    def setUp(self):
        super().setUp()
        self.etcd = Etcd(self.scratch.name)
        self.addCleanup(self.etcd.kill)

    def store(self, name):
        return ["--store", self.etcd.url(name)]

    def expect_only_the_term_left(self, *names):
        self.assertEqual(sorted(self.etcd.keys()), sorted(name + "/term" for name in names))

    def expect_stopped(self, name):
        self.assertEqual(self.summary(name)["status"], "interrupted")
        audit = self.summary(name)["samples"]
        self.assertEqual((audit["lost"], audit["duplicated"]), (0, 0), audit)
        self.expect_nothing_left(name)
        self.expect_only_the_term_left(name)

    def log_of_coordinator(self, name):
        with open(self.path(name) + "/logs/coordinator.log") as log:
            return log.read()


class Restart(StoreTest):
    def test_of_the_coordinator_is_as_with_a_folder(self):
        self.train(*self.small("undisturbed"), *self.TEAM, "--epochs", "2", "--transport", "socket")
        output = self.train(*self.small("run"), *self.TEAM, "--epochs", "2", "--transport", SURVIVABLE[-1], *self.store("run"),
                            "--chaos", "kill coordinator at 30%; kill coordinator at 70%")
        self.assertEqual(len(BACK.findall(output)), 2, output)
        self.expect_finished("run", 3000)
        self.expect_verdict("run")
        self.assertEqual(self.model("run"), self.model("undisturbed"))
        output = self.train(*self.served("served", "--epochs", "4"), *self.store("a/b"), "--chaos",
                            "kill coordinator at 20%; kill coordinator at 60%")
        self.assertEqual(len(BACK.findall(output)), 2, output)
        self.expect_finished("served", 6000)
        self.expect_only_the_term_left("run", "a/b")
        self.assertFalse(os.path.exists(self.path("run") + "/coordinator.state"))

    def test_is_not_needed_while_etcd_is_down(self):
        process = self.start(*self.served("run", "--epochs", "5000"), *self.store("run"))
        self.wait_for_steps("run", process)
        self.etcd.kill()
        line = self.line_with(process, "if the coordinator dies now, the job ends")
        self.assertIn("Connection refused", line)
        self.assertTrue(self.etcd.start())
        self.line_with(process, "what the coordinator knows is written down again")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 130, output)
        self.expect_stopped("run")


class BadInput(StoreTest):
    def test_is_told_in_one_line(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            nobody = listener.getsockname()[1]
        for url, expected in (
            ("etcd://", "expected etcd://HOST:PORT/NAME"),
            ("redis://127.0.0.1:1/x", "expected etcd://HOST:PORT/NAME"),
            (f"etcd://127.0.0.1:{nobody}/x", "cannot reach etcd: tcp:127.0.0.1"),
            (f"etcds://127.0.0.1:{self.etcd.port}/x", "etcds:// needs --tls-cert, --tls-key and --tls-ca"),
        ):
            output = self.train(*self.small("bad"), *self.TEAM, "--store", url, code=2)
            self.assertIn(expected, output)
            self.assertEqual(output.count("\n"), 1, output)
            self.assertFalse(os.path.exists(self.path("bad")))
        guard = subprocess.run([job_test.PROGRAM, "guard", "nowhere"], capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(guard.returncode, 2)
        self.assertIn("expected etcd://HOST:PORT/NAME", guard.stderr)

    def test_two_jobs_of_one_name_are_not_mixed_up(self):
        process = self.start(*self.small("first"), *self.TEAM, "--epochs", "500", "--transport", "socket", *self.store("x"))
        self.wait_for_steps("first", process)
        output = self.train(*self.small("second"), *self.TEAM, *self.store("x"), code=2)
        self.assertIn("a job of this name runs already", output)
        self.assertEqual(output.count("\n"), 1, output)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)


class Guard(StoreTest):
    def guard(self, name):
        process = subprocess.Popen([job_test.PROGRAM, "guard", self.etcd.url(name), "--listen", "127.0.0.1"],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.started.append(process)
        return process

    def hosts(self, go):
        """Workers on "other hosts": their launcher's death is not theirs. They begin when the file `go` is there."""
        rsh = self.path("rsh")
        with open(rsh, "w") as file:
            file.write(f'''#!/bin/sh
shift
for turn in $(seq 1000); do test -e {go} && break; sleep 0.05; done
exec sh -c "$*"
''')
        os.chmod(rsh, 0o755)
        return ["--hosts", "alpha:2,beta:2", "--rsh", rsh, "--listen", "127.0.0.1"]

    def expect_takeover(self, guard, name, samples):
        output, _ = guard.communicate(timeout=DEADLINE)
        self.assertEqual(guard.returncode, 0, output)
        self.assertIn("takes the place of the coordinator of term 1", output)
        self.assertEqual(self.summary(name)["status"], "finished")
        self.expect_every_sample_once(name, samples)
        self.assertEqual(self.summary(name)["restarts"], 0)
        return output

    def test_takes_over_when_the_machine_of_launcher_and_coordinator_dies(self):
        jobs = {
            "allreduce": ["--algorithm", "allreduce", "--epochs", "20"],
            "downpour": ["--algorithm", "downpour", "--servers", "2", "--epochs", "40"],
        }
        self.train(*self.small("undisturbed"), *jobs["allreduce"], "--workers", "4", "--transport", "socket")
        for algorithm, options in jobs.items():
            with self.subTest(algorithm=algorithm):
                guard = self.guard(algorithm)
                go = self.path("go-" + algorithm)
                process = self.start(*self.small(algorithm), *options, *self.hosts(go), *self.store(algorithm))
                self.line_with(guard, "guards the coordinator of term 1 at tcp:127.0.0.1:")
                open(go, "w").close()
                self.wait_for_steps(algorithm, process)
                coordinator = coordinator_of(self.path(algorithm))
                os.kill(process.pid, signal.SIGKILL)
                os.kill(coordinator, signal.SIGKILL)
                process.communicate(timeout=DEADLINE)
                samples = 1500 * int(options[-1])
                output = self.expect_takeover(guard, algorithm, samples)
                self.assertNotIn("lost worker", output)
        self.assertEqual(self.model("allreduce"), self.model("undisturbed"))
        self.expect_only_the_term_left(*jobs)

    def test_takes_over_from_one_that_is_stopped_which_ends_when_it_wakes_up(self):
        guard = self.guard("run")
        process = self.start(*self.served("run", "--epochs", "5000"), *self.store("run"))
        self.wait_for_steps("run", process)
        self.line_with(guard, "guards the coordinator of term 1")
        first = coordinator_of(self.path("run"))
        os.kill(first, signal.SIGSTOP)
        self.line_with(process, "the coordinator is now at tcp:127.0.0.1:")
        os.kill(first, signal.SIGCONT)
        self.wait_until(lambda: first not in processes_in(self.path("run")), "the old coordinator to end")
        self.assertIn("ends: a coordinator of term 2 took the place of that of term 1", self.log_of_coordinator("run"))
        self.assertIsNone(process.poll())
        status = subprocess.run([job_test.PROGRAM, "status", self.path("run")], capture_output=True, text=True,
                                timeout=DEADLINE)
        self.assertEqual(status.returncode, 0, status.stderr)
        self.assertIn("term 2", status.stdout)
        with open(self.path("run") + "/job.json") as file:
            self.assertEqual(json.load(file)["term"], 2)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 130, output)
        output, _ = guard.communicate(timeout=DEADLINE)
        self.assertEqual(guard.returncode, 0, output)
        self.expect_stopped("run")

    def test_leaves_it_to_the_launcher_where_that_is_faster(self):
        guard = self.guard("run")
        process = self.start(*self.served("run", "--epochs", "5000"), *self.store("run"))
        self.wait_for_steps("run", process)
        self.line_with(guard, "guards the coordinator of term 1")
        os.kill(coordinator_of(self.path("run")), signal.SIGKILL)
        self.line_with(guard, "guards the coordinator of term 2")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 130, output)
        self.assertEqual(len(BACK.findall(output)), 1, output)
        output, _ = guard.communicate(timeout=DEADLINE)
        self.assertEqual(guard.returncode, 0, output)
        self.assertIn("the job has ended", output)
        self.expect_stopped("run")

    def test_makes_a_coordinator_without_etcd_stop_until_etcd_is_back(self):
        guard = self.guard("run")
        process = self.start(*self.small("run"), *self.TEAM, "--epochs", "5000", "--transport", "socket", *self.store("run"))
        self.wait_for_steps("run", process)
        self.line_with(guard, "guards the coordinator of term 1")
        self.etcd.kill()
        self.wait_until(lambda: "stops: --store" in self.log_of_coordinator("run"), "the coordinator to stop")
        self.assertIsNone(process.poll())
        self.assertTrue(self.etcd.start())
        self.wait_until(lambda: self.log_of_coordinator("run").count("came back") >= 4, "the coordinator and all members")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 130, output)
        output, _ = guard.communicate(timeout=DEADLINE)
        self.assertEqual(guard.returncode, 0, output)
        self.expect_stopped("run")


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
