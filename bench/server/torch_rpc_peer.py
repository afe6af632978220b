#!/usr/bin/python3
"""A parameter server in PyTorch (torch.distributed.rpc): one server process, trainers that push and fetch each batch.

    torch_rpc_peer.py --epochs 3                         one JSON line for each epoch
    torch_rpc_peer.py --epochs 1 --variant layers        a gradient for each layer, and torch.optim in the server

mlp (784-512-512-10) on Fashion-MNIST, all in memory as floats, a batch is one index_select with a part of a random
permutation. One call a batch: the gradient goes there, the server applies it at once, and the new parameters come back.
"flat", the default and the faster, keeps parameters and gradient in one tensor each; with "layers" each layer has its own,
which is how one would write it first. An epoch's seconds are those of training, without evaluation, which is
the server's, between epochs.
"""

import argparse
import gzip
import json
import math
import os
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import torch
import torch.distributed.rpc as rpc
import torch.nn.functional as F
from torch import nn

FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
SAMPLES = 60000
SERVER = "server"


def read_idx(name):
    """The array in a gzipped IDX file of bytes."""
    with gzip.open(f"{FASHION_MNIST}/{name}.gz") as file:
        data = file.read()
    dimensions = data[3]
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(dimensions)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def read_part(name):
    images = torch.from_numpy(read_idx(f"{name}-images-idx3-ubyte").astype(np.float32))
    labels = torch.from_numpy(read_idx(f"{name}-labels-idx1-ubyte").astype(np.int64))
    return images.div_(255).sub_(0.2860).div_(0.3530).flatten(1), labels


def mlp():
    """The program's mlp, which begins as there: He's initialisation, and a last layer that is nearly 0."""
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(inplace=True), nn.Linear(512, 512), nn.ReLU(inplace=True),
                          nn.Linear(512, 10))
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    nn.init.uniform_(model[-1].weight, -0.1 / 512**0.5, 0.1 / 512**0.5)
    return model


def flatten(model):
    """Makes parameters and gradients views of one tensor each, which are returned."""
    parameters = list(model.parameters())
    values = torch.cat([parameter.detach().flatten() for parameter in parameters])
    gradient = torch.zeros_like(values)
    place = 0
    for parameter in parameters:
        count = parameter.numel()
        parameter.data = values[place:place + count].view_as(parameter)
        parameter.grad = gradient[place:place + count].view_as(parameter)
        place += count
    return values, gradient


class Server:
    """Lives in the server's process; its functions are called by the trainers, several at a time."""

    def __init__(self, arguments):
        torch.manual_seed(arguments.seed)
        self.model, self.lock, self.updates, self.flat = mlp(), threading.Lock(), 0, arguments.variant == "flat"
        self.rate, self.cosine = arguments.lr, arguments.cosine
        self.all_updates = arguments.epochs * math.ceil(SAMPLES / arguments.batch)
        self.parameters = [nn.Parameter(flatten(self.model)[0])] if self.flat else list(self.model.parameters())
        self.optimizer = (torch.optim.Adam(self.parameters, lr=self.rate) if arguments.optimizer == "adam" else
                          torch.optim.SGD(self.parameters, lr=self.rate, momentum=arguments.momentum))

    def next_rate(self):
        done = min(self.updates / self.all_updates, 1)
        self.updates += 1
        return self.rate * (1 + math.cos(math.pi * done)) / 2 if self.cosine else self.rate

    def copies(self):
        """While they are sent the next push changes the parameters themselves."""
        values = [parameter.detach().clone() for parameter in self.parameters]
        return values[0] if self.flat else values

    def fetch(self):
        with self.lock:
            return self.copies()

    def push_and_fetch(self, gradient):
        with self.lock:
            self.optimizer.param_groups[0]["lr"] = self.next_rate()
            for parameter, part in zip(self.parameters, [gradient] if self.flat else gradient):
                parameter.grad = part
            self.optimizer.step()
            return self.copies()

    def accuracy(self, images, labels):
        with torch.no_grad():
            correct = sum(int((self.model(images[i:i + 1000]).argmax(1) == labels[i:i + 1000]).sum())
                          for i in range(0, len(labels), 1000))
        return correct / len(labels)


class Trainer:
    def __init__(self, variant, batch):
        self.model, self.flat, self.batch = mlp(), variant == "flat", batch
        if self.flat:
            self.values, self.gradient = flatten(self.model)
        self.images, self.labels = read_part("train")

    def take(self, values):
        if self.flat:
            self.values.copy_(values)
        else:
            for parameter, value in zip(self.model.parameters(), values):
                parameter.data = value

    def run(self, order):
        self.take(rpc.rpc_sync(SERVER, fetch))
        for begin in range(0, len(order), self.batch):
            chosen = order[begin:begin + self.batch]
            loss = F.cross_entropy(self.model(self.images.index_select(0, chosen)), self.labels.index_select(0, chosen))
            if self.flat:
                self.gradient.zero_()
                loss.backward()
                gradient = self.gradient
            else:
                self.model.zero_grad(set_to_none=True)
                loss.backward()
                gradient = [parameter.grad for parameter in self.model.parameters()]
            self.take(rpc.rpc_sync(SERVER, push_and_fetch, args=(gradient,)))
        return float(loss)


# What processes call on each other: functions of the module, on what the process has made.
here = None


def fetch():
    return here.fetch()


def push_and_fetch(gradient):
    return here.push_and_fetch(gradient)


def run_trainer(order):
    return here.run(order)


def warm_up():
    """One batch of computing without the server."""
    F.cross_entropy(here.model(here.images[:here.batch]), here.labels[:here.batch]).backward()


def end_with_the_server():
    """A trainer's standard input is a pipe that the server holds: it ends when the server does, however it did."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()


def main():
    global here
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128, help="of each trainer")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--cosine", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--variant", choices=["flat", "layers"], default="flat")
    parser.add_argument("--evaluate", action="store_true", help="test accuracy after each epoch")
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    others = []
    if arguments.rank == 0:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            arguments.port = listener.getsockname()[1]
        others = [subprocess.Popen([sys.executable, *sys.argv, "--rank", str(rank), "--port", str(arguments.port)],
                                   stdin=subprocess.PIPE) for rank in range(1, arguments.trainers + 1)]
        here = Server(arguments)
    else:
        end_with_the_server()
        here = Trainer(arguments.variant, arguments.batch)
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{arguments.port}", rpc_timeout=600,
                                              num_worker_threads=4)
    rpc.init_rpc(SERVER if arguments.rank == 0 else f"trainer{arguments.rank}", rank=arguments.rank,
                 world_size=arguments.trainers + 1, rpc_backend_options=options)
    if arguments.rank == 0:
        names = [f"trainer{rank}" for rank in range(1, arguments.trainers + 1)]
        for future in [rpc.rpc_async(name, warm_up) for name in names]:
            future.wait()
        test = read_part("t10k") if arguments.evaluate else None
        for epoch in range(1, arguments.epochs + 1):
            orders = torch.randperm(SAMPLES).chunk(arguments.trainers)
            start = time.perf_counter()
            futures = [rpc.rpc_async(name, run_trainer, args=(order,)) for name, order in zip(names, orders)]
            losses = [future.wait() for future in futures]
            seconds = time.perf_counter() - start
            if not all(math.isfinite(loss) for loss in losses):
                print("torch_rpc_peer: the loss is not finite", file=sys.stderr, flush=True)
                os._exit(1)  # at once: a regular end would wait for the others
            print(json.dumps({"epoch": epoch, "seconds": seconds, "samples_per_second": SAMPLES / seconds,
                              "accuracy": here.accuracy(*test) if test else None}), flush=True)
    rpc.shutdown()
    for other in others:
        other.wait(60)
        other.stdin.close()


if __name__ == "__main__":
    main()
