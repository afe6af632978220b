"""The control plane of jobs that do not stop: coordinators that are killed and come back, workers that leave, and
--chaos that judges itself.

control_test.py PROGRAM    the distbelief executable
"""

import os
import re
import signal
import subprocess
import sys
import time

import job_test
from job_test import DEADLINE, SURVIVABLE, TRANSPORTS, processes_in
from test_main import main

BACK = re.compile(r"^coordinator \(pid \d+ on \S+\) was killed by signal 9 \(SIGKILL\): started again, training goes on$",
                  re.M)


def coordinator_of(folder):
    """Its pid, or None while there is none."""
    return next((pid for pid, words in processes_in(folder).items() if b"coordinator" in words), None)


class ControlTest(job_test.JobTest):
    def served(self, name, *more, samples=1500, algorithm="downpour"):
        return [*self.small(name, samples=samples), "--algorithm", algorithm, "--workers", "2", "--servers", "2",
                "--transport", "socket", *more]

    def expect_finished(self, name, samples):
        summary = self.summary(name)
        self.assertEqual(summary["status"], "finished")
        self.assertEqual(summary["restarts"], 0)
        self.expect_every_sample_once(name, samples)
        self.expect_nothing_left(name)
        self.assertFalse(os.path.exists(self.path(name) + "/coordinator.state"))

    def expect_verdict(self, name, passed=True):
        self.assertEqual(self.summary(name)["chaos"]["passed"], passed, self.summary(name)["chaos"])


    def wait_for_return(self, name, term, *who):
        """Until the coordinator after that of this term is there, and they have come back to it."""
        def are_back():
            with open(self.path(name) + "/logs/coordinator.log") as log:
                _, place, after = log.read().rpartition(f"takes the place of the coordinator of term {term};")
            return place and all(re.search(rf"{one} \(.* came back", after) for one in who)
        self.wait_until(are_back, f"all to come back to the coordinator after that of term {term}")


class Coordinator(ControlTest):
    def test_of_a_synchronous_job_dies_and_comes_back_and_the_model_is_the_same(self):
        team = ["--algorithm", "allreduce", "--workers", "3", "--epochs", "2"]
        self.train(*self.small("undisturbed"), *team, "--transport", TRANSPORTS[0])
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                output = self.train(*self.small(transport), *team, "--transport", transport, "--chaos",
                                    "kill coordinator at 30%; kill coordinator at 70%")
                self.assertEqual(len(BACK.findall(output)), 2, output)
                self.expect_finished(transport, 3000)
                self.expect_verdict(transport)
                self.assertEqual(self.model(transport), self.model("undisturbed"))
                self.assertEqual(output.count("epoch   1"), 1, output)  # told once, also what was on its way

    def test_of_a_served_job_dies_and_comes_back_and_every_sample_counts_once(self):
        for algorithm in ("downpour", "softsync"):
            with self.subTest(algorithm=algorithm):
                output = self.train(*self.served(algorithm, "--epochs", "4", algorithm=algorithm), "--chaos",
                                    "kill coordinator at 20%; kill coordinator at 50%; kill coordinator at 80%")
                self.assertEqual(len(BACK.findall(output)), 3, output)
                self.expect_finished(algorithm, 6000)
                self.expect_verdict(algorithm)

    def test_that_hangs_is_killed_and_comes_back(self):
        for algorithm in ("allreduce", "downpour"):
            with self.subTest(algorithm=algorithm):
                process = self.start(*self.served(algorithm, "--epochs", "1000000") if algorithm == "downpour" else
                                     [*self.small(algorithm), "--algorithm", algorithm, "--workers", "2", "--epochs", "1000000"])
                self.wait_for_steps(algorithm, process)
                for term in (1, 2):  # the one that came back, too
                    os.kill(coordinator_of(self.path(algorithm)), signal.SIGSTOP)
                    self.line_with(process, "the coordinator has not answered for 5 s: it is killed")
                    self.line_with(process, "started again, training goes on")
                    self.wait_for_return(algorithm, term, "launcher", "worker 0", "worker 1")
                    self.wait_for_more_steps(algorithm)
                process.send_signal(signal.SIGINT)
                output, _ = process.communicate(timeout=DEADLINE)
                self.assertEqual(process.returncode, 130, output)
                self.assertNotIn("events", self.summary(algorithm), output)  # nobody was lost
                self.expect_nothing_left(algorithm)

    def test_and_a_worker_die_together(self):
        output = self.train(*self.served("run", "--epochs", "6"), "--chaos",
                            "kill worker 1 at step 40; kill coordinator at step 41")
        self.assertIn("chaos: worker 1 killed at step 40", output)
        self.expect_finished("run", 9000)

    def test_is_killed_again_and_again(self):
        process = self.start(*self.served("run", "--epochs", "200"))
        folder = self.path("run")
        self.wait_for_steps("run", process)
        kills = 0
        deadline = time.monotonic() + 6
        while process.poll() is None and time.monotonic() < deadline:
            pid = coordinator_of(folder)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                kills += 1
            time.sleep(0.7)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 0, output)
        self.assertGreaterEqual(kills, 3)
        self.expect_finished("run", 300000)

    def test_is_killed_before_anybody_has_found_it(self):
        folder = self.path("run")
        process = self.start(*self.served("run", "--epochs", "2"))
        self.wait_until(lambda: os.path.exists(folder + "/job.json") or process.poll() is not None, "a coordinator")
        pid = coordinator_of(folder)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 0, output)
        self.expect_finished("run", 3000)

    def test_of_a_foreign_launcher_is_watched_by_the_first_rank(self):
        if "mpi" not in SURVIVABLE:
            self.skipTest("needs Open MPI")
        folder = self.path("run")
        command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2",
                   job_test.PROGRAM, "train", *self.small("run"), "--algorithm", "allreduce", "--epochs", "1000000", "--transport",
                   "mpi"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env={**os.environ, "TMPDIR": self.scratch.name})
        self.started.append(process)
        self.wait_for_steps("run", process)
        for term, fault in enumerate((signal.SIGKILL, signal.SIGSTOP), 1):  # one that hangs is killed, too
            before = coordinator_of(folder)
            os.kill(before, fault)
            if fault == signal.SIGSTOP:
                self.line_with(process, "the coordinator has not answered for 5 s: it is killed")
            self.assertIn("was killed by signal 9 (SIGKILL): started again, training goes on",
                          self.line_with(process, f"coordinator (pid {before} on "))
            self.wait_for_return("run", term, "worker 0", "worker 1")
            self.wait_for_more_steps("run")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(self.summary("run")["status"], "interrupted", output)
        self.assertNotIn("events", self.summary("run"))  # nobody was lost


class Chaos(ControlTest):
    def test_judges_what_must_be_true_whatever_happened(self):
        output = self.train(*self.served("run", "--epochs", "3"), "--chaos",
                            "stop worker 0 for 500ms at 30%; kill worker 1 at 50%; kill coordinator at 60%")
        self.assertRegex(output, r"\nchaos           pass: the run finished, the audit of 4500 samples is exact, all "
                                 r"parameters are finite, 3 of 3 events happened\n")
        self.expect_verdict("run")

    def test_that_did_not_happen_is_a_failure(self):
        output = self.train(*self.served("run", "--epochs", "1"), "--chaos", "kill coordinator at step 100000", code=1)
        self.assertIn("\nchaos           FAIL: 'kill coordinator at step 100000' did not happen\n", output)
        self.expect_verdict("run", passed=False)

    def test_can_be_drawn_from_a_seed_and_is_survived(self):
        for seed in (1, 2):
            with self.subTest(seed=seed):
                name = f"seed{seed}"
                output = self.train(*self.served(name, "--epochs", "5"), "--chaos", f"random:{seed}")
                script = re.search(rf"^chaos   random:{seed} is: (.*)$", output, re.M).group(1)
                self.assertIn("kill coordinator at ", script)
                self.expect_finished(name, 7500)
                self.expect_verdict(name)

    def test_that_makes_no_sense_is_refused(self):
        for more, expected in (
            (["--algorithm", "allreduce", "--workers", "2", "--chaos", "kill server 0 at 5%"], "the job has none"),
            (["--chaos", "kill coordinator at 5%"], "a run of one process has no coordinator"),
            (["--chaos", "random:1"], "is for jobs of processes"),
            (["--chaos", "random:x"], "expected a number after 'random:'"),
        ):
            output = self.train(*self.small("bad"), *more, code=2)
            self.assertIn(expected, output)
            self.assertEqual(output.count("\n"), 1, output)


class Leaving(ControlTest):
    def leave(self, *arguments):
        return subprocess.run([job_test.PROGRAM, "leave", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=DEADLINE, check=False)

    def test_who_is_no_number_is_refused_in_one_line(self):
        for member in ("abc", "-1", "1.5", "worker 1", "99999999999", ""):
            refused = self.leave(self.path("run"), member)
            self.assertEqual(refused.returncode, 2, refused.stdout)
            self.assertEqual(refused.stdout, f"distbelief: member '{member}': expected the number N of 'worker N' or "
                             "'server N', as 'distbelief status' shows it\n")

    def test_takes_one_worker_out_and_the_job_goes_on(self):
        for how in ("command", "SIGTERM"):
            with self.subTest(how=how):
                process = self.start(*self.served(how, "--epochs", "60"))
                self.wait_for_steps(how, process)
                if how == "command":
                    left = self.leave(self.path(how), "1")
                    self.assertEqual(left.returncode, 0, left.stdout)
                    self.assertRegex(left.stdout, r"worker 1 \(pid \d+ on \S+\) was asked to leave\nit has left: ")
                    last = self.leave(self.path(how), "0")
                    self.assertEqual(last.returncode, 2, last.stdout)
                    self.assertIn("is the last that trains", last.stdout)
                else:
                    with open(self.path(how) + "/logs/worker-1.log") as log:
                        os.kill(int(log.read().split("worker 1 (pid ")[1].split()[0]), signal.SIGTERM)
                output, _ = process.communicate(timeout=DEADLINE)
                self.assertEqual(process.returncode, 0, output)
                self.expect_finished(how, 90000)

    def test_is_refused_where_workers_need_each_other_and_where_there_is_no_job(self):
        process = self.start(*self.small("team"), "--algorithm", "allreduce", "--workers", "2", "--partition", "2", "--epochs",
                             "200", "--transport", "socket")
        self.wait_for_steps("team", process)
        refused = self.leave(self.path("team"), "1")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertIn("nobody waits to take its place: add one with 'distbelief join', or stop the job", refused.stdout)
        self.assertEqual(refused.stdout.count("\n"), 1)
        gone = self.leave(self.path("team"), "1")
        self.assertEqual(gone.returncode, 2, gone.stdout)
        self.assertIn("no job runs in this folder", gone.stdout)


class Newcomers(ControlTest):
    TEAM = ["--algorithm", "allreduce", "--workers", "2"]

    def test_replace_workers_that_died(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                output = self.train(*self.small(transport), *self.TEAM, "--epochs", "60", "--transport", transport,
                                    "--restarts", "2", "--chaos", "kill worker 1 at 10%; kill coordinator at 30%")
                self.assertRegex(output, r"\nworker 1 \(pid \d+ on \S+\) is replaced \(1 of 2 restarts\)\n")
                self.expect_finished(transport, 90000)
                self.assertEqual(self.summary(transport)["workers_at_end"], 2)
                self.expect_verdict(transport)

    def test_join_a_running_job(self):
        process = self.start(*self.small("run"), *self.TEAM, "--epochs", "150", "--transport", "socket")
        self.wait_for_steps("run", process)
        joined = subprocess.run([job_test.PROGRAM, "join", self.path("run")], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=DEADLINE, check=False)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 0, output)
        self.assertEqual(joined.returncode, 0, joined.stdout)
        self.assertIn("the run is finished", joined.stdout)
        self.expect_finished("run", 225000)
        self.assertEqual(self.summary("run")["workers_at_end"], 3)

    def test_are_refused_where_there_is_no_place_for_them(self):
        self.train(*self.small("served"), "--algorithm", "downpour", "--workers", "2", "--servers", "0", "--epochs", "1",
                   "--transport", "threads")
        for folder, expected in ((self.path("served"), "takes no workers in while it runs"),
                                 (self.path("nowhere"), "expected the folder of a run")):
            refused = subprocess.run([job_test.PROGRAM, "join", folder], stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True, timeout=DEADLINE, check=False)
            self.assertEqual(refused.returncode, 2, refused.stdout)
            self.assertIn(expected, refused.stdout)
            self.assertEqual(refused.stdout.count("\n"), 1, refused.stdout)


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
