#!/usr/bin/python3
"""PyTorch's side of bench/parts.py: the speech network over processes, each layer cut by its outputs, by hand over gloo.

    torch_cut_peer.py --batch 256 --steps 25       one JSON line: {"samples_per_second": ...}

Each process has some columns of every layer, which is the cut that our planner chooses for two processes. Debian's PyTorch
multiplies with whatever libblas.so.3 is: see torch_peer.py.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

INPUTS, HIDDEN, CLASSES, WARM_UP = 440, (2560, 2560, 2560, 2560), 8192, 3


class Gather(torch.autograd.Function):
    """The columns of all processes. Where each then uses the whole for its own columns, gradients are parts of a sum."""

    @staticmethod
    def forward(context, own, used_in_parts):
        context.used_in_parts = used_in_parts
        columns = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(columns, own.contiguous())
        return torch.cat(columns, 1)

    @staticmethod
    def backward(context, gradient):
        if context.used_in_parts:
            gradient = gradient.contiguous()
            dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size(), 1)[dist.get_rank()].contiguous(), None


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [INPUTS, *HIDDEN, CLASSES]
        self.layers = nn.ModuleList(nn.Linear(before, after // dist.get_world_size())
                                    for before, after in zip(widths, widths[1:]))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = Gather.apply(torch.sigmoid(layer(x)), True)
        return Gather.apply(self.layers[-1](x), False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    others = []
    if arguments.rank == 0:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            arguments.port = listener.getsockname()[1]
        others = [subprocess.Popen([sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--rank", str(rank),
                                    "--port", str(arguments.port)]) for rank in range(1, arguments.processes)]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{arguments.port}", rank=arguments.rank,
                            world_size=arguments.processes)
    torch.manual_seed(1)  # the same samples everywhere
    inputs, labels = torch.randn(arguments.batch, INPUTS), torch.randint(CLASSES, (arguments.batch,))
    model = Speech()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    began = 0
    for step in range(WARM_UP + arguments.steps):
        if step == WARM_UP:
            dist.barrier()
            began = time.perf_counter()
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    dist.barrier()
    elapsed = time.perf_counter() - began
    if not torch.isfinite(loss):
        sys.exit("torch_cut_peer: the loss is not finite")
    if arguments.rank == 0:
        print(json.dumps({"samples_per_second": arguments.steps * arguments.batch / elapsed}), flush=True)
    for other in others:
        other.wait(30)


if __name__ == "__main__":
    main()
