#!/usr/bin/env python3
"""How long it takes until every process of a job knows who died and why.

bench/death.py [PROGRAM] [--rounds N] [--workers N]

Each round starts a job and, once it makes steps, kills a worker with SIGKILL in the middle of its all-reduces, or cuts it
off with --chaos. The time runs from the kill, or from the line in which the worker notes that it is cut, to the moment at
which the last of the others has written into its log who is lost. Goals: 1 s for a kill, 6 s for a cut.
"""

import argparse
import datetime
import os
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
GOALS = {"kill": 1.0, "cut": 6.0}
LIMIT = 120  # seconds for a round
VICTIM = 1
CUT_STEP = 50


def lines_of(log):
    """(seconds since the epoch, text) of each line that a process wrote."""
    for line in log.read_text(errors="replace").splitlines():
        stamp, _, text = line.partition(" ")
        try:
            moment = datetime.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%fZ")
        except ValueError:
            continue
        yield moment.replace(tzinfo=datetime.timezone.utc).timestamp(), text


def moment_of(log, pattern):
    for moment, text in lines_of(log):
        if re.search(pattern, text):
            return moment
    raise SystemExit(f"death.py: {log} says nothing of {pattern!r}:\n{log.read_text(errors='replace')}")


def wait_until(condition, process, what):
    deadline = time.monotonic() + LIMIT
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"death.py: waited in vain for {what}:\n{process.communicate()[0]}")
        time.sleep(0.005)


def one_round(program, folder, kind, transport, workers):
    """Seconds until each of the others knew."""
    run = pathlib.Path(folder) / "run"
    command = [program, "train", "--model", "mlp", "--model-options", "hidden=512,512", "--data",
               "synthetic:classes=10,shape=1x28x28,samples=20000,test=100", "--batch", "64", "--epochs", "1000",
               "--threads", "1", "--log-every", "1", "--algorithm", "allreduce", "--workers", str(workers), "--transport",
               transport, "--out", str(run)]
    if kind == "cut":
        command += ["--chaos", f"cut worker {VICTIM} for 1m at step {CUT_STEP}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        metrics = run / "metrics.jsonl"
        wait_until(lambda: metrics.exists() and metrics.stat().st_size > 2000, process, "a few steps")
        log = run / "logs" / f"worker-{VICTIM}.log"
        if kind == "kill":
            pid = int(re.search(r"\(pid (\d+) on", log.read_text())[1])
            began = time.time()
            os.kill(pid, signal.SIGKILL)
        others = [run / "logs" / f"worker-{rank}.log" for rank in range(workers) if rank != VICTIM]
        wait_until(lambda: all(f"heard: worker {VICTIM} " in other.read_text(errors="replace") for other in others), process,
                   "the others to hear of it")
        process.send_signal(signal.SIGINT)  # they would go on
        output, _ = process.communicate(timeout=LIMIT)
        if kind == "cut":
            began = moment_of(log, rf"^chaos: worker {VICTIM} cut")
        heard = [moment_of(other, rf"^heard: worker {VICTIM} .* is lost: ") - began for other in others]
        if f"worker {VICTIM} (pid " not in output:
            raise SystemExit(f"death.py: the launcher did not name the dead:\n{output}")
        return heard
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default=str(ROOT / "build/release/distbelief"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{'death':<6} {'transport':<10} {'rounds':>6} {'median s':>9} {'worst s':>8} {'goal s':>7}")
    for kind in ("kill", "cut"):
        for transport in ("mpi", "socket"):
            worst = []
            for _ in range(arguments.rounds):
                with tempfile.TemporaryDirectory() as folder:
                    worst.append(max(one_round(arguments.program, folder, kind, transport, arguments.workers)))
            print(f"{kind:<6} {transport:<10} {len(worst):>6} {statistics.median(worst):>9.3f} {max(worst):>8.3f} "
                  f"{GOALS[kind]:>7.1f}", flush=True)


if __name__ == "__main__":
    main()
