#!/usr/bin/env python3
"""Test accuracy of runs in which processes are killed, against the same run undisturbed: goal within 1 point.

    bench/kills.py [PROGRAM] [--cases REGEX] [--epochs N] [--iterations N] [--seeds N] [--transport socket|mpi]    about 12 minutes

mlp on Fashion-MNIST with 4 workers and, where an algorithm has them, 3 servers. A worker is killed at 25 % of the samples, the
coordinator at 40 %, a server (without servers: another worker) at 55 %, all with kill -9 (--chaos). A row counts only if the run
ended by itself with every sample of every epoch applied once (sandblaster, which has no epochs: none lost, none twice). Accuracies
are means over the seeds; those of single runs that exchange asynchronously differ by some tenths of a point by themselves.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SAMPLES, WORKERS, GOAL = 60000, 4, 1.0
SYNCHRONOUS = "kill worker 1 at 25%; kill coordinator at 40%; kill worker 2 at 55%"
SERVED = "kill worker 1 at 25%; kill coordinator at 40%; kill server 1 at 55%"
SERVERS = ["--servers", "3"]
MOMENTUM = ["--momentum", "0.9"]
DOWNPOUR = ["--algorithm", "downpour", "--batch", "32", "--optimizer", "adagrad", "--lr", "0.01", "--n-push", "2", "--n-fetch", "2"]
# case: its options, and who is killed
CASES = {
    "allreduce": (["--algorithm", "allreduce", "--batch", "128", "--lr", "0.05", *MOMENTUM], SYNCHRONOUS),
    "sync": (["--algorithm", "sync", "--batch", "128", "--lr", "0.05", *MOMENTUM], SYNCHRONOUS),
    "averaging": (["--algorithm", "averaging", "--batch", "32", "--lr", "0.05", *MOMENTUM, "--average-every", "10"], SYNCHRONOUS),
    "gossip": (["--algorithm", "gossip", "--batch", "32", "--lr", "0.05", *MOMENTUM], SYNCHRONOUS),
    "async": (["--algorithm", "async", "--batch", "32", "--lr", "0.01", *MOMENTUM, *SERVERS], SERVED),
    "downpour": ([*DOWNPOUR, *SERVERS], SERVED),
    "downpour, servers inside": ([*DOWNPOUR, "--servers", "0"], SYNCHRONOUS),
    "softsync": (["--algorithm", "softsync", "--batch", "32", "--lr", "0.02", *MOMENTUM, "--n", "2", *SERVERS], SERVED),
    "sync, a backup worker": (["--algorithm", "sync", "--backup-workers", "1", "--batch", "126", "--lr", "0.05", *MOMENTUM, *SERVERS],
                              SERVED),
    "sandblaster": (["--algorithm", "sandblaster", *SERVERS], SERVED),
}


def accuracy(arguments, case, options, seed, chaos):
    """In percent."""
    by_epochs = "sandblaster" not in options
    length = ["--epochs", str(arguments.epochs), "--schedule", "cosine"] if by_epochs else ["--iterations", str(arguments.iterations)]
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        command = [arguments.program, "train", "--model", "mlp", "--data", "fashion-mnist", *options, *length, "--workers",
                   str(WORKERS), "--threads", "1", "--seed", str(seed), "--transport", arguments.transport, "--out", str(run)]
        done = subprocess.run([*command, *(["--chaos", chaos] if chaos else [])], capture_output=True, text=True, timeout=1800)
        if done.returncode != 0:
            raise SystemExit(f"kills.py: {case} ended with code {done.returncode}:\n{done.stdout}{done.stderr}")
        summary = json.loads((run / "summary.json").read_text())
    samples = summary["samples"]
    if samples["lost"] or samples["duplicated"] or (by_epochs and samples["applied"] != arguments.epochs * SAMPLES):
        raise SystemExit(f"kills.py: {case}: {samples}")
    return 100 * summary["test_accuracy"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default=str(ROOT / "build/release/distbelief"))
    parser.add_argument("--cases", default=".", help="a regular expression")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=100, help="of sandblaster")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--transport", default="socket")
    arguments = parser.parse_args()
    print(f"{'algorithm':<24} {'undisturbed':>11} {'killed':>7} {'difference':>10}  goal")
    for case, (options, chaos) in CASES.items():
        if not re.search(arguments.cases, case):
            continue
        means = [statistics.mean(accuracy(arguments, case, options, seed, script)
                                 for seed in range(1, arguments.seeds + 1)) for script in ("", chaos)]
        difference = means[1] - means[0]
        print(f"{case:<24} {means[0]:>11.2f} {means[1]:>7.2f} {difference:>+10.2f}  "
              f"{'met' if difference >= -GOAL else 'missed'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
