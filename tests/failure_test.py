"""Failures of jobs, made on purpose by --chaos or by signals: who is named, what goes on, what is left.

failure_test.py PROGRAM    the distbelief executable

DISTBELIEF_TEST_STARTS says how many starts and ends in a row must leave nothing behind (3).
"""

import os
import re
import signal
import stat
import subprocess
import sys
import time

import job_test
from job_test import DEADLINE, processes_in, workers_in
from test_main import main

PROCESSES = ["socket", "mpi"]


class FailureTest(job_test.JobTest):
    def team(self, name, transport, *more, workers=3):
        return [*self.small(name), "--algorithm", "allreduce", "--workers", str(workers), "--transport", transport, *more]

    def undisturbed(self, *more):
        """The model of a run in which nothing goes wrong."""
        self.train(*self.team("undisturbed", "threads", *more))
        return self.model("undisturbed")

    def pid_of(self, name, process):
        """Of "worker-1", as its log has it."""
        with open(f"{self.path(name)}/logs/{process}.log") as log:
            return int(re.search(r"\(pid (\d+) on", log.read())[1])


class Chaos(FailureTest):
    def test_when_all_are_killed_a_restart_gives_the_model_of_an_undisturbed_run(self):
        wanted = self.undisturbed("--epochs", "2")
        for transport in PROCESSES:
            with self.subTest(transport=transport):
                script = "; ".join(f"kill worker {victim} at step 20" for victim in range(3))
                output = self.train(*self.team(transport, transport, "--epochs", "2", "--checkpoint-every", "7",
                                               "--restarts", "1", "--chaos", script))
                self.assertRegex(output, r"\nrestart 1 of 1 from the newest checkpoint; lost was worker \d \(pid ")
                self.assertEqual(self.summary(transport)["status"], "finished")
                self.assertEqual(self.summary(transport)["restarts"], 1)
                self.assertEqual(self.summary(transport)["samples"]["applied"], 3000)
                self.assertEqual(self.model(transport), wanted)
                self.expect_nothing_left(transport)

    def test_slow_workers_and_bad_links_change_nothing_but_time(self):
        wanted = self.undisturbed("--epochs", "1")
        for transport in ["threads", *PROCESSES]:
            with self.subTest(transport=transport):
                output = self.train(*self.team(transport, transport, "--epochs", "1", "--chaos",
                                               "slow worker 1 x3 from step 3 to step 9; delay link 0-2 by 1ms up to 3ms; "
                                               "cut link 0-1 for 300ms at step 12; delay worker 1 by 1ms from step 40"))
                for said in ("worker 1 slowed x3 from step 3", "worker 1 slowed x3 until step 9",
                             "link 0-2 delayed by 1 ms up to 3 ms from step 1", "link 0-1 cut for 300 ms at step 12"):
                    self.assertIn("chaos: " + said, output)
                self.assertEqual(self.model(transport), wanted)
                self.expect_nothing_left(transport)

    def test_a_short_cut_and_a_short_stop_heal(self):
        wanted = self.undisturbed("--epochs", "1")
        for transport in PROCESSES:
            with self.subTest(transport=transport):
                output = self.train(*self.team(transport, transport, "--epochs", "1", "--chaos",
                                               "cut worker 2 for 1s at step 10; stop worker 1 for 1s at step 20"))
                self.assertIn("chaos: worker 2 cut for 1 s at step 10", output)
                self.assertIn("chaos: worker 1 stopped for 1 s at step 20", output)
                self.assertEqual(self.model(transport), wanted)
                self.expect_nothing_left(transport)

    def test_a_long_cut_is_death_by_silence(self):
        for transport in PROCESSES:
            with self.subTest(transport=transport):
                output = self.train(*self.team(transport, transport, "--epochs", "1", "--chaos",
                                               "cut worker 2 for 1m at step 10"))
                self.assertRegex(output, r"\nlost: worker 2 \(pid \d+ on \S+\): was silent for \d+\.\d s")
                self.assertIn(": 2 workers go on after step 9\n", output)
                self.expect_every_sample_once(transport, 1500)
                self.expect_nothing_left(transport)

    def test_what_makes_no_sense_is_refused_before_anything_runs(self):
        for transport, script, expected in (
            ("socket", "kill worker 3 at step 1", "there is no worker 3: they are 0 to 2"),
            ("socket", "slow wroker 1 x5", "column 6: expected 'worker N', got 'wroker'"),
            ("threads", "kill worker 1 at step 3", "needs a worker that is a process"),
            ("threads", "cut worker 1 for 1s", "needs a worker that is a process"),
        ):
            output = self.train(*self.team("run", transport, "--chaos", script), code=2)
            self.assertIn(expected, output)
            self.assertEqual(output.count("\n"), 1, output)
            self.assertFalse(os.path.exists(self.path("run")))

    def test_one_process_can_be_killed_too_and_resumed(self):
        arguments = [*self.small("run"), "--epochs", "1", "--checkpoint-every", "5"]
        output = self.train(*arguments, "--chaos", "kill worker 0 at step 20", code=-signal.SIGKILL)
        self.assertIn("chaos: worker 0 killed at step 20", output)
        self.train("--resume", self.path("run"))
        self.train(*self.small("whole"), "--epochs", "1")
        self.assertEqual(self.model("run"), self.model("whole"))


class Start(FailureTest):
    def test_who_dies_while_a_job_starts_is_not_waited_for(self):
        for number, options in enumerate([["allreduce"], ["downpour", "--servers", "2"], ["averaging"]] * 2):
            name = f"run-{number}"
            process = self.start(*self.small(name), "--epochs", "2", "--workers", "3", "--transport", "socket",
                                 "--algorithm", *options)
            log = self.path(name) + "/logs/worker-2.log"

            def joined():
                return os.path.exists(log) and re.search(r"pid (\d+)", open(log).read())

            self.wait_until(joined, "worker 2 to join")
            time.sleep(0.02 * (number // 3))  # connects, or reads its data
            os.kill(int(joined()[1]), signal.SIGKILL)
            output, _ = process.communicate(timeout=DEADLINE)
            self.assertNotIn("in time", output)
            self.assertNotIn("has made no step", output)
            self.assertRegex(output, r"worker 2 \(pid \d+ on \S+\):? was killed by signal 9")
            if process.returncode != 0:  # it was so early that the job had not begun
                self.assertEqual(process.returncode, 4, output)
                self.assertNotIn("epoch   1", output)
            else:
                audit = self.summary(name)["samples"]
                self.assertEqual((audit["applied"], audit["lost"], audit["duplicated"]), (3000, 0, 0))
            self.expect_nothing_left(name)

    def test_who_comes_when_the_job_has_ended_says_so_and_blames_no_input(self):
        self.train(*self.team("run", "socket", "--epochs", "1"))
        for late in ([], ["--late"], ["--late", "--standby"]):
            worker = subprocess.run([job_test.PROGRAM, "worker", self.path("run"), "--transport", "socket", "--rank", "1", *late],
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE)
            self.assertEqual(worker.returncode, 1, worker.stdout)
            self.assertIn("the job ended before this process joined it: ", worker.stdout)


class Restarts(FailureTest):
    def test_are_for_deaths_only(self):
        output = self.train(*self.team("diverged", "socket", "--epochs", "3", "--lr", "1e30", "--restarts", "3"), code=3)
        self.assertNotIn("restart", output)
        process = self.start(*self.team("stopped", "socket", "--epochs", "2000", "--restarts", "3"))
        self.wait_for_steps("stopped", process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 130, output)
        self.assertNotIn("restart", output)
        self.assertEqual(self.summary("stopped")["restarts"], 0)

    def test_end_when_there_were_enough(self):
        output = self.train(*self.team("run", "socket", "--epochs", "2", "--restarts", "1", "--chaos",
                                       "; ".join(f"kill worker {victim} at step {step}"
                                                 for step in (10, 30) for victim in range(3))), code=4)
        self.assertEqual(output.count("\nrestart 1 of 1 "), 1, output)
        self.assertRegex(output, r"chaos: worker \d killed at step 30")
        self.expect_nothing_left("run")


class Stalls(FailureTest):
    def stalled(self, output):
        return set(re.findall(r"^(worker \d+) \(pid \d+ on \S+\) has made no step for", output, re.M))

    def test_who_computes_too_long_is_named_and_who_waits_is_not(self):
        for transport in PROCESSES:
            with self.subTest(transport=transport):
                process = self.start(*self.team(transport, transport, "--epochs", "2000", "--stall-after", "2", "--chaos",
                                                "slow worker 1 x1000000 from step 30"))
                line = ""
                while "chaos: worker 1 slowed" not in line:  # before that a slow machine may stand still by itself
                    line = process.stdout.readline()
                    self.assertNotEqual(line, "")
                lines = [line]
                while "has made no step" not in lines[-1]:
                    lines.append(process.stdout.readline())
                    self.assertNotEqual(lines[-1], "", "".join(lines))
                process.send_signal(signal.SIGINT)
                rest, _ = process.communicate(timeout=DEADLINE)
                output = "".join(lines) + rest
                self.assertRegex(output, r"worker 1 \(pid \d+ on \S+\) has made no step for \d+ s: computing step \d+; "
                                         "others wait for it")
                self.assertEqual(self.stalled(output), {"worker 1"}, output)
                self.expect_nothing_left(transport)

    def test_who_is_stopped_is_named(self):
        process = self.start(*self.team("run", "socket", "--epochs", "2000", "--stall-after", "2.5"))
        self.wait_for_steps("run", process)
        victim = workers_in(self.path("run"))[2]
        os.kill(victim, signal.SIGSTOP)
        line = ""
        while "has made no step" not in line:
            line = process.stdout.readline()
            self.assertNotEqual(line, "")
        self.assertIn(f"(pid {victim} on ", line)
        os.kill(victim, signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE)
        self.expect_nothing_left("run")


class LastWords(FailureTest):
    def test_of_a_killed_worker_are_shown_and_are_its_own(self):
        for transport in PROCESSES:
            with self.subTest(transport=transport):
                process = self.start(*self.team(transport, transport, "--epochs", "60"))
                self.wait_for_steps(transport, process)
                for rank in range(3):
                    with open(self.path(transport) + f"/logs/worker-{rank}.log") as file:
                        self.assertIn(f" worker {rank} (pid ", file.readline())
                victim = workers_in(self.path(transport))[1]
                rank = next(rank for rank in range(3) if self.pid_of(transport, f"worker-{rank}") == victim)
                with open(self.path(transport) + f"/logs/worker-{rank}.log", "a") as file:
                    file.write("terminate called\n")  # as its libraries may
                os.kill(victim, signal.SIGKILL)
                output, _ = process.communicate(timeout=DEADLINE)
                self.assertEqual(process.returncode, 0, output)
                self.assertRegex(output, rf"\nlost: worker {rank} \(pid {victim} on [^\n]*\n    terminate called\n")
                self.assertNotIn("Z worker ", output)  # nor what it writes down as it goes
                self.expect_nothing_left(transport)


class LastLine(FailureTest):
    def test_names_whose_death_ended_the_job_and_nobody_whose_death_was_survived(self):
        name = "run"
        process = self.start(*self.small(name), "--algorithm", "downpour", "--workers", "3", "--servers", "1", "--epochs",
                             "1000000", "--transport", "socket")
        self.wait_for_steps(name, process)
        os.kill(self.pid_of(name, "worker-1"), signal.SIGKILL)
        self.line_with(process, "lost: worker 1 (")
        survived = time.monotonic()
        self.wait_until(lambda: time.monotonic() > survived + 3, "the job to have survived it")
        os.kill(self.pid_of(name, "server-3"), signal.SIGKILL)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 4, output)
        self.assertRegex(output, r"\ndistbelief: a process was lost: server 3 \(pid ")


class ForeignLauncher(FailureTest):
    """A rank that dies under an mpirun of the user's own."""

    def mpirun(self, name, *more, recovery):
        environment = {**os.environ, "TMPDIR": self.scratch.name, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
        command = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", "3",
                   *(["--enable-recovery"] if recovery else []), job_test.PROGRAM, "train", *self.small(name),
                   "--algorithm", "allreduce", *more]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        self.started.append(process)
        return process

    def end(self, process, name):
        """Of a job with recovery, whose launcher ends with 0 even if all ranks do not."""
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(self.summary(name)["status"], "finished", output)
        self.assertIn("summary.json says how the run ended", output)
        return output

    def test_with_recovery_the_dead_rank_is_named_and_the_others_go_on(self):
        for victim in (0, 1):
            with self.subTest(victim=victim):
                name = f"recovery{victim}"
                process = self.mpirun(name, "--epochs", "60", recovery=True)
                self.wait_for_steps(name, process)
                with open(self.path(name) + f"/logs/worker-{victim}.log") as file:
                    pid = int(re.search(r"\(pid (\d+) on", file.readline())[1])
                os.kill(pid, signal.SIGKILL)
                output = self.end(process, name)
                self.assertRegex(output, rf"worker {victim} \(pid {pid} on .*: 2 workers go on after step ")
                self.expect_every_sample_once(name, 60 * 1500)
                self.assertNotIn("the last words of worker", output)  # it could not say any
                self.expect_nothing_left(name)

    def test_without_recovery_all_end_and_the_launcher_names_the_signal(self):
        process = self.mpirun("plain", "--epochs", "2000", recovery=False)
        self.wait_for_steps("plain", process)
        with open(self.path("plain") + "/logs/worker-1.log") as file:
            pid = int(re.search(r"\(pid (\d+) on", file.readline())[1])
        os.kill(pid, signal.SIGKILL)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertNotEqual(process.returncode, 0, output)
        self.assertIn("signal 9", output)
        self.expect_nothing_left("plain")

    def test_chaos_works_there_too(self):
        process = self.mpirun("chaos", "--epochs", "1", "--chaos", "slow worker 1 x2 from step 5; kill worker 2 at step 20",
                              recovery=True)
        output = self.end(process, "chaos")
        self.assertIn("chaos: worker 1 slowed x2 from step 5", output)
        self.assertIn("chaos: worker 2 killed at step 20", output)
        self.assertRegex(output, r"worker 2 \(pid .*: 2 workers go on after step 19")
        self.expect_nothing_left("chaos")


class Endurance(FailureTest):
    def leftovers(self, before):
        """Files of shared memory that were not there, sockets, and what is in the temporary folder besides runs."""
        found = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")} - before
        for folder, folders, files in os.walk(self.scratch.name):
            if folder == self.scratch.name:
                found |= {os.path.join(folder, name) for name in folders + files if not name.startswith("run-")}
            for name in files:
                path = os.path.join(folder, name)
                if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
                    found.add(path)
        return found

    def test_starts_and_ends_leave_nothing_behind(self):
        starts = int(os.environ.get("DISTBELIEF_TEST_STARTS", "3"))
        for transport in PROCESSES:
            before = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}
            for number in range(starts):
                name = f"run-{transport}-{number}"
                self.train("--model", "mlp", "--model-options", "hidden=8", "--data",
                           "synthetic:classes=2,shape=1x4x4,samples=60,test=10", "--batch", "20", "--epochs", "1",
                           "--threads", "1", "--out", self.path(name), "--algorithm", "allreduce", "--workers", "2",
                           "--transport", transport)
                self.expect_nothing_left(name)
            # Other jobs on this machine have files too, for as long as they run.
            left = self.leftovers(before)
            self.wait_until(lambda: not any(os.path.exists(path) for path in left), f"{left} to go away")


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
