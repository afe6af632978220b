#!/usr/bin/python3
"""All-reduce of 1 KB to 256 MB: ours over MPI and over unix sockets, by each algorithm, against MPI_Allreduce and gloo.

    bench/collectives.py                         2 and 4 processes, about 10 minutes
    bench/collectives.py --processes 2 --sizes 1K,1M --rounds 3

All sides are processes that stay alive and take turns, so that a machine that grows slower or faster does so for all; the
fastest rounds are compared. "table" is what a run uses: src/comm/collective_table.cc, which is made from the columns ring,
halving and doubling of this table. Needs build/release/bench_collectives and, for gloo, python3-torch.
"""

import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
from side import Side, SideFailed, machine, print_rows, write_json

ALGORITHMS = ["doubling", "halving", "ring"]
UNITS = {"K": 1 << 10, "M": 1 << 20}
SIZES = ["1K", "4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M", "256M"]
FEWER_ROUNDS_FROM = 16 << 20  # bytes; these are less easily disturbed, and take long


def size_of(text):
    return int(text[:-1]) * UNITS[text[-1]]


def start_sides(processes, build):
    program = f"{build}/bench_collectives"
    mpirun = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", str(processes)]
    # MPI's own collectives need to yield where processes are more than cores, and are slower with it where they are not.
    yields = "1" if processes > len(os.sched_getaffinity(0)) else "0"
    commands = {
        "mpi": [*mpirun, program, "--transport", "mpi"],
        "mpi's own": [*mpirun, "--mca", "mpi_yield_when_idle", yields, program, "--transport", "mpi"],
        "socket": [program, "--transport", "socket", "--processes", str(processes)],
        "gloo": ["/usr/bin/python3", f"{HERE}/comm/gloo_peer.py", "--processes", str(processes)],
    }
    sides = {}
    try:
        for name, command in commands.items():
            sides[name] = Side(name, command)
            sides[name].wait_ready()
    except SideFailed as failure:
        for side in sides.values():
            side.kill()
        sys.exit(f"{name}: {failure}")
    return sides


# What is measured: column, side, and what that side is asked for.
COLUMNS = [("table", "mpi", "table"), ("MPI_Allreduce", "mpi's own", "mpi"), ("gloo", "gloo", "gloo"),
           ("sockets", "socket", "table"), *((f"{name}", "mpi", name) for name in ALGORITHMS),
           *((f"sockets {name}", "socket", name) for name in ALGORITHMS)]


def measure(sides, size, arguments):
    """Seconds of one all-reduce by column: the fastest of all rounds, as whatever disturbs only adds."""
    seconds = {column: [] for column, _, _ in COLUMNS}
    for turn in range(arguments.rounds if size < FEWER_ROUNDS_FROM else arguments.rounds // 3 + 1):
        for column, side, what in COLUMNS if turn % 2 else reversed(COLUMNS):
            order = f"{what} {size} {arguments.milliseconds}"
            seconds[column].append(sides[side].ask(order, "seconds", 300)["seconds"])
    return {column: min(values) for column, values in seconds.items()}


def time_text(seconds):
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-5 else f"{seconds * 1e6:.0f} us" if seconds < 1e-2 else f"{seconds * 1e3:.1f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=lambda text: [int(word) for word in text.split(",")], default=[2, 4])
    parser.add_argument("--sizes", type=lambda text: text.split(","), default=SIZES)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--milliseconds", type=int, default=30, help="of one measurement, at least")
    parser.add_argument("--build", default=f"{HERE}/../build/release")
    parser.add_argument("--out", default="bench/results/collectives.json")
    arguments = parser.parse_args()
    result = {"machine": machine(), "rounds": arguments.rounds, "rows": []}
    for processes in arguments.processes:
        sides = start_sides(processes, arguments.build)
        try:
            for size in arguments.sizes:
                seconds = measure(sides, size_of(size), arguments)
                better = min(seconds["MPI_Allreduce"], seconds["gloo"])
                result["rows"].append({"processes": processes, "bytes": size_of(size), "seconds": seconds,
                                       "of_better": better / seconds["table"]})
                write_json(arguments.out, result)
                print(f"{processes} processes, {size}: done", file=sys.stderr)
            for side in sides.values():
                side.quit()
        except SideFailed as failure:
            sys.exit(str(failure))
        finally:
            for side in sides.values():
                side.kill()
    names = [column for column, _, _ in COLUMNS]
    print_rows(["processes", "KB", *names[:4], "better/ours", *names[4:]],
               [[str(row["processes"]), str(row["bytes"] >> 10), *(time_text(row["seconds"][name]) for name in names[:4]),
                 f"{row['of_better']:.2f}", *(time_text(row["seconds"][name]) for name in names[4:])]
                for row in result["rows"]])


if __name__ == "__main__":
    main()
