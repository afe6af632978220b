"""Jobs that grow and shrink while they run: workers that come, leave, are scaled and stand by. Real processes and signals.

scale_test.py PROGRAM [CLASS]    the distbelief executable
"""

import json
import os
import re
import signal
import subprocess
import sys

import job_test
from job_test import ALGORITHMS, DEADLINE, SURVIVABLE
from test_main import main

SAMPLES = 1500
ALLREDUCE = ["--algorithm", "allreduce", "--lr", "0.005"]


class ElasticTest(job_test.JobTest):
    def begin(self, name, *more, workers=2, transport="socket", algorithm=ALLREDUCE):
        process = self.start(*self.small(name), "--epochs", "20000", "--workers", str(workers), "--transport", transport,
                             *algorithm, *more)
        self.wait_for_steps(name, process)
        return process

    def command(self, *arguments, code=0, environment=None):
        done = subprocess.run([job_test.PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=DEADLINE, check=False, env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def come(self, *arguments, environment=None):
        """`distbelief join`, which runs as long as the job."""
        process = subprocess.Popen([job_test.PROGRAM, "join", *arguments], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True,
                                   env={**os.environ, "TMPDIR": self.scratch.name, **(environment or {})})
        self.started.append(process)
        return process

    def pid_of(self, name, worker):
        with open(f"{self.path(name)}/logs/worker-{worker}.log") as file:
            return int(re.search(rf"worker {worker} \(pid (\d+) on", file.read())[1])

    def rows(self, name):
        with open(self.path(name) + "/metrics.jsonl") as file:
            whole = file.read().rpartition("\n")[0]
        return [json.loads(line) for line in whole.split("\n") if "train_accuracy" in line]

    def stop(self, name, process, *more):
        """Ends the job and has its last epoch finished: each sample of each epoch was applied once. What it printed."""
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 130, output)
        self.expect_nothing_left(name)
        steps = [row["step"] for row in self.rows(name)]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        summary = self.summary(name)
        epochs = self.epochs_begun(name)
        self.train("--resume", self.path(name), "--epochs", epochs, "--workers", "1", "--transport", "threads", *more)
        self.expect_every_sample_once(name, int(epochs) * SAMPLES)
        return output, summary

    def expect_losses_of_one_process(self, name, changes):
        found = {row["step"]: row["train_loss"] for row in self.rows(name)}
        epochs = max(changes) // (SAMPLES // 30) + 2
        self.train(*self.small(name + "-alone"), "--epochs", str(epochs), "--lr", "0.005")
        wanted = {row["step"]: row["train_loss"] for row in self.rows(name + "-alone")}
        for change in changes:
            for step in range(change, change + 6):
                self.assertAlmostEqual(found[step], wanted[step], delta=1e-4 * wanted[step], msg=f"step {step}")


class Scaling(ElasticTest):
    def test_one_to_four_to_two_to_three_workers_have_the_losses_of_an_undisturbed_run(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                process = self.begin(transport, workers=1, transport=transport)
                for before, after in ((1, 4), (4, 2), (2, 3)):
                    output = self.command("scale", self.path(transport), "--workers", str(after))
                    self.assertIn(f"{before} worker{'s' if before > 1 else ''} → {after}: ", output)
                    self.line_with(process, f"{after} workers go on after step")
                    self.wait_for_more_steps(transport)
                output, summary = self.stop(transport, process)
                self.assertEqual((summary["workers"], summary["workers_at_end"]), (1, 3), output)
                self.assertEqual(sorted(event["what"] for event in summary["events"]),
                                 ["joined"] * 4 + ["left"] * 2, output)
                self.assertNotRegex(output, "killed|lost: ")
                self.expect_losses_of_one_process(transport, [event["step"] for event in summary["events"]])

    def test_two_that_come_and_go_at_once_do_so_with_every_algorithm(self):
        for number, (name, algorithm) in enumerate(ALGORITHMS.items()):
            transport = SURVIVABLE[number % len(SURVIVABLE)]
            with self.subTest(algorithm=name, transport=transport):
                process = self.begin(name, workers=1, transport=transport, algorithm=[*algorithm, "--lr", "0.005"])
                for _ in range(4):
                    self.command("scale", self.path(name), "--workers", "3")
                    self.line_with(process, "3 workers go on after step")
                    self.command("scale", self.path(name), "--workers", "1")
                    self.line_with(process, "one worker goes on after step")
                output, summary = self.stop(name, process)
                self.assertEqual(sorted(event["what"] for event in summary["events"]), ["joined"] * 8 + ["left"] * 8, output)

    def test_is_refused_where_it_cannot_be(self):
        process = self.begin("team")
        for arguments, expected in (
            (["--workers", "2", "--servers", "2"], "the job has no servers"),
            (["--workers", "0"], "--workers"),
        ):
            output = self.command("scale", self.path("team"), *arguments, code=2)
            self.assertIn(expected, output)
            self.assertEqual(output.count("\n"), 1, output)
        self.assertEqual(self.command("scale", self.path("team"), "--workers", "2"), "2 workers, as it is\n")
        self.stop("team", process)
        self.assertIn("no job runs in this folder", self.command("scale", self.path("team"), "--workers", "2", code=2))

    def test_of_a_foreign_launcher_names_the_command_that_helps_and_its_first_rank_may_leave(self):
        if "mpi" not in SURVIVABLE:
            self.skipTest("needs Open MPI")
        command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--enable-recovery", "-n",
                   "3", job_test.PROGRAM, "train", *self.small("run"), *ALLREDUCE, "--epochs", "400", "--transport", "mpi"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env={**os.environ, "TMPDIR": self.scratch.name})
        self.started.append(process)
        self.wait_for_steps("run", process)
        output = self.command("scale", self.path("run"), "--workers", "4", code=2)
        self.assertIn("run 'distbelief join' on the machines that are to help", output)
        self.command("leave", self.path("run"), "0")
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 0, output)
        self.expect_every_sample_once("run", 400 * SAMPLES)
        self.assertEqual(self.summary("run")["workers_at_end"], 2)
        self.expect_nothing_left("run")


class Leaving(ElasticTest):
    def test_the_first_the_last_and_one_that_got_a_signal_leave_and_no_step_is_made_again(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                process = self.begin(transport, workers=4, transport=transport)
                output = self.command("leave", self.path(transport), "0")
                self.assertRegex(output, r"^worker 0 \(pid \d+ on \S+\) was asked to leave\nit has left: worker 0 \(pid "
                                         r"\d+ on \S+\) left after step \d+\n$")
                self.assertRegex(self.line_with(process, "3 workers go on after step"), r"worker 0 \(pid \d+ on \S+\) left: ")
                self.wait_for_more_steps(transport)
                pid = self.pid_of(transport, 2)
                os.kill(pid, signal.SIGTERM)
                self.assertRegex(self.line_with(process, "2 workers go on after step"), rf"worker 2 \(pid {pid} on \S+\) left: ")
                self.wait_until(lambda: not os.path.exists(f"/proc/{pid}/exe"), "its process to end")
                self.command("leave", self.path(transport), "3")
                self.line_with(process, "one worker goes on after step")
                refused = self.command("leave", self.path(transport), "1", code=2)
                self.assertIn("is the last that trains", refused)
                self.wait_for_more_steps(transport)
                output, summary = self.stop(transport, process)
                self.assertEqual([(event["what"], event["who"].split()[1]) for event in summary["events"]],
                                 [("left", "0"), ("left", "2"), ("left", "3")])
                self.assertEqual((summary["workers"], summary["workers_at_end"]), (4, 1))
                self.assertNotRegex(output, "killed|lost: ")

    def test_every_algorithm_goes_on_without_who_leaves(self):
        for algorithm in ("sync", "averaging", "averaging-end", "gossip"):
            with self.subTest(algorithm=algorithm):
                process = self.begin(algorithm, workers=3, algorithm=ALGORITHMS[algorithm])
                self.command("leave", self.path(algorithm), "0")
                self.line_with(process, "2 workers go on after step")
                self.wait_for_more_steps(algorithm)
                self.command("scale", self.path(algorithm), "--workers", "1")
                self.line_with(process, "one worker goes on after step")
                self.wait_for_more_steps(algorithm)
                output, summary = self.stop(algorithm, process)
                self.assertEqual([event["what"] for event in summary["events"]], ["left", "left"])
                self.assertNotRegex(output, "killed|lost: ")

    def test_a_signal_to_all_workers_stops_the_job(self):
        process = self.begin("run", workers=3)
        pids = [self.pid_of("run", worker) for worker in range(3)]
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, output)
        self.assertIn("\nall workers were asked to end: the job stops, with a checkpoint\n", output)
        self.assertEqual(self.summary("run")["status"], "interrupted")
        self.assertEqual(self.summary("run")["workers_at_end"], 3)
        self.expect_nothing_left("run")


class Joining(ElasticTest):
    def test_by_address_needs_the_token_only_and_leaves_again(self):
        process = self.begin("run")
        with open(self.path("run") + "/job.json") as file:
            job = json.load(file)
        address = job["address"].removeprefix("tcp:")
        with open(self.path("token"), "w") as file:
            file.write(job["token"])
        newcomer = self.come(address, "--token-file", self.path("token"))
        self.assertRegex(self.line_with(process, "3 workers go on after step"), rf"worker 2 \(pid {newcomer.pid} on \S+\) joined")
        self.wait_for_more_steps("run")
        newcomer.send_signal(signal.SIGINT)  # for a worker that somebody added by hand: it leaves
        self.assertRegex(self.line_with(process, "2 workers go on after step"), r"worker 2 \(pid \d+ on \S+\) left")
        said, _ = newcomer.communicate(timeout=DEADLINE)
        self.assertEqual(newcomer.returncode, 0, said)
        self.assertRegex(said, r"\nleft after step \d+\n$")
        again = self.come(address, environment={"DISTBELIEF_TOKEN": job["token"]})
        self.line_with(process, "3 workers go on after step")
        self.stop("run", process)
        said, _ = again.communicate(timeout=DEADLINE)
        self.assertEqual(again.returncode, 0, said)
        self.assertTrue(said.endswith("the run is interrupted\n"), said)

    def test_by_address_is_refused_without_the_token(self):
        process = self.begin("run")
        with open(self.path("run") + "/job.json") as file:
            address = json.load(file)["address"].removeprefix("tcp:")
        self.assertIn("needs the job's token", self.command("join", address, code=2))
        for words in (["join", address], ["leave", address, "1"], ["scale", address, "--workers", "3"], ["status", address]):
            refused = self.command(*words, code=2, environment={"DISTBELIEF_TOKEN": "guess"})
            self.assertEqual(refused, f"distbelief: {address}: the job refused this process: its token is not the job's\n")
        self.stop("run", process)


class Standby(ElasticTest):
    def test_takes_the_place_of_a_worker_that_is_killed(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                process = self.begin(transport, "--standby", "1", transport=transport)
                second = self.come(self.path(transport), "--standby")
                self.wait_until(lambda: self.status(transport).count(" standby ") == 2, "two that stand by")
                os.kill(self.pid_of(transport, 1), signal.SIGKILL)
                self.assertRegex(self.line_with(process, "takes the place of"),
                                 r"^standby \(pid \d+ on \S+\) takes the place of worker 1 \(pid \d+ on \S+\)\n$")
                self.line_with(process, "2 workers go on after step")
                self.wait_for_more_steps(transport)
                os.kill(self.pid_of(transport, 0), signal.SIGKILL)
                self.line_with(process, "2 workers go on after step")
                self.wait_for_more_steps(transport)
                self.assertEqual(self.status(transport).count(" standby "), self.status(transport).count(" takes over\n"))
                output, summary = self.stop(transport, process)
                self.assertEqual((summary["workers"], summary["workers_at_end"]), (2, 2), output)
                what = [event["what"] for event in summary["events"]]
                self.assertEqual((what.count("lost"), what.count("joined")), (2, 2), summary["events"])
                said, _ = second.communicate(timeout=DEADLINE)
                self.assertEqual(second.returncode, 0, said)

    def status(self, name):
        return self.command("status", self.path(name))

    def test_is_no_worker_and_ends_with_the_job(self):
        output = self.train(*self.small("run"), *ALLREDUCE, "--workers", "2", "--epochs", "30", "--transport", "socket",
                            "--standby", "2")
        summary = self.summary("run")
        self.assertEqual((summary["workers"], summary["workers_at_end"]), (2, 2), output)
        self.assertNotIn("events", summary)
        self.expect_every_sample_once("run", 30 * SAMPLES)
        self.expect_nothing_left("run")


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
