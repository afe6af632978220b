"""Networks that are cut over several workers, whose jobs grow and shrink by whole copies while they train: real processes.

copies_test.py PROGRAM    the distbelief executable
"""

import os
import signal
import sys

import job_test
from control_test import coordinator_of
from job_test import DEADLINE, SURVIVABLE
from scale_test import ElasticTest
from test_main import main

STAGES = ["--stages", "2", "--tensor", "1", "--micro-batches", "2"]
WHOLE = ["--stages", "1", "--tensor", "1", "--micro-batches", "0"]
WAITS = "waits: 1 more is needed for another copy of the network"


class Copies(ElasticTest):
    def begin_cut(self, name, *more, **how):
        return self.begin(name, *STAGES, *more, **how)

    def ends_well(self, process):
        said, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 0, said)
        return said

    def test_one_to_two_to_one_copies_with_the_losses_of_one_process(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                process = self.begin_cut(transport, transport=transport)
                folder = self.path(transport)
                first = self.come(folder)
                self.assertRegex(self.line_with(first, "waits"), rf"^standby \(pid {first.pid} on \S+\) {WAITS}\n$")
                self.assertRegex(self.command("status", folder), r" standby [^\n]* waiting: 1 more is needed for another copy")
                pid = coordinator_of(folder)
                os.kill(pid, signal.SIGKILL)  # while it waits
                self.wait_until(lambda: coordinator_of(folder) not in (None, pid), "another coordinator")
                second = self.come(folder)
                self.assertRegex(self.line_with(process, "2 copies go on after step"),
                                 r"^worker 2 \(pid \d+ on \S+\) joined; worker 3 \(pid \d+ on \S+\) joined: 2 copies go on after "
                                 r"step \d+; now 2 copies of 2 stages of 1 worker, 2 micro-batches\n$")
                self.wait_for_more_steps(transport)
                self.assertIn("the others of its copy of the network end too", self.command("leave", folder, "1"))
                self.assertRegex(self.line_with(process, "one copy goes on after step"),
                                 r"^worker 1 \(pid \d+ on \S+\) leaves: copy 1 of 2 is given up, worker 0 ends; one copy goes on "
                                 r"after step \d+; now one copy of the network of 2 stages of 1 worker, 2 micro-batches\n$")
                self.wait_for_more_steps(transport)
                refused = self.command("leave", folder, "2", code=2)
                self.assertIn("holds a part of the last copy of the network, and nobody waits to take its place", refused)
                output, summary = self.stop(transport, process, *WHOLE)
                for newcomer in (first, second):
                    self.assertTrue(self.ends_well(newcomer).endswith("the run is interrupted\n"))
                self.assertEqual((summary["workers"], summary["workers_at_end"]), (2, 2), output)
                self.assertEqual(sorted(event["what"] for event in summary["events"]), ["joined"] * 2 + ["left"] * 2)
                self.assertNotIn("lost: ", output)
                self.expect_losses_of_one_process(transport, [event["step"] for event in summary["events"]])

    def test_of_other_algorithms_too(self):
        for number, algorithm in enumerate((["sync"], ["averaging", "--average-every", "9"], ["gossip"])):
            transport = SURVIVABLE[number % len(SURVIVABLE)]
            with self.subTest(transport=transport, algorithm=algorithm):
                name = algorithm[0]
                process = self.begin_cut(name, transport=transport, algorithm=["--algorithm", *algorithm, "--lr", "0.005"])
                folder = self.path(name)
                comers = [self.come(folder), self.come(folder)]
                self.line_with(process, "joined: 2 copies go on after step")
                self.wait_for_more_steps(name)
                self.command("scale", folder, "--workers", "6")
                self.line_with(process, "joined: 3 copies go on after step")
                self.wait_for_more_steps(name)
                os.kill(self.pid_of(name, 2), signal.SIGKILL)
                self.assertRegex(self.line_with(process, "is given up"), "worker 3 ends; 2 copies go on after step")
                self.wait_for_more_steps(name)
                self.command("leave", folder, "0")
                self.line_with(process, "copy 1 of 2 is given up, worker 1 ends; one copy goes on after step")
                self.wait_for_more_steps(name)
                output, summary = self.stop(name, process, *WHOLE)
                self.assertIn(-signal.SIGKILL, (comer.wait(timeout=DEADLINE) for comer in comers))
                self.assertEqual((summary["workers"], summary["workers_at_end"]), (2, 2), output)
                self.assertEqual(sorted(event["what"] for event in summary["events"]),
                                 ["joined"] * 4 + ["left"] * 2 + ["lost"])
                self.assertNotIn("back to", output)

    def test_scaled_up_and_down_with_deaths_among_it(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                process = self.begin_cut(transport, transport=transport)
                folder = self.path(transport)
                self.assertIn("2 workers hold a copy", self.command("scale", folder, "--workers", "3", code=2))
                self.assertIn("2 workers → 4: 2 are started\n", self.command("scale", folder, "--workers", "4"))
                self.line_with(process, "2 copies go on after step")
                os.kill(self.pid_of(transport, 3), signal.SIGKILL)
                self.line_with(process, "copy 2 of 2 is given up, worker 2 ends; one copy goes on after step")
                self.wait_for_more_steps(transport)
                self.command("scale", folder, "--workers", "4")
                self.line_with(process, "2 copies go on after step")
                self.assertIn("4 workers → 2: one copy of the network leaves\n", self.command("scale", folder, "--workers", "2"))
                self.assertRegex(self.line_with(process, "one copy goes on"), "^copy 2 of 2 is given up, workers 4, 5 end; ")
                # A worker whose machine goes away, and one that takes its place, in memory, and is killed then.
                waiting = self.come(folder)
                self.line_with(waiting, "waits")
                os.kill(self.pid_of(transport, 0), signal.SIGTERM)
                self.assertRegex(self.line_with(process, "one copy goes on"),
                                 r"^worker 0 \(pid \d+ on \S+\) leaves; worker 6 \(pid \d+ on \S+\) joined: one copy goes on")
                self.wait_for_more_steps(transport)
                waiting.kill()
                self.line_with(process, "now 1 worker with the whole network")
                self.wait_for_more_steps(transport)
                output, summary = self.stop(transport, process, *WHOLE)
                self.assertEqual(summary["workers_at_end"], 1, output)


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
