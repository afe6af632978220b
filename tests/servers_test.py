"""Parameter servers that come and go while training goes on: real processes, exact audit, and a model that counts.

servers_test.py PROGRAM [CLASS]    the distbelief executable

DISTBELIEF_TEST_TRANSPORTS ("socket mpi") says over which of them.
"""

import json
import os
import re
import signal
import subprocess
import sys

import elastic_test
import job_test
import served_test
from job_test import DEADLINE
from served_test import ALGORITHMS, SURVIVABLE
from test_main import main


class ServersTest(elastic_test.ElasticTest):
    SAMPLES = 3000

    def begin(self, name, transport, workers, servers, algorithm="downpour", *more):
        recipe = ["hidden=512" if word == "hidden=32" else word for word in self.small(name, samples=self.SAMPLES, noise=1)]
        process = self.start(*recipe, *ALGORITHMS[algorithm], "--workers", str(workers), "--servers", str(servers), "--shelves",
                             "12", "--epochs", "100000", "--transport", transport, *more)
        self.wait_for_steps(name, process)
        return process

    def command(self, *arguments, code=0):
        done = subprocess.run([job_test.PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=DEADLINE, check=False)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def shares(self, process):
        """What each server answers for now, and how much of all was copied, in percent."""
        line = self.line_with(process, "parameters are shared out anew: ")
        servers = {int(rank): int(percent) for rank, percent in re.findall(rf"{self.HOLDER} (\d+) (\d+) %", line)}
        return servers, int(re.search(r"copied, (\d+) % of all", line)[1])

    def coordinator_log(self, name):
        with open(self.path(name) + "/logs/coordinator.log") as log:
            return log.read()


class Scenario(ServersTest, served_test.WitnessTest):
    """Of one server three, of three two and one, with a model whose weights tell how often each sample's gradient entered."""
    SAMPLES = 24576

    def begin(self, name, transport, workers, servers, algorithm="downpour", *more):
        recipe = self.recipe(name, algorithm)
        recipe[recipe.index("--workers") + 1] = str(workers)
        recipe[recipe.index("--servers") + 1] = str(servers)
        recipe[recipe.index("--transport") + 1] = transport
        process = self.start(*recipe, "--shelves", "12", "--epochs", "100000", "--log-every", "20", *more)
        self.wait_for_steps(name, process)
        return process

    def expect_to_go_on(self, name, process):
        later = self.rows(name) + 3
        self.wait_until(lambda: self.rows(name) >= later, "training to go on")

    def run_scenario(self, name, transport, *more):
        process = self.begin(name, transport, 2, 1, "downpour", *more)
        joined = self.join(name, "--as", "server")
        self.assertIn(": 2 servers now", self.line_with(process, " joined after update "))
        self.assertEqual(self.shares(process), ({2: 50, 3: 50}, 50))
        self.expect_to_go_on(name, process)
        self.command("scale", self.path(name), "--servers", "3")
        shares, moved = self.shares(process)
        self.assertEqual(set(shares), {2, 3, 4})
        self.assertTrue(all(30 <= share <= 36 for share in shares.values()), shares)
        self.assertTrue(30 <= moved <= 37, moved)
        self.expect_to_go_on(name, process)
        self.leave(name, 3)
        self.assertEqual(joined.wait(timeout=DEADLINE), 0)
        shares, moved = self.shares(process)
        self.assertEqual(shares, {2: 50, 4: 50})
        self.assertTrue(30 <= moved <= 37, moved)
        self.expect_to_go_on(name, process)
        self.leave(name, 2)  # which leads
        self.line_with(process, "server 4 leads from here on")
        self.assertRegex(self.line_with(process, " left after update "), r"^server 2 .*: 1 server now")
        self.expect_to_go_on(name, process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 130, output)
        self.expect_nothing_left(name)
        summary = self.summary(name)
        self.assertEqual([(event["what"], event["who"].split(" (")[0]) for event in summary["events"]],
                         [("joined", "server 3"), ("joined", "server 4"), ("left", "server 3"), ("left", "server 2")])
        self.assertGreater(summary["server_bytes_moved"], 0)
        epochs = self.epochs_to_end_with(name)
        self.train("--resume", self.path(name), "--epochs", str(epochs))
        self.expect_every_sample_once(name, epochs * self.SAMPLES)
        self.expect_counts(name, epochs)

    def test_over_sockets(self):
        self.run_scenario("one-three-two", "socket")

    def test_over_mpi(self):
        if "mpi" in SURVIVABLE:
            self.run_scenario("mpi-one-three-two", "mpi")


class Inside(Scenario):
    """The same of workers with a server inside, until only workers that came later are left, or one of the first over MPI."""
    HOLDER = "worker"

    def expect_shares(self, process, workers, copied):
        shares, moved = self.shares(process)
        self.assertEqual(set(shares), set(workers))
        self.assertTrue(all(abs(share - 100 / len(workers)) <= 4 for share in shares.values()), shares)
        self.assertTrue(abs(moved - copied) <= 5, moved)

    def run_scenario(self, name, transport, *more):
        first = 1 if transport == "socket" else 2  # under mpirun one of its own stays
        process = self.begin(name, transport, first, 0, "downpour", *more)
        joined = self.join(name)
        self.assertIn(f": {first + 1} workers now", self.line_with(process, " joined after update "))
        self.expect_shares(process, range(first + 1), 100 / (first + 1))
        self.expect_to_go_on(name, process)
        self.command("scale", self.path(name), "--workers", str(first + 2))
        self.expect_shares(process, range(first + 2), 100 / (first + 2))
        self.expect_to_go_on(name, process)
        self.leave(name, 0)  # which leads
        self.line_with(process, " leads from here on")
        self.assertRegex(self.line_with(process, " left after update "), rf"^worker 0 .*: {first + 1} workers now")
        self.expect_to_go_on(name, process)
        joined.terminate()
        self.assertRegex(self.line_with(process, " left after update "), rf"^worker {first} .*: {first} worker")
        self.assertEqual(joined.wait(timeout=DEADLINE), 0)
        self.expect_to_go_on(name, process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 130, output)
        self.expect_nothing_left(name)
        self.assertEqual([(event["what"], event["who"].split(" (")[0]) for event in self.summary(name)["events"]],
                         [("joined", f"worker {first}"), ("joined", f"worker {first + 1}"), ("left", "worker 0"),
                          ("left", f"worker {first}")])
        epochs = self.epochs_to_end_with(name)
        self.train("--resume", self.path(name), "--epochs", str(epochs))
        self.expect_every_sample_once(name, epochs * self.SAMPLES)
        self.expect_counts(name, epochs)


class InsideWithoutCopies(Inside):
    """The same with one copy of everything."""

    def begin(self, name, transport, workers, servers, algorithm="downpour", *more):
        return super().begin(name, transport, workers, servers, algorithm, "--replication", "1", *more)


class InsideOthers(ServersTest):
    HOLDER = "worker"

    def test_whoever_dies_in_the_middle_is_a_death_and_no_more(self):
        name = "deaths"
        process = self.begin(name, "socket", 2, 0)
        newcomer = self.join(name)
        self.wait_until(lambda: " and worker 2\n" in self.coordinator_log(name), "something to move")
        newcomer.kill()
        self.line_with(process, "lost: worker 2 ")
        self.expect_to_go_on(name, process)
        joined = self.join(name)
        while len(self.shares(process)[0]) != 3:
            pass
        before = self.coordinator_log(name).count("shelf ")
        leaving = subprocess.Popen([job_test.PROGRAM, "leave", self.path(name), "1"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.started.append(leaving)
        self.wait_until(lambda: self.coordinator_log(name).count("shelf ") > before, "something to move")
        os.kill(self.pid_of_holder(name, 1), signal.SIGKILL)
        leaving.communicate(timeout=DEADLINE)
        self.expect_to_go_on(name, process)
        joined.terminate()
        coordinators = [pid for pid, words in job_test.processes_in(self.path(name)).items() if b"coordinator" in words]
        os.kill(coordinators[0], signal.SIGKILL)
        self.assertEqual(joined.wait(timeout=DEADLINE), 0)
        self.expect_to_go_on(name, process)
        self.assertIn("is the last that trains: stop the job instead", self.leave(name, 0, code=2))
        self.expect_each_sample_once_after(name, process)

    def test_they_come_to_and_leave_every_algorithm(self):
        for algorithm in ("softsync", "backup"):
            with self.subTest(algorithm=algorithm):
                name = f"{algorithm}-inside"
                process = self.begin(name, "socket", 2, 0, algorithm)
                self.command("scale", self.path(name), "--workers", "3")
                self.shares(process)
                self.command("scale", self.path(name), "--workers", "2")
                self.assertIn("worker 2 ", self.line_with(process, " left after update "))
                self.leave(name, 0)
                self.line_with(process, "worker 1 leads from here on")
                self.expect_to_go_on(name, process)
                self.expect_each_sample_once_after(name, process)


class Sandblaster(ServersTest):
    def expect_to_go_on(self, name, process):
        later = self.rows(name) + 15
        self.wait_until(lambda: self.rows(name) >= later, "training to go on")

    def test_its_servers_come_and_go_with_the_history(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                name = transport
                process = self.start(*self.small(name, samples=6000, noise=1), "--algorithm", "sandblaster", "--workers", "2",
                                     "--servers", "2", "--shelves", "12", "--iterations", "100000", "--weight-decay", "0.00001",
                                     "--transport", transport)
                self.wait_for_steps(name, process)
                joined = self.join(name, "--as", "server")
                self.assertEqual(set(self.shares(process)[0]), {2, 3, 4})
                self.expect_to_go_on(name, process)
                self.leave(name, 2)  # which leads
                self.line_with(process, " leads from here on")
                self.assertIn(": 2 servers now", self.line_with(process, " left after update "))
                self.expect_to_go_on(name, process)
                joined.terminate()
                self.assertEqual(joined.wait(timeout=DEADLINE), 0)
                self.expect_to_go_on(name, process)
                process.send_signal(signal.SIGINT)
                output, _ = process.communicate(timeout=DEADLINE)
                self.assertEqual(process.returncode, 130, output)
                self.expect_nothing_left(name)
                self.train("--resume", self.path(name), "--iterations", str(self.summary(name)["epochs"] + 2))
                with open(self.path(name) + "/metrics.jsonl") as file:
                    rows = [json.loads(line) for line in file]
                objectives = [row["objective"] for row in rows if "objective" in row]
                for before, after in zip(objectives, objectives[1:]):
                    self.assertLess(after, before * (1 + 1e-6))
                evaluations = [row["evaluation_done"] for row in rows if "evaluation_done" in row]
                self.assertEqual(set(evaluations), {6000})
                audit = self.summary(name)["samples"]
                self.assertEqual((audit["applied"], audit["lost"], audit["duplicated"]), (sum(evaluations), 0, 0), audit)
                self.assertEqual(audit["leased"], audit["applied"] + audit["dropped"], audit)


class CutNetworks(ServersTest):
    """Of a network that is cut over several workers: each part's parameters are on all servers."""

    def test_its_servers_come_and_go_and_die(self):
        for number, algorithm in enumerate(("downpour", "softsync", "backup")):
            transport = SURVIVABLE[number % len(SURVIVABLE)]
            with self.subTest(algorithm=algorithm, transport=transport):
                name = f"{algorithm}-cut"
                process = self.start(*self.small(name, samples=self.SAMPLES, noise=1), *ALGORITHMS[algorithm], "--stages", "2",
                                     "--replicas", "2", "--servers", "2", "--epochs", "100000", "--transport", transport)
                self.wait_for_steps(name, process)
                joined = self.join(name, "--as", "server")
                self.assertEqual(set(self.shares(process)[0]), {4, 5, 6})
                self.expect_to_go_on(name, process)
                self.leave(name, 4)  # which leads
                self.line_with(process, " leads from here on")
                self.assertIn(": 2 servers now", self.line_with(process, " left after update "))
                self.expect_to_go_on(name, process)
                self.command("scale", self.path(name), "--servers", "3")
                self.assertEqual(set(self.shares(process)[0]), {5, 6, 7})
                os.kill(self.pid_of_holder(name, 5), signal.SIGKILL)
                self.line_with(process, "lost: server 5 ")
                self.expect_to_go_on(name, process)
                joined.terminate()
                self.assertEqual(joined.wait(timeout=DEADLINE), 0)
                self.expect_to_go_on(name, process)
                self.expect_each_sample_once_after(name, process)


class WithoutCopies(ServersTest):
    def test_shelves_move_with_one_copy_too(self):
        name = "single"
        process = self.begin(name, "socket", 2, 1, "async", "--replication", "1")
        self.command("scale", self.path(name), "--servers", "2")
        self.assertEqual(self.shares(process), ({2: 50, 3: 50}, 50))
        self.expect_to_go_on(name, process)
        os.kill(self.pid_of_holder(name, 3), signal.SIGTERM)
        self.assertIn(": 1 server now", self.line_with(process, " left after update "))
        self.expect_to_go_on(name, process)
        self.command("scale", self.path(name), "--servers", "2")
        self.expect_to_go_on(name, process)
        os.kill(self.pid_of_holder(name, 2), signal.SIGTERM)  # who leads
        self.assertIn("server 4 leads from here on", self.line_with(process, " leads from here on"))
        self.assertIn(": 1 server now", self.line_with(process, " left after update "))
        self.expect_to_go_on(name, process)
        self.expect_each_sample_once_after(name, process)


class Leaders(ServersTest):
    EPOCHS = 200

    def begin(self, name, transport, *more):
        recipe = ["hidden=512" if word == "hidden=32" else word for word in self.small(name, samples=self.SAMPLES, noise=1)]
        process = self.start(*recipe, *ALGORITHMS["downpour"], "--workers", "2", "--servers", "3", "--shelves", "12",
                             "--epochs", str(self.EPOCHS), "--checkpoint-every", "50", "--transport", transport, *more)
        self.wait_for_steps(name, process)
        return process

    def next_leader(self, process):
        return int(re.match(r"server (\d+) leads from here on, at update \d+", self.line_with(process, " leads from here on"))[1])

    def expect_end(self, name, process, events):
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 0, output)
        self.expect_nothing_left(name)
        summary = self.summary(name)
        self.assertEqual(summary["status"], "finished")
        self.assertEqual([(event["what"], int(re.match(r"server (\d+) ", event["who"])[1])) for event in summary["events"]],
                         events)
        self.expect_every_sample_once(name, self.EPOCHS * self.SAMPLES)
        with open(self.path(name) + "/metrics.jsonl") as file:
            rows = [json.loads(line) for line in file]
        self.assertEqual([row["epoch"] for row in rows if "epoch_train_loss" in row], list(range(1, self.EPOCHS + 1)))
        self.assertEqual(sorted(row["step"] for row in rows), [row["step"] for row in rows])
        steps = [row["step"] for row in rows if "learning_rate" in row]
        self.assertEqual(len(steps), len(set(steps)))
        self.assertEqual(summary["steps"], rows[-1]["step"])

    def test_leave_one_after_the_other_and_the_last_writes_the_results(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                name = transport
                process = self.begin(name, transport)
                self.assertIn("was asked to leave", self.leave(name, 2))
                second = self.next_leader(process)
                self.assertIn(": 2 servers now", self.line_with(process, " left after update "))
                self.expect_to_go_on(name, process)
                os.kill(self.pid_of_holder(name, second), signal.SIGTERM)
                last = self.next_leader(process)
                self.assertEqual({second, last}, {3, 4})
                self.assertIn(": 1 server now", self.line_with(process, " left after update "))
                self.assertIn("is the last that holds parameters", self.leave(name, last, code=2))
                self.expect_end(name, process, [("left", 2), ("left", second)])

    def test_that_are_the_last_and_asked_to_end_stop_the_job_with_a_checkpoint(self):
        name = "last"
        process = self.begin(name, "socket")
        for rank in (2, 3, 4):
            os.kill(self.pid_of_holder(name, rank), signal.SIGTERM)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, output)
        self.assertIn("\nall servers were asked to end: the job stops, with a checkpoint\n", output)
        self.assertEqual(self.summary(name)["status"], "interrupted")
        self.expect_nothing_left(name)
        self.train("--resume", self.path(name))
        self.expect_every_sample_once(name, self.EPOCHS * self.SAMPLES)


class Deaths(ServersTest):
    def test_a_newcomer_dies_in_the_middle_of_its_joining(self):
        name = "newcomer"
        process = self.begin(name, "socket", 2, 2)
        for rank in (4, 5):
            newcomer = self.join(name, "--as", "server")
            wanted = f"server {rank} (pid {newcomer.pid} on " if rank == 4 else " and server 5\n"
            self.wait_until(lambda wanted=wanted: wanted in self.coordinator_log(name), "a newcomer")  # ready, or half there
            newcomer.kill()
            self.line_with(process, f"lost: server {rank} ")
            self.expect_to_go_on(name, process)
        self.command("scale", self.path(name), "--servers", "3")
        shares, _ = self.shares(process)
        while len(shares) != 3:
            shares, _ = self.shares(process)
        self.expect_to_go_on(name, process)
        self.expect_each_sample_once_after(name, process)

    def test_who_leaves_dies_in_the_middle_of_it(self):
        name = "leaver"
        process = self.begin(name, "socket", 2, 3)
        leaving = subprocess.Popen([job_test.PROGRAM, "leave", self.path(name), "3"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.started.append(leaving)
        self.wait_until(lambda: "shelf " in self.coordinator_log(name), "something to move")
        os.kill(self.pid_of_holder(name, 3), signal.SIGKILL)
        leaving.communicate(timeout=DEADLINE)
        self.expect_to_go_on(name, process)
        os.kill(self.pid_of_holder(name, 2), signal.SIGKILL)  # who leads
        self.line_with(process, "server 4 leads from here on")
        self.expect_to_go_on(name, process)
        self.expect_each_sample_once_after(name, process)

    def test_who_leads_dies_in_the_middle_of_its_leaving_or_the_next_one_does(self):
        for victim in (2, 3):
            with self.subTest(victim=victim):
                name = f"leader-{victim}"
                process = self.begin(name, "socket", 2, 3)
                leaving = subprocess.Popen([job_test.PROGRAM, "leave", self.path(name), "2"], stdout=subprocess.DEVNULL,
                                           stderr=subprocess.DEVNULL)
                self.started.append(leaving)
                self.wait_until(lambda name=name: "shelf " in self.coordinator_log(name), "something to move")
                os.kill(self.pid_of_holder(name, victim), signal.SIGKILL)
                self.line_with(process, f"lost: server {victim} ")
                leaving.communicate(timeout=DEADLINE)
                self.expect_to_go_on(name, process)
                self.expect_each_sample_once_after(name, process)

    def test_the_coordinator_dies_while_who_leads_leaves(self):
        name = "coordinator-leader"
        process = self.begin(name, "socket", 2, 3)
        os.kill(self.pid_of_holder(name, 2), signal.SIGTERM)
        self.wait_until(lambda: "shelf " in self.coordinator_log(name), "something to move")
        coordinators = [pid for pid, words in job_test.processes_in(self.path(name)).items() if b"coordinator" in words]
        os.kill(coordinators[0], signal.SIGKILL)
        self.line_with(process, " leads from here on")
        self.assertIn(": 2 servers now", self.line_with(process, " left after update "))
        self.expect_to_go_on(name, process)
        self.expect_each_sample_once_after(name, process)

    def test_the_coordinator_dies_while_a_server_comes(self):
        name = "coordinator"
        process = self.begin(name, "socket", 2, 2)
        newcomer = self.join(name, "--as", "server")
        self.wait_until(lambda: " and server 4\n" in self.coordinator_log(name), "something to move")
        coordinators = [pid for pid, words in job_test.processes_in(self.path(name)).items() if b"coordinator" in words]
        self.assertEqual(len(coordinators), 1)
        os.kill(coordinators[0], signal.SIGKILL)
        shares, _ = self.shares(process)
        self.assertEqual(set(shares), {2, 3, 4})
        self.expect_to_go_on(name, process)
        newcomer.terminate()
        self.assertEqual(newcomer.wait(timeout=DEADLINE), 0)
        self.expect_to_go_on(name, process)
        self.expect_each_sample_once_after(name, process)


class Replaced(ServersTest):
    def test_the_launcher_starts_another_in_the_place_of_one_that_died(self):
        for transport in SURVIVABLE:
            with self.subTest(transport=transport):
                process = self.begin(transport, transport, 2, 2, "downpour", "--restarts", "2")
                os.kill(self.pid_of_holder(transport, 2), signal.SIGKILL)  # who leads
                self.assertRegex(self.line_with(process, " is replaced "),
                                 r"^server 2 \(pid \d+ on \S+\) is replaced \(1 of 2 restarts\)\n$")
                self.assertIn(": 2 servers now", self.line_with(process, " joined after update "))
                self.assertEqual(set(self.shares(process)[0]), {3, 4})
                self.expect_to_go_on(transport, process)
                os.kill(self.pid_of_holder(transport, 3), signal.SIGKILL)  # of the first ones nobody is left
                self.line_with(process, "server 4 leads from here on")
                self.assertIn(": 2 servers now", self.line_with(process, " joined after update "))
                self.assertEqual(set(self.shares(process)[0]), {4, 5})
                self.expect_to_go_on(transport, process)
                self.expect_each_sample_once_after(transport, process)


class Refusals(ServersTest):
    def test_are_one_line_and_code_2(self):
        name = "no-servers"
        process = self.start(*self.small(name), "--algorithm", "allreduce", "--workers", "2", "--epochs", "100000",
                             "--transport", "socket")
        self.wait_for_steps(name, process)
        self.assertIn("--algorithm allreduce has no servers", self.command("join", self.path(name), "--as", "server", code=2))
        self.assertIn("the job has no servers", self.command("scale", self.path(name), "--servers", "2", code=2))
        self.assertIn("expected --workers or --servers", self.command("scale", self.path(name), code=2))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)
        name = "cut"
        process = self.start(*self.small(name), "--algorithm", "downpour", "--workers", "2", "--servers", "2", "--stages", "2",
                             "--epochs", "100000", "--transport", "socket")
        self.wait_for_steps(name, process)
        self.assertIn("3 workers: 2 workers hold a copy of the network together",
                      self.command("scale", self.path(name), "--workers", "3", code=2))
        self.assertIn("is the last that trains: stop the job instead", self.leave(name, 0, code=2))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)
        name = "only"
        process = self.begin(name, "socket", 1, 1)
        self.assertIn("is the last that holds parameters: stop the job instead", self.leave(name, 1, code=2))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
