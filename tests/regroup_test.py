"""Synchronous groups whose members die: real processes, real kills. The others go on from memory.

regroup_test.py PROGRAM    the distbelief executable

DISTBELIEF_TEST_TRANSPORTS as for job_test.py.
"""

import json
import os
import re
import signal
import subprocess
import sys

import job_test
from job_test import ALGORITHMS, DEADLINE, SURVIVABLE, JobTest, processes_in, workers_in
from test_main import main

SAMPLES = 1500
EPOCHS = 4
BATCHES = SAMPLES // 30
# What the launcher sees of its own processes, and the coordinator of those that mpirun started.
KILLED = "(was killed by signal 9|ended without a word)"


class RegroupTest(JobTest):
    def team(self, name, transport, *more, workers=3, algorithm=("--algorithm", "allreduce")):
        return [*self.small(name), "--workers", str(workers), "--transport", transport, *algorithm, *more]

    def expect_whole(self, name, output, lost, workers):
        """A run that ended well, though the workers of these numbers were killed."""
        summary = self.summary(name)
        self.assertEqual(summary["status"], "finished", output)
        self.assertEqual(summary["restarts"], 0, output)
        self.assertEqual((summary["workers"], summary["workers_at_end"]), (workers, workers - len(lost)), output)
        self.assertEqual(sorted(re.match(r"worker (\d+) ", event["who"])[1] for event in summary["events"]),
                         sorted(str(rank) for rank in lost), output)
        for event in summary["events"]:
            self.assertEqual(event["what"], "lost")
            self.assertRegex(event["why"], KILLED)
        self.expect_every_sample_once(name, EPOCHS * SAMPLES)
        self.assertTrue(self.model(name))
        self.expect_steps_in_order(name)
        self.expect_nothing_left(name)

    def expect_steps_in_order(self, name):
        with open(self.path(name) + "/metrics.jsonl") as file:
            steps = [json.loads(line)["step"] for line in file if "train_accuracy" in line]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))


class Kills(RegroupTest):
    def test_every_algorithm_goes_on_without_a_killed_worker(self):
        for transport in SURVIVABLE:
            for algorithm, options in ALGORITHMS.items():
                with self.subTest(transport=transport, algorithm=algorithm):
                    name = f"{algorithm}-{transport}"
                    steps = BATCHES if algorithm in ("allreduce", "sync") else BATCHES // 3
                    output = self.train(*self.team(name, transport, "--epochs", str(EPOCHS), "--chaos",
                                                   f"kill worker 1 at step {steps + 20}", algorithm=options))
                    self.assertRegex(output, rf"\nworker 1 \(pid \d+ on \S+\) {KILLED}[^\n]*: 2 workers go on after step \d+\n")
                    self.expect_whole(name, output, [1], 3)

    def test_the_leader_and_two_at_once_may_die_and_losses_stay_what_they_were(self):
        self.train(*self.team("undisturbed", "threads", "--epochs", str(EPOCHS), workers=4))
        wanted = self.losses("undisturbed")
        for transport in SURVIVABLE:
            for victims in ([0], [0, 2]):
                with self.subTest(transport=transport, victims=victims):
                    name = "-".join([transport, *map(str, victims)])
                    script = "; ".join(f"kill worker {victim} at step 70" for victim in victims)
                    output = self.train(*self.team(name, transport, "--epochs", str(EPOCHS), "--chaos", script, workers=4))
                    self.expect_whole(name, output, victims, 4)
                    found = self.losses(name)
                    self.assertEqual(len(found), len(wanted))
                    for one, other in zip(found, wanted, strict=True):
                        self.assertAlmostEqual(one, other, delta=1e-3 * max(other, 0.1))

    def test_one_after_another_may_die_until_one_is_left(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                output = self.train(*self.team(transport, transport, "--epochs", str(EPOCHS), "--chaos",
                                               "kill worker 0 at step 60; kill worker 1 at step 61"))
                self.assertIn(": one worker goes on after step ", output)
                self.expect_whole(transport, output, [0, 1], 3)

    def test_a_kill_from_outside_in_the_middle_of_a_step(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                process = self.start(*self.team(transport, transport, "--epochs", "2000", workers=4))
                self.wait_for_steps(transport, process)
                os.kill(workers_in(self.path(transport))[0], signal.SIGKILL)
                self.line_with(process, "3 workers go on after step")
                rows = os.path.getsize(self.path(transport) + "/metrics.jsonl")
                self.wait_until(lambda: os.path.getsize(self.path(transport) + "/metrics.jsonl") > rows + 500, "steps")
                process.send_signal(signal.SIGINT)
                output, _ = process.communicate(timeout=DEADLINE)
                self.assertEqual(process.returncode, 130, output)
                self.expect_steps_in_order(transport)
                self.expect_nothing_left(transport)
                epochs = self.epochs_begun(transport)
                self.train("--resume", self.path(transport), "--epochs", epochs)
                self.expect_every_sample_once(transport, int(epochs) * SAMPLES)


class Zombies(RegroupTest):
    def test_a_leader_that_was_stopped_finds_itself_given_up_and_ends(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                process = self.start(*self.team(transport, transport, "--epochs", "2000"))
                self.wait_for_steps(transport, process)
                with open(self.path(transport) + "/logs/worker-0.log") as file:
                    zombie = int(re.search(r"\(pid (\d+) on", file.readline())[1])
                os.kill(zombie, signal.SIGSTOP)
                self.line_with(process, "2 workers go on after step")
                os.kill(zombie, signal.SIGCONT)
                self.wait_until(lambda: zombie not in processes_in(self.path(transport)), "the zombie to end")
                self.assertIsNone(process.poll(), "the others have ended too")
                rows = os.path.getsize(self.path(transport) + "/metrics.jsonl")
                self.wait_until(lambda: os.path.getsize(self.path(transport) + "/metrics.jsonl") > rows + 500, "steps")
                process.send_signal(signal.SIGINT)
                output, _ = process.communicate(timeout=DEADLINE)
                self.assertEqual(process.returncode, 130, output)
                self.assertEqual(self.summary(transport)["status"], "interrupted")
                self.expect_steps_in_order(transport)
                self.expect_nothing_left(transport)


class Newcomers(RegroupTest):
    def join(self, name):
        log = open(self.path(f"joined-{len(self.started)}"), "w")
        self.addCleanup(log.close)
        process = subprocess.Popen([job_test.PROGRAM, "worker", self.path(name), "--transport", "socket", "--late"],
                                   stdout=log, stderr=subprocess.STDOUT, text=True,
                                   env={**os.environ, "TMPDIR": self.scratch.name})
        self.started.append(process)
        return process

    def test_workers_come_and_die_while_training_goes_on(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                process = self.start(*self.team(transport, transport, "--epochs", "2000", workers=2))
                self.wait_for_steps(transport, process)
                first = self.join(transport)
                self.assertRegex(self.line_with(process, "3 workers go on after step"), rf"worker 2 \(pid {first.pid} on \S+ joined")
                second = self.join(transport)
                self.assertRegex(self.line_with(process, "4 workers go on after step"), rf"worker 3 \(pid {second.pid} on \S+ joined")
                os.kill(workers_in(self.path(transport))[0], signal.SIGKILL)
                self.line_with(process, "3 workers go on after step")
                first.kill()
                self.line_with(process, "2 workers go on after step")
                process.send_signal(signal.SIGINT)
                output, _ = process.communicate(timeout=DEADLINE)
                self.assertEqual(process.returncode, 130, output)
                self.assertEqual(second.wait(timeout=DEADLINE), 0)
                summary = self.summary(transport)
                self.assertEqual([event["what"] for event in summary["events"]], ["joined", "joined", "lost", "lost"])
                self.assertEqual((summary["workers"], summary["workers_at_end"]), (2, 2))
                self.expect_steps_in_order(transport)
                self.expect_nothing_left(transport)
                epochs = self.epochs_begun(transport)
                self.train("--resume", self.path(transport), "--epochs", epochs)
                self.expect_every_sample_once(transport, int(epochs) * SAMPLES)

    def test_a_worker_that_comes_to_an_averaging_job_is_taken_in_after_an_epoch(self):
        for algorithm in ("averaging", "gossip"):
            with self.subTest(algorithm=algorithm):
                process = self.start(*self.team(algorithm, "socket", "--epochs", "2000", workers=2,
                                                algorithm=ALGORITHMS[algorithm]))
                self.wait_for_steps(algorithm, process)
                newcomer = self.join(algorithm)
                self.line_with(process, "3 workers go on after step")
                process.send_signal(signal.SIGINT)
                output, _ = process.communicate(timeout=DEADLINE)
                self.assertEqual(process.returncode, 130, output)
                self.assertEqual(newcomer.wait(timeout=DEADLINE), 0)
                self.expect_steps_in_order(algorithm)
                self.expect_nothing_left(algorithm)


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
