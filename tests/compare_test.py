"""distbelief compare: real runs of every algorithm, interrupted and killed.

compare_test.py PROGRAM    the distbelief executable
"""

import json
import os
import signal
import subprocess
import sys

import job_test
from test_main import main

ALL = "local,allreduce,sync,averaging,gossip,async,downpour,softsync,hogwild,sandblaster"
SAMPLES, BATCH, EPOCHS = 1500, 30, 3
MANY = 60  # epochs that take longer than a signal on its way


class Compare(job_test.JobTest):
    def begin(self, *arguments):
        process = subprocess.Popen([job_test.PROGRAM, "compare", *arguments], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, cwd=self.scratch.name,
                                   env={**os.environ, "TMPDIR": self.scratch.name})
        self.started.append(process)
        return process

    def compare(self, *arguments, code=0):
        process = self.begin(*arguments)
        output, _ = process.communicate(timeout=job_test.DEADLINE)
        self.assertEqual(process.returncode, code, output)
        return output

    def recipe(self, name, *more, epochs=EPOCHS):
        return [*self.small(name, samples=SAMPLES, batch=BATCH, noise=1), "--epochs", str(epochs), "--iterations", "6",
                "--transport", "socket", "--lr", "0.05", *more]

    def result(self, name):
        with open(self.path(name) + "/compare.json") as file:
            return json.load(file)

    def runs(self, name):
        return {run["label"]: run for run in self.result(name)["runs"]}

    def audit(self, name, label):
        with open(os.path.join(self.path(name), label, "summary.json")) as file:
            return json.load(file)["samples"]

    def test_all_algorithms_side_by_side(self):
        output = self.compare(*self.recipe("all", "--algorithms", ALL, "--workers", "2", "--servers", "1", "--target", "0.8"))
        runs = self.runs("all")
        self.assertEqual(list(runs), ALL.split(","))
        parameters = 144 * 32 + 32 + 32 * 4 + 4
        for label, run in runs.items():
            with self.subTest(label):
                self.assertIn(label, output)
                self.assertEqual(run["status"], "finished")
                self.assertGreater(run["best"], 0.8)
                self.assertGreater(run["seconds_to_target"], 0)
                self.assertGreater(run["samples_per_second"], 0)
                points = run["points"]
                self.assertEqual(len(points), 6 if label == "sandblaster" else EPOCHS)
                self.assertEqual([p["seconds"] for p in points], sorted(p["seconds"] for p in points))
                if label != "sandblaster":
                    self.assertEqual(self.audit("all", label)["applied"], EPOCHS * SAMPLES)
                self.assertEqual(run["bytes_per_sample"] is None, label in ("local", "hogwild"))
                self.assertEqual(run["staleness_mean"] is not None, label in ("async", "downpour", "softsync"))
        # What theory says each sample costs: two workers share a batch and exchange all of a gradient or of parameters; with sync
        # the second one is also told the sum of gradients, as it keeps the optimizer's state too.
        for label, batches in {"allreduce": 2, "sync": 3, "async": 2, "downpour": 2}.items():
            with self.subTest(label):
                wanted = batches * 4 * parameters / BATCH
                self.assertLess(abs(runs[label]["bytes_per_sample"] / wanted - 1), 0.25)
        self.assertLess(runs["averaging"]["bytes_per_sample"], 0.2 * runs["allreduce"]["bytes_per_sample"])
        with open(self.path("all") + "/compare.html") as file:
            page = file.read()
        self.assertIn("Test accuracy over samples", page)
        self.expect_nothing_left("all")

    def test_the_same_algorithm_with_options_of_its_own(self):
        self.compare(*self.recipe("own", "--algorithms", "downpour,downpour:n-push=5:n-fetch=5"))
        runs = self.runs("own")
        self.assertLess(runs["downpour:n-push=5:n-fetch=5"]["bytes_per_sample"], 0.5 * runs["downpour"]["bytes_per_sample"])

    def test_networks_that_are_cut_beside_whole_ones(self):
        self.compare(*self.recipe("cut", "--algorithms", "allreduce,allreduce:stages=2,allreduce:tensor=2", "--workers", "2"))
        self.assertEqual({run["status"] for run in self.runs("cut").values()}, {"finished"})
        with open(self.path("cut") + "/allreduce-stages-2/run.yaml") as file:
            self.assertIn("stages: 2", file.read())

    def test_interrupted_it_goes_on_where_it_was(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number=number):
                name = f"run-{number}"
                process = self.begin(*self.recipe(name, "--algorithms", "local,allreduce,async", epochs=MANY))
                self.wait_for_steps(name + "/allreduce", process)
                local = self.result(name)["runs"][0]
                process.send_signal(number)
                output, _ = process.communicate(timeout=job_test.DEADLINE)
                self.assertEqual(process.returncode, 128 + number, output)
                self.assertIn(f"compare --resume {self.path(name)}", output)
                states = {label: run["status"] for label, run in self.runs(name).items()}
                self.assertEqual(states["local"], "finished")
                self.assertIn(states["allreduce"], ("interrupted", "finished"))
                self.assertEqual(states["async"], "waiting")
                self.compare("--resume", self.path(name))
                self.assertEqual({run["status"] for run in self.runs(name).values()}, {"finished"})
                self.assertEqual(self.result(name)["runs"][0], local)
                self.assertEqual(self.audit(name, "allreduce")["applied"], MANY * SAMPLES)
                self.assertIn("allreduce", self.compare("--resume", self.path(name)))  # it only shows what there is
                self.expect_nothing_left(name)

    def test_killed_it_leaves_nobody_and_goes_on(self):
        process = self.begin(*self.recipe("run", "--algorithms", "allreduce,local", epochs=MANY))
        self.wait_for_steps("run/allreduce", process)
        process.kill()
        process.communicate(timeout=job_test.DEADLINE)
        folder = self.path("run/allreduce")
        self.wait_until(lambda: not job_test.processes_in(folder), "the run's end")
        self.compare("--resume", self.path("run"))
        self.assertEqual({run["status"] for run in self.runs("run").values()}, {"finished"})
        self.assertEqual(self.audit("run", "allreduce")["applied"], MANY * SAMPLES)

    def test_a_run_that_diverges_is_a_result(self):
        output = self.compare(*self.recipe("run", "--algorithms", "local:lr=1e30,allreduce", "--workers", "2"))
        runs = self.runs("run")
        self.assertEqual((runs["local:lr=1e30"]["status"], runs["allreduce"]["status"]), ("diverged", "finished"))
        self.assertIn("local:lr=1e30 diverged: ", output)

    def test_what_makes_no_sense_is_refused_before_anything_runs(self):
        cases = {
            ("--algorithms", "local,downpuor"): "there is no algorithm 'downpuor'; did you mean 'downpour'?; possible: local",
            ("--algorithms", ""): "there is no algorithm ''; possible: local, allreduce",
            ("--algorithms", "local,hogwild", "--momentum", "0.9"): "--algorithms hogwild: ",
            ("--algorithms", "local,softsync:n=9"): "--algorithms softsync:n=9: --n 9",
            ("--algorithms", "local,downpour:batch=0"): "expected a whole number of 1 or more, got '0'",
            ("--algorithms", "local:seed=3"): "'seed' is the same for all",
            ("--target", "88"): "--target 88: expected an accuracy above 0, up to 1",
            ("--target", "high"): "--target high: expected an accuracy",
            ("--target", ""): "--target : expected an accuracy",
            ("--test-data", "nowhere.csv"): "nowhere.csv",
            ("--init", "nowhere"): "nowhere",
            ("--algorithm", "sync"): "--algorithm",
        }
        for arguments, wanted in cases.items():
            with self.subTest(arguments):
                output = self.compare(*self.recipe("run"), *arguments, code=2)
                self.assertEqual(output.count("\n"), 1, output)
                self.assertIn(wanted, output)
                self.assertFalse(os.path.exists(self.path("run")))
        self.compare("--resume", self.path("nowhere"), code=2)
        self.compare(*self.recipe("there", "--algorithms", "local", epochs=1))
        output = self.compare(*self.recipe("there", "--algorithms", "local"), code=2)
        self.assertIn("compare --resume", output)
        output = self.compare("--resume", self.path("there"), "--lr", "1", code=2)
        self.assertIn("expected no other option", output)


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
