#!/usr/bin/env python3
"""What a slow worker costs a synchronous job, with equal shares of the batch and with shares by measured speed.

bench/balance.py [PROGRAM] [--rounds N] [--workers N] [--slowness F] [--steps N] [--json FILE]

One worker, the last, computes F times as long as it would (--chaos slow). In each round the job runs undisturbed, then slowed
with --balance off, then slowed with --balance on; samples a second are those of the second half of the steps, when shares
have settled. Ideal is the sum of the workers' speeds: each has its part of what the undisturbed job does, the slow one an F-th of
that. Medians of all rounds. Goal: 0.85 of the ideal.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

from side import machine, write_json

ROOT = pathlib.Path(__file__).resolve().parents[1]
GOAL = 0.85
LIMIT = 600  # seconds for a run
SAMPLES = 12800
BATCH = 128
MODELS = {
    "mlp": ["--model", "mlp", "--model-options", "hidden=512,512"],
    "lenet": ["--model", "lenet"],
}


def run(program, model, workers, steps, more):
    """(samples a second in the second half, shares at the end)."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "run"
        epochs = max(2, steps * BATCH // SAMPLES)
        command = [program, "train", *MODELS[model], "--data", f"synthetic:classes=10,shape=1x28x28,samples={SAMPLES}",
                   "--batch", str(BATCH), "--epochs", str(epochs), "--threads", "1", "--log-every", "10", "--algorithm",
                   "allreduce", "--transport", "socket", "--workers", str(workers), "--straggler-after", "0", "--out", str(out),
                   *more]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        if done.returncode != 0:
            raise SystemExit(f"balance.py: {' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        rows = [row for row in rows if "train_loss" in row and "samples_per_second" in row]
        summary = json.loads((out / "summary.json").read_text())
        return (statistics.median(row["samples_per_second"] for row in rows[len(rows) // 2:]),
                [share["samples"] for share in summary["shares"]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default=str(ROOT / "build/release/distbelief"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--slowness", type=float, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    slow = ["--chaos", f"slow worker {arguments.workers - 1} x{arguments.slowness:g}"]
    sides = {"undisturbed": ["--balance", "off"], "off": ["--balance", "off", *slow], "on": ["--balance", "on", *slow]}
    part = (arguments.workers - 1 + 1 / arguments.slowness) / arguments.workers
    result = {"machine": machine(), "workers": arguments.workers, "slowness": arguments.slowness, "models": {}}
    print(f"{'model':<8} {'undisturbed':>12} {'ideal':>9} {'off':>9} {'of ideal':>9} {'on':>9} {'of ideal':>9}  shares (goal {GOAL})")
    for model in MODELS:
        speeds = {side: [] for side in sides}
        shares = []
        for _ in range(arguments.rounds):
            for side, more in sides.items():
                speed, shares = run(arguments.program, model, arguments.workers, arguments.steps, more)
                speeds[side].append(speed)
        medians = {side: statistics.median(values) for side, values in speeds.items()}
        ideal = medians["undisturbed"] * part
        result["models"][model] = {"samples_per_second": speeds, "ideal": ideal, "shares": shares}
        print(f"{model:<8} {medians['undisturbed']:>12,.0f} {ideal:>9,.0f} {medians['off']:>9,.0f} "
              f"{medians['off'] / ideal:>9.2f} {medians['on']:>9,.0f} {medians['on'] / ideal:>9.2f}  {shares}", flush=True)
    if arguments.json:
        write_json(arguments.json, result)


if __name__ == "__main__":
    main()
