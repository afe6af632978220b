"""Networks that are cut and whose parameters servers hold: copies of them that come, go, break and are made again of whoever
is left, waits or is started. Real processes.

served_copies_test.py PROGRAM [CLASS]    the distbelief executable

DISTBELIEF_TEST_TRANSPORTS ("socket mpi") says over which of them.
"""

import json
import os
import re
import signal
import sys

import elastic_test
import job_test
import scale_test
from control_test import coordinator_of
from job_test import DEADLINE
from served_test import ALGORITHMS, SURVIVABLE
from test_main import main

STAGES = ["--stages", "2", "--tensor", "1"]
WAITS = "waits: 1 more is needed for another copy of the network"


class CopiesTest(elastic_test.ElasticTest):
    come = scale_test.ElasticTest.come
    command = scale_test.ElasticTest.command
    pid_of = scale_test.ElasticTest.pid_of

    def begin(self, name, transport, copies, algorithm="downpour", *more):
        choices = ["1" if word == "2" and algorithm == "softsync" else word for word in ALGORITHMS[algorithm]]
        cut = [] if "--tensor" in more else STAGES
        process = self.start(*self.small(name, samples=self.SAMPLES, noise=1), *choices, *cut, "--replicas", str(copies),
                             "--servers", "2", "--epochs", "100000", "--transport", transport, *more)
        self.wait_for_steps(name, process)
        return process

    def kill(self, name, worker):
        os.kill(self.pid_of(name, worker), signal.SIGKILL)

    def expect_workers(self, process, workers, copies=1):
        """Those of so many more copies have come, with ranks in a row. The first rank."""
        ranks = []
        for _ in range(2 * copies):
            line = self.line_with(process, " joined after update ")
            ranks.append(int(re.match(r"worker (\d+) ", line)[1]))
        self.assertIn(f": {workers} workers now", line)
        first = min(ranks)
        self.assertEqual((sorted(ranks), first % 2), (list(range(first, first + 2 * copies)), 0))
        return first

    def expect_gone(self, process, workers, now):
        for _ in range(workers):
            line = self.line_with(process, " left after update ")
        self.assertIn(f": {now} worker", line)


class ComeAndGo(CopiesTest):
    def test_one_to_two_to_one_copies_whoever_dies(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                process = self.begin(transport, transport, 1)
                folder = self.path(transport)
                self.assertIn("is the last that trains", self.command("leave", folder, "1", code=2))
                first = self.come(folder)
                self.assertRegex(self.line_with(first, "waits"), rf"^standby \(pid {first.pid} on \S+\) {WAITS}\n$")
                self.assertRegex(self.command("status", folder), r" standby [^\n]* waiting: 1 more is needed for another copy")
                os.kill(coordinator_of(folder), signal.SIGKILL)  # while it waits
                self.expect_to_go_on(transport, process)
                second = self.come(folder)
                self.line_with(process, "2 that waited make one more copy of the network")
                copy = self.expect_workers(process, 4)
                self.expect_to_go_on(transport, process)
                os.kill(self.pid_of_holder(transport, 2), signal.SIGKILL)  # the server that leads
                self.line_with(process, "server 3 leads from here on")
                self.assertIn("worker 0 (pid ", self.command("leave", folder, "1"))
                self.expect_gone(process, 2, now=2)
                self.expect_to_go_on(transport, process)  # with those that came
                self.assertIn("is the last that trains", self.command("leave", folder, str(copy), code=2))
                summary = self.expect_each_sample_once_after(transport, process)
                for newcomer in (first, second):
                    self.assertEqual(newcomer.wait(timeout=DEADLINE), 0)
                self.assertEqual((summary["workers"], summary["workers_at_end"]), (2, 2))
                events = [(event["what"], event["who"].split(" (")[0]) for event in summary["events"]]
                self.assertEqual(sorted(events), sorted([("joined", f"worker {copy}"), ("joined", f"worker {copy + 1}"),
                                                         ("left", "worker 0"), ("left", "worker 1"), ("lost", "server 2")]))

    def test_scaled_up_and_down(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                process = self.begin(transport, transport, 1, "softsync")
                folder = self.path(transport)
                self.assertIn("2 workers hold a copy", self.command("scale", folder, "--workers", "3", code=2))
                self.assertIn("2 workers → 6: 4 are started\n", self.command("scale", folder, "--workers", "6"))
                self.expect_workers(process, 6, copies=2)
                self.expect_to_go_on(transport, process)
                self.assertRegex(self.command("scale", folder, "--workers", "2"), "6 workers → 2: workers .* leave\n")
                self.expect_gone(process, 4, now=2)
                self.expect_to_go_on(transport, process)
                summary = self.expect_each_sample_once_after(transport, process)
                self.assertEqual(sorted(event["what"] for event in summary["events"]), ["joined"] * 4 + ["left"] * 4)

    def test_who_comes_later_knows_the_shares_that_were_measured(self):
        process = self.begin("shares", "socket", 1, "async", "--tensor", "2", "--shares", "auto")
        folder = self.path("shares")
        self.come(folder, "--as", "server")
        self.assertIn(": 3 servers now", self.line_with(process, " joined after update "))
        for _ in range(2):
            self.come(folder)
        self.expect_workers(process, 4)
        self.expect_to_go_on("shares", process)
        self.command("leave", folder, "0")
        self.expect_gone(process, 2, now=2)
        self.expect_to_go_on("shares", process)
        self.expect_each_sample_once_after("shares", process)


class Broken(CopiesTest):
    def test_what_is_left_of_two_copies_makes_another(self):
        for number, algorithm in enumerate(("downpour", "backup")):
            transport = SURVIVABLE[(number + 1) % len(SURVIVABLE)]
            with self.subTest(transport=transport, algorithm=algorithm):
                process = self.begin(algorithm, transport, 3, algorithm)
                self.kill(algorithm, 0)
                self.line_with(process, "lost: worker 0 ")
                self.expect_to_go_on(algorithm, process)
                self.kill(algorithm, 3)
                self.line_with(process, "2 that waited make another copy of the network")
                copy = self.expect_workers(process, 4)
                self.expect_to_go_on(algorithm, process)
                self.kill(algorithm, copy + 1)  # it may break as others do
                self.line_with(process, f"lost: worker {copy + 1} ")
                self.expect_to_go_on(algorithm, process)
                summary = self.expect_each_sample_once_after(algorithm, process)
                self.assertEqual(summary["workers_at_end"], 2)

    def test_who_stands_by_or_is_started_makes_a_copy_with_what_is_left(self):
        choices = (("downpour", ["--standby", "1"]), ("softsync", ["--restarts", "1"]), ("async", ["--restarts", "2"]))
        for number, (algorithm, helped) in enumerate(choices):
            for copies in (2, 1):
                transport = SURVIVABLE[(number + copies) % len(SURVIVABLE)]
                with self.subTest(transport=transport, algorithm=algorithm, copies=copies):
                    name = f"{algorithm}-{copies}"
                    process = self.begin(name, transport, copies, algorithm, *helped)
                    self.kill(name, 1)
                    self.line_with(process, "lost: worker 1 ")
                    self.line_with(process, "2 that waited make another copy of the network")
                    copy = self.expect_workers(process, 2 * copies)
                    self.expect_to_go_on(name, process)
                    if helped[1] == "2":
                        self.kill(name, copy)
                        self.line_with(process, f"lost: worker {copy} ")
                        self.expect_workers(process, 2 * copies)
                        self.expect_to_go_on(name, process)
                    summary = self.expect_each_sample_once_after(name, process)
                    self.assertEqual(summary["workers_at_end"], 2 * copies)

    def test_one_copy_alone_ends_with_a_checkpoint_when_nobody_helps(self):
        process = self.begin("alone", "socket", 1)
        self.kill("alone", 0)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 4, output)
        self.assertIn("lost: worker 0 ", output)
        self.expect_nothing_left("alone")
        epochs = self.epochs_to_end_with("alone")
        self.train("--resume", self.path("alone"), "--epochs", str(epochs))
        self.expect_every_sample_once("alone", epochs * self.SAMPLES)

    def test_one_that_was_stopped_finds_another_copy_in_its_place(self):
        process = self.begin("zombie", "socket", 2, "async", "--standby", "1")
        pid = self.pid_of("zombie", 2)
        os.kill(pid, signal.SIGSTOP)
        self.line_with(process, "2 that waited make another copy of the network")
        self.expect_workers(process, 4)
        os.kill(pid, signal.SIGCONT)
        self.expect_to_go_on("zombie", process)
        self.expect_each_sample_once_after("zombie", process)

    def test_of_sandblaster_too(self):
        for transport, helped in zip(("socket", SURVIVABLE[-1]), (["--standby", "1"], ["--restarts", "1"])):
            with self.subTest(transport=transport):
                self.train(*self.small(transport, samples=self.SAMPLES, noise=1), "--algorithm", "sandblaster", *STAGES,
                           "--replicas", "1", "--servers", "2", "--iterations", "40", "--transport", transport, *helped,
                           "--weight-decay", "0.001", "--chaos", "kill worker 1 at 30%")
                summary = self.summary(transport)
                self.assertEqual((summary["status"], summary["workers_at_end"]), ("finished", 2))
                self.assertEqual((summary["samples"]["lost"], summary["samples"]["duplicated"]), (0, 0))
                with open(self.path(transport) + "/metrics.jsonl") as file:
                    objectives = [row["objective"] for row in map(json.loads, file) if "objective" in row]
                self.assertLess(objectives[-1], 0.5 * objectives[0])
                self.expect_nothing_left(transport)


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
