"""Parameter servers that die while training goes on: real processes, real kills at random moments.

failover_test.py PROGRAM    the distbelief executable

DISTBELIEF_TEST_TRANSPORTS ("socket mpi") says over which of them; DISTBELIEF_TEST_SEED at which moments.
"""

import json
import os
import random
import signal
import sys

import job_test
import served_test
from served_test import ALGORITHMS, SURVIVABLE
from test_main import main

SEED = os.environ.get("DISTBELIEF_TEST_SEED", "1")


class FailoverTest(served_test.ServedTest):
    def pid_of_server(self, name, rank):
        with open(f"{self.path(name)}/logs/server-{rank}.log") as log:
            return int(log.read().split(f"server {rank} (pid ")[1].split()[0])

    def rows(self, name):
        path = self.path(name) + "/metrics.jsonl"
        if not os.path.exists(path):
            return 0
        with open(path) as file:
            return file.read().count("\n")

    def copies_made(self, name):
        """How often a server had a new copy of something that had lost one."""
        folder = self.path(name) + "/logs/"
        count = 0
        for log in os.listdir(folder):
            with open(folder + log) as file:
                count += file.read().count(" has its copy of what server ")
        return count

    def kill_servers(self, name, process, ranks):
        """Kills one after the other, each a random while after training went on from the death before, and what had one
        holder left has two again: each holds two things while there are three servers, and two have what there is."""
        moments = random.Random(f"{SEED} {name} {ranks}")
        for killed, rank in enumerate(ranks):
            later = self.rows(name) + moments.randrange(2, 20)

            def went_on(later=later, copies=2 * killed):
                if process.poll() is not None:
                    self.fail(f"the job ended before server {rank} was killed: {process.communicate()[0]}")
                return self.rows(name) >= later and self.copies_made(name) >= copies

            self.wait_until(went_on, f"training to go on before server {rank} is killed")
            os.kill(self.pid_of_server(name, rank), signal.SIGKILL)

    def expect_end(self, name, process, ranks, samples):
        output, _ = process.communicate(timeout=job_test.DEADLINE)
        self.assertEqual(process.returncode, 0, output)
        summary = self.summary(name)
        self.assertEqual(summary["status"], "finished")
        for rank in ranks:
            self.assertIn(f"lost: server {rank} (pid ", output)
            self.assertRegex(output, rf"server \d+ goes on with what server {rank} held: ")
        self.expect_every_sample_once(name, samples)
        self.expect_nothing_left(name)
        return output


class Servers(FailoverTest):
    """Of three servers two die, the leader among them; each backup that is lost is made anew."""
    SAMPLES = 3000

    def run_with_deaths(self, name, choices, transport, ranks, epochs):
        process = self.start(*self.small(name, samples=self.SAMPLES, noise=1), *choices, "--workers", "3", "--servers", "3",
                             "--epochs", str(epochs), "--transport", transport)
        self.kill_servers(name, process, ranks)
        return self.expect_end(name, process, ranks, epochs * self.SAMPLES)

    def test_training_goes_on_and_every_sample_is_applied_once(self):
        for transport in SURVIVABLE:
            for algorithm in ("async", "downpour", "softsync", "backup"):
                with self.subTest(transport=transport, algorithm=algorithm):
                    name = f"{algorithm}-{transport}"
                    ranks = random.Random(f"{SEED} {name}").sample([3, 4, 5], 2)
                    self.run_with_deaths(name, ALGORITHMS[algorithm], transport, ranks, 60)
                    self.assertGreater(self.summary(name)["test_accuracy"], 0.8)

    def test_when_the_leader_dies_the_next_server_writes_the_folder(self):
        name = "leader-socket"
        output = self.run_with_deaths(name, ALGORITHMS["async"], "socket", [3], 30)
        self.assertIn("server 4 leads from here on, at update ", output)
        with open(self.path(name) + "/metrics.jsonl") as file:
            rows = [json.loads(line) for line in file]
        epochs = [row["epoch"] for row in rows if "epoch_train_loss" in row]
        self.assertEqual(len(epochs), 30)
        self.assertEqual(sorted(row["step"] for row in rows), [row["step"] for row in rows])
        self.assertEqual(sum(self.summary(name)["staleness"]["histogram"].values()), self.summary(name)["steps"])
        self.train("--resume", self.path(name), "--epochs", "32")
        self.expect_every_sample_once(name, 32 * self.SAMPLES)


    def test_a_leader_that_was_stopped_finds_another_in_its_place_and_writes_nothing_more(self):
        name, epochs = "zombie", 100
        process = self.start(*self.small(name, samples=self.SAMPLES, noise=1), *ALGORITHMS["async"], "--workers", "3",
                             "--servers", "3", "--epochs", str(epochs), "--transport", "socket")
        self.wait_for_steps(name, process)
        leader = self.pid_of_server(name, 3)
        os.kill(leader, signal.SIGSTOP)

        def is_led_by_another():
            with open(self.path(name) + "/logs/server-4.log") as log:
                return "server 4 leads from here on" in log.read()

        self.wait_until(is_led_by_another, "another server to lead")
        os.kill(leader, signal.SIGCONT)
        self.expect_end(name, process, [3], epochs * self.SAMPLES)
        with open(self.path(name) + "/logs/server-3.log") as log:
            self.assertIn("ends: lost: this process was silent for too long, and another server leads", log.read())
        with open(self.path(name) + "/metrics.jsonl") as file:
            rows = [json.loads(line) for line in file]
        self.assertEqual(len([row for row in rows if "epoch_train_loss" in row]), epochs)
        self.assertEqual(sorted(row["step"] for row in rows), [row["step"] for row in rows])


class Sandblaster(FailoverTest):
    def test_the_objective_goes_on_downwards_whoever_dies(self):
        for ranks in ([4, 3], [3, 5]):
            with self.subTest(ranks=ranks):
                name = "".join(map(str, ranks))
                process = self.start(*self.small(name, samples=6000, noise=1), "--algorithm", "sandblaster", "--workers",
                                     "3", "--servers", "3", "--iterations", "60", "--weight-decay", "0.001", "--transport",
                                     "socket")
                self.kill_servers(name, process, ranks)
                output, _ = process.communicate(timeout=job_test.DEADLINE)
                self.assertEqual(process.returncode, 0, output)
                summary = self.summary(name)
                self.assertEqual((summary["status"], summary["epochs"]), ("finished", 60), output)
                with open(self.path(name) + "/metrics.jsonl") as file:
                    objectives = [row["objective"] for row in map(json.loads, file) if "objective" in row]
                self.assertLess(objectives[-1], 0.5 * objectives[0])
                self.expect_nothing_left(name)


class Witness(served_test.WitnessTest, FailoverTest):
    EPOCHS = 120

    def test_each_acknowledged_gradient_is_in_the_parameters_once(self):
        for algorithm, rank in {"async": 4, "adaptive": 3, "downpour": 3}.items():
            with self.subTest(algorithm=algorithm, rank=rank):
                process = self.start(*self.recipe(algorithm, algorithm), "--log-every", "1", "--epochs", str(self.EPOCHS))
                self.kill_servers(algorithm, process, [rank])
                self.expect_end(algorithm, process, [rank], self.EPOCHS * self.SAMPLES)
                self.expect_counts(algorithm, self.EPOCHS)


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
