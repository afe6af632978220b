#!/usr/bin/python3
"""Sandblaster against scipy's L-BFGS-B: the final loss of softmax regression with weight decay on Fashion-MNIST.

bench/lbfgs.py [PROGRAM] [--iterations N] [--decay D]

Both minimise the mean cross-entropy of all 60,000 training images, normalised by the numbers that our run wrote into
its model, plus D/2 times the squares of the weights; scipy (package python3-scipy) in double, both from zeros, with the same
limit on iterations. Goal: a loss no higher than scipy's. Ours is what scipy's objective finds at our parameters, beside
what the run itself said. Also says how many evaluations each took, and the bytes that crossed links for each of ours.
"""

import argparse
import gzip
import json
import os
import pathlib
import struct
import subprocess
import tempfile

import numpy
import scipy.optimize

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")


def read_idx(name, head):
    path = DATA / name
    if not path.exists():
        raise SystemExit(f"lbfgs.py: {path}: no such file; install dataset-fashion-mnist")
    with gzip.open(path, "rb") as file:
        return numpy.frombuffer(file.read(), numpy.uint8, offset=head)


def read_model(path):
    """Mean and deviation that images are normalised by, and the parameters as one vector, in double."""
    with open(path, "rb") as file:
        head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        body = file.read()
    known = json.loads(head.pop("__metadata__")["distbelief.model"])["normalization"]
    arrays = {}
    for name, array in head.items():
        values = numpy.frombuffer(body[slice(*array["data_offsets"])], numpy.float32).reshape(array["shape"])
        arrays[name.rpartition(".")[2]] = values.astype(numpy.float64)
    weights = arrays["weight"] if arrays["weight"].shape == (784, 10) else arrays["weight"].T
    return known["mean"][0], known["deviation"][0], numpy.concatenate([weights.ravel(), arrays["bias"]])


def write_zeros(model, path):
    """The same model, with all its parameters 0."""
    with open(model, "rb") as file:
        size = file.read(8)
        head = file.read(struct.unpack("<Q", size)[0])
        body = file.read()
    with open(path, "wb") as file:
        file.write(size + head + bytes(len(body)))


def problem(decay, mean, deviation):
    """The objective of a flat vector: weights of 784 x 10, then 10 biases. With its gradient, and how often it was asked."""
    images = read_idx("train-images-idx3-ubyte.gz", 16).reshape(-1, 784)
    classes = read_idx("train-labels-idx1-ubyte.gz", 8)
    x = images.astype(numpy.float64) / 255
    x = (x - mean) / deviation
    rows = numpy.arange(len(x))
    calls = [0]

    def objective(flat):
        calls[0] += 1
        weights, biases = flat[:7840].reshape(784, 10), flat[7840:]
        scores = x @ weights + biases
        scores -= scores.max(axis=1, keepdims=True)
        shares = numpy.exp(scores)
        totals = shares.sum(axis=1, keepdims=True)
        loss = (numpy.log(totals[:, 0]) - scores[rows, classes]).mean() + decay / 2 * (weights ** 2).sum()
        shares /= totals
        shares[rows, classes] -= 1
        shares /= len(x)
        return loss, numpy.concatenate([(x.T @ shares + decay * weights).ravel(), shares.sum(axis=0)])

    return objective, calls


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", nargs="?", default=str(ROOT / "build/release/distbelief"))
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--decay", type=float, default=1e-3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        recipe = [arguments.program, "train", "--model", "logistic", "--data", "fashion-mnist", "--algorithm", "sandblaster",
                  "--workers", "2", "--servers", "1", "--transport", "socket", "--batch", "250", "--weight-decay",
                  str(arguments.decay)]
        subprocess.run([*recipe, "--iterations", "1", "--out", f"{folder}/begin"], check=True, stdout=subprocess.DEVNULL)
        write_zeros(f"{folder}/begin/model.safetensors", f"{folder}/zeros.safetensors")
        subprocess.run([*recipe, "--iterations", str(arguments.iterations), "--init", f"{folder}/zeros.safetensors", "--out",
                        f"{folder}/run"], check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(folder, "run", "metrics.jsonl")) as file:
            rows = [json.loads(line) for line in file]
        with open(os.path.join(folder, "run", "summary.json")) as file:
            summary = json.load(file)
        mean, deviation, parameters = read_model(os.path.join(folder, "run", "model.safetensors"))
    ours = [row for row in rows if "objective" in row]
    objective, calls = problem(arguments.decay, mean, deviation)
    reached = objective(parameters)[0]
    calls[0] = 0
    found = scipy.optimize.minimize(objective, numpy.zeros(7850), jac=True, method="L-BFGS-B",
                                    options={"maxiter": arguments.iterations, "maxfun": 10 * arguments.iterations})
    print(f"{'':12} {'objective':>12} {'iterations':>10} {'evaluations':>11}")
    print(f"{'sandblaster':12} {reached:12.8f} {summary['epochs']:10} {ours[-1]['step']:11}   "
          f"(by its own account {ours[-1]['objective']:.8f})")
    print(f"{'scipy':12} {found.fun:12.8f} {found.nit:10} {calls[0]:11}   ({found.message.lower()})")
    print(f"difference {reached - found.fun:+.2e}, relative {reached / found.fun - 1:+.2e}")
    for kind in ("fetched", "pushed", "order"):
        print(f"{kind + ' bytes':14} {ours[-1][kind + '_bytes'] / ours[-1]['step']:12,.0f} an evaluation")


if __name__ == "__main__":
    main()
