#!/usr/bin/python3
"""How much of a step a pipeline waits to fill and to run empty, against (stages - 1) / (micro-batches + stages - 1).

    bench/pipeline.py                           2 and 4 stages, 1 to 16 micro-batches, both orders, about 6 minutes

Layers wait instead of computing (`wait` in docs/models.md), so that idle stages are idle whatever the cores do. The share
is 1 - (time that the layers of a stage take) / (time of a step, from the run's samples per second). "computing" are two
stages of dense layers on two real cores: there the time that layers take is that of one process with one thread on the same
micro-batches. The peak memory of the first stage is what 1f1b saves. Needs build/release/distbelief.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
from side import machine, print_rows, write_json

BLOCKS, MICROSECONDS, BATCH, STEPS = 8, 400, 64, 16


WIDTH, COMPUTING_BATCH, COMPUTING_STEPS = 1024, 1024, 10


def computing_model():
    lines = ["layers:"]
    for number in range(BLOCKS):
        lines += [f"  - dense: {{name: dense{number}, units: {WIDTH}}}", "  - sigmoid"]
    return "\n".join([*lines, "  - dense: {name: output, units: classes}", ""])


def model():
    lines = ["layers:", "  - flatten"]
    for number in range(BLOCKS):
        lines += [f"  - dense: {{name: dense{number}, units: 32}}", f"  - wait: {{name: wait{number}, microseconds: {MICROSECONDS}}}"]
    return "\n".join([*lines, "  - dense: {name: output, units: classes}", ""])


def run(stages, micro_batches, order, arguments, folder):
    out = os.path.join(folder, f"{stages}-{micro_batches}-{order}")
    firsts = [f"dense{number * BLOCKS // stages}" for number in range(1, stages)]
    command = [f"{arguments.build}/distbelief", "train", "--model", os.path.join(folder, "waits.yaml"), "--data",
               f"synthetic:classes=4,shape=32,samples={BATCH * STEPS},seed=1", "--epochs", "1", "--batch", str(BATCH), "--lr", "0.0001",
               "--threads", "1", "--stages", str(stages), "--stage-at", ",".join(firsts), "--micro-batches",
               str(micro_batches), "--pipeline", order, "--transport", arguments.transport, "--out", out]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stdout.strip().splitlines()[-1:]}")
    with open(out + "/summary.json") as file:
        return json.load(file)


def compute(micro_batches, order, arguments, folder):
    """The same in two stages of real work, or in one process where there is no order."""
    out = os.path.join(folder, f"computing-{micro_batches}-{order}")
    data = f"synthetic:classes=4,shape={WIDTH},samples={COMPUTING_BATCH * COMPUTING_STEPS},seed=1"
    command = [f"{arguments.build}/distbelief", "train", "--model", os.path.join(folder, "computing.yaml"), "--data", data,
               "--epochs", "1", "--batch", str(COMPUTING_BATCH), "--lr", "0.0001", "--threads", "1", "--out", out]
    command += ["--accumulate", str(micro_batches)] if order is None else [
        "--stages", "2", "--stage-at", f"dense{BLOCKS // 2}", "--micro-batches", str(micro_batches), "--pipeline", order,
        "--transport", arguments.transport]
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
        with open(os.path.join(folder, "computing.yaml"), "w") as file:
            file.write(computing_model())
        rows = []
        for micro_batches in (1, 2, 4, 8):
            one = COMPUTING_BATCH / compute(micro_batches, None, arguments, folder)["samples_per_second"]
            row = {"computing": True, "stages": 2, "micro_batches": micro_batches, "theory": 1 / (micro_batches + 1)}
            for order in ("1f1b", "gpipe"):
                summary = compute(micro_batches, order, arguments, folder)
                row[order] = 1 - one / 2 / (COMPUTING_BATCH / summary["samples_per_second"])
                row[order + "_memory"] = summary["peak_memory_bytes"]
            result["rows"].append(row)
            rows.append(["computing", str(micro_batches), f"{row['theory']:.3f}", f"{row['1f1b']:.3f}", f"{row['gpipe']:.3f}",
                         f"{row['1f1b_memory'] / 2**20:.0f} MiB", f"{row['gpipe_memory'] / 2**20:.0f} MiB"])
        print_rows(["two stages", "micro-batches", "theory", "1f1b", "gpipe", "memory of 1f1b", "of gpipe"], rows)
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
