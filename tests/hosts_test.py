"""Jobs over several hosts, which are network namespaces here: own addresses, and links that can be cut.

hosts_test.py PROGRAM    the distbelief executable

A switch and the hosts are namespaces of their own, so nothing of the machine's network is touched and two runs of this
test do not meet. Not run without the right to make namespaces.
"""

import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import time

import job_test
from job_test import DEADLINE
from test_main import main

PROGRAM = None
MPI_OVER_TCP = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self", "UCX_TLS": "tcp,self",
                "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                # Open MPI leaves memory of its own behind, which a sanitized program would end with a 1 for.
                "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def why_not():
    """The reason why there can be no namespaces here, or None."""
    if shutil.which("ip") is None:
        return "there is no ip command (package iproute2)"
    name = f"db-{secrets.token_hex(4)}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode != 0:
        return "network namespaces are not allowed here: " + made.stderr.strip()
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


class Network:
    """A switch and hosts "a", "b", "c" at 10.77.0.1, 2, 3. Names that the machine sees are unique.

    Only the first host sees what is in FOLDER/runs, and each has a folder of its own for temporary files, as Open MPI's
    helpers believe that they are alone on theirs.
    """

    def __init__(self, hosts, folder):
        self.prefix = f"db-{secrets.token_hex(4)}-"
        self.hosts = list(hosts)
        self.switch = self.prefix + "switch"
        self.spaces = []
        try:
            self.make_space(self.switch)
            self.ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
            self.ip("-n", self.switch, "link", "set", "bridge", "up")
            for number, host in enumerate(self.hosts, 1):
                space = self.prefix + host
                self.make_space(space)
                self.ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", "to-" + host, "netns",
                        self.switch)
                self.ip("-n", self.switch, "link", "set", "to-" + host, "master", "bridge", "up")
                self.ip("-n", space, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
                self.ip("-n", space, "link", "set", "eth0", "up")
        except BaseException:
            self.remove()
            raise
        self.rsh = os.path.join(folder, "rsh")
        os.mkdir(os.path.join(folder, "runs"))
        with open(self.rsh, "w") as file:  # like ssh: a host, then words for a shell
            file.write(f"""#!/bin/sh
host=$1
shift
hide="mount -t tmpfs none {folder}/runs &&"
if test "$host" = {self.hosts[0]}; then hide=; fi
export TMPDIR={folder}/tmp-"$host"
mkdir -p "$TMPDIR"
exec ip netns exec {self.prefix}"$host" sh -c "$hide $*"
""")
        os.chmod(self.rsh, 0o755)

    def make_space(self, name):
        self.ip("netns", "add", name)
        self.spaces.append(name)
        self.ip("-n", name, "link", "set", "lo", "up")

    @staticmethod
    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=60)

    def inside(self, host):
        return ["ip", "netns", "exec", self.prefix + host]

    def cut(self, host):
        self.ip("-n", self.switch, "link", "set", "to-" + host, "down")

    def mend(self, host):
        self.ip("-n", self.switch, "link", "set", "to-" + host, "up")

    def processes(self, host):
        """Pids of the living processes on the host."""
        listed = subprocess.run(["ip", "netns", "pids", self.prefix + host], capture_output=True, text=True)
        return [int(pid) for pid in listed.stdout.split()]

    def remove(self):
        for host in self.hosts:
            for pid in self.processes(host):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)


class HostsTest(job_test.JobTest):
    hosts = "abc"

    def setUp(self):
        super().setUp()
        self.network = Network(self.hosts, self.scratch.name)
        self.addCleanup(self.network.remove)

    def path(self, name):
        return os.path.join(self.scratch.name, "runs", name)

    def start(self, *arguments, host="a", environment=None):
        process = subprocess.Popen([*self.network.inside(host), *arguments], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True,
                                   env={**os.environ, "TMPDIR": self.scratch.name, **(environment or {})})
        self.started.append(process)
        return process

    def end_of(self, process, code):
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, code, output + self.logs())
        return output

    def train(self, *arguments, code=0, host="a", environment=None):
        return self.end_of(self.start(PROGRAM, "train", *arguments, host=host, environment=environment), code)

    def small(self, name, *more):
        return super().small(name, "--algorithm", "allreduce", *more)

    def over_hosts(self, hosts):
        return ["--hosts", hosts, "--rsh", self.network.rsh]

    def wait_until(self, condition, what, seconds=DEADLINE):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"waited in vain for {what}\n{self.logs()}")
            time.sleep(0.02)

    def steps(self, name):
        try:
            with open(self.path(name) + "/metrics.jsonl") as file:
                return sum(1 for line in file)
        except FileNotFoundError:
            return 0

    def wait_for_steps(self, name, process, more=5):
        wanted = self.steps(name) + more

        def stepped():
            self.expect_running(process)
            return self.steps(name) >= wanted

        self.wait_until(stepped, "a few steps")

    def expect_nothing_left(self, name, seconds=10):
        for host in self.hosts:
            self.wait_until(lambda: not self.network.processes(host), f"processes on {host} to end", seconds)
        self.assertFalse(os.path.exists(self.path(name) + "/job.json"))

    def expect_resumes(self, name, *arguments):
        self.train("--resume", self.path(name), "--epochs", self.epochs_begun(name), *arguments)
        audit = self.summary(name)["samples"]
        self.assertEqual((audit["lost"], audit["duplicated"]), (0, 0))
        self.expect_nothing_left(name)


class Sockets(HostsTest):
    def test_hosts_give_the_bits_of_one_machine(self):
        self.train(*self.small("one"), "--epochs", "1", "--workers", "4", "--transport", "threads")
        output = self.train(*self.small("many"), "--epochs", "1", *self.over_hosts("a:1,b:2,c"))
        self.assertEqual(self.model("many"), self.model("one"), output)
        self.assertEqual(self.summary("many")["workers"], 4)
        self.assertEqual(sorted(os.listdir(self.path("many") + "/logs")),
                         ["coordinator.log"] + [f"worker-{rank}.log" for rank in range(4)])
        self.expect_nothing_left("many")

    def test_the_launcher_may_be_on_a_host_of_its_own(self):
        self.train(*self.small("run"), "--epochs", "1", *self.over_hosts("a,b"), host="c")
        self.assertEqual(self.summary("run")["workers"], 2)
        self.expect_nothing_left("run")

    def test_status_names_the_hosts_and_nobody_sees_the_token(self):
        hosts = os.path.join(self.scratch.name, "hosts.txt")
        with open(hosts, "w") as file:
            file.write("# three of them\na slots=1\nb:1\n\nc\n")
        process = self.start(PROGRAM, "train", *self.small("run"), "--epochs", "2000", *self.over_hosts(hosts))
        self.wait_for_steps("run", process)
        status = subprocess.run([*self.network.inside("a"), PROGRAM, "status", self.path("run")], capture_output=True,
                                text=True, timeout=60)
        rows = [line.split() for line in status.stdout.splitlines() if " worker " in line]
        self.assertEqual([row[2] for row in rows], ["a", "b", "c"], status.stdout + status.stderr)
        with open(self.path("run") + "/job.json") as file:
            token = json.load(file)["token"].encode()
        for host in self.hosts:
            self.assertTrue(self.network.processes(host), host)
            for pid in self.network.processes(host):
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    self.assertNotIn(token, file.read())
                with open(f"/proc/{pid}/environ", "rb") as file:
                    self.assertNotIn(token, file.read())
        self.assertNotIn(token.decode(), self.logs())
        process.send_signal(signal.SIGINT)
        self.end_of(process, 130)
        self.expect_nothing_left("run")

    def test_a_host_that_is_cut_off_is_named_and_the_others_go_on(self):
        process = self.start(PROGRAM, "train", *self.small("run"), "--epochs", "2000", *self.over_hosts("a,b,c"))
        self.wait_for_steps("run", process)
        self.network.cut("c")
        line = self.line_with(process, "2 workers go on after step")
        self.assertRegex(line, r"worker 2 \(pid \d+ on c\).*was silent for")
        process.send_signal(signal.SIGINT)
        self.end_of(process, 130)
        self.expect_nothing_left("run", seconds=15)  # who is cut off notices by itself
        self.network.mend("c")
        self.expect_resumes("run")

    def test_the_leaders_host_that_is_cut_off_leaves_nothing_anywhere(self):
        process = self.start(PROGRAM, "train", *self.small("run"), "--epochs", "2000", "--checkpoint-every", "5",
                             *self.over_hosts("a,b,c"))
        self.wait_for_steps("run", process, more=12)
        self.network.cut("a")  # the coordinator sees both others fall silent
        self.line_with(process, "one worker goes on after step")
        process.send_signal(signal.SIGINT)
        self.end_of(process, 130)
        self.expect_nothing_left("run")
        self.network.mend("a")
        self.expect_resumes("run")

    def test_a_short_cut_is_survived(self):
        self.train(*self.small("whole"), "--epochs", "30", "--workers", "3", "--transport", "threads")
        process = self.start(PROGRAM, "train", *self.small("run"), "--epochs", "30", *self.over_hosts("a,b,c"))
        self.wait_for_steps("run", process)
        self.network.cut("c")
        time.sleep(2)
        self.network.mend("c")
        self.end_of(process, 0)
        self.assertEqual(self.model("run"), self.model("whole"))
        self.expect_nothing_left("run")

    def test_when_the_launcher_is_killed_all_hosts_are_left_clean(self):
        process = self.start(PROGRAM, "train", *self.small("run"), "--epochs", "2000", "--checkpoint-every", "5",
                             *self.over_hosts("a,b,c"))
        self.wait_for_steps("run", process)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        self.expect_nothing_left("run", seconds=10)
        self.expect_resumes("run")

    def test_a_worker_that_dies_elsewhere_is_named(self):
        process = self.start(PROGRAM, "train", *self.small("run"), "--epochs", "2000", *self.over_hosts("a,b,c"))
        self.wait_for_steps("run", process)
        for pid in self.network.processes("b"):
            os.kill(pid, signal.SIGKILL)
        self.assertRegex(self.line_with(process, "2 workers go on after step"), r"worker 1 \(pid \d+ on b\)")
        process.send_signal(signal.SIGINT)
        self.end_of(process, 130)
        self.expect_nothing_left("run")
        self.expect_resumes("run")

    def test_tls_between_hosts(self):
        at = os.path.join(self.scratch.name, "job")
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout"]
        for arguments in (["req", "-x509", *key, at + "-ca.key", "-out", at + "-ca.pem", "-days", "2", "-subj", "/CN=ca"],
                          ["req", "-new", *key, at + ".key", "-out", at + ".csr", "-subj", "/CN=job"],
                          ["x509", "-req", "-in", at + ".csr", "-CA", at + "-ca.pem", "-CAkey", at + "-ca.key",
                           "-CAcreateserial", "-days", "2", "-out", at + ".pem"]):
            subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
        self.train(*self.small("run"), "--epochs", "1", *self.over_hosts("a,b"), "--tls-cert", at + ".pem",
                   "--tls-key", at + ".key", "--tls-ca", at + "-ca.pem")
        self.assertEqual(self.summary("run")["workers"], 2)
        self.expect_nothing_left("run")

    def test_a_job_is_started_again_on_its_hosts(self):
        self.train(*self.small("whole"), "--epochs", "40", "--workers", "2", "--transport", "threads")
        process = self.start(PROGRAM, "train", *self.small("run"), "--epochs", "40", "--restarts", "1",
                             *self.over_hosts("a,b"))
        self.wait_for_steps("run", process)
        workers = [pid for host in ("a", "b") for pid in self.network.processes(host)
                   if b"invited-worker" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
        for end in (signal.SIGSTOP, signal.SIGKILL):  # so that none makes a step without the other
            for pid in workers:
                os.kill(pid, end)
        output = self.end_of(process, 0)
        self.assertIn("restart 1 of 1", output)
        self.assertEqual(self.model("run"), self.model("whole"))
        self.expect_nothing_left("run")

    def test_a_host_that_cannot_be_reached_is_one_clear_end(self):
        output = self.train(*self.small("run"), "--epochs", "1", *self.over_hosts("a,b,nowhere"), code=1)
        self.assertIn("worker 2 on nowhere", output)
        self.assertIn("Cannot open network namespace", output)  # what rsh said
        self.expect_nothing_left("run")


class CutOff(HostsTest):
    """Two hosts of four are cut off for good, at the same moment; the run goes on without them to its end."""
    hosts = "abcd"
    EPOCHS = 30
    GROUPS = {
        "sync": ["--algorithm", "sync"],
        "averaging": ["--algorithm", "averaging", "--average-every", "7"],
        "gossip": ["--algorithm", "gossip"],
        "cut network": ["--algorithm", "allreduce", "--stages", "2", "--replicas", "2", "--checkpoint-every", "10"],
    }
    # Two workers, and servers on a, which sees the folder, and d.
    SERVED = {
        "async": ["--algorithm", "async"],
        "downpour": ["--algorithm", "downpour", "--n-push", "2", "--n-fetch", "3"],
        "softsync": ["--algorithm", "softsync", "--n", "2"],
        "backup": ["--algorithm", "sync", "--backup-workers", "1"],
    }

    def go_on_without_c_and_d(self, name, hosts, *arguments):
        process = self.start(PROGRAM, "train", *job_test.JobTest.small(self, name), *self.over_hosts(hosts), *arguments)
        self.wait_for_steps(name, process)
        for host in "cd":
            self.network.cut(host)
        try:
            output = self.end_of(process, 0)
            self.assertEqual(self.summary(name)["status"], "finished")
            self.expect_nothing_left(name, seconds=20)  # who is cut off notices by itself
        finally:
            for host in "cd":
                self.network.mend(host)
        return output

    def test_groups_go_on_and_apply_every_sample_once(self):
        for case, options in self.GROUPS.items():
            with self.subTest(case=case):
                name = case.replace(" ", "-")
                output = self.go_on_without_c_and_d(name, "a,b,c,d", *options, "--epochs", str(self.EPOCHS))
                self.assertRegex(output, r"worker 2 \(pid \d+ on c\)")
                self.expect_every_sample_once(name, self.EPOCHS * 1500)

    def test_servers_go_on_and_apply_every_sample_once(self):
        for case, options in self.SERVED.items():
            with self.subTest(case=case):
                output = self.go_on_without_c_and_d(case, "a,d,b,c", *options, "--servers", "2", "--epochs", str(self.EPOCHS))
                self.assertRegex(output, r"lost: worker 1 \(pid \d+ on c\)")
                self.assertRegex(output, r"lost: server 3 \(pid \d+ on d\)")
                audit = self.summary(case)["samples"]
                self.assertEqual((audit["applied"], audit["lost"], audit["duplicated"]), (self.EPOCHS * 1500, 0, 0))

    def test_sandblaster_goes_on(self):
        self.go_on_without_c_and_d("run", "a,d,b,c", "--algorithm", "sandblaster", "--servers", "2", "--iterations", "200")
        audit = self.summary("run")["samples"]
        self.assertEqual((audit["lost"], audit["duplicated"]), (0, 0))


class Mpi(HostsTest):
    def test_the_launcher_may_be_on_a_host_of_its_own(self):
        self.train(*self.small("run"), "--epochs", "1", "--transport", "mpi", *self.over_hosts("a,b"), host="c",
                   environment=MPI_OVER_TCP)
        self.assertEqual(self.summary("run")["workers"], 2)
        self.expect_nothing_left("run")

    def test_hosts_give_the_bits_of_one_machine(self):
        self.train(*self.small("one"), "--epochs", "1", "--workers", "3", "--transport", "threads")
        self.train(*self.small("many"), "--epochs", "1", "--transport", "mpi", *self.over_hosts("a:1,b:2"),
                   environment=MPI_OVER_TCP)
        self.assertEqual(self.model("many"), self.model("one"))
        self.expect_nothing_left("many")

    def test_a_host_that_is_cut_off_is_named_and_nothing_is_lost(self):
        process = self.start(PROGRAM, "train", *self.small("run"), "--epochs", "400", "--checkpoint-every", "5",
                             "--transport", "mpi", *self.over_hosts("a,b"), environment=MPI_OVER_TCP)
        self.wait_for_steps("run", process, more=12)
        self.network.cut("b")
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertRegex(output, r"worker 1 \(pid \d+ on b\)")
        self.expect_nothing_left("run", seconds=20)  # mpirun's helper on b notices by itself
        self.network.mend("b")
        if process.returncode == 0:  # the other one went on
            self.assertEqual(self.summary("run")["samples"]["applied"], 400 * 1500)
        else:  # mpirun ended all, as it mostly does between hosts
            self.assertEqual(process.returncode, 4, output + self.logs())
            self.expect_resumes("run", "--transport", "socket")

    def test_what_is_on_its_way_from_a_host_that_is_cut_off_keeps_nothing_there(self):
        process = self.start(PROGRAM, "train", *self.small("run"), "--epochs", "2000", "--checkpoint-every", "5",
                             "--transport", "mpi", *self.over_hosts("a,b"), environment=MPI_OVER_TCP)
        self.wait_for_steps("run", process)
        self.network.cut("b")
        for pid in self.network.processes("b"):  # mpirun's helper there tells of its death
            if b"distbelief" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
                os.kill(pid, signal.SIGKILL)
        self.wait_until(lambda: not self.network.processes("b"), "processes on b to end", 20)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)
        self.expect_nothing_left("run")

    def test_a_foreign_mpirun_over_hosts_reaches_the_coordinator(self):
        self.train(*self.small("one"), "--epochs", "1", "--workers", "2", "--transport", "threads")
        process = self.start("mpirun.openmpi", "--host", "a,b", "--mca", "plm_rsh_agent", self.network.rsh, "-x",
                             "UCX_TLS", "--bind-to", "none", "-n", "2", PROGRAM, "train", *self.small("run"),
                             "--epochs", "1", environment=MPI_OVER_TCP)
        self.end_of(process, 0)
        self.assertEqual(self.model("run"), self.model("one"))
        self.expect_nothing_left("run")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    main(why_not)
