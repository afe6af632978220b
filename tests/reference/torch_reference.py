#!/usr/bin/python3
"""Writes tests/data/torch_reference.safetensors: what PyTorch computes for each layer, loss and rule of ours.

To write it anew (packages python3-torch and python3-numpy, from the project's root):

    /usr/bin/python3 tests/reference/torch_reference.py [--out tests/data/torch_reference.safetensors]

The file is a function of this script and of PyTorch: seeds are fixed. Inputs are floats; everything is computed from
them in doubles and rounded once, so that a test compares with the truth and not with another program's rounding.
Integers (embedding's indices, classes) are I32. Shapes are small and odd: what only works for multiples of eight shows
here.

`__metadata__` holds four lists, as JSON text:
  cases       one layer each: {name, layer: {type and attributes as model files write them}, mode: training | inference,
              inputs: [tensor], parameters: {our name: tensor}, output: tensor, output_gradient: tensor,
              input_gradients: [tensor or null], parameter_gradients: {our name: tensor},
              updated_parameters: {our name: tensor}}        the last: batch norm's running statistics afterwards
              In inference mode the gradients are left out.
  losses      {name, type, prediction: tensor, classes or targets: tensor, loss: sum over the batch, gradient: tensor}
  optimizers  {name, rule: {name and constants}, rate, weight_decay, initial: tensor [20], gradients: tensor [5, 20],
              values: tensor [5, 20] after each update}
  models      {name, layers: [{name, type, inputs, attributes}], input: tensor [steps, batch, ...], classes: tensor
              [steps, batch], rate, momentum, parameters: {"layer.name": tensor}, losses: mean of each step's batch,
              sums: {"layer.name": [sum, sum of squares] after the last step}}; "input" names the model's input
"""

import argparse
import json
import os
import struct

import numpy as np
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


class Writer:
    """Collects tensors and the four lists, and writes them as one safetensors file."""

    def __init__(self):
        self.tensors = {}
        self.lists = {"cases": [], "losses": [], "optimizers": [], "models": []}

    def put(self, name, tensor):
        """Stores a tensor and returns its name."""
        assert name not in self.tensors, name
        array = tensor.detach().numpy()
        kind = np.int32 if np.issubdtype(array.dtype, np.integer) else np.float32
        assert np.isfinite(array).all(), name
        self.tensors[name] = np.ascontiguousarray(array.astype(kind))
        return name

    def write(self, path):
        metadata = {key: json.dumps(value, separators=(",", ":")) for key, value in self.lists.items()}
        metadata["torch"] = torch.__version__
        header, blobs, offset = {"__metadata__": metadata}, [], 0
        for name, array in sorted(self.tensors.items()):
            blob = array.tobytes()
            header[name] = {"dtype": "I32" if array.dtype == np.int32 else "F32", "shape": list(array.shape),
                            "data_offsets": [offset, offset + len(blob)]}
            blobs.append(blob)
            offset += len(blob)
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(path + ".part", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
        os.replace(path + ".part", path)


def random(*shape, scale=1.0, shift=0.0):
    """Normal numbers that a float holds exactly."""
    return (torch.randn(*shape) * scale + shift).float().double()


def add_case(writer, name, layer, compute, inputs, parameters=None, mode="training", updated=None):
    """Runs compute(*inputs, **parameters) and stores values and gradients. `updated` maps names to tensors that
    compute() changes in place: they are stored before and after."""
    parameters = parameters or {}
    updated = updated or {}
    case = {"name": name, "layer": layer, "mode": mode, "inputs": [], "parameters": {}, "updated_parameters": {},
            "input_gradients": [], "parameter_gradients": {}}
    case["inputs"] = [writer.put(f"{name}/input{i}", value) for i, value in enumerate(inputs)]
    for key, value in {**parameters, **updated}.items():
        case["parameters"][key] = writer.put(f"{name}/{key}", value)
    leaves = [value.requires_grad_() if value.is_floating_point() else value for value in inputs]
    for value in parameters.values():
        value.requires_grad_()
    output = compute(*leaves, **parameters, **updated)
    case["output"] = writer.put(f"{name}/output", output)
    if mode == "training":
        gradient = random(*output.shape)
        case["output_gradient"] = writer.put(f"{name}/output_gradient", gradient)
        output.backward(gradient)
        case["input_gradients"] = [
            writer.put(f"{name}/input{i}_gradient", value.grad) if value.is_floating_point() else None
            for i, value in enumerate(leaves)]
        case["parameter_gradients"] = {key: writer.put(f"{name}/{key}_gradient", value.grad)
                                       for key, value in parameters.items()}
        case["updated_parameters"] = {key: writer.put(f"{name}/{key}_updated", value) for key, value in updated.items()}
    writer.lists["cases"].append(case)


def pair(value):
    return value if isinstance(value, list) else [value, value]


def locally_connected2d(x, weight, bias, stride, padding):
    """A convolution whose filters differ from place to place: weight [out, out_h, out_w, in, kh, kw], bias
    [out, out_h, out_w]."""
    x = F.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    patches = x.unfold(2, weight.shape[4], stride[0]).unfold(3, weight.shape[5], stride[1])  # N, C, H, W, kh, kw
    out = torch.einsum("nchwij,ohwcij->nohw", patches, weight)
    return out if bias is None else out + bias


def add_dense(writer):
    for name, shape, units, bias in (("dense", (5, 7), 3, True), ("dense_no_bias", (3, 11), 13, False),
                                    ("dense_of_three", (2, 3, 5), 4, True)):
        parameters = {"weight": random(units, shape[-1])}
        if bias:
            parameters["bias"] = random(units)
        add_case(writer, name, {"type": "dense", "units": units, "bias": bias},
                 lambda x, weight, bias=None: F.linear(x, weight, bias), [random(*shape)], parameters)


def add_convolutions(writer):
    # name, input, filters, kernel, stride, padding, dilation, groups, bias
    for name, shape, filters, kernel, stride, padding, dilation, groups, bias in (
            ("plain", (2, 3, 7, 6), 5, 3, 1, 0, 1, 1, True),
            ("same", (3, 1, 9, 9), 4, 5, 1, 2, 1, 1, True),
            ("stride", (2, 3, 9, 8), 4, 3, 2, 1, 1, 1, True),
            ("oblong", (2, 2, 7, 9), 3, [3, 2], [1, 2], [2, 0], 1, 1, True),
            ("dilation", (2, 3, 9, 10), 2, 3, 1, 2, 2, 1, True),
            ("groups", (2, 6, 5, 7), 9, 3, 1, 1, 1, 3, True),
            ("depthwise", (2, 5, 7, 6), 5, 3, 2, 1, 1, 5, True),
            ("depthwise_double", (2, 3, 6, 5), 6, 3, 1, 1, 1, 3, False),
            ("pointwise_no_bias", (2, 9, 4, 5), 7, 1, 1, 0, 1, 1, False),
            ("pointwise_stride", (1, 8, 5, 5), 16, 1, 2, 0, 1, 1, False),
            ("wide", (2, 16, 5, 4), 17, 3, 1, 1, 1, 1, True)):
        layer = {"type": "conv2d", "filters": filters, "kernel": kernel, "stride": stride, "padding": padding,
                 "dilation": dilation, "groups": groups, "bias": bias}
        parameters = {"weight": random(filters, shape[1] // groups, *pair(kernel))}
        if bias:
            parameters["bias"] = random(filters)

        def compute(x, weight, bias=None, layer=layer):
            return F.conv2d(x, weight, bias, pair(layer["stride"]), pair(layer["padding"]), pair(layer["dilation"]),
                            layer["groups"])
        add_case(writer, f"conv2d_{name}", layer, compute, [random(*shape)], parameters)


def add_locally_connected(writer):
    for name, shape, filters, kernel, stride, padding, bias in (
            ("plain", (3, 2, 6, 5), 3, 3, 1, 0, True),
            ("stride_padding", (2, 3, 5, 7), 2, 3, 2, 1, True),
            ("oblong_no_bias", (2, 2, 4, 6), 3, [2, 3], [1, 2], [0, 1], False)):
        layer = {"type": "locally_connected2d", "filters": filters, "kernel": kernel, "stride": stride,
                 "padding": padding, "bias": bias}
        k, s, p = pair(kernel), pair(stride), pair(padding)
        places = [(shape[2 + i] + 2 * p[i] - k[i]) // s[i] + 1 for i in range(2)]
        parameters = {"weight": random(filters, *places, shape[1], *k)}
        if bias:
            parameters["bias"] = random(filters, *places)
        add_case(writer, f"locally_connected2d_{name}", layer,
                 lambda x, weight, bias=None, s=s, p=p: locally_connected2d(x, weight, bias, s, p), [random(*shape)],
                 parameters)


def add_pooling(writer):
    for name, shape, kernel, stride, padding in (("even", (2, 3, 6, 8), 2, 2, 0), ("odd", (2, 3, 7, 9), 2, 2, 0),
                                                 ("overlap", (2, 2, 7, 7), 3, 2, 1),
                                                 ("oblong", (2, 3, 6, 7), [3, 2], [2, 1], [1, 0])):
        window = {"kernel": kernel, "stride": stride, "padding": padding}
        k, s, p = pair(kernel), pair(stride), pair(padding)
        add_case(writer, f"max_pool_{name}", {"type": "max_pool", **window},
                 lambda x: F.max_pool2d(x, k, s, p), [random(*shape)])
        for include in (False, True):
            add_case(writer, f"average_pool_{name}" + ("_include_padding" if include else ""),
                     {"type": "average_pool", **window, "include_padding": include},
                     lambda x: F.avg_pool2d(x, k, s, p, count_include_pad=include), [random(*shape)])
        if p == [0, 0]:
            add_case(writer, f"l2_pool_{name}", {"type": "l2_pool", **window},
                     lambda x: F.lp_pool2d(x, 2.0, k, s), [random(*shape)])
    add_case(writer, "l2_pool_overlap", {"type": "l2_pool", "kernel": 3, "stride": 2, "padding": 0},
             lambda x: F.lp_pool2d(x, 2.0, 3, 2), [random(2, 2, 7, 7)])
    add_case(writer, "global_average_pool", {"type": "global_average_pool"},
             lambda x: F.adaptive_avg_pool2d(x, 1), [random(3, 5, 3, 4)])


def add_normalisation(writer):
    layer = {"type": "batch_norm", "epsilon": 1e-5, "momentum": 0.1}
    for name, shape in (("batch_norm_images", (4, 5, 3, 4)), ("batch_norm_rows", (7, 5))):
        for mode in ("training", "inference"):
            def compute(x, scale, shift, mean, variance, mode=mode):
                return F.batch_norm(x, mean, variance, scale, shift, mode == "training", 0.1, 1e-5)
            add_case(writer, f"{name}_{mode}", layer, compute, [random(*shape, scale=2, shift=1)],
                     {"scale": random(5), "shift": random(5)}, mode,
                     {"mean": random(5), "variance": random(5).abs() + 0.5})
    for name, shape, axes in (("layer_norm", (5, 7), 1), ("layer_norm_of_three", (3, 4, 9), 1),
                              ("layer_norm_two_axes", (3, 4, 5), 2)):
        over = shape[len(shape) - axes:]
        add_case(writer, name, {"type": "layer_norm", "epsilon": 1e-5, "axes": axes},
                 lambda x, scale, shift, over=over: F.layer_norm(x, over, scale, shift, 1e-5),
                 [random(*shape, scale=2, shift=1)], {"scale": random(*over), "shift": random(*over)})
    for name, channels, size, alpha, beta, k in (("local_response_norm", 7, 5, 0.5, 0.75, 2.0),
                                                 ("local_response_norm_small", 4, 3, 0.1, 0.5, 1.0)):
        add_case(writer, name, {"type": "local_response_norm", "size": size, "alpha": alpha, "beta": beta, "k": k},
                 lambda x: F.local_response_norm(x, size, alpha, beta, k), [random(2, channels, 3, 4)])


def add_elementwise(writer):
    shape = (3, 5, 3)
    for kind, layer, compute in (
            ("relu", {}, torch.relu), ("sigmoid", {}, torch.sigmoid), ("tanh", {}, torch.tanh),
            ("gelu", {"approximate": "none"}, F.gelu),
            ("gelu_tanh", {"approximate": "tanh"}, lambda x: F.gelu(x, approximate="tanh"))):
        add_case(writer, kind, {"type": kind.split("_")[0], **layer}, compute, [random(*shape, scale=2)])
    add_case(writer, "softmax", {"type": "softmax"}, lambda x: torch.softmax(x, -1), [random(4, 7, scale=3)])


def add_shapes(writer):
    add_case(writer, "add", {"type": "add"}, torch.add, [random(3, 4, 5), random(3, 4, 5)])
    add_case(writer, "add_three", {"type": "add"}, lambda a, b, c: a + b + c, [random(3, 7) for _ in range(3)])
    add_case(writer, "concat", {"type": "concat", "axis": 1}, lambda *x: torch.cat(x, 1),
             [random(2, channels, 3, 4) for channels in (3, 1, 5)])
    add_case(writer, "flatten", {"type": "flatten"}, lambda x: x.flatten(1), [random(3, 2, 3, 4)])
    add_case(writer, "reshape", {"type": "reshape", "shape": [4, 6]}, lambda x: x.reshape(-1, 4, 6),
             [random(3, 2, 3, 4)])
    indices = torch.randint(11, (3, 4))
    indices[1] = indices[0, 0]  # a word that comes several times: its gradients add up
    add_case(writer, "embedding", {"type": "embedding", "vocabulary": 11, "dimension": 5},
             lambda x, weight: F.embedding(x, weight), [indices], {"weight": random(11, 5)})


def add_losses(writer):
    def add(kind, prediction, targets, compute, integers):
        name = f"loss_{kind}"
        entry = {"name": name, "type": kind, "prediction": writer.put(f"{name}/prediction", prediction),
                 "classes" if integers else "targets": writer.put(f"{name}/targets", targets)}
        prediction.requires_grad_()
        loss = compute(prediction, targets)
        loss.backward()
        entry["loss"] = loss.item()
        entry["gradient"] = writer.put(f"{name}/gradient", prediction.grad)
        writer.lists["losses"].append(entry)

    def one_hot(classes):
        return F.one_hot(classes, 7).double()

    classes = torch.randint(7, (5,))
    add("softmax_cross_entropy", random(5, 7, scale=3), classes,
        lambda p, t: F.cross_entropy(p, t, reduction="sum"), True)
    add("sigmoid_cross_entropy", random(5, 7, scale=3), classes,  # one against all: each class is a yes or no
        lambda p, t: F.binary_cross_entropy_with_logits(p, one_hot(t), reduction="sum"), True)
    add("hinge", random(5, 7), classes,  # one against all: Σ max(0, 1 − t·s), t = 1 for the class, −1 for the others
        lambda p, t: torch.clamp(1 - (2 * one_hot(t) - 1) * p, min=0).sum(), True)
    add("mean_squared_error", random(5, 3), random(5, 3),  # the mean over outputs, the sum over the batch
        lambda p, t: ((p - t) ** 2).mean(1).sum(), False)


def add_optimizers(writer):
    initial = random(20)
    gradients = random(5, 20)
    gradients[2:, 3] = 0  # an element without gradient: state and decay go on
    initial_name = writer.put("optimizer/initial", initial)
    gradients_name = writer.put("optimizer/gradients", gradients)
    optim = torch.optim
    for name, rule, make in (
            ("sgd", {}, lambda p, lr, decay: optim.SGD(p, lr, weight_decay=decay)),
            ("momentum", {"momentum": 0.9}, lambda p, lr, decay: optim.SGD(p, lr, 0.9, weight_decay=decay)),
            ("nesterov", {"momentum": 0.9},
             lambda p, lr, decay: optim.SGD(p, lr, 0.9, weight_decay=decay, nesterov=True)),
            ("adagrad", {"epsilon": 1e-10}, lambda p, lr, decay: optim.Adagrad(p, lr, weight_decay=decay)),
            ("rmsprop", {"rho": 0.99, "epsilon": 1e-8}, lambda p, lr, decay: optim.RMSprop(p, lr, weight_decay=decay)),
            ("adam", {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
             lambda p, lr, decay: optim.Adam(p, lr, weight_decay=decay)),
            ("adamw", {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
             lambda p, lr, decay: optim.AdamW(p, lr, weight_decay=decay))):
        for decay in (0.0, 0.05):
            parameter = initial.clone().requires_grad_()
            optimizer = make([parameter], 0.1, decay)
            values = []
            for gradient in gradients:
                parameter.grad = gradient.clone()
                optimizer.step()
                values.append(parameter.detach().clone())
            case = name + ("_decay" if decay else "")
            writer.lists["optimizers"].append({
                "name": case, "rule": {"name": name, **rule}, "rate": 0.1, "weight_decay": decay,
                "initial": initial_name, "gradients": gradients_name,
                "values": writer.put(f"optimizer/{case}", torch.stack(values))})


def run_layer(layer, inputs, parameters):
    """One layer of a model, in training."""
    kind, name = layer["type"], layer["name"]
    if kind == "conv2d":
        return F.conv2d(inputs[0], parameters[f"{name}.weight"], parameters.get(f"{name}.bias"), layer["stride"],
                        layer["padding"])
    if kind == "dense":
        return F.linear(inputs[0], parameters[f"{name}.weight"], parameters[f"{name}.bias"])
    if kind == "batch_norm":
        scale, shift, mean, variance = (parameters[f"{name}.{key}"] for key in ("scale", "shift", "mean", "variance"))
        return F.batch_norm(inputs[0], mean, variance, scale, shift, True, layer["momentum"], layer["epsilon"])
    if kind == "max_pool":
        return F.max_pool2d(inputs[0], layer["kernel"], layer["stride"])
    return {"relu": torch.relu, "add": torch.add, "flatten": lambda x: x.flatten(1),
            "global_average_pool": lambda x: x.mean((2, 3), keepdim=True)}[kind](*inputs)


def initial_parameters(layers, shape):
    """Random parameters for every layer. Follows the number of features with a run on zeros."""
    parameters, values = {}, {"input": torch.zeros(2, *shape)}
    for layer in layers:
        name, x = layer["name"], values[layer["inputs"][0]]
        if layer["type"] == "conv2d":
            fan_in = x.shape[1] * layer["kernel"] ** 2
            parameters[f"{name}.weight"] = random(layer["filters"], x.shape[1], layer["kernel"], layer["kernel"],
                                                  scale=(2 / fan_in) ** 0.5)
            if layer["bias"]:
                parameters[f"{name}.bias"] = random(layer["filters"], scale=0.1)
        elif layer["type"] == "dense":
            parameters[f"{name}.weight"] = random(layer["units"], x.shape[1], scale=(2 / x.shape[1]) ** 0.5)
            parameters[f"{name}.bias"] = random(layer["units"], scale=0.1)
        elif layer["type"] == "batch_norm":
            parameters[f"{name}.scale"] = random(x.shape[1], scale=0.2, shift=1)
            parameters[f"{name}.shift"] = random(x.shape[1], scale=0.2)
            parameters[f"{name}.mean"] = torch.zeros(x.shape[1])
            parameters[f"{name}.variance"] = torch.ones(x.shape[1])
        copies = {key: value.clone() for key, value in parameters.items()}  # statistics must not see the zeros
        values[name] = run_layer(layer, [values[source] for source in layer["inputs"]], copies)
    return parameters


def add_model(writer, name, layers, shape, classes, batch=6, steps=3, rate=0.05, momentum=0.9):
    """Some steps of SGD with momentum on the mean loss of each batch, from given parameters."""
    parameters = initial_parameters(layers, shape)
    inputs, labels = random(steps, batch, *shape), torch.randint(classes, (steps, batch))
    entry = {"name": name, "layers": layers, "rate": rate, "momentum": momentum,
             "input": writer.put(f"{name}/input", inputs), "classes": writer.put(f"{name}/classes", labels),
             "parameters": {key: writer.put(f"{name}/{key}", value) for key, value in parameters.items()}, "losses": []}
    trained = [value.requires_grad_() for key, value in parameters.items() if not key.endswith((".mean", ".variance"))]
    optimizer = torch.optim.SGD(trained, rate, momentum)
    for x, target in zip(inputs, labels):
        values = {"input": x}
        for layer in layers:
            values[layer["name"]] = run_layer(layer, [values[source] for source in layer["inputs"]], parameters)
        loss = F.cross_entropy(values[layers[-1]["name"]], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        entry["losses"].append(loss.item())
    entry["sums"] = {key: [value.sum().item(), (value**2).sum().item()] for key, value in parameters.items()}
    writer.lists["models"].append(entry)


class Layers:
    """Builds a model's list of layers; each call adds one, after the last unless told otherwise."""

    def __init__(self):
        self.list = []

    def __call__(self, name, kind, inputs=None, **attributes):
        inputs = inputs or [self.list[-1]["name"] if self.list else "input"]
        self.list.append({"name": name, "type": kind, "inputs": inputs, **attributes})
        return name

    def conv(self, name, filters, kernel, stride=1, bias=True, inputs=None):
        return self(name, "conv2d", inputs, filters=filters, kernel=kernel, stride=stride, padding=kernel // 2,
                    dilation=1, groups=1, bias=bias)

    def norm(self, name):
        return self(name, "batch_norm", epsilon=1e-5, momentum=0.1)


def add_models(writer):
    lenet = Layers()
    for i, filters in ((1, 4), (2, 6)):
        lenet.conv(f"conv{i}", filters, 5)
        lenet(f"relu{i}", "relu")
        lenet(f"pool{i}", "max_pool", kernel=2, stride=2, padding=0)
    lenet("flatten", "flatten")
    lenet("hidden", "dense", units=16, bias=True)
    lenet("relu3", "relu")
    lenet("output", "dense", units=5, bias=True)
    add_model(writer, "lenet-small", lenet.list, (1, 12, 12), 5)

    residual = Layers()
    residual.conv("stem", 5, 3, bias=False)
    residual.norm("stem_norm")
    source = residual("stem_relu", "relu")
    for i, (filters, stride) in enumerate(((5, 1), (8, 2)), 1):
        residual.conv(f"block{i}_conv1", filters, 3, stride, False, [source])
        residual.norm(f"block{i}_norm1")
        residual(f"block{i}_relu1", "relu")
        residual.conv(f"block{i}_conv2", filters, 3, 1, False)
        main = residual.norm(f"block{i}_norm2")
        if stride > 1:
            residual.conv(f"block{i}_short", filters, 1, stride, False, [source])
            source = residual.norm(f"block{i}_short_norm")
        residual(f"block{i}_add", "add", [main, source])
        source = residual(f"block{i}_relu2", "relu")
    residual("pool", "global_average_pool")
    residual("flatten", "flatten")
    residual("output", "dense", units=4, bias=True)
    add_model(writer, "residual-small", residual.list, (3, 7, 7), 4)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.path.join(here, "..", "data", "torch_reference.safetensors"))
    arguments = parser.parse_args()
    writer = Writer()
    # A seed for each group: a new case leaves the other groups' numbers as they are.
    for seed, add in enumerate((add_dense, add_convolutions, add_locally_connected, add_pooling, add_normalisation,
                                add_elementwise, add_shapes, add_losses, add_optimizers, add_models), 1):
        torch.manual_seed(seed)
        add(writer)
    writer.write(arguments.out)
    counts = ", ".join(f"{len(entries)} {key}" for key, entries in writer.lists.items())
    print(f"{arguments.out}: {counts}, {os.path.getsize(arguments.out)} bytes")


if __name__ == "__main__":
    main()
