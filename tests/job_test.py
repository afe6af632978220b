"""Jobs of several processes: real processes, real kills, real clocks with deadlines.

job_test.py PROGRAM    the distbelief executable

DISTBELIEF_TEST_MPI=mpich says that it was built with MPICH instead of Open MPI. DISTBELIEF_TEST_TRANSPORTS ("threads
socket mpi") says over which of them.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from test_main import main

PROGRAM = None
DEADLINE = 240  # seconds for a whole job, on a machine that does much else
CHOSEN = os.environ.get("DISTBELIEF_TEST_TRANSPORTS", "threads socket mpi").split()
TRANSPORTS = [transport for transport in ("threads", "socket", "mpi") if transport in CHOSEN]
MPICH = os.environ.get("DISTBELIEF_TEST_MPI") == "mpich"
# Where a worker's death leaves the others alive: MPICH mostly ends them too, and the program says so at the start.
SURVIVABLE = ["socket"] if MPICH else [transport for transport in ("socket", "mpi") if transport in CHOSEN]
# Every algorithm of a job, with its choices; and those whose bits do not depend on timing.
ALGORITHMS = {
    "allreduce": ["--algorithm", "allreduce"],
    "sync": ["--algorithm", "sync"],
    "averaging": ["--algorithm", "averaging", "--average-every", "7"],
    "averaging-end": ["--algorithm", "averaging", "--average-every", "end"],
    "gossip": ["--algorithm", "gossip"],
}
REPEATABLE = {**ALGORITHMS, "gossip": ["--algorithm", "gossip", "--gossip-quorum", "2"]}


def files_of(folder):
    """{path: (size, when written)} of all files below a folder."""
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            status = os.stat(os.path.join(root, name))
            found[os.path.join(root, name)] = (status.st_size, status.st_mtime_ns)
    return found


def processes_in(folder):
    """Pids and command lines of all processes that mention the folder, but for this one."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if folder.encode() in words and os.path.exists(f"/proc/{name}/exe"):
            found[int(name)] = words
    return found


def workers_in(folder):
    """Pids of the worker processes of a job, in the order in which they were started."""
    return sorted(pid for pid, words in processes_in(folder).items()
                  if b"worker" in words and not words[0].startswith(b"mpi"))


class JobTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.started = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def path(self, name):
        return os.path.join(self.scratch.name, name)

    def start(self, *arguments):
        process = subprocess.Popen([PROGRAM, "train", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, env={**os.environ, "TMPDIR": self.scratch.name, "XDG_CACHE_HOME": self.path("cache")})
        self.started.append(process)
        return process

    def train(self, *arguments, code=0):
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, code, output)
        return output

    def small(self, name, *more, samples=1500, batch=30, noise=6):
        return ["--model", "mlp", "--model-options", "hidden=32", "--data",
                f"synthetic:classes=4,shape=1x12x12,samples={samples},seed=3,noise={noise}", "--batch", str(batch), "--out",
                self.path(name), "--log-every", "1", "--set", "threads=1", *more]

    def summary(self, name):
        with open(self.path(name) + "/summary.json") as file:
            return json.load(file)

    def losses(self, name):
        with open(self.path(name) + "/metrics.jsonl") as file:
            rows = [json.loads(line) for line in file]
        return [row["train_loss"] for row in rows if "train_loss" in row]

    def model(self, name):
        with open(self.path(name) + "/model.safetensors", "rb") as file:
            return file.read()

    def epochs_begun(self, name):
        """The least --epochs with which the run can go on from its newest checkpoint, as a word."""
        folder = self.path(name) + "/checkpoints"
        steps = sorted(step for step in os.listdir(folder) if step.startswith("step-")) if os.path.isdir(folder) else []
        if not steps:
            return "1"
        with open(os.path.join(folder, steps[-1], "manifest.json")) as file:
            return str(json.load(file)["epoch"] + 1)

    def wait_until(self, condition, what):
        deadline = time.monotonic() + DEADLINE
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"waited in vain for {what}")
            time.sleep(0.01)

    def logs(self):
        text = ""
        for folder, _, files in os.walk(self.scratch.name):
            for name in files:
                if name.endswith(".log"):
                    with open(os.path.join(folder, name), errors="replace") as file:
                        text += f"\n--- {os.path.join(folder, name)}\n{file.read()}"
        return text

    def expect_running(self, process):
        if process.poll() is not None:
            self.fail(f"the job ended early, with {process.returncode}:\n{process.communicate()[0]}{self.logs()}")

    def wait_for_steps(self, name, process):
        metrics = self.path(name) + "/metrics.jsonl"

        def stepped():
            self.expect_running(process)
            return os.path.exists(metrics) and os.path.getsize(metrics) > 500

        self.wait_until(stepped, "a few steps")

    def wait_for_more_steps(self, name, count=8):
        size = os.path.getsize(self.path(name) + "/metrics.jsonl")
        self.wait_until(lambda: os.path.getsize(self.path(name) + "/metrics.jsonl") > size + 150 * count, "more steps")

    def line_with(self, process, text):
        """The next line of its output that has this in it."""
        seen = []
        overdue = threading.Timer(DEADLINE, process.kill)
        overdue.start()
        try:
            while not seen or text not in seen[-1]:
                seen.append(process.stdout.readline())
                self.assertNotEqual(seen[-1], "", "".join(seen))
        finally:
            overdue.cancel()
        return seen[-1]

    def expect_every_sample_once(self, name, samples):
        audit = self.summary(name)["samples"]
        self.assertEqual(audit, {"leased": samples, "applied": samples, "dropped": 0, "lost": 0, "duplicated": 0}, name)

    def expect_nothing_left(self, name):
        folder = self.path(name)
        self.wait_until(lambda: not processes_in(folder), f"processes of {name} to end: {processes_in(folder)}")
        self.assertFalse(os.path.exists(folder + "/job.json"))


class Impatience(JobTest):
    def test_a_second_ctrl_c_ends_a_job_that_cannot_stop(self):
        process = self.start(*self.small("run"), "--epochs", "50", "--algorithm", "allreduce", "--workers", "2", "--transport",
                             "socket", "--chaos", "cut link 0-1 at step 30")
        self.wait_for_steps("run", process)

        def reached_the_cut():
            with open(self.path("run") + "/metrics.jsonl") as file:
                return file.read().count("\n") >= 29

        self.wait_until(reached_the_cut, "the step before the cut")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)  # another one: two of the same may be taken for one
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertNotEqual(process.returncode, 0, output)
        self.assertIn("stopped at once", output)
        self.assertIn("--resume", output)
        self.expect_nothing_left("run")


class Equality(JobTest):
    def test_workers_give_the_losses_of_one_process(self):
        self.train(*self.small("one"), "--epochs", "1")
        alone = self.losses("one")[:20]
        for workers in (1, 2, 3, 4):
            name = f"team{workers}"
            self.train(*self.small(name), "--epochs", "1", "--algorithm", "allreduce", "--workers", str(workers),
                       "--transport", "threads")
            for found, wanted in zip(self.losses(name), alone, strict=False):
                self.assertAlmostEqual(found, wanted, delta=1e-4 * wanted)

    def test_every_transport_gives_the_same_bits(self):
        for case, options in REPEATABLE.items():
            models = []
            for transport in TRANSPORTS:
                name = f"{case}-{transport}"
                self.train(*self.small(name), "--epochs", "1", "--workers", "3", "--transport", transport, *options)
                models.append(self.model(name))
                self.expect_every_sample_once(name, 1500)
                self.expect_nothing_left(name)
            self.assertTrue(all(model == models[0] for model in models), case)

    def test_gossip_uses_every_sample_once_at_any_quorum_over_every_transport(self):
        for transport in TRANSPORTS:
            for quorum in ("0", "1"):
                name = f"{transport}{quorum}"
                self.train(*self.small(name), "--epochs", "2", "--algorithm", "gossip", "--gossip-quorum", quorum,
                           "--workers", "3", "--transport", transport)
                self.expect_every_sample_once(name, 2 * 1500)
                self.expect_nothing_left(name)

    def test_workers_that_do_not_divide_the_samples_use_each_of_them_once(self):
        for algorithm, options in ALGORITHMS.items():
            self.train(*self.small(algorithm, samples=1001, batch=64), "--epochs", "2", "--workers", "3", "--transport",
                       "threads", *options)
            self.expect_every_sample_once(algorithm, 2 * 1001)

    def test_accumulation_gives_the_losses_of_whole_batches(self):
        self.train(*self.small("one"), "--epochs", "1")
        alone = self.losses("one")[:20]
        for algorithm in ("local", "allreduce", "sync"):
            workers = "1" if algorithm == "local" else "2"
            self.train(*self.small(algorithm), "--epochs", "1", "--algorithm", algorithm, "--workers", workers,
                       "--transport", "threads", "--accumulate", "4")
            for found, wanted in zip(self.losses(algorithm), alone, strict=False):
                self.assertAlmostEqual(found, wanted, delta=1e-4 * wanted)

    def test_summary_says_both_batches(self):
        for algorithm, options in ALGORITHMS.items():
            self.train(*self.small(algorithm), "--epochs", "1", "--workers", "3", "--transport", "threads", *options)
            summary = self.summary(algorithm)
            wanted = (30, 10) if algorithm in ("allreduce", "sync") else (90, 30)
            self.assertEqual((summary["batch"], summary["batch_per_worker"]), wanted, algorithm)
        self.train(*self.small("local"), "--epochs", "1")
        self.assertEqual((self.summary("local")["batch"], self.summary("local")["batch_per_worker"]), (30, 30))


class Deaths(JobTest):
    def checkpoints(self, name):
        """Folders of whole checkpoints, the newest last."""
        folder = self.path(name) + "/checkpoints"
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return sorted(os.path.join(folder, entry) for entry in names if entry.startswith("step-"))

    def test_when_all_are_killed_every_algorithm_resumes_and_uses_every_sample_once(self):
        for transport in SURVIVABLE:
            for algorithm, options in ALGORITHMS.items():
                name = f"{algorithm}-{transport}"
                process = self.start(*self.small(name), "--epochs", "2000", "--checkpoint-every", "10", "--workers",
                                     "3", "--transport", transport, *options)
                self.wait_for_steps(name, process)
                self.wait_until(lambda: self.checkpoints(name), "a checkpoint")
                for pid in workers_in(self.path(name)):
                    os.kill(pid, signal.SIGKILL)
                output, _ = process.communicate(timeout=DEADLINE)
                self.assertEqual(process.returncode, 4, output)
                self.assertIn("--resume", output)
                self.expect_nothing_left(name)
                summary = self.summary(name)
                self.assertEqual(summary["status"], "lost")
                self.assertRegex(summary["problem"], r"^(worker \d|mpirun) \(pid ")
                self.assertGreater(summary["steps"], 0)
                with open(self.checkpoints(name)[-1] + "/manifest.json") as file:
                    epochs = json.load(file)["epoch"] + 1
                self.train("--resume", self.path(name), "--epochs", str(epochs))
                self.expect_every_sample_once(name, epochs * 1500)

    def test_a_loss_that_is_not_finite_stops_every_algorithm(self):
        for transport in ("socket", "mpi"):
            for algorithm, options in ALGORITHMS.items():
                name = f"{algorithm}-{transport}"
                output = self.train(*self.small(name), "--epochs", "20", "--lr", "1e20", "--workers", "3",
                                    "--transport", transport, *options, code=3)
                self.assertRegex(output, "not finite|the loss is")
                self.assertEqual(self.summary(name)["status"], "diverged")
                self.expect_nothing_left(name)

    @unittest.skipUnless(MPICH, "the program was built with Open MPI")
    def test_under_mpich_the_program_names_the_dead_and_all_end_or_the_others_go_on(self):
        process = self.start(*self.small("run"), "--epochs", "100000", "--checkpoint-every", "10", "--workers", "3",
                             "--algorithm", "allreduce", "--transport", "mpi")
        self.wait_until(lambda: self.checkpoints("run"), "a checkpoint")
        pid = workers_in(self.path("run"))[1]
        os.kill(pid, signal.SIGKILL)
        output = ""
        for line in process.stdout:
            output += line
            if "2 workers go on after step" in line:  # MPICH mostly ends them too
                process.send_signal(signal.SIGINT)
        process.wait(timeout=DEADLINE)
        self.assertEqual(process.returncode, 130 if "2 workers go on after step" in output else 4, output)
        self.assertIn("note    when a worker dies MPICH", output)
        self.assertIn(f"pid {pid}", output)
        self.expect_nothing_left("run")
        self.train("--resume", self.path("run"), "--epochs", self.epochs_begun("run"))

    def test_ctrl_c_stops_all_and_resume_goes_on_bit_for_bit(self):
        self.train(*self.small("whole"), "--epochs", "40", "--algorithm", "allreduce", "--workers", "2", "--transport",
                   "socket")
        process = self.start(*self.small("parts"), "--epochs", "40", "--algorithm", "allreduce", "--workers", "2",
                             "--transport", "socket")
        self.wait_for_steps("parts", process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertIn(process.returncode, (0, 130), output)  # 0: it had finished before the signal came
        self.expect_nothing_left("parts")
        if process.returncode == 130:
            self.train("--resume", self.path("parts"))
        self.assertEqual(self.model("parts"), self.model("whole"))
        self.assertEqual(self.losses("parts"), self.losses("whole"))

    def test_ctrl_c_stops_every_algorithm_and_resume_uses_every_sample_once(self):
        for algorithm, options in ALGORITHMS.items():
            process = self.start(*self.small(algorithm), "--epochs", "2000", "--workers", "3", "--transport", "socket",
                                 *options)
            self.wait_for_steps(algorithm, process)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=DEADLINE)
            self.assertEqual(process.returncode, 130, output)
            self.expect_nothing_left(algorithm)
            with open(self.checkpoints(algorithm)[-1] + "/manifest.json") as file:
                epochs = json.load(file)["epoch"] + 1
            self.train("--resume", self.path(algorithm), "--epochs", str(epochs))
            self.expect_every_sample_once(algorithm, epochs * 1500)

    def test_when_the_launcher_is_killed_all_end_and_resume_works(self):
        for transport in ("socket", "mpi"):
            process = self.start(*self.small(transport), "--epochs", "2000", "--checkpoint-every", "5", "--algorithm",
                                 "allreduce", "--workers", "2", "--transport", transport)
            self.wait_for_steps(transport, process)
            process.kill()
            process.communicate()
            killed = time.monotonic()
            folder = self.path(transport)
            self.wait_until(lambda: not processes_in(folder), f"all processes to end: {processes_in(folder)}")
            self.assertLess(time.monotonic() - killed, 10)
            self.assertFalse(os.path.exists(folder + "/job.json"))
            self.train("--resume", folder, "--epochs", self.epochs_begun(transport))


class Folder(JobTest):
    def test_one_job_at_a_time_works_in_a_folder(self):
        for transport in TRANSPORTS:
            with self.subTest(transport=transport):
                process = self.start(*self.small(transport, "--algorithm", "allreduce", "--workers", "2", "--transport",
                                                 transport, "--epochs", "100000"))
                self.wait_for_steps(transport, process)
                folder = self.path(transport)
                with open(folder + "/run.yaml") as file:
                    config = file.read()
                told = self.train("--resume", folder, "--epochs", "7", code=2)
                self.assertIn(folder, told)
                self.assertEqual(told.count("\n"), 1, told)
                with open(folder + "/run.yaml") as file:
                    self.assertEqual(file.read(), config)
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=DEADLINE)
                self.assertEqual(process.returncode, 130)

    def test_a_finished_job_has_nothing_left_to_do(self):
        for name, words in {**ALGORITHMS, "downpour": ["--algorithm", "downpour"]}.items():
            with self.subTest(algorithm=name):
                self.train(*self.small(name, *words, "--workers", "2", "--transport", "threads", "--epochs", "2"))
                folder = self.path(name)
                before = files_of(folder)
                told = self.train("--resume", folder)
                self.assertEqual(told, f"the run in {folder} is finished after 2 epochs; more need --epochs\n")
                self.assertIn("expected --epochs 2 or more", self.train("--resume", folder, "--epochs", "1", code=2))
                self.assertEqual(files_of(folder), before)

    def test_other_data_is_refused_and_nothing_changed(self):
        for name, words in (("allreduce", []), ("downpour", ["--servers", "1"])):
            with self.subTest(algorithm=name):
                folder = self.path(name)
                self.train(*self.small(name, "--algorithm", name, *words, "--workers", "2", "--transport", "socket",
                                       "--epochs", "1"))
                before = files_of(folder)
                told = self.train("--resume", folder, "--epochs", "2", "--data",
                                  "synthetic:classes=4,shape=1x12x12,samples=900", code=2)
                self.assertRegex(told, r"^distbelief: [^\n]*has 900 samples to train on, where the run has 1500\n$")
                self.assertEqual(files_of(folder), before)
                self.train("--resume", folder, "--epochs", "2")

    def test_a_job_that_stops_early_says_so(self):
        for name, words in (("allreduce", []), ("downpour", ["--servers", "1"])):
            with self.subTest(algorithm=name):
                told = self.train(*self.small(name, "--algorithm", name, *words, "--workers", "2", "--transport", "socket",
                                              "--epochs", "100", "--validation", "0.2", "--early-stop", "2"))
                self.assertRegex(told, r"\nstopped early after epoch \d+: no better for 2 epochs; the model is that of "
                                       r"epoch \d+\n")
                before = files_of(self.path(name))
                self.assertIn("stopped early after", self.train("--resume", self.path(name)))
                self.assertEqual(files_of(self.path(name)), before)


class Beginnings(JobTest):
    def test_a_job_that_is_stopped_before_all_are_there_ends_at_once(self):
        with open(self.path("rsh"), "w") as file:
            file.write('#!/bin/sh\n[ "$1" = slow ] && exec sleep 1000\nshift\nexec "$@"\n')
        os.chmod(self.path("rsh"), 0o755)
        process = self.start(*self.small("run"), "--algorithm", "allreduce", "--hosts", "localhost:1,slow:1", "--rsh",
                             self.path("rsh"))
        coordinator = self.path("run") + "/logs/coordinator.log"

        def came():
            with open(coordinator) as file:
                return "worker 0 (pid " in file.read()

        self.wait_until(lambda: os.path.exists(coordinator) and came(), "the first worker")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 130, output)
        self.assertNotIn("lost", output)
        self.assertNotIn("in time", output)
        self.expect_nothing_left("run")


class ForeignLauncher(JobTest):
    """mpirun of the user's own."""

    LAUNCHER = (["mpiexec.hydra", "-bind-to", "none"] if MPICH else
                ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none"])

    def mpirun(self, *arguments):
        # Open MPI leaves memory of its own behind in MPI_Finalize, which a sanitized program would end with a 1 for.
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        environment = {**os.environ, "TMPDIR": self.scratch.name, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "ASAN_OPTIONS": sanitizer}
        return subprocess.run([*self.LAUNCHER, "-n", "2", PROGRAM, "train", *arguments], capture_output=True, text=True,
                              errors="replace", timeout=DEADLINE, env=environment)

    def test_ranks_are_workers_and_give_the_bits_of_our_own_job(self):
        result = self.mpirun(*self.small("foreign"), "--epochs", "1", "--algorithm", "allreduce")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("-disable-auto-cleanup" if MPICH else "--enable-recovery", result.stdout)
        self.train(*self.small("own"), "--epochs", "1", "--algorithm", "allreduce", "--workers", "2", "--transport",
                   "threads")
        self.assertEqual(self.model("foreign"), self.model("own"))
        self.expect_nothing_left("foreign")

    def test_a_finished_run_has_nothing_left_to_do(self):
        for transport in ("mpi", "socket"):
            with self.subTest(transport=transport):
                words = ["--algorithm", "allreduce", "--transport", transport]
                result = self.mpirun(*self.small(transport), "--epochs", "1", *words)
                self.assertEqual(result.returncode, 0, result.stderr)
                before = files_of(self.path(transport))
                result = self.mpirun("--resume", self.path(transport), *words)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stdout.count("is finished after 1 epoch; more need --epochs"), 1, result.stdout)
                self.assertEqual(files_of(self.path(transport)), before)

    def test_names_need_not_be_utf8(self):
        data = os.fsencode(self.path("")) + b"caf\xe9.csv"
        with open(data, "wb") as file:
            file.write(b"".join(b"%d,%d,%s\n" % (i % 4, i % 3, (b"th\xe9", b"bar")[i % 2]) for i in range(60)))
        result = self.mpirun("--model", "mlp", "--data", data, "--epochs", "1", "--batch", "10", "--out", self.path("run"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.summary("run")["status"], "finished")

    def test_wrong_input_is_told_once_and_ends_all_ranks(self):
        result = self.mpirun("--data", self.path("none.csv"), "--out", self.path("run"))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stderr.count("none.csv"), 1, result.stderr)
        self.assertFalse(os.path.exists(self.path("run")))

    def test_another_number_of_ranks_than_was_asked_for_is_refused(self):
        result = self.mpirun(*self.small("run"), "--algorithm", "allreduce", "--workers", "3")
        self.assertEqual(result.returncode, 2, result.stderr)
        said = "2 processes were started, but --workers 3 needs 3: start that many, or say --workers 2"
        self.assertEqual(result.stderr.count(said), 1, result.stderr)
        self.assertFalse(os.path.exists(self.path("run")))


class Cores(JobTest):
    def masks_when_training(self, name, *more):
        """Which cores each worker may use, when the job has made a step."""
        job = self.start(*self.small(name, *more), "--epochs", "1000", "--algorithm", "allreduce", "--workers", "2",
                         "--transport", "socket")
        deadline = time.monotonic() + DEADLINE
        while not os.path.exists(self.path(name) + "/metrics.jsonl") or not os.path.getsize(self.path(name) + "/metrics.jsonl"):
            self.assertIsNone(job.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        masks = [os.sched_getaffinity(pid) for pid in workers_in(self.path(name))]
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=DEADLINE)
        return masks

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "there is one core only")
    def test_workers_share_the_cores_out(self):
        first, second = self.masks_when_training("bound")
        self.assertFalse(first & second)
        self.assertEqual(first | second, os.sched_getaffinity(0))

    def test_bind_none_leaves_them_to_the_system(self):
        for mask in self.masks_when_training("free", "--bind", "none"):
            self.assertEqual(mask, os.sched_getaffinity(0))


class Status(JobTest):
    def test_shows_all_members(self):
        process = self.start(*self.small("run"), "--epochs", "2000", "--algorithm", "allreduce", "--workers", "2",
                             "--transport", "socket")
        self.wait_for_steps("run", process)
        status = subprocess.run([PROGRAM, "status", self.path("run")], capture_output=True, text=True, timeout=60)
        self.assertEqual(status.returncode, 0, status.stderr)
        self.assertEqual(status.stdout.count("worker"), 2, status.stdout)
        self.assertEqual(os.stat(self.path("run") + "/job.json").st_mode & 0o777, 0o600)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE)
        self.expect_nothing_left("run")

    def test_no_job_is_one_clear_line(self):
        os.mkdir(self.path("empty"))
        status = subprocess.run([PROGRAM, "status", self.path("empty")], capture_output=True, text=True, timeout=60)
        self.assertEqual(status.returncode, 2, status.stderr)
        self.assertEqual(status.stderr.count("\n"), 1)


class Tls(JobTest):
    def setUp(self):
        super().setUp()
        for name in ("ours", "theirs"):
            self.make_certificate(name)

    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)

    def make_certificate(self, name):
        at = self.path(name)
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout"]
        self.openssl("req", "-x509", *key, at + "-ca.key", "-out", at + "-ca.pem", "-days", "2", "-subj", "/CN=job")
        self.openssl("req", "-new", *key, at + ".key", "-out", at + ".csr", "-subj", "/CN=worker")
        self.openssl("x509", "-req", "-in", at + ".csr", "-CA", at + "-ca.pem", "-CAkey", at + "-ca.key",
                     "-CAcreateserial", "-days", "2", "-out", at + ".pem")

    def files(self, cert="ours.pem", key="ours.key", ca="ours-ca.pem"):
        return ["--tls-cert", self.path(cert), "--tls-key", self.path(key), "--tls-ca", self.path(ca)]

    def test_a_job_with_tls_gives_the_bits_of_one_without(self):
        shape = ["--epochs", "1", "--algorithm", "allreduce", "--workers", "2"]
        self.train(*self.small("plain"), *shape, "--transport", "threads")
        self.train(*self.small("tls"), *shape, *self.files())  # auto is socket then
        self.assertEqual(self.model("tls"), self.model("plain"))
        output = self.train(*self.small("mpi"), *shape, *self.files(), "--transport", "mpi")
        self.assertIn("MPI does not encrypt", output)
        self.expect_nothing_left("tls")

    def test_status_needs_the_certificates(self):
        process = self.start(*self.small("run"), "--epochs", "2000", "--algorithm", "allreduce", "--workers", "2",
                             *self.files())
        self.wait_for_steps("run", process)
        with open(self.path("run") + "/job.json") as file:
            job = json.load(file)
        with open(self.path("token"), "w") as file:
            file.write(job["token"])
        address = [job["address"].removeprefix("tcp:"), "--token-file", self.path("token")]

        def status(*arguments):
            return subprocess.run([PROGRAM, "status", *arguments], capture_output=True, text=True, timeout=60)

        for arguments in ([self.path("run")], [*address, *self.files()]):
            shown = status(*arguments)
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertEqual(shown.stdout.count("worker"), 2, shown.stdout)
        strange = status(*address, *self.files("theirs.pem", "theirs.key", "theirs-ca.pem"))
        self.assertEqual(strange.returncode, 1, strange.stderr)
        self.assertIn("certificate", strange.stderr)
        self.assertNotEqual(status(*address).returncode, 0)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE)
        self.expect_nothing_left("run")

    def test_files_that_do_not_fit_are_one_line_each(self):
        for files, words in ((self.files(ca="theirs-ca.pem"), ["ours.pem", "theirs-ca.pem"]),
                             (self.files(key="theirs.key"), ["theirs.key"]),
                             (self.files(cert="none.pem"), ["none.pem"]),
                             (self.files()[:4], ["--tls-ca is missing"])):
            output = self.train(*self.small("run"), "--algorithm", "allreduce", "--workers", "2", *files, code=2)
            self.assertEqual(output.count("\n"), 1, output)
            for word in words:
                self.assertIn(word, output)
            self.assertFalse(os.path.exists(self.path("run")))


class BadInput(JobTest):
    def refused(self, *arguments):
        """The one line that says why."""
        output = self.train(*self.small("run"), "--algorithm", "gossip", "--workers", "3", *arguments, code=2)
        self.assertEqual(output.count("\n"), 1, output)
        self.assertFalse(os.path.exists(self.path("run")))
        return output

    def test_a_quorum_of_more_than_the_others_is_refused(self):
        self.assertIn("only 2 others", self.refused("--gossip-quorum", "3"))

    def test_more_parts_than_samples_are_refused(self):
        self.assertIn("only 30 samples", self.refused("--accumulate", "31"))

    def test_averages_that_make_no_sense_are_refused(self):
        self.assertIn("epoch or end", self.refused("--average-every", "0"))
        self.assertIn("--average-every", self.refused("--average-every", "end", "--outer-optimizer", "sgd"))

    def test_hosts_that_do_not_fit_are_refused_before_anything_runs(self):
        for arguments, word in ((["--hosts", "a:2,b:2", "--workers", "3"], "has places for 4"),
                                (["--hosts", "a:two"], "'a:two'"),
                                (["--hosts", self.path("none.txt")], "no such file"),
                                (["--hosts", "a", "--transport", "threads"], "one machine")):
            output = self.train(*self.small("run"), "--algorithm", "allreduce", *arguments, code=2)
            self.assertEqual(output.count("\n"), 1, output)
            self.assertIn(word, output)
            self.assertFalse(os.path.exists(self.path("run")))

    def test_local_with_many_workers_is_refused(self):
        output = self.train(*self.small("run"), "--workers", "2", code=2)
        self.assertIn("allreduce", output)
        self.assertFalse(os.path.exists(self.path("run")))

    def test_wrong_data_is_refused_before_anything_runs(self):
        output = self.train("--data", self.path("none.csv"), "--workers", "2", "--algorithm", "allreduce", "--out",
                            self.path("run"), code=2)
        self.assertEqual(output.count("\n"), 1, output)
        self.assertFalse(os.path.exists(self.path("run")))


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
