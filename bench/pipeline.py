#!/usr/bin/python3
"""How much of a step a pipeline waits to fill and to run empty, against (stages - 1) / (micro-batches + stages - 1).

    bench/pipeline.py                           2 and 4 stages, 1 to 16 micro-batches, both orders, about 4 minutes

Layers wait instead of computing (`wait` in docs/models.md), so that idle stages are idle whatever the cores do. The share
is 1 - (time that the layers of a stage take) / (time of a step, from the run's samples per second). Needs
build/release/distbelief.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
from side import machine, print_rows, write_json

BLOCKS, MICROSECONDS, BATCH, STEPS = 8, 150, 64, 12


def model():
    lines = ["layers:", "  - flatten"]
    for number in range(BLOCKS):
        lines += [f"  - dense: {{name: dense{number}, units: 32}}", f"  - wait: {{name: wait{number}, microseconds: {MICROSECONDS}}}"]
    return "\n".join([*lines, "  - dense: {name: output, units: classes}", ""])


def run(stages, micro_batches, order, arguments, folder):
    out = os.path.join(folder, f"{stages}-{micro_batches}-{order}")
    firsts = [f"dense{number * BLOCKS // stages}" for number in range(1, stages)]
    command = [f"{arguments.build}/distbelief", "train", "--model", os.path.join(folder, "waits.yaml"), "--data",
               f"synthetic:classes=4,shape=32,samples={BATCH * STEPS},seed=1", "--epochs", "1", "--batch", str(BATCH),
               "--threads", "1", "--stages", str(stages), "--stage-at", ",".join(firsts), "--micro-batches",
               str(micro_batches), "--pipeline", order, "--transport", arguments.transport, "--out", out]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stdout.strip().splitlines()[-1:]}")
    with open(out + "/summary.json") as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transport", default="socket")
    parser.add_argument("--build", default=f"{HERE}/../build/release")
    parser.add_argument("--out", default="bench/results/pipeline.json")
    arguments = parser.parse_args()
    result = {"machine": machine(), "rows": []}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "waits.yaml"), "w") as file:
            file.write(model())
        for stages in (2, 4):
            for micro_batches in (1, 2, 4, 8, 16):
                theory = (stages - 1) / (micro_batches + stages - 1)
                row = {"stages": stages, "micro_batches": micro_batches, "theory": theory}
                for order in ("1f1b", "gpipe"):
                    summary = run(stages, micro_batches, order, arguments, folder)
                    step = BATCH / summary["samples_per_second"]
                    busy = 3e-6 * MICROSECONDS * BLOCKS / stages * BATCH
                    row[order] = 1 - busy / step
                result["rows"].append(row)
                rows.append([str(stages), str(micro_batches), f"{theory:.3f}", f"{row['1f1b']:.3f}", f"{row['gpipe']:.3f}"])
    print_rows(["stages", "micro-batches", "theory", "1f1b", "gpipe"], rows)
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
