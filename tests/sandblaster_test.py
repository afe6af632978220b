"""Sandblaster L-BFGS: real processes, real kills.

sandblaster_test.py PROGRAM    the distbelief executable

DISTBELIEF_TEST_TRANSPORTS ("threads socket mpi") says over which of them.
"""

import json
import os
import shutil
import sys

import job_test
import served_test
from test_main import main

SAMPLES = 1500


class Sandblaster(served_test.ServedTest):
    def recipe(self, name, *more, iterations=10, servers=2):
        return [*self.small(name, noise=1), "--algorithm", "sandblaster", "--workers", "3", "--set", f"servers={servers}",
                "--iterations", str(iterations), "--weight-decay", "0.01", *more]

    def objectives(self, name):
        with open(self.path(name) + "/metrics.jsonl") as file:
            return [row["objective"] for row in map(json.loads, file) if "objective" in row]

    def expect_audit(self, name):
        """Every evaluation is of all samples; what came twice was dropped."""
        audit = self.summary(name)["samples"]
        self.assertEqual(audit["applied"] % SAMPLES, 0, audit)
        self.assertEqual(audit["leased"], audit["applied"] + audit["dropped"], audit)
        self.assertEqual((audit["lost"], audit["duplicated"]), (0, 0), audit)
        with open(self.path(name) + "/metrics.jsonl") as file:
            rows = [row for row in map(json.loads, file) if "evaluation_done" in row]
        self.assertEqual({row["evaluation_done"] for row in rows}, {SAMPLES})
        self.assertEqual(sum(row["evaluation_done"] for row in rows), audit["applied"])
        for row in rows:
            self.assertGreaterEqual(row["evaluation_handed_out"], SAMPLES)

    def expect_same(self, found, wanted):
        self.assertEqual(len(found), len(wanted))
        for one, other in zip(found, wanted):
            self.assertLess(abs(one - other), 1e-5 * other)

    def expect_descent(self, objectives):
        # Changes below 5e-7 are judged by slopes: rounding hides them.
        for before, after in zip(objectives, objectives[1:]):
            self.assertLess(after, before * (1 + 1e-6))

    def test_it_trains_over_each_transport(self):
        for transport in served_test.TRANSPORTS:
            for servers in (2, 0):
                with self.subTest(transport=transport, servers=servers):
                    name = f"{transport}-{servers}"
                    self.train(*self.recipe(name, "--transport", transport, servers=servers))
                    summary = self.summary(name)
                    self.assertEqual((summary["status"], summary["epochs"]), ("finished", 10))
                    self.assertGreater(summary["test_accuracy"], 0.8)
                    objectives = self.objectives(name)
                    self.expect_descent(objectives)
                    self.expect_audit(name)
                    self.expect_nothing_left(name)

    def test_a_killed_worker_changes_nothing(self):
        self.train(*self.recipe("whole", "--transport", "socket"))
        for transport in served_test.SURVIVABLE:
            with self.subTest(transport=transport):
                self.train(*self.recipe(transport, "--transport", transport, "--chaos", "kill worker 1 at step 12"))
                self.expect_same(self.objectives(transport), self.objectives("whole"))
                self.expect_audit(transport)

    def test_a_worker_that_cannot_be_reached_does_not_keep_the_run_from_ending(self):
        output = self.train(*self.recipe("run", "--transport", "socket", "--stall-after", "2", "--chaos",
                                         "cut link 1-3 at step 5"))
        self.assertIn("the run ends without worker 1 (pid ", output)
        self.assertEqual(self.summary("run")["status"], "finished")
        self.expect_nothing_left("run")

    def test_it_goes_on_where_it_was(self):
        self.train(*self.recipe("whole", "--transport", "threads", iterations=9))
        self.train(*self.recipe("run", "--transport", "threads", iterations=4))
        shutil.copytree(self.path("run"), self.path("other"))
        self.train("--resume", self.path("run"), "--iterations", "9")
        self.expect_same(self.objectives("run"), self.objectives("whole"))
        output = self.train("--resume", self.path("other"), "--iterations", "9", "--servers", "3", "--workers", "2")
        self.assertIn("servers 3 (2", output)  # they have the history of the others
        self.expect_same(self.objectives("other"), self.objectives("whole"))

    def test_a_finished_run_has_nothing_left_to_do(self):
        self.train(*self.recipe("run", "--transport", "threads", iterations=3))
        before = job_test.files_of(self.path("run"))
        self.assertIn("is finished after 3 iterations; more need --iterations", self.train("--resume", self.path("run")))
        self.assertIn("--iterations 3 or more", self.train("--resume", self.path("run"), "--iterations", "2", code=2))
        self.assertEqual(job_test.files_of(self.path("run")), before)

    def test_it_stops_early_and_says_so(self):
        told = self.train(*self.recipe("run", "--transport", "threads", "--validation", "0.2", "--early-stop", "2",
                                       iterations=200))
        self.assertRegex(told, r"\nstopped early after iteration \d+: no better for 2 iterations; the model is that of "
                               r"iteration \d+\n")
        self.assertIn("stopped early after", self.train("--resume", self.path("run")))

    def test_it_goes_on_after_everything_was_killed(self):
        self.train(*self.recipe("whole", "--transport", "threads", iterations=4))
        process = self.start(*self.recipe("run", "--transport", "socket", "--checkpoint-every", "1", iterations=4000))
        iterations = self.kill_after_checkpoints("run", process) + 5
        before = self.objectives("run")
        self.expect_same(before[:5], self.objectives("whole")[:len(before)])  # checkpoints change nothing
        self.train("--resume", self.path("run"), "--iterations", str(iterations))
        objectives = self.objectives("run")
        self.expect_descent(objectives)
        self.expect_same(objectives[:len(before)][:5], before[:5])
        self.expect_audit("run")

    def test_sparse_samples_are_trained_on(self):
        with open(self.path("data.libsvm"), "w") as file:
            file.writelines(f"{i % 2} {i % 2 + 1}:1 {i % 50 + 3}:1\n" for i in range(400))
        self.train("--model", "logistic", "--data", self.path("data.libsvm"), "--batch", "20", "--algorithm", "sandblaster",
                   "--workers", "2", "--transport", "threads", "--iterations", "5", "--out", self.path("sparse"))
        self.assertLess(self.objectives("sparse")[-1], 0.1 * self.objectives("sparse")[0])

    def test_a_growing_subset_ends_at_all_samples(self):
        self.train(*self.recipe("run", "--transport", "threads", "--subset", "0.2", "--subset-growth", "2"))
        self.assertGreater(self.summary("run")["test_accuracy"], 0.8)
        self.assertEqual(self.summary("run")["status"], "finished")
        self.assertEqual(self.summary("run")["epochs"], 10)

    def test_what_is_not_for_it_is_refused(self):
        for words, complaint in ((["--optimizer", "adam"], "--optimizer adam: --algorithm sandblaster has no use for it"),
                                 (["--lr", "0.1"], "--lr 0.1: --algorithm sandblaster has no use for it"),
                                 (["--epochs", "9"], "it is for others: sandblaster counts --iterations"),
                                 (["--portion", "100"], "--portion 100: expected a multiple of --batch 30"),
                                 (["--warm-start", "5"], "--warm-start 5: --algorithm sandblaster has no use for it"),
                                 (["--subset", "0"], "expected a share above 0, up to 1")):
            self.assertIn(complaint, self.train(*self.recipe("refused", *words), code=2))
            self.assertFalse(os.path.exists(self.path("refused")))


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
