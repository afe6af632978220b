"""Networks that are cut over several workers, of which some are killed and others take their places: real processes.

replacement_test.py PROGRAM    the distbelief executable

DISTBELIEF_TEST_TRANSPORTS ("threads socket mpi") says over which of them.
"""

import os
import signal
import sys

import job_test
from partition_test import DeathTest
from scale_test import ElasticTest
from test_main import main


class Replaced(DeathTest, ElasticTest):
    """Workers that are killed, and whose places others take."""

    CAME = r"; worker {} \(pid \d+ on \S+\) joined: "

    def expect_called(self, output, victim):
        self.assertRegex(output, r"\nstandby \(pid \d+ on \S+\) takes the place of worker " + str(victim) +
                         r" \(pid \d+ on \S+\)\n")

    def test_a_standby_gets_its_part_from_another_copy(self):
        losses = self.undisturbed(*self.cut(1, 1, 2), "--algorithm", "allreduce")
        for transport in job_test.SURVIVABLE:
            for grid, victim in (((2, 1, 2), 0), ((1, 2, 2), 3), ((2, 2, 2), 2)):
                with self.subTest(transport=transport, grid=grid, victim=victim):
                    name = f"{transport}-{victim}"
                    workers = grid[0] * grid[1] * 2
                    output = self.train(*self.recipe("mlp", name, samples=self.SAMPLES), *self.cut(*grid), "--transport",
                                        transport, "--standby", "1", "--chaos", f"kill worker {victim} at step 23")
                    self.assertIn("copies  each part is held by 2 workers: a standby takes the place of one that dies, and "
                                  "gets its part from another copy", output)
                    self.expect_called(output, victim)
                    self.assertRegex(output, self.KILLED.format(victim) + self.CAME.format(workers) +
                                     "2 copies go on after step 22\n")
                    self.expect_whole(name, output, [victim], workers, workers, losses, [workers])

    def test_one_copy_goes_back_with_the_same_cut(self):
        losses = self.undisturbed()
        for transport in job_test.SURVIVABLE:
            for grid, victim in (((2, 1, 1), 0), ((2, 2, 1), 3)):
                with self.subTest(transport=transport, grid=grid, victim=victim):
                    name = f"{transport}-{victim}"
                    workers = grid[0] * grid[1]
                    output = self.train(*self.recipe("mlp", name, samples=self.SAMPLES), *self.cut(*grid), "--transport",
                                        transport, "--standby", "1", "--checkpoint-every", "5", "--chaos",
                                        f"kill worker {victim} at step 23")
                    self.expect_called(output, victim)
                    self.assertRegex(output, self.KILLED.format(victim) + self.CAME.format(workers) +
                                     "a part of the network is nowhere else: back to the checkpoint of step 20, [23] steps "
                                     f"are made again; now one copy of the network of {grid[0]} stages of {grid[1]} worker")
                    self.expect_whole(name, output, [victim], workers, workers, losses, [workers])

    def test_of_other_algorithms_too(self):
        for number, algorithm in enumerate((["sync"], ["averaging", "--average-every", "5"], ["gossip"])):
            transport = job_test.SURVIVABLE[number % len(job_test.SURVIVABLE)]
            with self.subTest(transport=transport, algorithm=algorithm):
                name = algorithm[0]
                output = self.train(*self.recipe("mlp", name, samples=self.SAMPLES), *self.cut(2, 1, 2), "--transport",
                                    transport, "--algorithm", *algorithm, "--standby", "1", "--checkpoint-every", "5",
                                    "--chaos", "kill worker 1 at step 23")
                self.expect_called(output, 1)
                # Of `sync` after the step before; others are together every fifth step at least.
                self.assertRegex(output, self.KILLED.format(1) + self.CAME.format(4) + r"2 copies go on after step 2[012]\n")
                self.expect_every_sample_once(name, self.SAMPLES)
                self.assertEqual(self.summary(name)["workers_at_end"], 4)
                self.expect_nothing_left(name)

    def test_the_launcher_starts_another_process(self):
        losses = self.undisturbed(*self.cut(1, 1, 2), "--algorithm", "allreduce")
        for transport in job_test.SURVIVABLE:
            for copies, victim, more in ((2, 1, "2 copies go on after step 22"), (1, 1, "a part of the network is nowhere else")):
                with self.subTest(transport=transport, copies=copies):
                    name = f"{transport}-{copies}"
                    output = self.train(*self.recipe("mlp", name, samples=self.SAMPLES), *self.cut(2, 1, copies),
                                        "--transport", transport, "--restarts", "1", "--checkpoint-every", "5", "--chaos",
                                        f"kill worker {victim} at step 23")
                    self.assertRegex(output, r"\nworker 1 \(pid \d+ on \S+\) is replaced \(1 of 1 restarts\)\n")
                    self.assertRegex(output, self.KILLED.format(victim) + self.CAME.format(2 * copies) + more)
                    self.expect_whole(name, output, [victim], 2 * copies, 2 * copies, losses, [2 * copies])

    def test_the_coordinator_may_die_with_the_worker(self):
        losses = self.undisturbed(*self.cut(1, 1, 2), "--algorithm", "allreduce")
        for number, transport in enumerate(job_test.SURVIVABLE):
            with self.subTest(transport=transport):
                output = self.train(*self.recipe("mlp", transport, samples=self.SAMPLES), *self.cut(2, 1, 2), "--transport",
                                    transport, "--standby", "1", "--restarts", "1", "--chaos", "kill coordinator at step "
                                    f"{22 + number}; kill worker 1 at step 23; kill worker 2 at step 30")
                self.expect_whole(transport, output, [1, 2], 4, 4, losses, [4, 5])

    def test_one_after_the_other_while_training_goes_on(self):
        for transport in job_test.SURVIVABLE:
            with self.subTest(transport=transport):
                process = self.start(*self.recipe("mlp", transport, samples=self.SAMPLES), *self.cut(2, 1, 2), "--epochs",
                                     "9000", "--transport", transport, "--standby", "1", "--restarts", "1")
                self.wait_for_steps(transport, process)
                second = self.come(self.path(transport), "--standby")
                self.wait_until(lambda: self.command("status", self.path(transport)).count(" standby ") == 2, "two standbys")
                for rank in (1, 0, 3):  # a standby, the one that joined, and one that is started
                    os.kill(self.pid_of(transport, rank), signal.SIGKILL)
                    self.line_with(process, "2 copies go on after step")
                    self.wait_for_more_steps(transport)
                process.send_signal(signal.SIGINT)
                output, _ = process.communicate(timeout=job_test.DEADLINE)
                self.assertEqual(process.returncode, 130, output)
                said, _ = second.communicate(timeout=job_test.DEADLINE)
                self.assertEqual(second.returncode, 0, said)
                self.expect_nothing_left(transport)
                self.assertEqual(self.summary(transport)["workers_at_end"], 4)
                epochs = self.epochs_begun(transport)
                self.train("--resume", self.path(transport), "--epochs", epochs)
                self.expect_every_sample_once(transport, int(epochs) * self.SAMPLES)


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
