#!/usr/bin/python3
"""Training through parameter servers: speed and time to accuracy against synchronous SGD and a PyTorch RPC server.

    bench/served.py                                 all parts, about 15 minutes
    bench/served.py --parts speed --rounds 3        less
    bench/served.py --parts links --delays 0,10

mlp on Fashion-MNIST, 2 workers of one thread, batch 128 each, and 1 server: three processes on however many cores there
are. The peer, bench/server/torch_rpc_peer.py, has the same model, batches and processes. Parts:
  speed     samples/s of one epoch without evaluation, once warm, in rounds that take turns; medians
  accuracy  seconds of training until the test accuracy first reached 88 and 90 %, looked at after each epoch, with
            Adam and the same rate for all. The program's synchronous algorithms and the peer stop their clock while they
            evaluate; async and downpour do not stop, and share the cores with the evaluation
  links     samples/s when every message between two processes takes so much longer (--chaos delay)
  cores     samples/s of one worker and one server, each bound to cores of its own and not bound (--bind)
Needs build/release/distbelief and, for the peer, python3-torch with libopenblas0-openmp (see bench/peers.sh).
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
from side import machine, peer_environment, print_rows, write_json

SAMPLES, BATCH, WORKERS = 60000, 128, 2
GOAL = 3
DEADLINE = 1800
TARGETS = (0.88, 0.90)
PEERS = {"PyTorch RPC": "flat", "PyTorch RPC, layers": "layers"}
DOWNPOUR = ["--algorithm", "downpour", "--prefetch", "on"]
SERVED = {
    "async": ["--algorithm", "async"],
    "downpour 1/1": [*DOWNPOUR, "--n-push", "1", "--n-fetch", "1"],
    "downpour 4/4": [*DOWNPOUR, "--n-push", "4", "--n-fetch", "4"],
    "downpour adaptive": [*DOWNPOUR, "--adaptive", "on"],
}
SYNCHRONOUS = {"allreduce": ["--algorithm", "allreduce"], "sync": ["--algorithm", "sync"]}


def run(command):
    """Its standard output. Ends it, with all that it started, when it takes too long."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if command[0].endswith("python3"):
        environment |= peer_environment()
    if os.geteuid() == 0:  # Open MPI's launcher asks twice
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, env=environment)
    except subprocess.TimeoutExpired:
        sys.exit(f"served.py: not done after {DEADLINE} s: {shlex.join(command)}")
    if done.returncode != 0:
        sys.exit(f"served.py: {shlex.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def train(arguments, name, *options, workers=WORKERS):
    """The rows of metrics.jsonl of one run."""
    served = name in SERVED
    batch = BATCH if served else BATCH * workers
    words = (SERVED | SYNCHRONOUS)[name] + (["--servers", "1"] if served else [])
    with tempfile.TemporaryDirectory() as folder:
        run([f"{arguments.build}/distbelief", "train", "--model", "mlp", "--data", "fashion-mnist", "--workers", str(workers),
             "--batch", str(batch), "--threads", "1", "--transport", arguments.transport, "--out", f"{folder}/run", *words,
             *options])
        with open(f"{folder}/run/metrics.jsonl") as file:
            return [json.loads(line) for line in file]


def peer(name, *options):
    """The peer's epochs."""
    lines = run(["/usr/bin/python3", f"{HERE}/server/torch_rpc_peer.py", "--variant", PEERS[name], "--batch", str(BATCH),
                 "--trainers", str(WORKERS), *options])
    return [json.loads(line) for line in lines.splitlines()]


def speed_of(arguments, name, *options, workers=WORKERS):
    """Samples/s from the first logged step on to the end of the epoch."""
    if name in PEERS:
        return peer(name, "--epochs", "1")[0]["samples_per_second"]
    rows = train(arguments, name, "--epochs", "1", "--log-every", "20", *options, workers=workers)
    first = next(row for row in rows if "samples_per_second" in row)
    last = [row for row in rows if "epoch_train_loss" in row][-1]
    return SAMPLES * (last["epoch"] - first["epoch"]) / (last["time"] - first["time"])


def in_turns(arguments, names, *options):
    """Samples/s by name, a list with one for each round."""
    rates = {name: [] for name in names}
    for turn in range(arguments.rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            rates[name].append(speed_of(arguments, name, *options))
            print(f"round {turn + 1}, {name}: {rates[name][-1]:,.0f}/s", file=sys.stderr)
    return rates


def measure_speed(arguments):
    rates = in_turns(arguments, [*SERVED, *SYNCHRONOUS, *PEERS])
    fastest = max(PEERS, key=lambda name: statistics.median(rates[name]))
    # Of each round, as what disturbs a round disturbs all of it.
    ratios = {name: statistics.median(ours / theirs for ours, theirs in zip(rates[name], rates[fastest])) for name in rates}
    rows = [{"name": name, "samples_per_second": statistics.median(values), "rounds": values, "of_peer": ratios[name]}
            for name, values in rates.items()]
    print_rows(["", "samples/s", f"of {fastest}", "goal"],
               [[row["name"], f"{row['samples_per_second']:,.0f}", f"{row['of_peer']:.2f}",
                 "" if row["name"] in PEERS or row["name"] in SYNCHRONOUS else
                 f"{GOAL}: {'met' if row['of_peer'] >= GOAL else 'missed'}"] for row in rows])
    return rows


def accuracies(arguments, name):
    """(seconds of training, test accuracy) after each epoch."""
    options = ["--epochs", str(arguments.epochs), "--optimizer", "adam", "--lr", str(arguments.lr)]
    if name in PEERS:
        seconds, found = 0, []
        for epoch in peer(name, *options, "--cosine", "--evaluate"):
            seconds += epoch["seconds"]
            found.append((seconds, epoch["accuracy"]))
        return found
    rows = train(arguments, name, *options, "--schedule", "cosine", "--log-every", "100000")
    return [(row["time"], row["test_accuracy"]) for row in rows if "test_accuracy" in row]


def measure_accuracy(arguments):
    rows = []
    for name in [*SERVED, *SYNCHRONOUS, next(iter(PEERS))]:
        found = accuracies(arguments, name)
        reached = {target: next(((epoch + 1, seconds) for epoch, (seconds, accuracy) in enumerate(found)
                                 if accuracy >= target), None) for target in TARGETS}
        rows.append({"name": name, "epochs": found, "reached": {str(target): when for target, when in reached.items()}})
        print(f"{name}: {found[-1][1]:.2%} after {found[-1][0]:.1f} s", file=sys.stderr)
    print_rows(["", *(f"{target:.0%}" for target in TARGETS), "at the end"],
               [[row["name"], *(f"{when[1]:.1f} s, epoch {when[0]}" if when else "never" for when in row["reached"].values()),
                 f"{row['epochs'][-1][1]:.2%}, {row['epochs'][-1][0]:.1f} s"] for row in rows])
    return rows


def delays_of(name, delay):
    """Of every link: to the server, or between the workers."""
    links = [f"{worker}-{WORKERS}" for worker in range(WORKERS)] if name in SERVED else ["0-1"]
    events = [f"delay link {link} by {delay}ms" for link in links]
    return ["--chaos", "; ".join(events)] if delay else []


def measure_links(arguments):
    names = [*SERVED, *SYNCHRONOUS]
    rates = {(name, delay): [] for name in names for delay in arguments.delays}
    for turn in range(arguments.rounds):
        for (name, delay), found in rates.items() if turn % 2 == 0 else reversed(rates.items()):
            found.append(speed_of(arguments, name, *delays_of(name, delay)))
            print(f"round {turn + 1}, {delay} ms, {name}: {found[-1]:,.0f}/s", file=sys.stderr)
    rows = [{"name": name, "delay_ms": delay, "samples_per_second": statistics.median(found), "rounds": found}
            for (name, delay), found in rates.items()]
    rate = {(row["name"], row["delay_ms"]): row["samples_per_second"] for row in rows}
    fastest = min(arguments.delays)
    print_rows(["", *(f"{delay} ms" for delay in arguments.delays)],
               [[name, *(f"{rate[name, delay]:,.0f} ({rate[name, delay] / rate[name, fastest]:.0%})"
                         for delay in arguments.delays)] for name in names])
    return rows


def measure_cores(arguments):
    names = ["async", "downpour 1/1"]
    rates = {(name, bind): [] for name in names for bind in ("cores", "none")}
    for turn in range(arguments.rounds):
        for (name, bind), found in rates.items() if turn % 2 == 0 else reversed(rates.items()):
            found.append(speed_of(arguments, name, "--bind", bind, workers=1))
            print(f"round {turn + 1}, {name}, --bind {bind}: {found[-1]:,.0f}/s", file=sys.stderr)
    rows = [{"name": name, "bind": bind, "samples_per_second": statistics.median(found), "rounds": found}
            for (name, bind), found in rates.items()]
    gains = {name: statistics.median(own / free for own, free in zip(rates[name, "cores"], rates[name, "none"]))
             for name in names}
    print_rows(["", "cores of their own", "not bound", "gain"],
               [[name, *(f"{statistics.median(rates[name, bind]):,.0f}" for bind in ("cores", "none")), f"{gains[name]:.2f}"]
                for name in names])
    return rows


def main():
    parts = {"speed": measure_speed, "accuracy": measure_accuracy, "links": measure_links, "cores": measure_cores}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(parts))
    parser.add_argument("--rounds", type=int, default=5, help="of speed; links: runs of each")
    parser.add_argument("--epochs", type=int, default=15, help="of accuracy")
    parser.add_argument("--lr", type=float, default=0.001, help="of accuracy, at the start; it falls as a cosine")
    parser.add_argument("--delays", type=lambda text: [int(word) for word in text.split(",")], default=[0, 1, 10])
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--build", default=f"{HERE}/../build/release")
    parser.add_argument("--out", default="bench/results/served.json")
    arguments = parser.parse_args()
    unknown = [part for part in arguments.parts if part not in parts]
    if unknown:
        parser.error(f"{unknown[0]!r} is none of {', '.join(parts)}")
    result = {"machine": machine(), "transport": arguments.transport}
    for part in arguments.parts:
        print(f"\n{part}")
        result[part] = parts[part](arguments)
        write_json(arguments.out, result)


if __name__ == "__main__":
    main()
