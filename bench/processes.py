#!/usr/bin/python3
"""Two processes of one thread: against one process of two threads, and against PyTorch's DistributedDataParallel on gloo.

    bench/processes.py                          mlp, lenet and resnet50, about 10 minutes
    bench/processes.py --cases lenet --rounds 3

All sides are processes that stay alive and take turns (see bench/peers/compare.py); the medians are compared. Ours is
--algorithm allreduce over MPI. "hidden" is the share of the time of all-reduces that backward covers. Needs
build/release/bench_engine and bench_workers, and python3-torch with libopenblas0-openmp for the peer.
"""

import argparse
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
from side import Side, SideFailed, machine, print_rows, write_json

# case: (batch of a process, the least ratio to DDP that the project wants, seconds of a round)
CASES = {"mlp": (64, 2.5, 2), "lenet": (64, 1.5, 2), "resnet50": (8, 1.1, 12), "speech": (128, None, 6)}
OF_ONE_PROCESS = {"lenet": 0.95, "resnet50": 0.95}


def commands(case, build):
    batch = CASES[case][0]
    mpirun = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", "2", "-x", "OMP_WAIT_POLICY=passive"]
    common = ["--case", case, "--interactive"]
    return {
        "2 x 1": (1, [*mpirun, f"{build}/bench_workers", *common, "--batch", str(2 * batch), "--threads", "1"]),
        "1 x 2": (2, [f"{build}/bench_engine", *common, "--batch", str(2 * batch), "--threads", "2"]),
        "DDP": (1, ["/usr/bin/python3", f"{HERE}/peers/torch_peer.py", *common, "--batch", str(batch), "--threads", "1",
                    "--processes", "2"]),
    }


def measure(case, arguments):
    sides = {}
    rates = {}
    try:
        for name, (threads, command) in commands(case, arguments.build).items():
            sides[name] = Side(name, command, threads)
            sides[name].wait_ready()
            rates[name] = []
        seconds = CASES[case][2] * arguments.scale
        for turn in range(arguments.rounds):
            for name in sorted(sides, reverse=turn % 2 == 1):
                answer = sides[name].ask(f"round {seconds:g}", "samples_per_second", seconds + 120)
                rates[name].append(answer["samples_per_second"])
        finals = {name: side.quit("peak_rss_bytes") for name, side in sides.items()}
    finally:
        for side in sides.values():
            side.kill()
    median = {name: statistics.median(values) for name, values in rates.items()}
    return {"case": case, "batch": CASES[case][0], "samples_per_second": median, "rounds": rates,
            "of_one_process": median["2 x 1"] / median["1 x 2"], "of_ddp": median["2 x 1"] / median["DDP"],
            **{key: finals["2 x 1"][key] for key in ("hidden", "summing_seconds", "waiting_seconds")}}


def with_goal(value, goal):
    return f"{value:.2f}" + ("" if goal is None else f" (goal {goal:g}: {'yes' if value >= goal else 'no'})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=lambda text: text.split(","), default=["mlp", "lenet", "resnet50"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1, help="of the seconds of a round")
    parser.add_argument("--build", default=f"{HERE}/../build/release")
    parser.add_argument("--out", default="bench/results/processes.json")
    arguments = parser.parse_args()
    unknown = [case for case in arguments.cases if case not in CASES]
    if unknown:
        parser.error(f"{unknown[0]!r} is none of {', '.join(CASES)}")
    result = {"machine": machine(), "rows": []}
    for case in arguments.cases:
        try:
            result["rows"].append(measure(case, arguments))
        except SideFailed as failure:
            sys.exit(f"{case}: {failure}")
        write_json(arguments.out, result)
    print_rows(["case", "batch", "2 x 1 /s", "1 x 2 /s", "DDP /s", "of 1 x 2", "of DDP", "sums ms", "hidden"],
               [[row["case"], f"2 x {row['batch']}",
                 *(f"{row['samples_per_second'][name]:.1f}" for name in ("2 x 1", "1 x 2", "DDP")),
                 with_goal(row["of_one_process"], OF_ONE_PROCESS.get(row["case"])),
                 with_goal(row["of_ddp"], CASES[row["case"]][1]), f"{row['summing_seconds'] * 1e3:.2f}",
                 f"{row['hidden']:.0%}"] for row in result["rows"]])


if __name__ == "__main__":
    main()
