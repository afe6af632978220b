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
JOBS = [
    ["--algorithm", "allreduce", "--workers", "3"],
    ["--algorithm", "downpour", "--workers", "3", "--servers", "2"],
    ["--algorithm", "sync", "--workers", "3"],
    ["--algorithm", "softsync", "--workers", "3", "--servers", "3", "--n", "2"],
    ["--algorithm", "averaging", "--workers", "3", "--average-every", "5"],
    ["--algorithm", "async", "--workers", "3", "--servers", "2"],
    ["--algorithm", "gossip", "--workers", "3"],
]


class Chaos(job_test.JobTest):
    def test_is_survived_by_every_algorithm(self):
        end = time.monotonic() + SECONDS
        for seed, job, transport in zip(itertools.count(FIRST_SEED), itertools.cycle(JOBS), itertools.cycle(SURVIVABLE)):
            if time.monotonic() > end:
                break
            with self.subTest(seed=seed, job=job, transport=transport):
                name = f"seed{seed}"
                output = self.train(*self.small(name, samples=SAMPLES), *job, "--epochs", str(EPOCHS), "--transport", transport,
                                    "--chaos", f"random:{seed}")
                summary = self.summary(name)
                self.assertEqual(summary["status"], "finished", output)
                self.assertTrue(summary["chaos"]["passed"], output)
                self.expect_every_sample_once(name, EPOCHS * SAMPLES)
                self.expect_nothing_left(name)


if __name__ == "__main__":
    job_test.PROGRAM = os.path.abspath(sys.argv.pop(1))
    main()
