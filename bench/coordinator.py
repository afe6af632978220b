#!/usr/bin/env python3
"""How long a job is without a coordinator that was killed, and what that costs training.

bench/coordinator.py [PROGRAM] [--rounds N] [--workers N]

One job for each algorithm and transport, whose coordinator is killed N times with SIGKILL while it trains. Times run from
the kill to the moment at which the last member is back with its successor, and, where samples are leased, to that at which
leases are given again. The pause is the longest time between two updates around a kill, beside the usual one.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import time

from death import lines_of

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMIT = 300  # seconds for a job
BETWEEN_KILLS = 1.5
JOBS = {
    "allreduce, socket": ["--algorithm", "allreduce", "--transport", "socket"],
    "allreduce, mpi": ["--algorithm", "allreduce", "--transport", "mpi"],
    "downpour, socket": ["--algorithm", "downpour", "--servers", "2", "--transport", "socket"],
}


def wait_for(process, found, what):
    deadline = time.monotonic() + LIMIT
    while True:
        value = found()
        if value is not None:
            return value
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"coordinator.py: waited in vain for {what}:\n{process.communicate()[0]}")
        time.sleep(0.002)


def coordinator_of(run, but=None):
    try:
        pid = json.loads((run / "job.json").read_text())["pid"]
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    return pid if pid != but else None


def one_job(program, folder, options, workers, rounds):
    """(seconds until all were back, seconds until leases were given, longest pauses, usual time of an update)."""
    run = pathlib.Path(folder) / "run"
    members = workers + (2 if "--servers" in options else 0) + 1
    command = [program, "train", "--model", "mlp", "--model-options", "hidden=256", "--data",
               "synthetic:classes=10,shape=1x28x28,samples=20000,test=100", "--batch", "32", "--epochs", "100000", "--threads",
               "1", "--log-every", "1", "--workers", str(workers), "--out", str(run), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    metrics = run / "metrics.jsonl"
    wait_for(process, lambda: True if metrics.exists() and metrics.stat().st_size > 2000 else None, "steps")
    log = run / "logs" / "coordinator.log"
    back, leased, kills = [], [], []
    for _ in range(rounds):
        time.sleep(BETWEEN_KILLS)
        pid = wait_for(process, lambda: coordinator_of(run), "a coordinator")
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        wait_for(process, lambda pid=pid: coordinator_of(run, but=pid), "another coordinator")
        kills.append(killed)

        def moments(pattern, since=killed):
            return [moment for moment, text in lines_of(log) if moment > since and re.search(pattern, text)]

        back.append(wait_for(process, lambda: max(moments("came back")) if len(moments("came back")) >= members else None,
                             "all members") - killed)
        if "--servers" in options:
            leased.append(wait_for(process, lambda: next(iter(moments("leases are known")), None), "leases") - killed)
    time.sleep(BETWEEN_KILLS)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)
    with metrics.open() as file:
        times = [row["time"] for row in map(json.loads, file) if "train_loss" in row]
    gaps = [after - before for before, after in zip(times, times[1:])]
    pauses = sorted(gaps)[-rounds:]
    return back, leased, pauses, statistics.median(gaps)


def text(seconds):
    return f"{statistics.median(seconds) * 1000:6.0f} {max(seconds) * 1000:6.0f}" if seconds else f"{'-':>6} {'-':>6}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default=str(ROOT / "build/release/distbelief"))
    parser.add_argument("--rounds", type=int, default=19)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    print(f"{'milliseconds':20} {'all are back':>13} {'leases':>13} {'longest pauses':>14} {'an update':>10}")
    print(f"{'':20} {'median    max':>13} {'median    max':>13} {'median    max':>14} {'median':>10}")
    for name, options in JOBS.items():
        with tempfile.TemporaryDirectory() as folder:
            back, leased, pauses, usual = one_job(arguments.program, folder, options, arguments.workers, arguments.rounds)
            print(f"{name:20} {text(back)} {text(leased)}  {text(pauses)} {usual * 1000:10.2f}", flush=True)


if __name__ == "__main__":
    main()
