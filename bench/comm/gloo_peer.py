#!/usr/bin/python3
"""PyTorch's gloo in N processes, timing all-reduces on demand: the protocol is that of bench_collectives.cc.

    gloo_peer.py --processes N        starts the others itself
"""

import argparse
import datetime
import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist

QUIT = 0


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def measure(size, milliseconds, rank, processes):
    data = torch.full((size // 4,), float(rank + 1))
    dist.all_reduce(data)
    expected = processes * (processes + 1) / 2
    if not bool((data == expected).all()):
        raise RuntimeError("a wrong sum")
    data.zero_()
    iterations = 1
    while True:
        dist.barrier()
        start = time.perf_counter()
        for _ in range(iterations):
            dist.all_reduce(data)
        seconds = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
        dist.broadcast(seconds, 0)
        if seconds[0] * 1000 >= milliseconds:
            return float(seconds[0]) / iterations
        iterations *= 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    rank, processes, port = arguments.rank, arguments.processes, arguments.port or free_port()
    others = [subprocess.Popen([sys.executable, os.path.abspath(__file__), "--processes", str(processes), "--rank", str(i),
                                "--port", str(port)], stdin=subprocess.DEVNULL)
              for i in range(1, processes)] if rank == 0 else []
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=processes,
                            timeout=datetime.timedelta(minutes=10))
    if rank == 0:
        print("ready", flush=True)
    while True:
        order = torch.zeros(2, dtype=torch.int64)
        if rank == 0:
            words = sys.stdin.readline().split()
            if len(words) == 3:
                order = torch.tensor([int(words[1]), int(words[2])])
        dist.broadcast(order, 0)
        if order[1] == QUIT:
            break
        seconds = measure(int(order[0]), int(order[1]), rank, processes)
        if rank == 0:
            print(f'{{"seconds": {seconds:.9f}}}', flush=True)
    dist.destroy_process_group()
    for other in others:
        other.wait(30)


if __name__ == "__main__":
    main()
