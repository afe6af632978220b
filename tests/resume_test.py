"""Runs that go on as other runs: on another number of processes, with another algorithm, cut in another way.

resume_test.py PROGRAM    the distbelief executable
"""

import json
import os
import re
import random
import shutil
import signal
import subprocess
import sys

import job_test
import served_test
from test_main import main

SAMPLES = 1500
PLACES = {"mpi": ["--transport", "mpi"], "socket": ["--transport", "socket"], "threads": ["--transport", "threads"]}
# One after the other, in some order, every one of them must be able to go on from every other.
KINDS = {
    "allreduce": ["--algorithm", "allreduce", "--workers", "3"],
    "sync": ["--algorithm", "sync", "--workers", "2"],
    "averaging": ["--algorithm", "averaging", "--workers", "2", "--average-every", "7"],
    "gossip": ["--algorithm", "gossip", "--workers", "3"],
    "async": ["--algorithm", "async", "--workers", "3", "--servers", "2"],
    "inside": ["--algorithm", "async", "--workers", "2", "--servers", "0"],
    "downpour": ["--algorithm", "downpour", "--workers", "2", "--servers", "3", "--n-push", "2", "--n-fetch", "3", "--batch",
                 "10"],
    "softsync": ["--algorithm", "softsync", "--workers", "4", "--servers", "1", "--n", "2"],
    "backup": ["--algorithm", "sync", "--backup-workers", "1", "--workers", "3", "--servers", "2"],
    "stages": ["--algorithm", "allreduce", "--stages", "2", "--tensor", "1", "--replicas", "1"],
    "tensor": ["--algorithm", "allreduce", "--stages", "1", "--tensor", "2", "--replicas", "2"],
    "served-stages": ["--algorithm", "async", "--stages", "2", "--tensor", "1", "--replicas", "2", "--servers", "2"],
}


class ResumeTest(served_test.ServedTest):
    def as_kind(self, kind):
        """What has to be said for a run to become one of this kind, whatever it was."""
        words = KINDS[kind]
        return [*words, *([] if "--stages" in words else ["--stages", "1", "--tensor", "1"]),
                *([] if "--batch" in words else ["--batch", "30"]), "--transport", "threads"]

    def recipe(self, name, *more):
        return [*self.small(name, samples=SAMPLES, noise=1), "--momentum", "0.9", "--lr", "0.01", "--checkpoint-every", "20",
                *more]

    def newest(self, name):
        with open(os.path.join(self.path(name), "checkpoints", self.checkpoints(name)[-1], "manifest.json")) as file:
            return json.load(file)

    def go_on_until_killed(self, name, *arguments):
        """Goes on, and everything is killed when there is a new checkpoint or two."""
        before = self.checkpoints(name)[-1]
        process = self.start("--resume", self.path(name), *arguments)

        def progressed():
            self.expect_running(process)
            return len([one for one in self.checkpoints(name) if one > before]) > 1

        self.wait_until(progressed, "new checkpoints")
        for pid in [process.pid, *job_test.processes_in(self.path(name))]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        output, _ = process.communicate(timeout=job_test.DEADLINE)
        self.wait_until(lambda: not job_test.processes_in(self.path(name)), "all processes to end")
        return output

    def go_on_until_stopped(self, name, *arguments):
        steps = self.newest(name)["step"]
        process = self.start("--resume", self.path(name), *arguments)

        def progressed():
            self.expect_running(process)
            return self.newest(name)["step"] > steps

        self.wait_until(progressed, "a new checkpoint")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=job_test.DEADLINE)
        self.assertEqual(process.returncode, 130, output)
        return output

    def rows(self, name):
        with open(self.path(name) + "/metrics.jsonl") as file:
            return [row for row in map(json.loads, file) if "train_loss" in row]

    def expect_continuous(self, name, step):
        """The first losses after the step are not worse than those before: nothing was forgotten."""
        rows = self.rows(name)
        before = [row["train_loss"] for row in rows if row["step"] <= step][-10:]
        after = [row["train_loss"] for row in rows if row["step"] > step][:10]
        self.assertLess(sum(after) / len(after), 1.3 * sum(before) / len(before) + 0.05, f"at step {step}")

    def expect_audit(self, name, epochs, dropped=False):
        audit = self.summary(name)["samples"]
        self.assertEqual(audit["applied"], epochs * SAMPLES)
        self.assertEqual(audit["leased"], audit["applied"] + audit["dropped"])
        self.assertEqual((audit["lost"], audit["duplicated"]), (0, 0))
        if not dropped:
            self.assertEqual(audit["dropped"], 0)


class Matrix(ResumeTest):
    def test_two_workers_then_servers_then_a_pipeline_then_one_process(self):
        transport = ["--transport", "mpi" if "mpi" in job_test.TRANSPORTS and not job_test.MPICH else "socket"]
        self.train(*self.recipe("run", "--algorithm", "allreduce", "--workers", "2", *transport, "--epochs", "1"))
        places = []
        places.append(self.newest("run")["step"])
        output = self.go_on_until_killed("run", "--algorithm", "downpour", "--workers", "4", "--servers", "2", "--n-push",
                                         "2", "--n-fetch", "2", "--batch", "15", "--epochs", "4000")
        self.assertIn("algorithm downpour (allreduce before), workers 4 (2), servers 2", output)
        self.assertNotIn("begins anew", output)
        places.append(self.newest("run")["step"])
        output = self.go_on_until_stopped("run", "--algorithm", "allreduce", "--stages", "2", "--batch", "30")
        self.assertIn("algorithm allreduce (downpour before), workers 2 (4), stages 2", output)
        places.append(self.newest("run")["step"])
        epochs = self.epochs_to_end_with("run", "--algorithm", "local")
        output = self.train("--resume", self.path("run"), "--algorithm", "local", "--epochs", str(epochs))
        self.assertIn("algorithm local (allreduce before)", output)
        self.expect_audit("run", epochs)
        for place in places:
            self.expect_continuous("run", place)
        steps = [row["step"] for row in self.rows("run")]
        self.assertEqual(steps, sorted(steps))
        self.assertGreater(self.summary("run")["test_accuracy"], 0.9)
        self.expect_nothing_left("run")

    def test_every_kind_goes_on_from_every_other_after_everything_was_killed(self):
        seed = int(os.environ.get("DISTBELIEF_TEST_SEED", "1"))
        order = sorted(KINDS)
        random.Random(seed).shuffle(order)
        self.train(*self.recipe("run", "--algorithm", "local", "--epochs", "1"))
        places = {}
        for kind in order:
            with self.subTest(kind=kind, order=order):
                places[kind] = self.newest("run")["step"]
                self.go_on_until_killed("run", *self.as_kind(kind), "--epochs", "4000")
        epochs = self.epochs_to_end_with("run", "--algorithm", "local")
        self.train("--resume", self.path("run"), "--algorithm", "local", "--epochs", str(epochs))
        self.expect_audit("run", epochs, dropped=True)
        for kind, place in places.items():
            self.expect_continuous("run", place)

    def test_the_optimizers_state_stays_unless_it_is_another(self):
        self.train(*self.recipe("run", "--algorithm", "async", "--workers", "2", "--servers", "2", *PLACES["threads"],
                                "--epochs", "1"))
        shutil.copytree(self.path("run"), self.path("other"))
        output = self.train("--resume", self.path("run"), "--epochs", "2", "--servers", "3")
        self.assertIn("servers 3 (2 before)", output)
        self.assertNotIn("begins anew", output)
        output = self.train("--resume", self.path("other"), "--epochs", "2", "--optimizer", "adam", "--momentum", "-1",
                            "--lr", "0.002")
        self.assertIn("the optimizer's state begins anew", output)
        for name in ("run", "other"):
            self.expect_audit(name, 2)

    def test_one_worker_and_servers_go_on_to_the_bits_of_one_process(self):
        """Momentum, statistics and the place in the epoch all travel: a run that changes its kind has the same model."""
        more = ["--momentum", "0.9", "--schedule", "cosine", "--epochs", "3", "--checkpoint-every", "20", "--set",
                "thread-mode=kernels"]
        served = ["--algorithm", "async", "--workers", "1", *PLACES["threads"]]
        self.train(*self.small("whole", samples=9000), *more)
        for name, kinds in {"there": [["--algorithm", "local"], [*served, "--servers", "2"]],
                            "back": [[*served, "--servers", "3"], ["--algorithm", "local"]],
                            "servers": [[*served, "--servers", "1"], [*served, "--servers", "4"]]}.items():
            with self.subTest(name):
                process = self.start(*self.small(name, samples=9000), *more, *kinds[0], "--chaos",
                                     "slow worker 0 x40 from step 50")
                self.wait_until(lambda: len(self.checkpoints(name)) > 2, "checkpoints")
                process.send_signal(signal.SIGINT)
                output, _ = process.communicate(timeout=job_test.DEADLINE)
                self.assertEqual(process.returncode, 130, output)
                self.train("--resume", self.path(name), "--chaos", "", *kinds[1])
                self.assertEqual(self.summary(name)["threads"], 1)
                self.assertEqual(self.model(name), self.model("whole"))
                self.expect_every_sample_once(name, 27000)


class Unwritable(ResumeTest):
    def test_jobs_go_on_without_checkpoints_and_say_so(self):
        for kind in ("allreduce", "async", "stages"):
            with self.subTest(kind):
                process = self.start(*self.recipe(kind, *KINDS[kind], "--transport", "socket", "--epochs", "40"))
                self.wait_until(lambda: self.checkpoints(kind), "a checkpoint")
                folder = self.path(kind) + "/checkpoints"
                mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", folder], capture_output=True)
                if mounted.returncode != 0:
                    self.skipTest("mounting a file system is not permitted here")
                self.addCleanup(subprocess.run, ["umount", "-l", folder], capture_output=True)
                output, _ = process.communicate(timeout=job_test.DEADLINE)
                subprocess.run(["umount", "-l", folder], check=True)
                self.assertEqual(process.returncode, 0, output)
                self.assertEqual(output.count("training goes on, the one before stays"), 1, output)
                self.assertGreater(self.summary(kind)["failed_checkpoints"], 0)
                self.expect_audit(kind, 40)
                self.assertTrue(self.checkpoints(kind))  # from before
                self.expect_nothing_left(kind)


class Refusals(ResumeTest):
    def expect_refusal(self, name, says, *arguments):
        before = job_test.files_of(self.path(name))
        output = self.train("--resume", self.path(name), *arguments, code=2)
        self.assertEqual(len(output.strip().splitlines()), 1, output)
        self.assertIn(says, output)
        self.assertEqual(job_test.files_of(self.path(name)), before)

    def test_threads_that_the_program_chose_do_not_stand_in_the_way(self):
        self.train(*self.recipe("run", "--algorithm", "local", "--epochs", "1"))
        path = self.path("run") + "/run.yaml"
        with open(path) as file:
            text = re.sub(r"\nthread-mode: \w+\n", "\nthread-mode: lanes\n", file.read())
        with open(path, "w") as file:
            file.write(re.sub(r"\nthreads: \d+\n", f"\nthreads: {os.cpu_count() + 1}\n", text))  # as on a larger machine
        cut = ["--algorithm", "allreduce", "--stages", "2", "--workers", "2", "--transport", "socket"]
        self.train("--resume", self.path("run"), "--epochs", "2", *cut)
        self.assertLessEqual(self.summary("run")["threads"], os.cpu_count())
        self.train("--resume", self.path("run"), "--epochs", "3", "--algorithm", "async", "--workers", "3", "--servers", "2",
                   "--stages", "1", "--tensor", "1", "--threads", "1")
        self.train("--resume", self.path("run"), "--epochs", "4", "--algorithm", "local")
        self.assertLessEqual(self.summary("run")["threads"], os.cpu_count())
        self.expect_every_sample_once("run", 4 * SAMPLES)

    def test_what_belongs_to_a_run_does_not_change(self):
        self.train(*self.recipe("run", "--algorithm", "async", "--workers", "2", "--servers", "2", *PLACES["threads"],
                                "--epochs", "1"))
        for arguments in ([], ["--algorithm", "allreduce"], ["--algorithm", "local"]):
            with self.subTest(arguments=arguments):
                more = ["--epochs", "2", *arguments]
                self.expect_refusal("run", "its checkpoints are of --seed 1, not 2: it decides", *more, "--seed", "2")
                self.expect_refusal("run", "its checkpoints are of --validation 0, not 0.1", *more, "--validation", "0.1")
        self.expect_refusal("run", "its checkpoints are of --algorithm async, not sandblaster: an iteration of L-BFGS is no "
                            "epoch; begin anew with its weights", "--algorithm", "sandblaster", "--iterations", "2")
        self.expect_refusal("run", "its checkpoints are of a model with other parameters", "--epochs", "2",
                            "--model-options", "hidden=33")

    def test_a_run_none_of_whose_checkpoints_is_sound_is_refused_before_processes_are_started(self):
        self.train(*self.recipe("run", "--algorithm", "local", "--threads", "1", "--epochs", "2"))
        newest = self.checkpoints("run")[-1]
        for name in self.checkpoints("run"):
            victim = os.path.join(self.path("run"), "checkpoints", name, "values.safetensors")
            with open(victim, "r+b") as file:
                file.truncate(1)
        jobs = {"one": ["--algorithm", "local"],
                "several": ["--algorithm", "allreduce", "--workers", "2", "--transport", "socket"],
                "threads": ["--algorithm", "allreduce", "--workers", "2", "--transport", "threads"],
                "servers": ["--algorithm", "async", "--workers", "2", "--servers", "1", "--transport", "socket"]}
        for name, job in jobs.items():
            with self.subTest(name):
                process = self.start("--resume", self.path("run"), "--epochs", "4", *job)
                output, errors = process.communicate(timeout=job_test.DEADLINE)
                said = (output + (errors or "")).splitlines()
                self.assertEqual(process.returncode, 2, said)
                self.assertIn("checkpoints: none of its checkpoints can be used; the newest: ", said[-1])
                self.assertEqual([" cannot be used: " in line for line in said], [True] * (len(said) - 1) + [False], said)
                self.assertIn(newest, said[0])
        self.assertFalse(os.path.exists(os.path.join(self.path("run"), "logs")))

    def test_damaged_checkpoints_of_servers_and_of_parts_are_named_and_the_one_before_used(self):
        for name, kind in {"servers": KINDS["async"], "stages": KINDS["stages"]}.items():
            with self.subTest(name):
                self.train(*self.recipe(name, *kind, *PLACES["threads"], "--epochs", "2"))
                newest, before = self.checkpoints(name)[-1], self.checkpoints(name)[-2]
                victim = os.path.join(self.path(name), "checkpoints", newest,
                                      "server-1.bin" if name == "servers" else "state.safetensors")
                with open(victim, "r+b") as file:
                    file.truncate(os.path.getsize(victim) - 1)
                output = self.train("--resume", self.path(name), "--epochs", "14", "--algorithm", "local")
                self.assertRegex(output, rf"{newest} cannot be used: .*{os.path.basename(victim)}")
                self.assertIn(f"resume  at step {int(before.split('-')[1])},", output)
                self.expect_audit(name, 14)


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
