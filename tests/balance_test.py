"""Workers of different speed: shares of the batch that follow it, and who is named as slow, and why. Real processes.

balance_test.py PROGRAM    the distbelief executable

DISTBELIEF_TEST_TRANSPORTS as for job_test.py.
"""

import os
import re
import signal
import subprocess
import sys

import job_test
from job_test import DEADLINE, SURVIVABLE, JobTest, workers_in
from test_main import main

SAMPLES = 1500


class BalanceTest(JobTest):
    def team(self, name, *more, workers=3, algorithm="allreduce", transport="socket"):
        return [*self.small(name), "--workers", str(workers), "--transport", transport, "--algorithm", algorithm, *more]

    def shares(self, name):
        return [share["samples"] for share in self.summary(name)["shares"]]

    def interrupt(self, process):
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 130, output)

    def wait_for_status(self, name, pattern):
        def shows_it():
            shown = subprocess.run([job_test.PROGRAM, "status", self.path(name)], check=True, capture_output=True, text=True,
                                   timeout=DEADLINE)
            return re.search(pattern, shown.stdout)

        self.wait_until(shows_it, f"{pattern} in the status of {name}")

    def expect_exact_when_finished(self, name):
        """Goes on to the end of the epoch that has begun."""
        epochs = self.epochs_begun(name)
        self.train("--resume", self.path(name), "--epochs", epochs, "--chaos", "")
        self.expect_every_sample_once(name, int(epochs) * SAMPLES)
        self.expect_nothing_left(name)


class Shares(BalanceTest):
    def test_a_slow_worker_gets_fewer_samples_and_every_sample_is_trained_once(self):
        for algorithm, transport in (("allreduce", SURVIVABLE[-1]), ("sync", "socket")):
            with self.subTest(algorithm=algorithm, transport=transport):
                process = self.start(*self.team(algorithm, "--epochs", "100000", "--balance", "on", "--chaos",
                                                "slow worker 1 x8", algorithm=algorithm, transport=transport))
                line = self.line_with(process, "shares of the batch: ")
                self.assertRegex(line, r"worker 0 \d+, worker 1 \d+, worker 2 \d+: .*worker 1 takes \d+\.\d times as long a sample")
                self.wait_for_status(algorithm, r"\n +1 +worker .*, \d+ samples of each batch")
                self.interrupt(process)
                shares = self.shares(algorithm)
                self.assertEqual(sum(shares), 30)
                self.assertLess(shares[1], 10)  # an equal share; who else waits for a core is for the machine to say
                self.expect_exact_when_finished(algorithm)
                after = self.shares(algorithm)  # it went on with what it knew
                self.assertEqual(sum(after), 30)

    def test_who_is_left_shares_by_speed_too(self):
        process = self.start(*self.team("run", "--epochs", "100000", "--balance", "on", "--chaos", "slow worker 2 x8"))
        self.line_with(process, "shares of the batch: ")
        os.kill(workers_in(self.path("run"))[0], signal.SIGKILL)
        self.line_with(process, ": 2 workers go on after step ")
        self.interrupt(process)
        self.assertEqual([share["worker"] for share in self.summary("run")["shares"]], [1, 2])
        shares = self.shares("run")
        self.assertEqual(sum(shares), 30)
        self.assertLess(shares[1], shares[0])
        self.expect_exact_when_finished("run")

    def test_shares_that_are_given_have_the_losses_of_one_process_and_bits_that_survive_a_kill(self):
        self.train(*self.small("one"), "--epochs", "1")
        given = ("--balance", "6,3,1", "--epochs", "1")
        self.train(*self.team("whole", *given))
        self.assertEqual(self.shares("whole"), [18, 9, 3])
        for found, wanted in zip(self.losses("whole")[:20], self.losses("one")[:20], strict=True):
            self.assertAlmostEqual(found, wanted, delta=1e-4 * wanted)
        script = "; ".join(f"kill worker {victim} at step 20" for victim in range(3))
        self.train(*self.team("killed", *given, "--checkpoint-every", "7", "--chaos", script), code=4)
        self.train("--resume", self.path("killed"))
        self.assertEqual(self.model("killed"), self.model("whole"))
        self.expect_every_sample_once("killed", SAMPLES)

    def test_without_it_a_slow_worker_keeps_its_share_and_bits_are_the_same(self):
        self.train(*self.team("usual", "--epochs", "1", transport="threads"))
        for balance in ("auto", "off"):
            self.train(*self.team(balance, "--epochs", "1", "--balance", balance, "--chaos", "slow worker 1 x3"))
            self.assertEqual(self.shares(balance), [10, 10, 10])
            self.assertEqual(self.model(balance), self.model("usual"))

    def test_a_newcomer_gets_a_share_among_the_others(self):
        process = self.start(*self.team("run", "--epochs", "100000", "--balance", "3,1", workers=2))
        self.wait_for_steps("run", process)
        newcomer = subprocess.Popen([job_test.PROGRAM, "join", self.path("run")], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)
        self.started.append(newcomer)
        self.line_with(process, " joined: 3 workers go on after step ")
        self.interrupt(process)
        newcomer.communicate(timeout=DEADLINE)
        self.assertEqual(self.shares("run"), [15, 5, 10])  # the mean of the others

    def test_what_makes_no_sense_is_refused(self):
        for given, expected in (
            (["--balance", "3,1"], "--balance 3,1: shares of 2 workers, where there are 3"),
            (["--balance", "3,x,1"], "expected auto, on, off, or whole numbers"),
            (["--balance", "on", "--algorithm", "averaging"], "--algorithm averaging has no use for it"),
        ):
            arguments = [*self.small("run"), "--workers", "3", "--transport", "socket", "--algorithm", "allreduce", *given]
            if "averaging" in given:
                arguments = [*self.small("run"), "--workers", "3", *given]
            output = self.train(*arguments, code=2)
            self.assertIn(expected, output)
            self.assertFalse(os.path.exists(self.path("run")))


class Stragglers(BalanceTest):
    def test_are_named_with_the_cause(self):
        computes, link = "it computes slower", "its messages take longer to arrive"
        for algorithm, script, slow, cause in (
            ("allreduce", "slow worker 1 x100", 1, computes),  # what is less than 0.5 ms a step holds up nobody
            ("allreduce", "delay worker 2 by 60ms", 2, link),
            ("averaging", "slow worker 2 x100", 2, computes),
            ("downpour", "slow worker 0 x100 from step 5", 0, computes),
            ("downpour", "delay worker 1 by 60ms", 1, link),
        ):
            with self.subTest(algorithm=algorithm, script=script):
                name = f"{algorithm}-{slow}"
                process = self.start(*self.team(name, "--epochs", "100000", "--straggler-after", "1", "--chaos", script,
                                                algorithm=algorithm))
                # On a machine that does much else others may be slow too, and this one for another cause at first.
                named = rf"^worker {slow} \(pid \d+ on \S+\) takes \d+\.\d times as long for a step as the others: {cause}\n$"
                while not re.match(named, self.line_with(process, cause)):
                    pass
                self.wait_for_status(name, cause)
                self.interrupt(process)
                self.expect_nothing_left(name)


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
