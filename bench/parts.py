#!/usr/bin/python3
"""One network over two processes of one thread, against one process of two threads, and against PyTorch.

    bench/parts.py                              speech, local-image, mlp and lenet, about 10 minutes
    bench/parts.py --cases speech --rounds 3

Each side is a run of the program on generated data, in turns; speeds are medians of the time of training. "of 1 x 2" is
the share of the speed of one process with two threads (goal 0.85 for speech and local-image). "PyTorch" is speech over two
processes of one thread with the same cut as "tensor 2", written by hand (bench/peers/torch_cut_peer.py). Needs
build/release/distbelief, and python3-torch with libopenblas0-openmp for the peer.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
from side import machine, print_rows, write_json

# case: what is trained, and samples of a run.
CASES = {
    "speech": (["--model", "speech", "--batch", "256"], "synthetic:classes=8192,shape=440", 6400),
    "local-image": (["--model", "local-image", "--batch", "128"], "synthetic:classes=10,shape=3x32x32", 60000),
    "mlp": (["--model", "mlp", "--batch", "128"], "synthetic:classes=10,shape=1x28x28", 240000),
    "lenet": (["--model", "lenet", "--batch", "128"], "synthetic:classes=10,shape=1x28x28", 16000),
}
SIDES = {
    "1 x 2": ["--threads", "2"],
    "tensor 2": ["--tensor", "2", "--threads", "1"],
    "stages 2": ["--stages", "2", "--threads", "1"],
}
GOALS = {"speech": 0.85, "local-image": 0.85}
PEERS = {"speech": ["/usr/bin/python3", f"{HERE}/peers/torch_cut_peer.py", "--batch", "256"]}


def peer_speed(case, arguments):
    samples = int(CASES[case][2] * arguments.scale)
    done = subprocess.run([*PEERS[case], "--steps", str(max(1, samples // 256))], stdout=subprocess.PIPE, text=True,
                          timeout=900, check=True)
    return json.loads(done.stdout)["samples_per_second"]


def speed(case, side, arguments):
    options, data, samples = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        transport = [] if side == "1 x 2" else ["--transport", arguments.transport]
        command = [f"{arguments.build}/distbelief", "train", *options, "--data",
                   f"{data},samples={int(samples * arguments.scale)},seed=1", "--epochs", "1", "--lr", "0.001",
                   *SIDES[side], *transport, "--out", out]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stdout.strip().splitlines()[-1:]}")
        with open(out + "/summary.json") as file:
            return json.load(file)["samples_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1, help="of the samples of a run")
    parser.add_argument("--transport", default="mpi")
    parser.add_argument("--build", default=f"{HERE}/../build/release")
    parser.add_argument("--out", default="bench/results/parts.json")
    arguments = parser.parse_args()
    unknown = [case for case in arguments.cases if case not in CASES]
    if unknown:
        parser.error(f"{unknown[0]!r} is none of {', '.join(CASES)}")
    result = {"machine": machine(), "rows": []}
    rows = []
    for case in arguments.cases:
        sides = [*SIDES, *(["PyTorch"] if case in PEERS else [])]
        rates = {side: [] for side in sides}
        for turn in range(arguments.rounds):
            for side in sorted(sides, reverse=turn % 2 == 1):
                rates[side].append(peer_speed(case, arguments) if side == "PyTorch" else speed(case, side, arguments))
        median = {side: statistics.median(values) for side, values in rates.items()}
        result["rows"].append({"case": case, "samples_per_second": median, "rounds": rates})
        peer = median.get("PyTorch")
        rows.append([case, *(f"{median[side]:,.0f}" for side in SIDES), f"{median['tensor 2'] / median['1 x 2']:.2f}",
                     f"{median['stages 2'] / median['1 x 2']:.2f}", str(GOALS.get(case, "-")),
                     f"{peer:,.0f}" if peer else "-", f"{median['tensor 2'] / peer:.2f}" if peer else "-"])
    print_rows(["case", *SIDES, "tensor of 1 x 2", "stages of 1 x 2", "goal", "PyTorch", "tensor of PyTorch"], rows)
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
