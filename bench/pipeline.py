#!/usr/bin/python3
"""How much of a step a pipeline waits to fill and to run empty, against (stages - 1) / (micro-batches + stages - 1).

    bench/pipeline.py                           2 and 4 stages, 1 to 16 micro-batches, both orders, about 6 minutes

The share is 1 - (time that the layers of a stage take) / (time of a step), from the runs' samples per second; the time that layers
take is that of one process with one thread on the same micro-batches, divided by the stages. In the first table layers wait
instead of computing (`wait` in docs/models.md), so that idle stages are idle whatever the cores do; "computing" are two stages of
dense layers on two real cores. The peak memory of the first stage is what 1f1b saves. Needs build/release/distbelief.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
from side import machine, print_rows, write_json

BLOCKS, MICROSECONDS, STEPS = 8, 400, 12
# name: (width of the data, rows of a batch)
CASES = {"waiting": (32, 64), "computing": (1024, 1024)}


def write_models(folder):
    """waiting.yaml: BLOCKS layers that wait; computing.yaml: as many that compute."""
    layers = {"waiting": lambda n: [f"dense: {{name: dense{n}, units: 32}}", f"wait: {{name: wait{n}, microseconds: {MICROSECONDS}}}"],
              "computing": lambda n: [f"dense: {{name: dense{n}, units: 1024}}", "sigmoid"]}
    for case, block in layers.items():
        lines = [line for number in range(BLOCKS) for line in block(number)]
        with open(os.path.join(folder, case + ".yaml"), "w") as file:
            file.write("layers:\n" + "".join(f"  - {line}\n" for line in [*lines, "dense: {name: output, units: classes}"]))


def run(case, stages, micro_batches, order, arguments, folder):
    """(seconds of a step, bytes at the most): of a pipeline, or of one process where there is no order."""
    out = os.path.join(folder, f"{case}-{stages}-{micro_batches}-{order}")
    width, batch = CASES[case]
    command = [f"{arguments.build}/distbelief", "train", "--model", os.path.join(folder, case + ".yaml"), "--data",
               f"synthetic:classes=4,shape={width},samples={batch * STEPS},seed=1", "--epochs", "1", "--batch", str(batch), "--lr",
               "0.0001", "--threads", "1", "--out", out]
    firsts = [f"dense{number * BLOCKS // stages}" for number in range(1, stages)]
    command += ["--accumulate", str(micro_batches)] if order is None else [
        "--stages", str(stages), "--stage-at", ",".join(firsts), "--micro-batches", str(micro_batches), "--pipeline", order,
        "--transport", arguments.transport]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stdout.strip().splitlines()[-1:]}")
    with open(out + "/summary.json") as file:
        summary = json.load(file)
    return batch / summary["samples_per_second"], summary["peak_memory_bytes"]


def measure(case, stages, micro_batches, arguments, folder):
    """A row: the shares of both orders, and what their first stages held."""
    row = {"case": case, "stages": stages, "micro_batches": micro_batches, "theory": (stages - 1) / (micro_batches + stages - 1)}
    busy = run(case, stages, micro_batches, None, arguments, folder)[0] / stages
    for order in ("1f1b", "gpipe"):
        step, row[order + "_memory"] = run(case, stages, micro_batches, order, arguments, folder)
        row[order] = 1 - busy / step
    return row


def shown(row):
    return [row["case"], str(row["stages"]), str(row["micro_batches"]), f"{row['theory']:.3f}", f"{row['1f1b']:.3f}",
            f"{row['gpipe']:.3f}", f"{row['1f1b_memory'] / 2**20:.0f} MiB", f"{row['gpipe_memory'] / 2**20:.0f} MiB"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transport", default="socket")
    parser.add_argument("--build", default=f"{HERE}/../build/release")
    parser.add_argument("--out", default="bench/results/pipeline.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_models(folder)
        rows = [measure("waiting", stages, micro_batches, arguments, folder)
                for stages in (2, 4) for micro_batches in (1, 2, 4, 8, 16)]
        rows += [measure("computing", 2, micro_batches, arguments, folder) for micro_batches in (1, 2, 4, 8)]
    print_rows(["layers", "stages", "micro-batches", "theory", "1f1b", "gpipe", "memory of 1f1b", "of gpipe"],
               [shown(row) for row in rows])
    write_json(arguments.out, {"machine": machine(), "rows": rows})


if __name__ == "__main__":
    main()
