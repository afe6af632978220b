#!/usr/bin/env python3
"""Hogwild! on a sparse problem: loss per epoch and samples/s of one thread, of two without locks, and of two with them.

bench/hogwild.py [PROGRAM] [--samples N] [--features N] [--nonzeros N] [--batch N] [--epochs N] [--rounds N]

The data is generated and like RCV1: 100,000 rows of about 75 of 50,000 features, which are as frequent as words are (a
power law), rows of length 1, two classes that a hidden linear function gives, with noise. It is written as a LIBSVM file
and trained on with `distbelief train --model logistic`. Rounds go through all variants in turn, so that a busy moment of
the machine hits them alike; speeds are the medians over rounds of the whole run's samples/s, evaluation not counted.
Goals: two threads without locks within 5 % of one thread's loss in each epoch, and at least 1.7 times as fast.
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
VARIANTS = {
    "1 thread": ["--threads", "1"],
    "2 threads": ["--threads", "2"],
    "2 threads, locks": ["--threads", "2", "--hogwild-locks"],
}


def write_data(path, samples, features, nonzeros):
    generator = random.Random(1)
    frequency = list(itertools.accumulate(1 / (rank + 50) for rank in range(features)))
    # A frequent feature says little, as a frequent word does.
    rarity = [0.2 + min(1.0, rank / 1000) for rank in range(features)]
    hidden = [generator.gauss(0, 1) for _ in range(features)]
    with open(path, "w", encoding="ascii") as out:
        for _ in range(samples):
            row = sorted(set(generator.choices(range(features), cum_weights=frequency, k=nonzeros)))
            values = [rarity[feature] * (0.5 + generator.random()) for feature in row]
            length = sum(value * value for value in values) ** 0.5
            score = sum(hidden[feature] * value for feature, value in zip(row, values)) / length
            label = 1 if score + generator.gauss(0, 0.3) > 0 else -1
            entries = " ".join(f"{feature + 1}:{value / length:.4f}" for feature, value in zip(row, values))
            out.write(f"{label} {entries}\n")


def train(program, data, arguments, words, folder):
    """(loss of each epoch, samples/s)."""
    command = [program, "train", "--model", "logistic", "--data", data, "--features", str(arguments.features),
               "--algorithm", "hogwild", "--batch", str(arguments.batch), "--lr", str(arguments.lr), "--epochs",
               str(arguments.epochs), "--log-every", "1000000", "--out", folder, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    if done.returncode != 0:
        raise SystemExit(f"hogwild.py: {' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    audit = summary["samples"]
    if audit["applied"] != arguments.samples * arguments.epochs or audit["lost"] or audit["duplicated"]:
        raise SystemExit(f"hogwild.py: the audit is wrong: {audit}")
    return [row["epoch_train_loss"] for row in rows if "epoch_train_loss" in row], summary["samples_per_second"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?", default=ROOT / "build/release/distbelief")
    parser.add_argument("--samples", type=int, default=100000)
    parser.add_argument("--features", type=int, default=50000)
    parser.add_argument("--nonzeros", type=int, default=80, help="drawn for a row; equal ones count once")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=pathlib.Path, help="use this file; made when it is not there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.data or pathlib.Path(folder) / "data.libsvm"
        if not data.exists():
            write_data(data, arguments.samples, arguments.features, arguments.nonzeros)
        losses, speeds = {name: [] for name in VARIANTS}, {name: [] for name in VARIANTS}
        for number in range(arguments.rounds):
            for name, words in VARIANTS.items():
                out = pathlib.Path(folder) / f"{name.replace(' ', '-')}-{number}"
                loss, speed = train(arguments.program, data, arguments, words, out)
                losses[name].append(loss)
                speeds[name].append(speed)
        print(f"{arguments.samples} samples, {arguments.features} features, batch {arguments.batch}, rate {arguments.lr}, "
              f"load of the machine at the end {os.getloadavg()[0]:.1f}")
        one = statistics.median(speeds["1 thread"])
        mean = {name: [statistics.mean(column) for column in zip(*rows)] for name, rows in losses.items()}
        epochs = "".join(f"  epoch {epoch + 1}" for epoch in range(arguments.epochs))
        print(f"{'':18}{'samples/s':>11}  {'lowest to highest':>23}  {'speed-up':>8}{epochs}")
        for name in VARIANTS:
            median = statistics.median(speeds[name])
            span = f"{min(speeds[name]):,.0f} to {max(speeds[name]):,.0f}"
            print(f"{name:18}{median:11,.0f}  {span:>23}  {median / one:8.2f}" +
                  "".join(f"  {loss:7.4f}" for loss in mean[name]))
        worst = max(abs(rows[epoch] / mean["1 thread"][epoch] - 1)
                    for rows in losses["2 threads"] for epoch in range(arguments.epochs))
        print(f"loss of 2 threads against 1, worst epoch of all rounds: {100 * worst:.2f} % (goal: 5)")


if __name__ == "__main__":
    main()
