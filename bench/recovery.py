#!/usr/bin/env python3
"""How long training stands still when a process of a job dies, and what becomes of the run.

bench/recovery.py [PROGRAM] [--rounds N] [--cases REGEX] [--transports mpi,socket] [--json FILE]

Each round starts a job that writes a row of metrics for every step and, once it makes steps, kills one of its processes
with SIGKILL, or cuts a worker off with --chaos. "Still" is the longest time without a new row from then on: what the death cost
everybody. "Speed" is the rows a second in the two seconds after that pause (or until the end), by those from the tenth row to the death. The
job then runs to its end, and the round counts only if it finished, with every sample of every epoch applied once.
Goals: a killed worker or server 1 s, one that is cut off 6 s.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMIT = 180  # seconds for a round
ROWS_BEFORE = 200
CUT_SHARE = "20%"
SYNCHRONOUS = ("allreduce", "sync", "averaging", "gossip")
SERVED = ("async", "downpour", "softsync")
SAMPLES, EPOCHS = 12000, 8  # so that there are seconds left after ROWS_BEFORE
# (case, algorithm, who dies, goal in seconds)
CASES = [
    *((f"{algorithm}: worker", algorithm, "worker 1", 1.0) for algorithm in (*SYNCHRONOUS, *SERVED)),
    ("allreduce: first worker", "allreduce", "worker 0", 1.0),
    ("allreduce: worker cut off", "allreduce", "cut", 6.0),
    *((f"{algorithm}: server", algorithm, "server 4", 1.0) for algorithm in SERVED),
    ("downpour: leading server", "downpour", "server 3", 1.0),
    ("allreduce: coordinator", "allreduce", "coordinator", 1.0),
    ("downpour: coordinator", "downpour", "coordinator", 1.0),
]
WORKERS, SERVERS = 3, 2


class Rows:
    """The moments at which rows of metrics were seen."""

    def __init__(self, path):
        self.path, self.size, self.moments = path, 0, []

    def look(self):
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return
        if size > self.size:
            with open(self.path, "rb") as rows:
                rows.seek(self.size)
                self.moments += [time.monotonic()] * rows.read(size - self.size).count(b"\n")
        self.size = size


def command_of(program, algorithm, transport, run):
    command = [program, "train", "--model", "mlp", "--model-options", "hidden=256,256", "--data",
               f"synthetic:classes=10,shape=1x28x28,samples={SAMPLES},test=100", "--batch", "32", "--epochs", str(EPOCHS), "--threads", "1",
               "--lr", "0.01", "--log-every", "1", "--algorithm", algorithm, "--workers", str(WORKERS), "--transport",
               transport, "--out", str(run)]
    return command + (["--servers", str(SERVERS)] if algorithm in SERVED else [])


def pid_of(victim, run, launcher):
    if victim == "coordinator":
        for entry in pathlib.Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if len(words) > 1 and words[1] == b"coordinator" and str(run).encode() in b" ".join(words):
                    return int(entry.name)
            except (OSError, ValueError):
                continue
        raise SystemExit("recovery.py: the coordinator's process is not there")
    log = run / "logs" / (victim.replace(" ", "-") + ".log")
    return int(re.search(r"\(pid (\d+) on", log.read_text(errors="replace"))[1])


def one_round(program, folder, algorithm, victim, transport):
    """Seconds of standing still, and the speed after by the speed before."""
    run = pathlib.Path(folder) / "run"
    command = command_of(program, algorithm, transport, run)
    if victim == "cut":
        command += ["--chaos", f"cut worker 1 for 1m at {CUT_SHARE}"]
    output = open(pathlib.Path(folder) / "output", "w+", encoding="utf-8")
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True)

    def text():
        output.flush()
        return (pathlib.Path(folder) / "output").read_text(errors="replace")

    rows = Rows(run / "metrics.jsonl")
    died = None
    deadline = time.monotonic() + LIMIT
    try:
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise SystemExit(f"recovery.py: {algorithm}, {victim}: not over after {LIMIT} s:\n{text()}")
            rows.look()
            if died is None and victim != "cut" and len(rows.moments) >= ROWS_BEFORE:
                died = time.monotonic()
                os.kill(pid_of(victim, run, process.pid), signal.SIGKILL)
            if died is None and victim == "cut":
                log = run / "logs" / "worker-1.log"
                if log.exists() and "chaos: worker 1 cut" in log.read_text(errors="replace"):
                    died = time.monotonic()
            time.sleep(0.002)
        rows.look()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        output.close()
    text = (pathlib.Path(folder) / "output").read_text(errors="replace")
    summary = json.loads((run / "summary.json").read_text()) if (run / "summary.json").exists() else {}
    samples = summary.get("samples", {})
    right = (process.returncode == 0 and summary.get("status") == "finished" and samples.get("lost") == 0 and
             samples.get("duplicated") == 0 and samples.get("applied") == EPOCHS * SAMPLES)
    if died is None or not right:
        raise SystemExit(f"recovery.py: {algorithm}, {victim}: exit code {process.returncode}, {summary.get('status')}, "
                         f"{samples}:\n{text}")
    after = [moment for moment in rows.moments if moment > died]
    gaps = [(b - a, b) for a, b in zip([died, *after], after)]
    still, resumed = max(gaps)
    steady = [moment for moment in rows.moments if moment <= died][10:]
    before = len(steady) / (died - steady[0]) if steady else 0
    window = min(2, rows.moments[-1] - resumed)
    later = sum(resumed <= moment < resumed + window for moment in rows.moments) / window if window > 0 else float("nan")
    return still, later / before if before else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default=str(ROOT / "build/release/distbelief"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cases", default=".", help="a regular expression")
    parser.add_argument("--transports", default="mpi,socket")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    results = []
    print(f"{'who dies':<28} {'transport':<10} {'rounds':>6} {'still: median s':>16} {'worst s':>8} {'goal s':>7} {'speed':>6}")
    for name, algorithm, victim, goal in CASES:
        if not re.search(arguments.cases, name):
            continue
        for transport in arguments.transports.split(","):
            rounds = []
            for _ in range(arguments.rounds):
                with tempfile.TemporaryDirectory() as folder:
                    rounds.append(one_round(arguments.program, folder, algorithm, victim, transport))
            still = [seconds for seconds, _ in rounds]
            speed = statistics.median(ratio for _, ratio in rounds)
            results.append({"case": name, "transport": transport, "still_seconds": still, "goal_seconds": goal,
                            "speed_after_by_before": speed})
            print(f"{name:<28} {transport:<10} {len(still):>6} {statistics.median(still):>16.3f} {max(still):>8.3f} "
                  f"{goal:>7.1f} {speed:>6.2f}", flush=True)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
