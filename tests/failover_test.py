"""Parameter servers, and workers that have one inside, die while training goes on: real processes, real kills at random
moments.

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
    HOLDER = "server"  # of parameters: what dies

    def pid_of_holder(self, name, rank):
        with open(f"{self.path(name)}/logs/{self.HOLDER}-{rank}.log") as log:
            return int(log.read().split(f"{self.HOLDER} {rank} (pid ")[1].split()[0])

    def rows(self, name):
        path = self.path(name) + "/metrics.jsonl"
        if not os.path.exists(path):
            return 0
        with open(path) as file:
            return file.read().count("\n")

    def copies_made(self, name):
        """How often somebody had a new copy of something that had lost one."""
        folder = self.path(name) + "/logs/"
        count = 0
        for log in os.listdir(folder):
            with open(folder + log) as file:
                count += file.read().count(f" has its copy of what {self.HOLDER} ")
        return count

    def kill_holders(self, name, process, ranks):
        """Kills one after the other, each a random while after training went on from the death before, and what had one
        holder left has two again: each holds two things while there are three holders, and two have what there is."""
        moments = random.Random(f"{SEED} {name} {ranks}")
        for killed, rank in enumerate(ranks):
            later = self.rows(name) + moments.randrange(2, 20)

            def went_on(later=later, copies=2 * killed):
                if process.poll() is not None:
                    self.fail(f"the job ended before {self.HOLDER} {rank} was killed: {process.communicate()[0]}")
                return self.rows(name) >= later and self.copies_made(name) >= copies

            self.wait_until(went_on, f"training to go on before {self.HOLDER} {rank} is killed")
            os.kill(self.pid_of_holder(name, rank), signal.SIGKILL)

    def expect_end(self, name, process, ranks, samples):
        output, _ = process.communicate(timeout=job_test.DEADLINE)
        self.assertEqual(process.returncode, 0, output)
        summary = self.summary(name)
        self.assertEqual(summary["status"], "finished")
        for rank in ranks:
            self.assertIn(f"lost: {self.HOLDER} {rank} (pid ", output)
            self.assertRegex(output, rf"{self.HOLDER} \d+ goes on with what {self.HOLDER} {rank} held: ")
        self.expect_every_sample_once(name, samples)
        self.expect_nothing_left(name)
        return output


class Servers(FailoverTest):
    """Of three two die, the leader among them; each backup that is lost is made anew."""
    SAMPLES = 3000
    SERVERS = "3"
    RANKS = [3, 4, 5]  # the first leads
    UNTOLD_UNITS = 0  # that are in every block, and nobody knows any more how old they were

    def start_three(self, name, choices, transport, epochs):
        return self.start(*self.small(name, samples=self.SAMPLES, noise=1), *choices, "--workers", "3", "--servers",
                          self.SERVERS, "--epochs", str(epochs), "--transport", transport)

    def run_with_deaths(self, name, choices, transport, ranks, epochs):
        process = self.start_three(name, choices, transport, epochs)
        self.kill_holders(name, process, ranks)
        return self.expect_end(name, process, ranks, epochs * self.SAMPLES)

    def test_training_goes_on_and_every_sample_is_applied_once(self):
        for transport in SURVIVABLE:
            for algorithm in ("async", "downpour", "softsync", "backup"):
                with self.subTest(transport=transport, algorithm=algorithm):
                    name = f"{algorithm}-{transport}"
                    ranks = random.Random(f"{SEED} {name}").sample(self.RANKS, 2)
                    self.run_with_deaths(name, ALGORITHMS[algorithm], transport, ranks, 60)
                    self.assertGreater(self.summary(name)["test_accuracy"], 0.8)

    def test_when_the_leader_dies_the_next_one_writes_the_folder(self):
        name = "leader-socket"
        output = self.run_with_deaths(name, ALGORITHMS["async"], "socket", self.RANKS[:1], 30)
        self.assertIn(f"{self.HOLDER} {self.RANKS[1]} leads from here on, at update ", output)
        with open(self.path(name) + "/metrics.jsonl") as file:
            rows = [json.loads(line) for line in file]
        epochs = [row["epoch"] for row in rows if "epoch_train_loss" in row]
        self.assertEqual(len(epochs), 30)
        self.assertEqual(sorted(row["step"] for row in rows), [row["step"] for row in rows])
        untold = self.summary(name)["steps"] - sum(self.summary(name)["staleness"]["histogram"].values())
        self.assertIn(untold, range(self.UNTOLD_UNITS + 1))
        self.train("--resume", self.path(name), "--epochs", "32")
        self.expect_every_sample_once(name, 32 * self.SAMPLES)

    def test_a_leader_that_was_stopped_finds_another_in_its_place_and_writes_nothing_more(self):
        name, epochs = "zombie", 100
        process = self.start_three(name, ALGORITHMS["async"], "socket", epochs)
        self.wait_for_steps(name, process)
        first, second = self.RANKS[:2]
        leader = self.pid_of_holder(name, first)
        os.kill(leader, signal.SIGSTOP)

        def is_led_by_another():
            with open(f"{self.path(name)}/logs/{self.HOLDER}-{second}.log") as log:
                return f"{self.HOLDER} {second} leads from here on" in log.read()

        self.wait_until(is_led_by_another, "another to lead")
        os.kill(leader, signal.SIGCONT)
        self.expect_end(name, process, [first], epochs * self.SAMPLES)
        with open(f"{self.path(name)}/logs/{self.HOLDER}-{first}.log") as log:
            self.assertIn(f"ends: lost: this process was silent for too long, and another {self.HOLDER} leads", log.read())
        with open(self.path(name) + "/metrics.jsonl") as file:
            rows = [json.loads(line) for line in file]
        self.assertEqual(len([row for row in rows if "epoch_train_loss" in row]), epochs)
        self.assertEqual(sorted(row["step"] for row in rows), [row["step"] for row in rows])


class Inside(Servers):
    """The same where each of three workers has a server inside: of these one is left."""
    HOLDER, SERVERS, RANKS = "worker", "0", [0, 1, 2]
    UNTOLD_UNITS = 2  # of a dead worker: one that it had not told of, and one for which it waited

    def test_the_first_lines_say_that_one_may_die(self):
        output = self.train(*self.small("two"), *ALGORITHMS["async"], "--workers", "2", "--servers", "0", "--epochs", "1",
                            "--transport", "socket")
        self.assertIn("each parameter is with two workers: one of them may die", output)
        output = self.train(*self.small("none"), *ALGORITHMS["async"], "--workers", "2", "--servers", "0", "--replication",
                            "1", "--epochs", "1", "--transport", "socket")
        self.assertIn("none: when a worker dies the run ends, and goes on from its last checkpoint", output)


class Sandblaster(FailoverTest):
    SERVERS = "3"
    RANKS = [3, 4, 5]

    def test_the_objective_goes_on_downwards_whoever_dies(self):
        for which in ([1, 0], [0, 2]):
            ranks = [self.RANKS[one] for one in which]
            with self.subTest(ranks=ranks):
                name = "".join(map(str, ranks))
                process = self.start(*self.small(name, samples=6000, noise=1), "--algorithm", "sandblaster", "--workers",
                                     "3", "--servers", self.SERVERS, "--iterations", "60", "--weight-decay", "0.001",
                                     "--transport", "socket")
                self.kill_holders(name, process, ranks)
                output, _ = process.communicate(timeout=job_test.DEADLINE)
                self.assertEqual(process.returncode, 0, output)
                summary = self.summary(name)
                self.assertEqual((summary["status"], summary["epochs"]), ("finished", 60), output)
                with open(self.path(name) + "/metrics.jsonl") as file:
                    objectives = [row["objective"] for row in map(json.loads, file) if "objective" in row]
                self.assertLess(objectives[-1], 0.5 * objectives[0])
                self.expect_nothing_left(name)


class SandblasterInside(Sandblaster):
    HOLDER, SERVERS, RANKS = "worker", "0", [0, 1, 2]


class Witness(served_test.WitnessTest, FailoverTest):
    EPOCHS = 120
    DEATHS = {"async": [4], "adaptive": [3], "downpour": [3]}

    def test_each_acknowledged_gradient_is_in_the_parameters_once(self):
        for algorithm, ranks in self.DEATHS.items():
            with self.subTest(algorithm=algorithm, ranks=ranks):
                process = self.start(*self.recipe(algorithm, algorithm), "--log-every", "1", "--epochs", str(self.EPOCHS))
                self.kill_holders(algorithm, process, ranks)
                self.expect_end(algorithm, process, ranks, self.EPOCHS * self.SAMPLES)
                self.expect_counts(algorithm, self.EPOCHS)


class WitnessInside(Witness):
    HOLDER, SERVERS = "worker", "0"
    DEATHS = {"async": [1], "adaptive": [0, 2], "downpour": [0]}


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
