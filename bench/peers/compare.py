#!/usr/bin/python3
"""Runs this engine and PyTorch side by side and says how they compare.

Both sides are processes that stay alive and take turns, so that a machine that grows slower or faster while we measure
does so for both. The order changes from round to round; the medians are compared. Usually started by bench/peers.sh.

The protocol, the same for bench_engine and torch_peer.py
---------------------------------------------------------
Started as      COMMAND --case CASE --threads N --interactive [--batch N]
CASE            mlp | lenet | resnet50 | speech | local-image | mlp-epoch; models and batches as in torch_peer.py.
                A step is forward, backward and update (SGD, momentum 0.9, softmax cross-entropy) on four random batches
                that are already in memory, in turn. mlp-epoch trains whole epochs of Fashion-MNIST, loading included.
stdout, lines   {"event": "first_step"}     after the very first step, before any warm-up; optional. The time from the
                                            start of the process to this line is the time to the first step.
                ready                       warmed up: nothing that comes later happens for the first time
stdin           round SECONDS               train for that long, in whole steps (mlp-epoch: whole epochs), at least one
stdout          {"samples_per_second": 16000.0, "steps": 125, "seconds": 1.002}
stdin           quit
stdout          one last JSON line, then exit code 0:
                {"case", "threads", "batch", "samples_per_second" (median), "step_seconds", "peak_rss_bytes",
                "versions"}
                and from this engine also
                "flops_per_sample"          of a training step, forward and backward, counted from the shapes
                "gemm_peak_gflops"          the best that a large float matrix product reaches with these threads
                "thread_mode"               how the threads were used
Anything else on stdout, an early exit or a missed deadline is a failure; the last lines of stderr are its message.
End of stdin means quit. The result file is described by its own keys.
"""

import argparse
import collections
import os
import shlex
import signal
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from side import Side, SideFailed, machine, print_rows, write_json  # noqa: E402: it is one folder up

CASES = ["mlp", "lenet", "resnet50", "speech", "local-image", "mlp-epoch"]
# (case, threads) -> the least ratio that the project wants to reach
GOALS = {"mlp": {1: 1.5, 2: 1.5}, "lenet": {1: 1.8, 2: 1.8}, "resnet50": {1: 1.15, 2: 1.3}, "speech": {1: 1.2, 2: 1.2},
         "mlp-epoch": {1: 3.0, 2: 3.0}}
# A round of these holds too few steps in the usual time.
LONGER_ROUNDS = {"resnet50": 8, "speech": 2}


def round_rate(side, seconds, deadline):
    """Samples a second of one round."""
    rate = side.ask(f"round {seconds:g}", "samples_per_second", seconds + deadline)["samples_per_second"]
    if not isinstance(rate, (int, float)) or not rate > 0:
        side.fail(f"expected samples_per_second above 0, got {rate!r}")
    return rate


def foreign_cpu_seconds(pid):
    """CPU time that the machine has spent on others than process `pid` and, once they ended, its children."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _wait, irq, soft = map(int, file.readline().split()[1:8])
    with open(f"/proc/{pid}/stat") as file:
        own = sum(map(int, file.read().rsplit(")", 1)[1].split()[11:15]))
    return (user + nice + system + irq + soft - own) / os.sysconf("SC_CLK_TCK")


def measure(case, threads, arguments, progress):
    """One row of the table: both sides of one case, in turn."""
    seconds = arguments.seconds * LONGER_ROUNDS.get(case, 1)
    sides, failures = {}, {}
    foreign_cpu = elapsed = 0.0
    try:
        for name, command in (("ours", arguments.ours), ("torch", arguments.torch)):
            progress(f"{case}, {threads} thread(s): starting {name}")
            try:
                side = sides[name] = Side(name, [*command, "--case", case, "--threads", str(threads), "--interactive"],
                                          threads, arguments.ready_deadline)
                side.rates = []
                side.first_step_seconds = side.wait_ready().get("first_step")
            except SideFailed as failure:
                failures[name] = str(failure)
        for turn in range(arguments.rounds):
            order = [name for name in ("ours", "torch") if name not in failures]
            if turn % 2:
                order.reverse()
            for name in order:
                progress(f"{case}, {threads} thread(s): round {turn + 1} of {arguments.rounds}, {name}")
                side = sides[name]
                try:
                    began, before = time.monotonic(), foreign_cpu_seconds(side.process.pid)
                    side.rates.append(round_rate(side, seconds, arguments.round_deadline))
                    elapsed += time.monotonic() - began
                    foreign_cpu += foreign_cpu_seconds(side.process.pid) - before
                except (SideFailed, FileNotFoundError) as failure:
                    failures[name] = str(failure)
        for name, side in sides.items():
            if name not in failures:
                try:
                    side.final = side.quit("peak_rss_bytes")
                except SideFailed as failure:
                    failures[name] = str(failure)
    finally:
        for side in sides.values():
            side.kill()
    return row_of(case, threads, sides, failures, foreign_cpu / elapsed if elapsed else None)


def row_of(case, threads, sides, failures, foreign_cores):
    row = {"case": case, "threads": threads, "goal": GOALS.get(case, {}).get(threads), "ratio": None,
           "foreign_cores": foreign_cores}
    for name in ("ours", "torch"):
        if name in failures:
            row[name] = {"failed": failures[name]}
            continue
        side = sides[name]
        row[name] = {**side.final, "samples_per_second": statistics.median(side.rates), "rounds": side.rates,
                     "first_step_seconds": side.first_step_seconds, "ready_seconds": side.ready_seconds}
    if failures:
        return row
    ours, torch = row["ours"], row["torch"]
    row["ratio"] = ours["samples_per_second"] / torch["samples_per_second"]
    pairs = [a / b for a, b in zip(ours["rounds"], torch["rounds"])]
    row["ratio_range"] = [min(pairs), max(pairs)]
    row["memory_ratio"] = ours["peak_rss_bytes"] / torch["peak_rss_bytes"]
    flops, peak = ours.get("flops_per_sample"), ours.get("gemm_peak_gflops")
    if flops and peak:
        for side in (ours, torch):
            side["fraction_of_gemm_peak"] = side["samples_per_second"] * flops / (peak * 1e9)
    return row


HEADINGS = ["case", "threads", "ours/s", "PyTorch/s", "ratio", "range", "goal", "of GEMM peak", "PyTorch's",
            "memory MB", "PyTorch's", "first step s"]


def cells(row):
    """One row of the table as text."""
    def number(side, key, form, scale=1):
        value = row[side].get(key)
        return "-" if value is None else form.format(value * scale)

    def rate(side):
        return "failed" if "failed" in row[side] else number(side, "samples_per_second", "{:.1f}")

    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
    span = "-" if row["ratio"] is None else "{:.2f}-{:.2f}".format(*row["ratio_range"])
    goal = "-" if row["goal"] is None else f"{row['goal']:g}"
    if row["goal"] and row["ratio"]:
        goal += " yes" if row["ratio"] >= row["goal"] else " no"
    return [row["case"], str(row["threads"]), rate("ours"), rate("torch"), ratio, span, goal,
            number("ours", "fraction_of_gemm_peak", "{:.0f} %", 100),
            number("torch", "fraction_of_gemm_peak", "{:.0f} %", 100),
            number("ours", "peak_rss_bytes", "{:.0f}", 1e-6), number("torch", "peak_rss_bytes", "{:.0f}", 1e-6),
            number("ours", "first_step_seconds", "{:.2f}")]


def print_remarks(rows):
    for row in rows:
        for name in ("ours", "torch"):
            if "failed" in row[name]:
                print(f"{row['case']}, {row['threads']} thread(s): {name} failed: {row[name]['failed']}")
        if row["foreign_cores"] and row["foreign_cores"] > 0.1:
            print(f"{row['case']}, {row['threads']} thread(s): other programs used {row['foreign_cores']:.1f} cores "
                  "meanwhile; measure again on a quiet machine")
    libraries = collections.Counter(row["torch"].get("versions", {}).get("blas") for row in rows)
    for library in libraries:
        if library and not any(word in library for word in ("openblas", "blis", "mkl")):
            print(f"PyTorch multiplied with {library}, which is slow: install libopenblas0-openmp to be fair")


def words(choices):
    def parse(text):
        chosen = text.split(",")
        wrong = [word for word in chosen if word not in choices]
        if wrong:
            raise argparse.ArgumentTypeError(f"{wrong[0]!r} is none of {', '.join(choices)}")
        return chosen
    return parse


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=words(CASES), default=CASES, help="comma-separated (default: all)")
    parser.add_argument("--threads", type=lambda text: [int(word) for word in text.split(",")], default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each side; the median counts")
    parser.add_argument("--seconds", type=float, default=2, help="of a round; longer for the largest models")
    parser.add_argument("--ours", type=shlex.split, default=[f"{HERE}/../../build/release/bench_engine"],
                        help="command of this engine")
    parser.add_argument("--torch", type=shlex.split, default=["/usr/bin/python3", f"{HERE}/torch_peer.py"],
                        help="command of the other side")
    parser.add_argument("--out", default="bench/results/peers.json", help="where the result is written")
    parser.add_argument("--ready-deadline", type=float, default=300, help="seconds that a side may take to get ready")
    parser.add_argument("--round-deadline", type=float, default=120, help="seconds that a round may last too long")
    arguments = parser.parse_args()

    # Ctrl-C and SIGTERM leave through the `finally` that ends both sides.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def progress(text):
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    result = {"machine": machine(), "rounds": arguments.rounds, "round_seconds": arguments.seconds, "rows": []}
    for case in arguments.cases:
        for threads in arguments.threads:
            result["rows"].append(measure(case, threads, arguments, progress))
            write_json(arguments.out, result)  # after each row: an interrupted run keeps what it measured
    progress("")
    print_rows(HEADINGS, [cells(row) for row in result["rows"]])
    print_remarks(result["rows"])
    print(f"written to {arguments.out}")
    if any("failed" in row[name] for row in result["rows"] for name in ("ours", "torch")):
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
