"""Everything killed at once: all processes of a job at a moment drawn from a seed, again and again, until it has resumed to its end.

blackout_test.py PROGRAM    the distbelief executable

DISTBELIEF_TEST_BLACKOUTS (6) says how many times everything is killed, DISTBELIEF_TEST_SEED (1) when. A run is killed up to four
times, also before its first checkpoint, and then left alone: it must end with every sample of every epoch applied once and, where
workers are in step, with the bits of a run that was never killed.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import time

import job_test
from test_main import main

BLACKOUTS = int(os.environ.get("DISTBELIEF_TEST_BLACKOUTS", "6"))
SEED = int(os.environ.get("DISTBELIEF_TEST_SEED", "1"))
EPOCHS, SAMPLES, KILLS_OF_A_RUN = 12, 1500, 4
LONGEST = 2.5  # seconds from a start to the kill
JOBS = {
    "allreduce": ["--algorithm", "allreduce", "--workers", "3"],
    "downpour": ["--algorithm", "downpour", "--workers", "3", "--servers", "2", "--n-push", "2", "--n-fetch", "2"],
    "sync": ["--algorithm", "sync", "--workers", "2"],
    "softsync": ["--algorithm", "softsync", "--workers", "3", "--servers", "2", "--n", "2"],
    "stages": ["--algorithm", "allreduce", "--stages", "2"],
    "averaging": ["--algorithm", "averaging", "--workers", "3", "--average-every", "7"],
    "async": ["--algorithm", "async", "--workers", "2", "--servers", "3"],
    "gossip": ["--algorithm", "gossip", "--workers", "3"],
}
IN_STEP = ("allreduce", "sync", "stages")


class Blackout(job_test.JobTest):
    def kill_everything(self, name, process):
        """Kills until nothing is left, as a process may just have been starting another."""
        process.kill()

        def nothing_left():
            alive = job_test.processes_in(self.path(name))
            for pid in alive:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            return not alive

        self.wait_until(nothing_left, "all processes to be dead")
        return process.communicate(timeout=job_test.DEADLINE)[0]

    def survive(self, name, arguments, most_kills, draw):
        """Trains to the end, whatever is killed on the way; returns how often everything was."""
        kills = 0
        words = arguments
        while True:
            process = self.start(*words)
            if kills < most_kills:
                self.wait_until(lambda: process.poll() is not None or os.path.exists(self.path(name) + "/run.yaml"), "the run's folder")
                try:
                    output, _ = process.communicate(timeout=draw.uniform(0, LONGEST))
                except subprocess.TimeoutExpired:
                    self.kill_everything(name, process)
                    kills += 1
                    words = ["--resume", self.path(name)]
                    continue
            else:
                output, _ = process.communicate(timeout=job_test.DEADLINE)
            self.assertEqual(process.returncode, 0, output)
            return kills

    def test_every_time_the_run_goes_on_to_the_right_end(self):
        left = BLACKOUTS
        draw = random.Random(SEED)
        whole = {}
        for number, (kind, job) in enumerate(itertools.cycle(JOBS.items())):
            if left <= 0:
                break
            transport = job_test.SURVIVABLE[number // len(JOBS) % len(job_test.SURVIVABLE)]
            name = f"{kind}-{number}"
            with self.subTest(job=name, transport=transport):
                recipe = [*job, "--epochs", str(EPOCHS), "--checkpoint-every", "15", "--momentum", "0.9", "--lr", "0.01"]
                began = time.monotonic()
                left -= self.survive(name, [*self.small(name, samples=SAMPLES), *recipe, "--transport", transport],
                                     min(left, KILLS_OF_A_RUN), draw)
                print(f"{name} over {transport}: {left} blackouts left, {time.monotonic() - began:.0f} s", flush=True)
                self.assertEqual(self.summary(name)["status"], "finished")
                self.expect_every_sample_once(name, EPOCHS * SAMPLES)
                self.expect_nothing_left(name)
                if kind in IN_STEP:
                    if kind not in whole:
                        self.train(*self.small(kind, samples=SAMPLES), *recipe, "--transport", "threads")
                        whole[kind] = self.model(kind)
                    self.assertEqual(self.model(name), whole[kind], f"{name} has other bits than a run that was never killed")


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
