#!/usr/bin/python3
"""PyTorch's side of the comparison: trains one case and says how many samples it does in a second.

    torch_peer.py --case mlp --threads 2 --seconds 5      one JSON line: the median of several rounds
    torch_peer.py --case mlp --threads 2 --interactive    rounds on demand; the protocol is described in compare.py
    torch_peer.py --case mlp --batch 64 --processes 2 …   the same in processes, with DistributedDataParallel over gloo;
                                                          --batch is of each

A step is forward, backward and update (SGD, momentum 0.9, cross-entropy) on random data that is already in memory.
PyTorch is shown at its best: what was measured to help (see VARIANTS) is on, and the loader of mlp-epoch is the fastest
of those that DataLoader offers, chosen at the start. Debian's PyTorch multiplies with whatever libblas.so.3 is; with
the reference BLAS it is twenty times slower, so the final line names the library and compare.py warns.
"""

import argparse
import gzip
import json
import math
import os
import resource
import socket
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
RESIDENT_BATCHES = 4  # different batches that a round walks through, on both sides
TRIAL_SECONDS = 8


class LocallyConnected2d(nn.Module):
    """A convolution whose filters are not shared: every output position has its own. No padding, stride 1."""

    def __init__(self, in_channels, side, out_channels, kernel):
        super().__init__()
        self.kernel, self.out_side = kernel, side - kernel + 1
        fan_in = in_channels * kernel * kernel
        positions = self.out_side * self.out_side
        # One small matrix a position: the order that PyTorch's bmm reads without copying.
        self.weight = nn.Parameter(torch.randn(positions, fan_in, out_channels) * fan_in**-0.5)
        self.bias = nn.Parameter(torch.zeros(positions, 1, out_channels))

    def forward(self, x):
        batch = x.shape[0]
        patches = x.unfold(2, self.kernel, 1).unfold(3, self.kernel, 1)  # N, C, H, W, kh, kw
        patches = patches.permute(2, 3, 0, 1, 4, 5).reshape(self.weight.shape[0], batch, -1)
        out = torch.baddbmm(self.bias, patches, self.weight)  # H·W, N, out_channels
        return out.permute(1, 2, 0).reshape(batch, -1, self.out_side, self.out_side)


def local_image(side=32, filters=8, kernel=5, classes=10):
    """DistBelief's locally connected image network, the one definition for both sides of the comparison.

    Input 3 × side × side. Three stages: locally connected kernel × kernel (no padding, stride 1, bias, `filters` output
    channels), L2 pooling 2 × 2 with stride 2 (left out once the map is 1 × 1), local response normalisation across
    channels (size 5, alpha 1e-4, beta 0.75, k 1). Then one dense layer.
    With the defaults the maps are 32 → 28 → 14 → 10 → 5 → 1, and the dense layer is 8 → 10.
    """
    layers, channels = [], 3
    for _ in range(3):
        layers.append(LocallyConnected2d(channels, side, filters, kernel))
        channels, side = filters, side - kernel + 1
        if side > 1:
            layers.append(nn.LPPool2d(2, 2))
            side //= 2
        layers.append(nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=1.0))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * side * side, classes))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(inplace=True), nn.Linear(512, 512),
                         nn.ReLU(inplace=True), nn.Linear(512, 10))


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(inplace=True), nn.Linear(512, 10))


def resnet50():
    import torchvision  # only here: it takes seconds to load
    return torchvision.models.resnet50()


def speech():
    layers, width = [], 440
    for _ in range(4):
        layers += [nn.Linear(width, 2560), nn.Sigmoid()]
        width = 2560
    return nn.Sequential(*layers, nn.Linear(width, 8192))


# case: (model, input shape, classes, batch)
CASES = {
    "mlp": (mlp, (1, 28, 28), 10, 128),
    "lenet": (lenet, (1, 28, 28), 10, 128),
    "resnet50": (resnet50, (3, 224, 224), 1000, 16),
    "speech": (speech, (440,), 8192, 256),
    "local-image": (local_image, (3, 32, 32), 10, 128),
    "mlp-epoch": (mlp, (1, 28, 28), 10, 128),
}

# What measured faster than PyTorch's default, by case; --variant overrides.
VARIANTS = {"default": set(), "channels-last": {"channels-last"}, "foreach": {"foreach"}, "jit": {"jit"},
            "channels-last+foreach": {"channels-last", "foreach"}}
BEST_VARIANT = {"mlp": "default", "lenet": "channels-last", "resnet50": "default", "speech": "default",
                "local-image": "default", "mlp-epoch": "default"}


class Trainer:
    """One model and its optimizer; step() is what is timed."""

    def __init__(self, case, batch, variant, processes):
        torch.manual_seed(1)
        make, shape, self.classes, default_batch = CASES[case]
        self.batch = batch or default_batch
        self.input_shape = shape
        options = VARIANTS[variant]
        self.format = torch.channels_last if "channels-last" in options else torch.contiguous_format
        self.model = make().train()
        if self.format == torch.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, foreach="foreach" in options)
        if "jit" in options:
            self.model = torch.jit.script(self.model)
        if processes > 1:
            self.model = nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True)

    def step(self, inputs, labels):
        loss = F.cross_entropy(self.model(inputs), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss


class ResidentRounds:
    """Steps over a few random batches that stay in memory."""

    def __init__(self, trainer):
        self.trainer = trainer
        shape = (trainer.batch, *trainer.input_shape)
        self.batches = [(self._input(shape), torch.randint(trainer.classes, (trainer.batch,)))
                        for _ in range(RESIDENT_BATCHES)]
        self.next = 0

    def _input(self, shape):
        x = torch.randn(shape)
        return x.contiguous(memory_format=self.trainer.format) if len(shape) == 4 else x

    def first_step(self):
        self.trainer.step(*self.batches[0])

    def warm_up(self):
        self.run(0.5)

    def run(self, seconds):
        """Whole steps until `seconds` have passed, at least one. Returns samples, steps and the time they took."""
        steps, loss = 0, None
        start = time.perf_counter()
        while True:
            loss = self.trainer.step(*self.batches[self.next])
            self.next = (self.next + 1) % RESIDENT_BATCHES
            steps += 1
            elapsed = time.perf_counter() - start
            if elapsed >= seconds:
                break
        if not torch.isfinite(loss):
            raise RuntimeError("the loss is not finite")
        return steps * self.trainer.batch, steps, elapsed

    def describe(self):
        return {}


class SharedRounds(ResidentRounds):
    """The same in several processes. The first one's clock counts: it says how many steps fill the time."""

    STOP = 0

    def __init__(self, trainer):
        super().__init__(trainer)
        self.step_seconds = None

    def steps(self, count):
        start = time.perf_counter()
        for _ in range(count):
            loss = self.trainer.step(*self.batches[self.next])
            self.next = (self.next + 1) % RESIDENT_BATCHES
        if not torch.isfinite(loss):
            raise RuntimeError("the loss is not finite")
        return time.perf_counter() - start

    def warm_up(self):
        self.steps(3)
        self.step_seconds = self.steps(3) / 3

    def run(self, seconds):
        count = torch.tensor([max(1, round(seconds / self.step_seconds))])
        dist.broadcast(count, 0)
        count = int(count)
        elapsed = self.steps(count)
        self.step_seconds = elapsed / count
        return count * self.trainer.batch * dist.get_world_size(), count, elapsed

    def follow(self):
        """What the other processes do."""
        while True:
            count = torch.tensor([self.STOP])
            dist.broadcast(count, 0)
            if int(count) == self.STOP:
                break
            self.steps(int(count))

    def end(self):
        dist.broadcast(torch.tensor([self.STOP]), 0)


def join_processes(arguments):
    """Starts the others, when this is the first, and meets them."""
    if arguments.rank == 0:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            arguments.port = listener.getsockname()[1]
        for rank in range(1, arguments.processes):
            subprocess.Popen([sys.executable, *sys.argv, "--rank", str(rank), "--port", str(arguments.port)],
                             stdin=subprocess.DEVNULL)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{arguments.port}", rank=arguments.rank,
                            world_size=arguments.processes)


def read_idx(path):
    """The array in a gzipped IDX file of bytes."""
    with gzip.open(path) as file:
        data = file.read()
    dimensions = data[3]
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(dimensions)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


class EpochRounds:
    """Whole epochs of Fashion-MNIST through DataLoader, shuffled anew each time."""

    def __init__(self, trainer):
        self.trainer = trainer
        images = torch.from_numpy(read_idx(f"{FASHION_MNIST}/train-images-idx3-ubyte.gz").astype(np.float32))
        images = images.div_(255).sub_(0.2860).div_(0.3530).unsqueeze(1)
        labels = torch.from_numpy(read_idx(f"{FASHION_MNIST}/train-labels-idx1-ubyte.gz").astype(np.int64))
        self.dataset = TensorDataset(images, labels)
        self.loader, self.loader_name = None, None

    def _loaders(self):
        """(name, how to make it): a sample at a time, as is usual, or a batch of indices at a time, which is faster."""
        for workers in (0, 1, 2):
            extra = {"num_workers": workers, "persistent_workers": workers > 0}
            yield f"samples, {workers} workers", lambda extra=extra: DataLoader(
                self.dataset, batch_size=self.trainer.batch, shuffle=True, **extra)
            yield f"batches, {workers} workers", lambda extra=extra: DataLoader(
                self.dataset, batch_size=None,
                sampler=BatchSampler(RandomSampler(self.dataset), self.trainer.batch, drop_last=False), **extra)

    def first_step(self):
        self.trainer.step(self.dataset.tensors[0][:self.trainer.batch], self.dataset.tensors[1][:self.trainer.batch])

    def warm_up(self):
        """Tries every loader for an epoch, or for as long as TRIAL_SECONDS, and keeps the fastest."""
        self.tried = {}
        for name, make in self._loaders():
            self.loader = make()
            samples, _, seconds = self.run(0, at_most=TRIAL_SECONDS)
            self.tried[name] = samples / seconds
            del self.loader
        self.loader_name = max(self.tried, key=self.tried.get)
        self.loader = dict(self._loaders())[self.loader_name]()

    def run(self, seconds, at_most=math.inf):
        """Whole epochs until `seconds` have passed, at least one; breaks off after `at_most`."""
        samples, steps = 0, 0
        start = time.perf_counter()
        while True:
            for inputs, labels in self.loader:
                loss = self.trainer.step(inputs, labels)
                samples += len(labels)
                steps += 1
                if time.perf_counter() - start > at_most:
                    break
            elapsed = time.perf_counter() - start
            if elapsed >= seconds:
                break
        if not torch.isfinite(loss):
            raise RuntimeError("the loss is not finite")
        return samples, steps, elapsed

    def describe(self):
        return {"loader": self.loader_name, "loaders_tried": {name: round(rate) for name, rate in self.tried.items()}}


def blas_library():
    """The file behind libblas.so.3 in this process: PyTorch's dense layers are as fast as this."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "/" in line}
    found = [path for path in paths if any(word in os.path.basename(path) for word in ("openblas", "blis", "mkl_rt"))]
    found += [path for path in paths if os.path.basename(path).startswith("libblas")]
    return found[0] if found else "unknown"


def peak_rss_bytes():
    """This process's peak. A loader's workers share its pages, so theirs are not added."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def summary(arguments, trainer, rounds, rates):
    rate = statistics.median(rates) if rates else None
    return {"case": arguments.case, "threads": arguments.threads, "batch": trainer.batch, "samples_per_second": rate,
            "step_seconds": trainer.batch * arguments.processes / rate if rate else None, "rounds": len(rates),
            "processes": arguments.processes,
            "peak_rss_bytes": peak_rss_bytes(), "variant": arguments.variant, **rounds.describe(),
            "versions": {"torch": torch.__version__, "python": sys.version.split()[0], "blas": blas_library()}}


def say(message):
    print(message if isinstance(message, str) else json.dumps(message), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, help="samples a step (default: the case's own)")
    parser.add_argument("--seconds", type=float, default=5, help="time of all rounds together")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--variant", choices=VARIANTS, help="default: the fastest that was measured")
    parser.add_argument("--interactive", action="store_true", help="rounds on demand, over stdin and stdout")
    parser.add_argument("--processes", type=int, default=1, help="DistributedDataParallel over gloo")
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.variant = arguments.variant or BEST_VARIANT[arguments.case]

    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    shared = arguments.processes > 1
    if shared:
        join_processes(arguments)
    trainer = Trainer(arguments.case, arguments.batch, arguments.variant, arguments.processes)
    kind = SharedRounds if shared else EpochRounds if arguments.case == "mlp-epoch" else ResidentRounds
    rounds = kind(trainer)
    rounds.first_step()
    if arguments.interactive and arguments.rank == 0:
        say({"event": "first_step"})
    rounds.warm_up()
    if arguments.rank > 0:
        rounds.follow()
        return
    rates = []

    def one_round(seconds):
        samples, steps, elapsed = rounds.run(seconds)
        rates.append(samples / elapsed)
        return {"samples_per_second": rates[-1], "steps": steps, "seconds": elapsed}

    if arguments.interactive:
        say("ready")
        for line in sys.stdin:
            words = line.split()
            if words == ["quit"]:
                break
            if len(words) != 2 or words[0] != "round":
                sys.exit(f"torch_peer: expected 'round SECONDS' or 'quit', got {line.strip()!r}")
            say(one_round(float(words[1])))
    else:
        for _ in range(arguments.rounds):
            one_round(arguments.seconds / arguments.rounds)
    if shared:
        rounds.end()
    say(summary(arguments, trainer, rounds, rates))


if __name__ == "__main__":
    main()
