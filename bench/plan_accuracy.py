#!/usr/bin/env python3
"""What `distbelief plan` predicts, against what `distbelief train` then takes.

    bench/plan_accuracy.py build/release/distbelief         about 5 minutes
    bench/plan_accuracy.py PROGRAM --only waiting

Ten configurations of two processes with one thread each; and of four and eight processes whose layers wait instead of
computing (`wait` in docs/models.md), so that more processes than cores do not hide what a plan is wrong about. Step time,
and of every worker the most memory (VmHWM) as a share of what was predicted for it: the largest of them (goal 1.15). The
plan is saved and trained as it is. Measured is the median step of a run, the first two left out. Both cores must be free:
whatever else runs makes steps longer than predicted.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

SPEECH = ["--model", "speech", "--model-options", "hidden=1024,1024,1024", "--data",
          "synthetic:classes=2048,shape=440,samples={},test=16"]
MLP = ["--model", "mlp", "--model-options", "hidden=1024,1024", "--data", "synthetic:classes=10,shape=784,samples={},test=16"]
LENET = ["--model", "lenet", "--data", "synthetic:classes=10,shape=1x28x28,samples={},test=16"]
IMAGE = ["--model", "local-image", "--data", "synthetic:classes=10,shape=3x32x32,samples={},test=16"]
RESNET = ["--model", "resnet50", "--data", "synthetic:classes=10,shape=3x64x64,samples={},test=16"]
WAITING = ["--model", "waiting.yaml", "--data", "synthetic:classes=4,shape=32,samples={},test=16"]
COMPUTING = [
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
WAITING_GRIDS = [
    (WAITING, 64, ["--stages", "4"]),
    (WAITING, 64, ["--stages", "4", "--micro-batches", "4", "--pipeline", "gpipe"]),
    (WAITING, 64, ["--stages", "2", "--tensor", "2"]),
    (WAITING, 64, ["--tensor", "4"]),
    (WAITING, 64, ["--stages", "4", "--tensor", "2"]),
    (WAITING, 64, ["--stages", "8"]),
]
STEPS = 20


def waiting_model():
    """Layers of different cost, which wait for each sample."""
    lines = ["layers:"]
    for number in range(8):
        lines += [f"  - dense: {{name: dense{number}, units: 64}}",
                  f"  - wait: {{name: wait{number}, microseconds: {150 + 50 * (number % 3)}}}"]
    return "\n".join([*lines, "  - dense: {name: output, units: classes}", ""])


def peaks_of_workers(folder, process):
    """{rank: most memory} of the workers of a job in this folder, looked at until the process has ended."""
    peaks = {}
    while process.poll() is None:
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = pathlib.Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace").split("\0")
                if "worker" in words and folder in words and "--rank" in words:
                    status = pathlib.Path(f"/proc/{name}/status").read_text()
                    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024
                    rank = int(words[words.index("--rank") + 1])
                    peaks[rank] = max(peaks.get(rank, 0), peak)
            except (OSError, StopIteration):
                continue
        time.sleep(0.1)
    return peaks


def measure(program, folder, number, model, batch, cut):
    """Predicted and measured seconds of a step, and how much of its prediction the worst worker took."""
    environment = {**os.environ, "XDG_CACHE_HOME": folder}
    options = [option.format(batch * STEPS) for option in model] + ["--batch", str(batch), "--threads", "1", *cut]
    planned = subprocess.run([program, "plan", *options, "--save", f"{number}.yaml", "--json"], cwd=folder, env=environment,
                             check=True, capture_output=True, text=True)
    plan = json.loads(planned.stdout)
    out = os.path.join(folder, str(number))
    with subprocess.Popen([program, "train", f"{number}.yaml", "--epochs", "1", "--lr", "0.0001", "--log-every", "1", "--transport", "socket",
                           "--out", out], cwd=folder, env=environment, stdout=subprocess.DEVNULL) as process:
        peaks = peaks_of_workers(out, process)
    if process.returncode != 0:
        raise SystemExit(f"{model[1]} {' '.join(cut)}: train ended with code {process.returncode}")
    rows = [json.loads(line) for line in pathlib.Path(out, "metrics.jsonl").open()]
    times = [row["time"] for row in rows if "samples_per_second" in row and "train_loss" in row]
    seconds = statistics.median(b - a for a, b in zip(times[1:], times[2:]))
    memory = max(peak / plan["processes"][rank]["memory"]["total"] for rank, peak in peaks.items())
    return plan["step_seconds"], seconds, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--only", choices=["computing", "waiting"])
    arguments = parser.parse_args()
    program = arguments.program.resolve()
    print(f"{'model':<13} {'batch':>5}  {'cut':<44} {'predicted':>10} {'measured':>10} {'error':>7} {'memory':>7}")
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "waiting.yaml").write_text(waiting_model())
        number = 0
        for kind, configurations in (("computing", COMPUTING), ("waiting", WAITING_GRIDS)):
            if arguments.only not in (None, kind):
                continue
            errors = []
            worst = 0
            for model, batch, cut in configurations:
                number += 1
                predicted, seconds, memory = measure(program, folder, number, model, batch, cut)
                errors.append(abs(predicted / seconds - 1))
                worst = max(worst, memory)
                print(f"{model[1]:<13} {batch:>5}  {' '.join(cut):<44} {1e3 * predicted:>7.1f} ms {1e3 * seconds:>7.1f} ms "
                      f"{100 * (predicted / seconds - 1):>+6.0f}% {memory:>7.2f}", flush=True)
            print(f"{kind}: median error {100 * statistics.median(errors):.0f}% (goal 10%), most memory {worst:.2f} times "
                  f"what was predicted (goal 1.15)", flush=True)


main()
