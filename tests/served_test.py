"""Jobs with parameter servers: real processes, real kills.

served_test.py PROGRAM    the distbelief executable

DISTBELIEF_TEST_TRANSPORTS ("threads socket mpi") says over which of them.
"""

import json
import os
import random
import re
import shutil
import signal
import struct
import sys
import tempfile

import job_test
from job_test import processes_in
from test_main import main

TRANSPORTS = job_test.TRANSPORTS
SURVIVABLE = [transport for transport in job_test.SURVIVABLE if transport in TRANSPORTS]
# Every algorithm whose parameters are with servers, with its choices.
ALGORITHMS = {
    "async": ["--algorithm", "async"],
    "downpour": ["--algorithm", "downpour", "--n-push", "2", "--n-fetch", "3"],
    "softsync": ["--algorithm", "softsync", "--n", "2", "--warm-start", "20"],
    "backup": ["--algorithm", "sync", "--backup-workers", "1"],
    "bounded": ["--algorithm", "async", "--max-staleness", "1"],
    "adaptive": ["--algorithm", "downpour", "--adaptive", "on"],
    "hogwild": ["--algorithm", "downpour", "--n-push", "4", "--n-fetch", "4", "--thread-mode", "hogwild", "--threads", "2"],
    "downpour-prefetch": ["--algorithm", "downpour", "--n-push", "3", "--n-fetch", "1", "--prefetch", "on"],
}


# Those that refuse gradients which come late.
DROPPING = {"backup", "bounded"}


class ServedTest(job_test.JobTest):
    def expect_every_sample_once(self, name, samples):
        """What was dropped was handed out once more."""
        audit = self.summary(name)["samples"]
        dropped = audit["dropped"] if name.split("-")[0] in DROPPING else 0
        self.assertEqual(audit, {"leased": samples + dropped, "applied": samples, "dropped": dropped, "lost": 0,
                                 "duplicated": 0}, name)

    def checkpoints(self, name):
        folder = os.path.join(self.path(name), "checkpoints")
        return sorted(entry for entry in os.listdir(folder) if entry.startswith("step-")) if os.path.isdir(folder) else []

    def epochs_to_end_with(self, name, *more):
        """One more than any worker has begun, which may be many more than are evaluated."""
        with tempfile.TemporaryDirectory() as folder:  # if it is one, the run goes on
            shutil.copytree(self.path(name), folder, dirs_exist_ok=True)
            process = self.start("--resume", folder, "--epochs", "1", *more)
            output, _ = process.communicate(timeout=job_test.DEADLINE)
        least = re.search(r"expected --epochs (\d+) or more", output)
        self.assertEqual(process.returncode, 2 if least else 0, output)
        return int(least[1]) + 1 if least else 2

    def kill_after_checkpoints(self, name, process):
        """Kills every process of the job when there are two. The epoch that the last is of."""
        self.wait_until(lambda: len(self.checkpoints(name)) > 1, "two checkpoints")
        pids = [process.pid, *processes_in(self.path(name))]
        for what in (signal.SIGSTOP, signal.SIGKILL):  # at once: nobody takes over from those that died a little earlier
            for pid in pids:
                os.kill(pid, what)
        process.communicate(timeout=job_test.DEADLINE)
        self.wait_until(lambda: not processes_in(self.path(name)), "all processes to end")
        with open(os.path.join(self.path(name), "checkpoints", self.checkpoints(name)[-1], "manifest.json")) as file:
            return json.load(file)["epoch"]


class WitnessTest(ServedTest):
    """A model that counts: sample i alone has feature i, so that its weight tells how often its gradient was applied."""
    SAMPLES, BATCH, RATE = 2048, 16, 2.0 ** -10
    SERVERS = "2"
    # Of those that make an update of each push: in a mean of several, a gradient counts for less.
    ALGORITHMS = ("async", "bounded", "adaptive", "downpour", "hogwild")

    def recipe(self, name, algorithm):
        with open(self.path("data.libsvm"), "w") as file:
            file.writelines(f"{i % 2} {i + 1}:1\n" for i in range(self.SAMPLES))
        header = json.dumps({"output.weight": {"dtype": "F32", "shape": [self.SAMPLES, 2],
                                               "data_offsets": [0, 8 * self.SAMPLES]}}).encode()
        with open(self.path("zeros.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + bytes(8 * self.SAMPLES))
        return ["--model", "svm", "--data", self.path("data.libsvm"), "--init", self.path("zeros.safetensors"), "--batch",
                str(self.BATCH), "--lr", str(self.RATE), "--divergence-guard", "off", "--set", "threads=1", "--workers", "3",
                "--servers", self.SERVERS, "--transport", "socket", "--out", self.path(name), *ALGORITHMS[algorithm]]

    def expect_counts(self, name, epochs):
        content = self.model(name)
        length = struct.unpack("<Q", content[:8])[0]
        begin, end = json.loads(content[8:8 + length])["output.weight"]["data_offsets"]
        weights = struct.unpack(f"<{(end - begin) // 4}f", content[8 + length + begin:8 + length + end])
        self.assertEqual({abs(weight) * self.BATCH / self.RATE for weight in weights}, {epochs}, name)


class Witness(WitnessTest):
    def test_each_gradient_enters_once_though_workers_are_slow_and_die(self):
        for algorithm in self.ALGORITHMS:
            with self.subTest(algorithm=algorithm):
                self.train(*self.recipe(algorithm, algorithm), "--epochs", "6", "--chaos",
                           "slow worker 0 x20 from step 10; kill worker 1 at 30%")
                self.expect_every_sample_once(algorithm, 6 * self.SAMPLES)
                self.expect_counts(algorithm, 6)

    def test_each_gradient_enters_once_though_everything_was_killed(self):
        for algorithm in self.ALGORITHMS:
            with self.subTest(algorithm=algorithm):
                process = self.start(*self.recipe(algorithm, algorithm), "--epochs", "4000", "--checkpoint-every", "50",
                                     "--log-every", "1")
                self.kill_after_checkpoints(algorithm, process)
                epochs = self.epochs_to_end_with(algorithm)
                self.train("--resume", self.path(algorithm), "--epochs", str(epochs))
                self.expect_every_sample_once(algorithm, epochs * self.SAMPLES)
                self.expect_counts(algorithm, epochs)


class Algorithms(ServedTest):
    def test_each_trains_over_each_transport_and_every_sample_is_applied_once(self):
        for transport in TRANSPORTS:
            for algorithm, choices in ALGORITHMS.items():
                with self.subTest(transport=transport, algorithm=algorithm):
                    name = f"{algorithm}-{transport}"
                    self.train(*self.small(name, noise=1), *choices, "--workers", "3", "--servers", "2",
                               "--epochs", "3", "--transport", transport)
                    summary = self.summary(name)
                    self.assertEqual(summary["status"], "finished")
                    self.assertEqual((summary["workers"], summary["servers"], summary["epochs"]), (3, 2, 3))
                    self.assertEqual((summary["workers_at_end"], summary.get("events", [])), (3, []))  # nobody left
                    self.assertGreater(summary["test_accuracy"], 0.8)
                    units = summary["steps"] * (2 if algorithm == "backup" else 1)
                    self.assertEqual(sum(summary["staleness"]["histogram"].values()), units)
                    with open(self.path(name) + "/metrics.jsonl") as file:
                        rows = [json.loads(line) for line in file]
                    self.assertEqual(sum(value for row in rows for key, value in row.items()
                                         if re.fullmatch(r"staleness_\d+", key)), units)
                    self.expect_every_sample_once(name, 4500)
                    self.expect_nothing_left(name)

    def test_servers_may_be_inside_the_workers(self):
        for transport in TRANSPORTS:
            for algorithm in ("async", "downpour-prefetch", "backup"):
                with self.subTest(transport=transport, algorithm=algorithm):
                    name = f"{algorithm}-{transport}"
                    self.train(*self.small(name, noise=1), *ALGORITHMS[algorithm], "--workers", "3", "--servers", "0",
                               "--epochs", "3", "--transport", transport)
                    summary = self.summary(name)
                    self.assertEqual((summary["status"], summary["workers"], summary["servers"]), ("finished", 3, 0))
                    self.assertGreater(summary["test_accuracy"], 0.8)
                    self.expect_every_sample_once(name, 4500)
                    self.expect_nothing_left(name)

    def test_one_worker_gives_the_model_of_one_process_bit_for_bit(self):
        recipe = ["--epochs", "2", "--momentum", "0.9", "--schedule", "cosine", "--weight-decay", "0.001"]
        self.train(*self.small("alone"), *recipe)
        for transport in TRANSPORTS:
            for algorithm, servers in (("async", "3"), ("downpour", "3"), ("async", "0")):
                with self.subTest(transport=transport, algorithm=algorithm, servers=servers):
                    name = f"{algorithm}-{transport}-{servers}"
                    self.train(*self.small(name), *recipe, "--algorithm", algorithm, "--workers", "1", "--servers", servers,
                               "--transport", transport)
                    self.assertEqual(self.model(name), self.model("alone"))

    def test_a_gradient_is_clipped_as_a_whole(self):
        for algorithm, servers in {"async": ["--servers", "2"], "local": []}.items():
            self.train(*self.small(algorithm), "--epochs", "1", "--algorithm", algorithm, "--workers", "1", *servers,
                       "--clip-norm", "0.05", "--transport", "threads")
        alone = self.summary("local")["test_loss"]
        self.assertAlmostEqual(self.summary("async")["test_loss"], alone, delta=1e-4 * alone)

    def test_workers_with_threads_that_take_no_locks_train_on_sparse_rows(self):
        for algorithm in ("async", "downpour", "softsync"):
            with self.subTest(algorithm=algorithm):
                self.train("--model", "logistic", "--data",
                           "synthetic:kind=sparse,shape=3000,samples=1500,nonzeros=20,seed=3", "--batch", "5", "--epochs", "3",
                           "--optimizer", "adagrad", "--lr", "0.1", "--algorithm", algorithm, "--workers", "2", "--servers",
                           "2", "--n-push", "6", "--thread-mode", "hogwild", "--threads", "2", "--transport", "socket",
                           "--out", self.path(algorithm))
                summary = self.summary(algorithm)
                self.assertEqual((summary["status"], summary["threads"], summary["thread_mode"]), ("finished", 2, "hogwild"))
                self.assertGreater(summary["test_accuracy"], 0.8)
                self.expect_every_sample_once(algorithm, 4500)

    def test_threads_may_read_ahead_what_is_leased(self):
        recipe = ["--epochs", "2", "--algorithm", "async", "--workers", "1", "--servers", "2", "--transport", "socket"]
        for threads in ("0", "3"):
            self.train(*self.small(threads), *recipe, "--loader-threads", threads)
            self.expect_every_sample_once(threads, 3000)
        self.assertEqual(self.model("0"), self.model("3"))

    def test_a_warm_start_is_made_by_one_worker(self):
        self.train(*self.small("warm"), *ALGORITHMS["async"], "--workers", "3", "--servers", "2", "--epochs", "2",
                   "--warm-start", "80", "--transport", "socket")
        self.expect_every_sample_once("warm", 3000)
        # Whoever pushes alone computes from what it pushed before.
        self.assertGreaterEqual(self.summary("warm")["staleness"]["histogram"]["0"], 80)

    def test_a_loss_that_rises_lowers_the_rate(self):
        recipe = ["--model", "logistic", "--data", "synthetic:classes=4,shape=1x12x12,samples=9000,noise=6,seed=3",
                  "--batch", "30", "--epochs", "6", "--workers", "2", "--servers", "2", "--lr", "5", "--warmup-epochs", "4",
                  "--threads", "1", "--transport", "socket", "--algorithm", "async"]
        output = self.train(*recipe, "--out", self.path("guarded"))
        self.assertRegex(output, r"update \d+: the loss has risen from .* all rates are halved from here on")
        self.assertLess(self.summary("guarded")["rate_factor"], 1)
        output = self.train(*recipe, "--divergence-guard", "off", "--out", self.path("free"))
        self.assertNotIn("rates", output)
        self.assertEqual(self.summary("free")["rate_factor"], 1)

    def test_an_early_stop_ends_all_workers_and_counts_nothing_that_was_refused(self):
        for transport in TRANSPORTS:
            with self.subTest(transport=transport):
                self.train(*self.small(transport), *ALGORITHMS["async"], "--workers", "3", "--servers", "2", "--epochs",
                           "500", "--validation", "0.2", "--early-stop", "1", "--transport", transport)
                summary = self.summary(transport)
                self.assertEqual(summary["status"], "stopped early")
                audit = summary["samples"]
                self.assertEqual((audit["leased"], audit["duplicated"]), (audit["applied"] + audit["lost"], 0))
                self.expect_nothing_left(transport)

    def test_statistics_of_batch_norm_are_averaged_by_the_servers(self):
        self.train("--model", "resnet18", "--data", "synthetic:classes=4,shape=3x16x16,samples=64,seed=3", "--batch", "16",
                   "--epochs", "1", "--threads", "1", "--algorithm", "async", "--workers", "2", "--servers", "2",
                   "--transport", "socket", "--out", self.path("norm"))
        self.expect_every_sample_once("norm", 64)


class Failures(ServedTest):
    def test_a_killed_worker_stops_nobody_and_its_samples_are_trained_by_others(self):
        for transport in SURVIVABLE:
            for algorithm, choices in ALGORITHMS.items():
                with self.subTest(transport=transport, algorithm=algorithm):
                    name = f"{algorithm}-{transport}"
                    output = self.train(*self.small(name), *choices, "--workers", "3", "--servers", "2", "--epochs", "4",
                                        "--transport", transport, "--chaos", "kill worker 1 at 30%")
                    self.assertIn("lost: worker 1 (pid ", output)
                    self.assertEqual(self.summary(name)["status"], "finished")
                    self.expect_every_sample_once(name, 6000)
                    self.expect_nothing_left(name)

    def test_two_of_three_workers_may_die(self):
        self.train(*self.small("two"), *ALGORITHMS["async"], "--workers", "3", "--servers", "1", "--epochs", "4",
                   "--transport", "socket", "--chaos", "kill worker 0 at 20%; kill worker 2 at 50%")
        self.expect_every_sample_once("two", 6000)

    def test_a_slow_worker_delays_nobody(self):
        self.train(*self.small("slow"), *ALGORITHMS["async"], "--workers", "3", "--servers", "1", "--epochs", "2",
                   "--transport", "socket", "--chaos", "slow worker 1 x50 from step 5")
        self.expect_every_sample_once("slow", 3000)
        self.assertGreater(self.summary("slow")["staleness"]["max"], 3)

    def test_gradients_of_a_slow_worker_are_dropped_and_its_samples_trained_by_others(self):
        for algorithm, oldest in {"backup": 0, "bounded": 1}.items():
            for servers in ("1", "2", "0"):
                with self.subTest(algorithm=algorithm, servers=servers):
                    name = f"{algorithm}-{servers}"
                    self.train(*self.small(name), *ALGORITHMS[algorithm], "--workers", "3", "--servers", servers,
                               "--epochs", "2", "--transport", "socket", "--chaos", "slow worker 1 x50 from step 5")
                    self.expect_every_sample_once(name, 3000)
                    summary = self.summary(name)
                    self.assertGreater(summary["samples"]["dropped"], 0)
                    self.assertLessEqual(summary["staleness"]["max"], oldest)

    def test_a_killed_server_is_named_and_ends_the_job(self):
        process = self.start(*self.small("server", samples=15000), *ALGORITHMS["async"], "--workers", "2", "--servers", "2",
                             "--replication", "1", "--epochs", "2000", "--transport", "socket")
        self.wait_for_steps("server", process)
        victim = next(pid for pid, words in processes_in(self.path("server")).items() if words[-2] == b"3")
        os.kill(victim, signal.SIGKILL)
        output, _ = process.communicate(timeout=job_test.DEADLINE)
        self.assertNotEqual(process.returncode, 0, output)
        self.assertIn("server 3 (pid ", output)
        summary = self.summary("server")
        self.assertEqual(summary["status"], "lost")
        self.assertRegex(summary["problem"], r"server 3 \(pid .*; \d+ updates since the checkpoint of step \d+ are lost|"
                         r"server 3 \(pid .*; all \d+ updates are lost: there is no checkpoint yet")
        self.expect_nothing_left("server")

    def test_when_the_only_server_is_killed_a_summary_says_so_anew(self):
        job = [*ALGORITHMS["async"], "--workers", "2", "--servers", "1", "--transport", "socket"]
        self.train(*self.small("only", samples=15000), *job, "--epochs", "1")
        self.assertEqual(self.summary("only")["status"], "finished")
        process = self.start("--resume", self.path("only"), "--epochs", "2000")
        rows = len(self.losses("only"))
        self.wait_until(lambda: len(self.losses("only")) > rows, "training to go on")
        victim = next(pid for pid, words in processes_in(self.path("only")).items() if words[-2] == b"2")
        os.kill(victim, signal.SIGKILL)
        output, _ = process.communicate(timeout=job_test.DEADLINE)
        self.assertEqual(process.returncode, 4, output)
        summary = self.summary("only")
        self.assertEqual(summary["status"], "lost")
        self.assertRegex(summary["problem"], r"server 2 \(pid .*: was killed by signal 9")
        self.assertEqual([(event["what"], event["who"][:9]) for event in summary["events"]], [("lost", "server 2 ")])
        self.assertEqual((summary["workers"], summary["servers"], summary["algorithm"]), (2, 1, "async"))
        self.assertGreaterEqual(summary["epochs"], 1)
        self.assertIsNone(summary["samples"])  # nobody knows any more
        self.expect_nothing_left("only")

    def test_a_worker_that_dies_with_the_only_copy_is_named_and_ends_the_job(self):
        for transport in SURVIVABLE:
            for algorithm in ("async", "backup"):
                with self.subTest(transport=transport, algorithm=algorithm):
                    name = f"{algorithm}-{transport}"
                    output = self.train(*self.small(name, samples=15000), *ALGORITHMS[algorithm], "--workers", "3",
                                        "--servers", "0", "--replication", "1", "--epochs", "2000", "--transport",
                                        transport, "--chaos",
                                        "slow worker 2 x5; kill worker 1 at step 300", code=4)
                    self.assertIn("worker 1 (pid ", output)
                    self.assertEqual(self.summary(name)["status"], "lost")
                    self.expect_nothing_left(name)

    def test_when_all_workers_are_killed_the_run_is_lost(self):
        self.train(*self.small("all"), *ALGORITHMS["async"], "--workers", "2", "--servers", "2", "--epochs", "50",
                   "--transport", "socket", "--chaos", "kill worker 0 at step 9; kill worker 1 at step 20", code=4)
        summary = self.summary("all")
        self.assertEqual(summary["status"], "lost")
        self.assertRegex(summary["problem"], "worker [01] .*killed by signal 9")
        self.expect_nothing_left("all")

    def test_all_end_when_the_launcher_is_killed(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                process = self.start(*self.small(transport, samples=15000), *ALGORITHMS["async"], "--workers", "2",
                                     "--servers", "2", "--epochs", "2000", "--transport", transport)
                self.wait_for_steps(transport, process)
                os.kill(process.pid, signal.SIGKILL)
                process.communicate(timeout=job_test.DEADLINE)
                self.wait_until(lambda name=transport: not processes_in(self.path(name)), "all processes to end")

    def test_a_loss_that_is_not_finite_ends_the_job_and_is_named(self):
        for transport in TRANSPORTS:
            with self.subTest(transport=transport):
                output = self.train(*self.small(transport), *ALGORITHMS["async"], "--workers", "2", "--servers", "2",
                                    "--epochs", "50", "--lr", "1e30", "--transport", transport, code=3)
                self.assertRegex(output, "training diverged: the loss is -?(nan|inf) at step .* first seen in ")
                self.assertEqual(self.summary(transport)["status"], "diverged")
                audit = self.summary(transport)["samples"]
                self.assertGreater(audit["dropped"], 0)
                self.assertEqual(audit["leased"], audit["applied"] + audit["dropped"] + audit["lost"])

    def test_a_killed_leader_is_named_and_ends_the_job(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                process = self.start(*self.small(transport, samples=15000), *ALGORITHMS["async"], "--workers", "2",
                                     "--servers", "2", "--replication", "1", "--epochs", "2000", "--checkpoint-every",
                                     "50", "--transport", transport)
                self.wait_for_steps(transport, process)
                with open(self.path(transport) + "/logs/server-2.log") as log:
                    os.kill(int(log.read().split("server 2 (pid ")[1].split()[0]), signal.SIGKILL)
                output, _ = process.communicate(timeout=job_test.DEADLINE)
                self.assertEqual(process.returncode, 4, output)
                self.assertIn("distbelief: a process was lost: server 2 (pid ", output)
                self.expect_nothing_left(transport)

    def test_who_waits_in_vain_ends_with_its_job(self):
        recipe = [*ALGORITHMS["async"], "--workers", "3", "--servers", "2", "--epochs", "2000", "--transport", "socket",
                  "--chaos", "cut link 1-3 at step 5"]
        for name, number in {"launcher": signal.SIGKILL, "interrupt": signal.SIGINT}.items():
            with self.subTest(name):
                process = self.start(*self.small(name, samples=15000), *recipe)
                self.wait_for_steps(name, process)
                process.send_signal(number)
                output, _ = process.communicate(timeout=job_test.DEADLINE)
                self.wait_until(lambda: not processes_in(self.path(name)), "all processes to end")
        self.assertEqual(self.summary("interrupt")["status"], "interrupted", output)
        self.assertGreater(len(os.listdir(self.path("interrupt") + "/checkpoints")), 0)

    def test_an_interrupt_ends_all_and_says_what_was_done(self):
        for transport in TRANSPORTS:
            with self.subTest(transport=transport):
                process = self.start(*self.small(transport, samples=15000), *ALGORITHMS["async"], "--workers", "2",
                                     "--servers", "2", "--epochs", "2000", "--transport", transport)
                self.wait_for_steps(transport, process)
                process.send_signal(signal.SIGINT)
                output, _ = process.communicate(timeout=job_test.DEADLINE)
                summary = self.summary(transport)
                self.assertEqual(summary["status"], "interrupted", output)
                self.assertEqual(summary["samples"]["lost"], 0)
                self.assertGreater(summary["samples"]["applied"], 0)
                self.expect_nothing_left(transport)


class Resumption(ServedTest):
    def test_one_worker_goes_on_bit_for_bit_after_an_interrupt(self):
        recipe = ["--epochs", "3", "--momentum", "0.9", "--schedule", "cosine", "--algorithm", "async", "--workers", "1",
                  "--servers", "2"]
        for transport in TRANSPORTS:
            with self.subTest(transport=transport):
                whole, broken = f"whole-{transport}", f"broken-{transport}"
                self.train(*self.small(whole, samples=9000), *recipe, "--transport", transport)
                process = self.start(*self.small(broken, samples=9000), *recipe, "--transport", transport, "--chaos",
                                     "slow worker 0 x20 from step 50")
                self.wait_for_steps(broken, process)
                process.send_signal(signal.SIGINT)
                output, _ = process.communicate(timeout=job_test.DEADLINE)
                self.assertIn("go on with: distbelief train --resume", output)
                self.train("--resume", self.path(broken))
                self.assertEqual(self.model(broken), self.model(whole))
                self.expect_every_sample_once(broken, 27000)

    def test_each_algorithm_goes_on_after_everything_was_killed(self):
        for algorithm, choices in ALGORITHMS.items():
            with self.subTest(algorithm=algorithm):
                process = self.start(*self.small(algorithm, samples=3000, noise=1), *choices, "--workers", "3", "--servers",
                                     "2", "--epochs", "4000", "--checkpoint-every", "50", "--keep-checkpoints", "2",
                                     "--transport", "socket")
                self.kill_after_checkpoints(algorithm, process)
                epochs = self.epochs_to_end_with(algorithm)
                self.train("--resume", self.path(algorithm), "--epochs", str(epochs))
                self.assertEqual(self.summary(algorithm)["status"], "finished")
                self.expect_every_sample_once(algorithm, 3000 * epochs)
                self.expect_nothing_left(algorithm)

    def test_a_run_with_servers_inside_goes_on_after_an_interrupt(self):
        process = self.start(*self.small("inside", samples=3000), *ALGORITHMS["async"], "--workers", "2", "--servers", "0",
                             "--epochs", "4000", "--transport", "socket")
        self.wait_for_steps("inside", process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=job_test.DEADLINE)
        self.assertIn("go on with: distbelief train --resume", output)
        self.assertEqual(self.summary("inside")["samples"]["lost"], 0)
        epochs = self.summary("inside")["epochs"] + 12
        self.train("--resume", self.path("inside"), "--epochs", str(epochs))
        self.expect_every_sample_once("inside", 3000 * epochs)

    def test_an_initial_model_reaches_every_server(self):
        self.train(*self.small("first"), "--epochs", "1")
        for name, choices in {"alone": ["--algorithm", "local"],
                              "served": [*ALGORITHMS["async"], "--workers", "1", "--servers", "3"]}.items():
            self.train(*self.small(name), *choices, "--init", self.path("first") + "/model.safetensors", "--epochs", "1",
                       "--transport", "socket")
        self.assertEqual(self.model("served"), self.model("alone"))


class Sparse(ServedTest):
    """Samples that name few of many features: pushes and fetches are of the rows that a batch touches."""

    FEATURES, SAMPLES = 20000, 900

    def libsvm(self):
        """A file whose classes follow from the first of a sample's features; common ones are in every batch."""
        path = self.path("data.libsvm")
        if not os.path.exists(path):
            draw = random.Random(5)
            with open(path, "w") as file:
                for _ in range(self.SAMPLES):
                    kind = draw.randrange(2)
                    names = {kind + 1, *(int(self.FEATURES ** draw.random()) for _ in range(12)), self.FEATURES}
                    file.write(f"{2 * kind - 1} " + " ".join(f"{name}:{draw.random():.3f}" for name in sorted(names)) + "\n")
        return path

    def sparse(self, name, *more, model="logistic", lr=0.1):
        return ["--model", model, "--data", self.libsvm(), "--batch", "10", "--lr", str(lr), "--out", self.path(name),
                "--log-every", "1", *more]

    def test_one_worker_gives_the_model_of_one_process_bit_for_bit(self):
        recipes = {"sgd": ["--schedule", "cosine"], "adagrad": ["--optimizer", "adagrad"],
                   "momentum": ["--momentum", "0.9", "--weight-decay", "0.001"]}
        for model in ("logistic", "factorization"):
            for recipe, words in recipes.items():
                alone = f"{model}-{recipe}-alone"
                self.train(*self.sparse(alone, *words, "--epochs", "2", "--threads", "1", model=model, lr=0.05))
                for servers in ("3", "0"):
                    with self.subTest(model=model, recipe=recipe, servers=servers):
                        name = f"{model}-{recipe}-{servers}"
                        self.train(*self.sparse(name, *words, "--epochs", "2", "--algorithm", "async", "--workers", "1",
                                                "--servers", servers, "--transport", "threads", model=model, lr=0.05))
                        self.assertEqual(self.model(name), self.model(alone))
                        self.assertEqual(self.summary(name)["threads"], 1)

    def test_each_algorithm_trains_and_every_sample_is_applied_once(self):
        for transport in TRANSPORTS:
            for algorithm, choices in ALGORITHMS.items():
                with self.subTest(transport=transport, algorithm=algorithm):
                    name = f"{algorithm}-{transport}"
                    self.train(*self.sparse(name), *choices, "--workers", "3", "--servers", "2", "--epochs", "3",
                               "--transport", transport)
                    summary = self.summary(name)
                    self.assertEqual(summary["status"], "finished")
                    self.assertLess(summary["train_loss"], 0.6)  # of classes alone: 0.69
                    self.expect_every_sample_once(name, 3 * self.SAMPLES)

    def test_whole_gradients_of_several_threads_train_too(self):
        self.train(*self.sparse("threads"), *ALGORITHMS["async"], "--threads", "2", "--workers", "2", "--servers", "2",
                   "--epochs", "2", "--transport", "threads")
        self.expect_every_sample_once("threads", 2 * self.SAMPLES)

    def test_a_killed_worker_stops_nobody_and_its_samples_are_trained_by_others(self):
        for transport in SURVIVABLE:
            for algorithm, choices in ALGORITHMS.items():
                with self.subTest(transport=transport, algorithm=algorithm):
                    name = f"{algorithm}-{transport}"
                    output = self.train(*self.sparse(name), *choices, "--workers", "3", "--servers", "2", "--epochs", "4",
                                        "--transport", transport, "--chaos", "kill worker 1 at 30%")
                    self.assertIn("lost: worker 1 (pid ", output)
                    self.assertEqual(self.summary(name)["status"], "finished")
                    self.expect_every_sample_once(name, 4 * self.SAMPLES)

    def test_a_run_that_stopped_goes_on_to_the_same_bits(self):
        recipe = ["--optimizer", "adagrad", "--algorithm", "async", "--workers", "1", "--servers", "2",
                  "--transport", "socket"]
        self.train(*self.sparse("whole", *recipe), "--epochs", "4")
        self.train(*self.sparse("part", *recipe), "--epochs", "2")
        self.train("--resume", self.path("part"), "--epochs", "4")
        self.assertEqual(self.model("part"), self.model("whole"))
        self.expect_every_sample_once("part", 4 * self.SAMPLES)

    def test_a_frozen_parameter_comes_from_the_initial_model(self):
        self.train(*self.sparse("first", model="factorization"), "--epochs", "1")
        for name, choices in {"alone": ["--algorithm", "local", "--threads", "1"],
                              "served": [*ALGORITHMS["async"], "--workers", "1", "--servers", "2"]}.items():
            self.train(*self.sparse(name, model="factorization"), *choices, "--init",
                       self.path("first") + "/model.safetensors", "--freeze", "*weight", "--epochs", "1", "--transport",
                       "socket")
        self.assertEqual(self.model("served"), self.model("alone"))

    def test_a_loss_that_is_not_finite_ends_the_job_and_is_named(self):
        output = self.train(*self.sparse("diverged", model="factorization", lr=1e30), *ALGORITHMS["async"], "--workers", "2",
                            "--servers", "2", "--epochs", "50", "--transport", "socket", code=3)
        self.assertRegex(output, "training diverged: the loss is -?(nan|inf) at step .* first seen in ")
        self.assertEqual(self.summary("diverged")["status"], "diverged")


class BadInput(ServedTest):
    def expect_refusal(self, text, *arguments):
        output = self.train(*self.small("bad"), *arguments, code=2)
        self.assertIn(text, output)
        self.assertFalse(os.path.exists(self.path("bad")))

    def test_choices_of_another_algorithm_are_refused(self):
        self.expect_refusal("--n-push 2: --algorithm async has no use for it; it is for downpour", "--algorithm", "async",
                            "--n-push", "2")
        for words in (["--warm-start", "5"], ["--servers", "2"], ["--n-push", "4"], ["--iterations", "3"], ["--n", "2"],
                      ["--gossip-quorum", "1"], ["--average-every", "3"], ["--portion", "60"]):
            self.expect_refusal(f"{' '.join(words)}: --algorithm allreduce has no use for it; it is for ", "--algorithm",
                                "allreduce", *words)
        self.expect_refusal("--thread-mode hogwild is for asynchronous", "--thread-mode", "hogwild", "--algorithm", "allreduce")
        self.expect_refusal("--thread-mode hogwild updates without locks, which momentum does not bear",
                            *ALGORITHMS["hogwild"], "--momentum", "0.9")
        self.expect_refusal("--n-push 1: with --thread-mode hogwild each thread needs a batch of its own of a push: expected "
                            "2 or more", "--algorithm", "async", "--thread-mode", "hogwild", "--threads", "2")
        self.expect_refusal("--max-staleness 5: --algorithm allreduce has no use for it", "--algorithm", "allreduce", "--max-staleness", "5")
        self.expect_refusal("--backup-workers 1: --algorithm async has no use for it; it is for sync", "--algorithm", "async", "--backup-workers", "1")
        self.expect_refusal("with --workers 2 at most 1 can be late", "--algorithm", "sync", "--workers", "2",
                            "--backup-workers", "2")
        self.expect_refusal("--batch 30: expected a multiple of 4", *ALGORITHMS["backup"], "--workers", "5")
        self.expect_refusal("--max-staleness 0: a worker's own pushes make what it has fetched 1 updates old",
                            "--algorithm", "downpour", "--n-push", "3", "--n-fetch", "2", "--prefetch", "off",
                            "--max-staleness", "0")
        self.expect_refusal("--prefetch on: with --backup-workers", *ALGORITHMS["backup"], "--workers", "3", "--prefetch",
                            "on")
        self.expect_refusal("--adaptive on: --algorithm async has no use for it; it is for downpour", "--algorithm", "async", "--adaptive", "on")
        self.expect_refusal("--adaptive on chooses --n-push and --n-fetch itself", "--algorithm", "downpour", "--adaptive",
                            "on", "--n-push", "2")
        self.expect_refusal("--max-staleness 2: a worker's own pushes make what it has fetched 6 updates old",
                            "--algorithm", "downpour", "--n-fetch", "5", "--max-staleness", "2")
        self.expect_refusal("expected a whole number of 0 or more, or none", "--max-staleness", "-1")
        self.expect_refusal("--n 2: --algorithm async has no use for it; it is for softsync", "--algorithm", "async", "--n", "2")
        self.expect_refusal("--n 5: with --workers 4", "--algorithm", "softsync", "--workers", "4", "--n", "5")


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
