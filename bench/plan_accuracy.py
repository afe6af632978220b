#!/usr/bin/env python3
"""bench/plan_accuracy.py PROGRAM   What `distbelief plan` predicts, against what `distbelief train` then takes.

Ten configurations of two processes with one thread each: step time, and the first worker's most memory (VmHWM). The plan
is saved and trained as it is. Measured is the median step of a run, the first two left out. Both cores must be free:
whatever else runs makes steps longer than predicted.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

SPEECH = ["--model", "speech", "--model-options", "hidden=1024,1024,1024", "--data",
          "synthetic:classes=2048,shape=440,samples={},test=16"]
MLP = ["--model", "mlp", "--model-options", "hidden=1024,1024", "--data", "synthetic:classes=10,shape=784,samples={},test=16"]
LENET = ["--model", "lenet", "--data", "synthetic:classes=10,shape=1x28x28,samples={},test=16"]
IMAGE = ["--model", "local-image", "--data", "synthetic:classes=10,shape=3x32x32,samples={},test=16"]
RESNET = ["--model", "resnet50", "--data", "synthetic:classes=10,shape=3x64x64,samples={},test=16"]
CONFIGURATIONS = [
    (SPEECH, 128, ["--tensor", "2"]),
    (SPEECH, 128, ["--stages", "2"]),
    (SPEECH, 512, ["--tensor", "2"]),
    (MLP, 256, ["--tensor", "2"]),
    (MLP, 256, ["--stages", "2", "--pipeline", "gpipe"]),
    (LENET, 256, ["--tensor", "2"]),
    (LENET, 256, ["--stages", "2"]),
    (IMAGE, 128, ["--tensor", "2"]),
    (IMAGE, 128, ["--stages", "2"]),
    (RESNET, 16, ["--stages", "2"]),
]
STEPS = 20


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    errors = []
    print(f"{'model':<12} {'batch':>5}  {'cut':<32} {'predicted':>10} {'measured':>10} {'error':>7}  "
          f"{'memory':>8} {'peak':>8} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": folder}

        def run(*arguments):
            return subprocess.run([program, *arguments], cwd=folder, env=environment, check=True, capture_output=True,
                                  text=True).stdout

        for number, (model, batch, cut) in enumerate(CONFIGURATIONS):
            options = [option.format(batch * STEPS) for option in model] + ["--batch", str(batch), "--threads", "1", *cut]
            plan = json.loads(run("plan", *options, "--save", f"{number}.yaml", "--json"))
            run("train", f"{number}.yaml", "--epochs", "1", "--log-every", "1", "--transport", "socket", "--out", str(number))
            rows = [json.loads(line) for line in (pathlib.Path(folder) / str(number) / "metrics.jsonl").open()]
            times = [row["time"] for row in rows if "samples_per_second" in row and "train_loss" in row]
            measured = statistics.median(b - a for a, b in zip(times[1:], times[2:]))
            peak = json.loads((pathlib.Path(folder) / str(number) / "summary.json").read_text())["peak_memory_bytes"]
            predicted = plan["step_seconds"]
            memory = plan["processes"][0]["memory"]["total"]
            errors.append(abs(predicted / measured - 1))
            print(f"{model[1]:<12} {batch:>5}  {' '.join(cut):<32} {1e3 * predicted:>7.1f} ms {1e3 * measured:>7.1f} ms "
                  f"{100 * (predicted / measured - 1):>+6.0f}%  {memory / 2**20:>4.0f} MiB {peak / 2**20:>4.0f} MiB "
                  f"{peak / memory:>6.2f}", flush=True)
    print(f"median error {100 * statistics.median(errors):.0f}%")


main()
