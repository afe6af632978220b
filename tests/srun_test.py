"""`srun -n N distbelief train`, in a Slurm of one machine that the test starts for itself.

srun_test.py PROGRAM    the distbelief executable

Not run where Slurm is not installed (packages slurm-wlm and munge) or the user may not run it. Nothing of a Slurm that
runs on the machine already is touched: the test's has its own files and ports.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from job_test import processes_in
from test_main import main

PROGRAM = None
DEADLINE = 240
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={control_port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerType=sched/builtin
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def why_not():
    missing = [name for name in ("munged", "slurmctld", "slurmd", "srun") if shutil.which(name) is None]
    if missing:
        return f"there is no {', '.join(missing)} (packages slurm-wlm and munge)"
    if os.geteuid() != 0:
        return "only root can start a Slurm of its own"
    return None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Slurm:
    """munged, slurmctld and slurmd, in the foreground, with their words in files."""

    def __init__(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = self.scratch.name
        os.chmod(self.folder, 0o755)
        host = socket.gethostname().split(".")[0]
        # Open MPI leaves memory of its own behind, which a sanitized program would end with a 1 for.
        self.environment = {**os.environ, "SLURM_CONF": self.folder + "/slurm.conf", "TMPDIR": self.folder,
                            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
        with open(self.folder + "/slurm.conf", "w") as file:
            file.write(CONFIGURATION.format(host=host, folder=self.folder, control_port=free_port(),
                                            node_port=free_port()))
        with open(self.folder + "/munge.key", "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(os.urandom(128))
        os.mkdir(self.folder + "/state")
        os.mkdir(self.folder + "/spool")
        self.processes = []
        try:
            self.start("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket",
                       f"--key-file={self.folder}/munge.key", f"--pid-file={self.folder}/munged.pid",
                       f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munged.seed")
            self.wait_until(lambda: os.path.exists(self.folder + "/munge.socket"))
            self.start("slurmctld", "-D", "-f", self.folder + "/slurm.conf")
            self.start("slurmd", "-D", "-f", self.folder + "/slurm.conf")
            self.wait_until(lambda: "idle" in self.run("sinfo", "-h", "-o", "%T").stdout)
        except BaseException:
            self.end()
            raise

    def start(self, *command):
        with open(f"{self.folder}/{command[0]}.out", "w") as out:
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                                   stderr=subprocess.STDOUT, env=self.environment))

    def run(self, *command):
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, env=self.environment)

    def wait_until(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                words = ""
                for name in sorted(os.listdir(self.folder)):
                    if name.endswith((".out", ".log")):
                        with open(f"{self.folder}/{name}") as file:
                            words += f"--- {name}\n{file.read()}"
                raise RuntimeError("Slurm did not start\n" + words)
            time.sleep(0.05)

    def end(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.scratch.cleanup()


class Srun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.slurm = Slurm()
        cls.addClassCleanup(cls.slurm.end)

    def path(self, name):
        return os.path.join(self.slurm.folder, name)

    def arguments(self, name):
        return ["--model", "mlp", "--model-options", "hidden=32", "--data",
                "synthetic:classes=4,shape=1x12x12,samples=1500,seed=3,noise=6", "--batch", "30", "--out",
                self.path(name), "--log-every", "1", "--threads", "1", "--algorithm", "allreduce"]

    def model(self, name):
        with open(self.path(name) + "/model.safetensors", "rb") as file:
            return file.read()

    def test_ranks_are_workers_over_mpi_and_over_sockets(self):
        one = self.slurm.run(PROGRAM, "train", *self.arguments("one"), "--epochs", "1", "--workers", "3",
                             "--transport", "threads")
        self.assertEqual(one.returncode, 0, one.stderr)
        for name, options, more in (("mpi", ["--mpi=pmix"], []), ("socket", [], ["--transport", "socket"])):
            result = self.slurm.run("srun", *options, "-n", "3", PROGRAM, "train", *self.arguments(name), "--epochs",
                                    "1", *more)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertIn("--kill-on-bad-exit=0", result.stdout)
            self.assertEqual(self.model(name), self.model("one"), name)
            self.assertFalse(os.path.exists(self.path(name) + "/job.json"))

    def test_what_srun_lacks_is_one_line_that_says_what_to_add(self):
        result = self.slurm.run("srun", "-n", "2", PROGRAM, "train", *self.arguments("none"), "--epochs", "1")
        self.assertNotEqual(result.returncode, 0)
        ours = [line for line in result.stderr.splitlines() if line.startswith("distbelief:")]
        self.assertEqual(len(ours), 1, result.stderr)
        self.assertIn("--mpi=pmix", ours[0])
        self.assertIn("--transport socket --out", ours[0])
        self.assertFalse(os.path.exists(self.path("none")))

    def kill_one(self, name, epochs, *, options, more):
        """srun's exit code and all that was said, and the pid of the worker that was killed."""
        process = subprocess.Popen(["srun", *options, "--kill-on-bad-exit=0", "--no-kill", "-n", "3", PROGRAM, "train",
                                    *self.arguments(name), "--epochs", str(epochs), *more],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.slurm.environment)
        try:
            victim = self.worker_of(name, process)
            os.kill(victim, signal.SIGKILL)
            output, _ = process.communicate(timeout=DEADLINE)
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
        return process.returncode, output, victim

    def test_over_sockets_with_the_flags_it_asks_for_the_others_go_on(self):
        code, output, victim = self.kill_one("sockets", 200, options=[], more=["--transport", "socket"])
        self.assertEqual(code, 137, output)  # srun's own, for the one that was killed
        self.assertRegex(output, rf"worker \d \(pid {victim} on .*: 2 workers go on after step ")
        with open(self.path("sockets") + "/summary.json") as file:
            self.assertEqual(json.load(file)["status"], "finished", output)
        self.assertFalse(os.path.exists(self.path("sockets") + "/job.json"))

    def test_over_mpi_slurm_ends_all_and_resume_works(self):
        code, output, _ = self.kill_one("ended", 100000, options=["--mpi=pmix"], more=["--checkpoint-every", "10"])
        self.assertNotEqual(code, 0, output)
        self.assertIn("with --transport socket --out DIR changes that", output)
        deadline = time.monotonic() + DEADLINE
        while processes_in(self.path("ended")):
            self.assertLess(time.monotonic(), deadline, processes_in(self.path("ended")))
            time.sleep(0.05)
        checkpoints = self.path("ended") + "/checkpoints"
        newest = max(name for name in os.listdir(checkpoints) if name.startswith("step-"))
        with open(f"{checkpoints}/{newest}/manifest.json") as file:
            epochs = json.load(file)["epoch"] + 1
        again = self.slurm.run(PROGRAM, "train", "--resume", self.path("ended"), "--epochs", str(epochs), "--transport", "socket")
        self.assertEqual(again.returncode, 0, again.stdout + again.stderr)

    def worker_of(self, name, process):
        """The pid of the last worker, once the run has made a few steps."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            self.assertIsNone(process.poll(), "the job ended early")
            metrics = self.path(name) + "/metrics.jsonl"
            if os.path.exists(metrics) and os.path.getsize(metrics) > 500:
                status = self.slurm.run(PROGRAM, "status", self.path(name))
                found = re.findall(r"\n +2 +worker +\S+ +(\d+) ", status.stdout)
                self.assertEqual(len(found), 1, status.stdout + status.stderr)
                return int(found[0])
            time.sleep(0.02)
        self.fail("the job did not begin")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    main(why_not)
