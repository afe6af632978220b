#!/usr/bin/env python3
"""Bytes of vectors that cross links for one evaluation of Sandblaster's objective, by kind, beside what they should be.

bench/traffic.py [PROGRAM] [--model M] [--workers N] [--servers S] [--iterations I]

Kinds are those of metrics.jsonl: parameters that were fetched, gradients that were pushed, and orders with the dot
products that answer them. A vector is as long as the parameters. What should be: a worker fetches once an evaluation,
and the leader, which is one of the servers, fetches the others' parts to test once an iteration; a gradient is pushed
for --portions-per-push portions, for fewer towards the end; orders and scalars are of no size.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def units(portions, most, workers):
    """How many a batch makes when each takes the next, at most half of what is left for each worker (PortionTable)."""
    count = 0
    while portions > 0:
        portions -= min(portions, max(1, min(portions // (2 * workers), most)))
        count += 1
    return count


def measure(arguments, folder, *more):
    subprocess.run([arguments.program, "train", "--model", arguments.model, "--algorithm", "sandblaster", "--workers",
                    str(arguments.workers), "--servers", str(arguments.servers), "--iterations",
                    str(arguments.iterations), "--transport", "socket", "--out", folder, *more],
                   check=True, stdout=subprocess.DEVNULL)
    with open(f"{folder}/metrics.jsonl") as file:
        rows = [row for row in map(json.loads, file) if "order_bytes" in row]
    with open(f"{folder}/summary.json") as file:
        summary = json.load(file)
    # From the first evaluation's end to the last one's: so the beginning, which fetches more, is left out.
    first, last = rows[0], rows[-1]
    evaluations = last["step"] - first["step"]
    found = {kind: (last[kind + "_bytes"] - first[kind + "_bytes"]) / evaluations for kind in ("fetched", "pushed", "order")}
    return found, (len(rows) - 1) / evaluations, summary


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", nargs="?", default=str(ROOT / "build/release/distbelief"))
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--portion", type=int, default=384)
    parser.add_argument("--samples", type=int, default=60000, help="of the data set, which is fashion-mnist")
    arguments = parser.parse_args()
    portions = -(-arguments.samples // arguments.portion)
    print(f"{arguments.model}, {arguments.workers} workers, {arguments.servers} servers, {portions} portions: MB an "
          "evaluation, in brackets vectors")
    print(f"{'':30} {'fetched':>16} {'should be':>10} {'pushed':>16} {'should be':>10} {'orders':>10} {'twice':>7}")
    for most, backups in ((1, "on"), (4, "on"), (4, "off"), (16, "on")):
        with tempfile.TemporaryDirectory() as folder:
            found, tests, summary = measure(arguments, f"{folder}/run", "--portion", str(arguments.portion),
                                            "--portions-per-push", str(most), "--backup-portions", backups)
        vector = 4 * summary["parameters"]
        fetches = arguments.workers + tests * (arguments.servers - 1) / arguments.servers
        samples = summary["samples"]
        print(f"{'--portions-per-push ' + str(most) + (', no backups' if backups == 'off' else ''):30}"
              f" {found['fetched'] / 1e6:8.1f} ({found['fetched'] / vector:5.2f})"
              f" {fetches:10.2f} {found['pushed'] / 1e6:8.1f} ({found['pushed'] / vector:5.1f})"
              f" {units(portions, most, arguments.workers):10} {found['order'] / 1e3:7.1f} KB"
              f" {100 * samples['dropped'] / samples['applied']:5.1f} %")


if __name__ == "__main__":
    main()
