"""Random chaos: jobs of every algorithm whose processes are killed, stopped and slowed at moments drawn from a seed.

chaos_test.py PROGRAM    the distbelief executable

DISTBELIEF_TEST_CHAOS_SECONDS (20) says for how long new jobs are begun, DISTBELIEF_TEST_SEED (1) with which seed the first.
Each job must end by itself with every sample of every epoch applied once, and leave nothing behind.
"""

import itertools
import os
import sys
import time

import job_test
from job_test import SURVIVABLE
from test_main import main

SECONDS = float(os.environ.get("DISTBELIEF_TEST_CHAOS_SECONDS", "20"))
FIRST_SEED = int(os.environ.get("DISTBELIEF_TEST_SEED", "1"))
EPOCHS, SAMPLES = 8, 1500
ITERATIONS = 60
JOBS = [
    ["--algorithm", "allreduce", "--workers", "3"],
    ["--algorithm", "downpour", "--workers", "3", "--servers", "2"],
    ["--algorithm", "sync", "--workers", "3"],
    ["--algorithm", "softsync", "--workers", "3", "--servers", "3", "--n", "2"],
    ["--algorithm", "averaging", "--workers", "3", "--average-every", "5"],
    ["--algorithm", "async", "--workers", "3", "--servers", "2"],
    ["--algorithm", "downpour", "--workers", "3", "--servers", "0"],
    ["--algorithm", "gossip", "--workers", "3"],
    ["--algorithm", "allreduce", "--stages", "2", "--replicas", "2"],
    ["--algorithm", "sync", "--backup-workers", "1", "--workers", "3", "--servers", "2"],
    ["--algorithm", "sandblaster", "--workers", "3", "--servers", "2"],
    ["--algorithm", "downpour", "--stages", "2", "--replicas", "2", "--servers", "2", "--restarts", "1"],
]


class Chaos(job_test.JobTest):
    def test_is_survived_by_every_algorithm(self):
        end = time.monotonic() + SECONDS
        for i in itertools.count():
            if time.monotonic() > end:
                break
            seed, job = FIRST_SEED + i, JOBS[i % len(JOBS)]
            transport = SURVIVABLE[(i + i // len(JOBS)) % len(SURVIVABLE)]  # another one the next time
            with self.subTest(seed=seed, job=job, transport=transport):
                name = f"seed{seed}"
                length = ["--iterations", str(ITERATIONS)] if "sandblaster" in job else ["--epochs", str(EPOCHS)]
                output = self.train(*self.small(name, samples=SAMPLES), *job, *length, "--transport", transport, "--chaos",
                                    f"random:{seed}")
                summary = self.summary(name)
                self.assertEqual(summary["status"], "finished", output)
                self.assertTrue(summary["chaos"]["passed"], output)
                self.expect_audit(name, job)
                self.expect_nothing_left(name)

    def expect_audit(self, name, job):
        """What backup workers were late with was dropped, and leased again; so are portions that two of sandblaster computed."""
        audit = self.summary(name)["samples"]
        applied = audit["applied"] if "sandblaster" in job else EPOCHS * SAMPLES
        dropped = audit["dropped"] if "--backup-workers" in job or "sandblaster" in job else 0
        self.assertEqual(audit, {"leased": applied + dropped, "applied": applied, "dropped": dropped, "lost": 0, "duplicated": 0})


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
