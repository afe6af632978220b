#!/usr/bin/env python3
"""What `distbelief plan` predicts, against what `distbelief train` then takes.

    bench/plan_accuracy.py build/release/distbelief         about 4 minutes
    bench/plan_accuracy.py PROGRAM --only waiting

Ten configurations of two processes with one thread each; and of four and eight processes whose layers wait instead of
computing (`wait` in docs/models.md), so that more processes than cores do not hide what a plan is wrong about. Step time,
and of every worker the most memory, without the data, as a share of what was predicted for it: the largest of them (goal 1.15). The
plan is saved and trained as it is. Measured is the median step of a run, the first two left out. Both cores must be free:
whatever else runs makes steps longer than predicted.
"""
import argparse
import array
import json
import math
import os
import pathlib
import random
import re
import statistics
import struct
import subprocess
import tempfile
import time

# what is trained, and on what: (classes, shape of a sample)
SPEECH = ["--model", "speech", "--model-options", "hidden=1024,1024,1024"], 2048, (440,)
MLP = ["--model", "mlp", "--model-options", "hidden=1024,1024"], 10, (784,)
LENET = ["--model", "lenet"], 10, (1, 28, 28)
IMAGE = ["--model", "local-image"], 10, (3, 32, 32)
RESNET = ["--model", "resnet50"], 10, (3, 64, 64)
WAITING = ["--model", "waiting.yaml"], 4, (32,)
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
STEPS = 40


def waiting_model():
    """Layers of different cost, which wait for each sample."""
    lines = ["layers:"]
    for number in range(8):
        lines += [f"  - dense: {{name: dense{number}, units: 64}}",
                  f"  - wait: {{name: wait{number}, microseconds: {150 + 50 * (number % 3)}}}"]
    return "\n".join([*lines, "  - dense: {name: output, units: classes}", ""])


def write_data(folder, samples, classes, shape):
    """Random numbers in a file that is mapped: to make or decode samples would take time that no plan is about."""
    if os.path.exists(folder):
        return
    os.mkdir(folder)
    block = array.array("f", (random.Random(1).gauss(0, 1) for _ in range(1 << 16)))
    for name, code, form, size, numbers in (
            ("x", "f", "<f4", (samples, *shape), (block * (samples * math.prod(shape) // len(block) + 1))[:samples * math.prod(shape)]),
            ("y", "i", "<i4", (samples,), array.array("i", (number % classes for number in range(samples))))):
        head = repr({"descr": form, "fortran_order": False, "shape": size})
        head += " " * (63 - (len(head) + 10) % 64) + "\n"
        with open(os.path.join(folder, name + ".npy"), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
            numbers.tofile(file)


def memory_without(folder, pid):
    """Bytes that a process has in memory, but for files of this folder that it has mapped."""
    total, counts = 0, False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            counts = folder not in line
        elif counts and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


def peaks_of_workers(run, data, process):
    """{rank: most memory} of the workers of a job in this folder, looked at until the process has ended."""
    peaks = {}
    while process.poll() is None:
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = pathlib.Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace").split("\0")
                if "worker" in words and run in words and "--rank" in words:
                    rank = int(words[words.index("--rank") + 1])
                    peaks[rank] = max(peaks.get(rank, 0), memory_without(data, name))
            except OSError:
                continue
        time.sleep(0.05)
    return peaks


def measure(program, folder, number, model, batch, cut):
    """Predicted and measured seconds of a step, and how much of its prediction the worst worker took."""
    environment = {**os.environ, "XDG_CACHE_HOME": folder}
    words, classes, shape = model
    data = os.path.join(folder, "data-" + "x".join(map(str, (batch * STEPS, classes, *shape))))
    write_data(data, batch * STEPS, classes, shape)
    options = [*words, "--data", data, "--batch", str(batch), "--threads", "1", *cut]
    planned = subprocess.run([program, "plan", *options, "--save", f"{number}.yaml", "--json"], cwd=folder, env=environment,
                             check=True, capture_output=True, text=True)
    plan = json.loads(planned.stdout)

    def train(out):
        return subprocess.Popen([program, "train", f"{number}.yaml", "--epochs", "1", "--lr", "0.0001", "--log-every", "1",
                                 "--transport", "socket", "--normalize", "none", "--out", out], cwd=folder, env=environment,
                                stdout=subprocess.DEVNULL)

    def expect_end(process):
        if process.wait() != 0:
            raise SystemExit(f"{words[1]} {' '.join(cut)}: train ended with code {process.returncode}")

    out = os.path.join(folder, str(number))
    expect_end(train(out))
    watched = train(out + "-watched")  # a run of its own: who looks on is in the way
    peaks = peaks_of_workers(out + "-watched", data, watched)
    expect_end(watched)
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
                print(f"{model[0][1]:<13} {batch:>5}  {' '.join(cut):<44} {1e3 * predicted:>7.1f} ms {1e3 * seconds:>7.1f} ms "
                      f"{100 * (predicted / seconds - 1):>+6.0f}% {memory:>7.2f}", flush=True)
            print(f"{kind}: median error {100 * statistics.median(errors):.0f}% (goal 10%), most memory {worst:.2f} times "
                  f"what was predicted (goal 1.15)", flush=True)


main()
