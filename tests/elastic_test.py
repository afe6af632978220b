"""Jobs with parameter servers whose processes come and go while training goes on: real processes, exact audit.

elastic_test.py PROGRAM    the distbelief executable

DISTBELIEF_TEST_TRANSPORTS ("socket mpi") says over which of them.
"""

import os
import re
import signal
import subprocess
import sys

import failover_test
import job_test
from job_test import DEADLINE
from served_test import ALGORITHMS, SURVIVABLE
from test_main import main


class ElasticTest(failover_test.FailoverTest):
    SAMPLES = 3000

    def begin(self, name, transport, workers, servers, algorithm="downpour", *more):
        process = self.start(*self.small(name, samples=self.SAMPLES, noise=1), *ALGORITHMS[algorithm], "--workers",
                             str(workers), "--servers", str(servers), "--epochs", "100000", "--transport", transport, *more)
        self.wait_for_steps(name, process)
        return process

    def join(self, name, *more):
        log = open(self.path(f"{name}-joined-{len(self.started)}"), "w")
        self.addCleanup(log.close)
        process = subprocess.Popen([job_test.PROGRAM, "join", self.path(name), *more], stdout=log,
                                   stderr=subprocess.STDOUT, text=True, env={**os.environ, "TMPDIR": self.scratch.name})
        self.started.append(process)
        return process

    def leave(self, name, member, code=0):
        left = subprocess.run([job_test.PROGRAM, "leave", self.path(name), str(member)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=DEADLINE, check=False)
        self.assertEqual(left.returncode, code, left.stdout)
        return left.stdout

    def expect_to_go_on(self, name, process):
        later = self.rows(name) + 40

        def went_on():
            self.expect_running(process)
            return self.rows(name) >= later

        self.wait_until(went_on, "training to go on")

    def expect_each_sample_once_after(self, name, process):
        """Interrupts the run, has it end with the epochs that have begun, and looks at its books."""
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 130, output)
        self.expect_nothing_left(name)
        summary = self.summary(name)
        epochs = self.epochs_to_end_with(name)
        self.train("--resume", self.path(name), "--epochs", str(epochs))
        self.expect_every_sample_once(name, epochs * self.SAMPLES)
        return summary


class Workers(ElasticTest):
    def test_come_and_go_and_die_and_each_sample_is_applied_once(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                name = transport
                process = self.begin(name, transport, 1, 2)
                joined = []
                for workers in (2, 3, 4):
                    joined.append(self.join(name))
                    line = self.line_with(process, " joined after update ")
                    self.assertRegex(line, rf"worker {workers + 1} \(pid {joined[-1].pid} on \S+\) .*: {workers} workers now")
                self.leave(name, 0)
                self.assertIn(": 3 workers now", self.line_with(process, " left after update "))
                self.leave(name, 4)
                self.assertIn(": 2 workers now", self.line_with(process, " left after update "))
                self.assertEqual(joined[1].wait(timeout=DEADLINE), 0)
                self.expect_to_go_on(name, process)
                joined.append(self.join(name))
                self.assertIn(": 3 workers now", self.line_with(process, "worker 6 "))
                self.expect_to_go_on(name, process)
                joined[0].kill()
                self.line_with(process, "lost: worker 3 ")
                joined[2].terminate()
                self.assertIn(": 1 worker now", self.line_with(process, " left after update "))
                self.expect_to_go_on(name, process)
                summary = self.expect_each_sample_once_after(name, process)
                self.assertEqual(joined[3].wait(timeout=DEADLINE), 0)
                self.assertEqual((summary["workers"], summary["workers_at_end"]), (1, 1))
                self.assertEqual([(event["what"], re.match(r"worker (\d+) ", event["who"])[1]) for event in summary["events"]],
                                 [("joined", "3"), ("joined", "4"), ("joined", "5"), ("left", "0"), ("left", "4"),
                                  ("joined", "6"), ("lost", "3"), ("left", "5")])

    def test_come_to_every_algorithm_also_after_a_server_died(self):
        for algorithm in ("async", "softsync", "backup"):
            with self.subTest(algorithm=algorithm):
                name = f"{algorithm}-late"
                process = self.begin(name, "socket", 2, 3, algorithm)
                os.kill(self.pid_of_holder(name, 2), signal.SIGKILL)  # who leads
                self.line_with(process, "server 3 leads from here on")
                self.wait_until(lambda name=name: self.copies_made(name) >= 2, "new copies")
                first = self.join(name)
                self.line_with(process, " joined after update ")
                self.leave(name, 0)
                self.leave(name, 1)
                self.expect_to_go_on(name, process)  # with the newcomer alone
                os.kill(self.pid_of_holder(name, 3), signal.SIGKILL)
                self.line_with(process, "server 4 leads from here on")
                self.expect_to_go_on(name, process)
                self.expect_each_sample_once_after(name, process)
                self.assertEqual(first.wait(timeout=DEADLINE), 0)

    def test_that_died_are_replaced_by_the_launcher(self):
        for servers in (1, 0):
            with self.subTest(servers=servers):
                name = f"replaced-{servers}"
                output = self.train(*self.small(name, samples=self.SAMPLES, noise=1), *ALGORITHMS["downpour"], "--workers", "2",
                                    "--servers", str(servers), "--epochs", "20", "--transport", "socket", "--restarts", "1",
                                    "--chaos", "kill worker 1 at 10%")
                self.assertRegex(output, r"\nworker 1 \(pid \d+ on \S+\) is replaced \(1 of 1 restarts\)\n")
                self.assertRegex(output, rf"\nworker {2 + servers} \(pid \d+ on \S+\) joined after update \d+: 2 workers now\n")
                self.expect_every_sample_once(name, 20 * self.SAMPLES)
                self.expect_nothing_left(name)


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
