#!/usr/bin/env python3
"""train_test.py PROGRAM   What `distbelief train` promises, with real processes, kills, signals and full disks.

DISTBELIEF_TEST_KILLS (6) says how often the test of kill -9 kills, DISTBELIEF_TEST_SEED (1) when.
"""
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from files import npy, png
from test_main import main

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
KILLS = int(os.environ.get("DISTBELIEF_TEST_KILLS", "6"))
SEED = int(os.environ.get("DISTBELIEF_TEST_SEED", "1"))
DATA = "synthetic:classes=4,shape=1x12x12,samples=600,seed=3,noise=6"
SMALL = {"data": DATA, "model": "mlp", "model-options": "hidden=24,dropout=0.2", "batch": 16, "epochs": 3, "lr": 0.02,
         "momentum": 0.9, "log-every": 5, "threads": 1}
PATIENCE = 240  # seconds: far more than any of it takes, also under a sanitizer on a busy machine


def options(changes):
    words = []
    for key, value in {**SMALL, **changes}.items():
        if value is not None:
            words += [f"--{key}", str(value)]
    return words


def run(*words, **keywords):
    return subprocess.run([PROGRAM, "train", *map(str, words)], capture_output=True, text=True, timeout=PATIENCE,
                          **keywords)


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


def metrics_of(folder):
    """The rows of metrics.jsonl without what depends on the clock."""
    rows = []
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        row.pop("time")
        row.pop("samples_per_second", None)
        rows.append(row)
    return rows


def tensors_of(path):
    """{name: bytes} of a safetensors file."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__", None)
    return {name: content[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]]
            for name, entry in header.items()}


def checkpoints_of(folder):
    return sorted(path for path in (folder / "checkpoints").iterdir() if path.name.startswith("step-"))


def contents_of(folder):
    """What a folder holds, and when each file was written."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def leftovers_of(folder):
    return [path for path in folder.rglob(".*")]


class TrainCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="distbelief-train-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def train(self, name, expect=0, words=(), **changes):
        """Runs to the end and returns (folder of the run, the finished process)."""
        out = self.folder / name
        done = run(*words, *options({key.replace("_", "-"): value for key, value in changes.items()}), "--out", out)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return out, done

    def resume(self, folder, *words, expect=0, **keywords):
        done = run("--resume", folder, *words, **keywords)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def start(self, *words):
        process = subprocess.Popen([PROGRAM, "train", *map(str, words)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)

        def end():
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.addCleanup(end)
        return process

    def wait_for(self, condition, process):
        """Until the condition holds; fails when the process ends before that."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline, "nothing happened for too long")
            if process.poll() is not None:
                self.fail(f"ended with {process.returncode} too early: {process.stdout.read()}{process.stderr.read()}")
            time.sleep(0.002)

    def assert_same_run(self, one, other):
        self.assertEqual((one / "model.safetensors").read_bytes(), (other / "model.safetensors").read_bytes())
        self.assertEqual(metrics_of(one), metrics_of(other))
        for key in ("train_loss", "test_loss", "test_accuracy", "steps", "epochs", "samples"):
            self.assertEqual(summary_of(one)[key], summary_of(other)[key], key)

    def assert_one_line(self, text, *parts):
        self.assertEqual(len(text.strip().splitlines()), 1, text)
        for part in parts:
            self.assertIn(part, text)

    def assert_audit(self, folder, samples):
        self.assertEqual(summary_of(folder)["samples"],
                         {"leased": samples, "applied": samples, "dropped": 0, "lost": 0, "duplicated": 0})


class SameBits(TrainCase):
    def test_one_thread(self):
        self.twice()

    def test_two_threads_inside_kernels(self):
        self.twice(threads=2, thread_mode="kernels")

    def test_two_threads_as_lanes(self):
        self.twice(threads=2, thread_mode="lanes")

    def test_another_seed_gives_another_model(self):
        one, _ = self.train("one", epochs=1)
        other, _ = self.train("other", epochs=1, seed=2)
        self.assertNotEqual((one / "model.safetensors").read_bytes(), (other / "model.safetensors").read_bytes())

    def test_run_yaml_of_a_finished_run_reproduces_it(self):
        one, _ = self.train("one", validation=0.1, optimizer="adam", lr=0.003, momentum=None, schedule="cosine",
                            crop_padding=1, flip=None, weight_decay=0.001, clip_norm=1, threads=2)
        other = self.folder / "other"
        done = run(one / "run.yaml", "--out", other)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_same_run(one, other)

    def twice(self, **changes):
        one, _ = self.train("one", **changes)
        other, _ = self.train("other", **changes)
        self.assert_same_run(one, other)
        self.assert_audit(one, 3 * 600)
        self.assertEqual(leftovers_of(one), [])


class Interrupted(TrainCase):
    def test_killed_again_and_again_ends_as_if_never_killed(self):
        # Every 19 steps: checkpoints fall on ends of epochs as well as between them (38 steps an epoch). A step waits
        # 4 ms, so that no machine is so fast that the run ends before it could be killed.
        epochs = max(30, 5 * KILLS)
        model = self.folder / "waiting.yaml"
        model.write_text("layers: [flatten, dense: {units: 24}, relu, dropout: {rate: 0.2}, wait: {microseconds: 80}, "
                         "dense: {units: classes}]\n")
        changes = {"model": model, "model_options": None, "epochs": epochs, "checkpoint_every": 19, "validation": 0.01}
        whole, _ = self.train("whole", **changes)
        moments = random.Random(SEED)
        out = self.folder / "killed"
        begin = options({key.replace("_", "-"): value for key, value in changes.items()}) + ["--out", out]
        kills = 0
        while kills < KILLS:
            began_before = (out / "run.yaml").exists()
            process = self.start("--resume", out) if began_before else self.start(*begin)
            if kills == 0:  # once before there is anything to go on with
                time.sleep(moments.uniform(0, 0.05))
            else:
                log = out / "metrics.jsonl"
                size = log.stat().st_size if log.exists() else 0
                deadline = time.monotonic() + PATIENCE
                while process.poll() is None and time.monotonic() < deadline and (
                        not log.exists() or log.stat().st_size == size):
                    time.sleep(0.001)
                time.sleep(moments.uniform(0, 0.15))
            if process.poll() is not None:
                self.assertEqual(process.returncode, 0, process.stderr.read())
                break
            process.kill()
            process.wait()
            kills += 1
        self.assertGreaterEqual(kills, min(KILLS, 3), "the run ended before it could be killed")
        if (out / "run.yaml").exists():
            self.resume(out)
        else:
            self.assertEqual(run(*begin).returncode, 0)
        self.assert_same_run(whole, out)
        self.assert_audit(out, epochs * 594)
        self.assertEqual(leftovers_of(out), [])

    def test_sigint_writes_a_checkpoint_and_says_how_to_go_on(self):
        self.stop_by(signal.SIGINT, 130)

    def test_sigterm_writes_a_checkpoint_and_says_how_to_go_on(self):
        self.stop_by(signal.SIGTERM, 143)

    def stop_by(self, number, code):
        whole, _ = self.train("whole", epochs=40, log_every=1)
        out = self.folder / "stopped"
        process = self.start(*options({"epochs": 40, "log-every": 1}), "--out", out)
        log = out / "metrics.jsonl"
        self.wait_for(lambda: log.exists() and log.read_bytes().count(b"\n") >= 3, process)
        process.send_signal(number)
        output, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, code, output + errors)
        self.assertIn(f"distbelief train --resume {out}", output)
        self.assertEqual(summary_of(out)["status"], "interrupted")
        step = summary_of(out)["steps"]
        self.assertEqual(checkpoints_of(out)[-1].name, f"step-{step:08}")
        self.assertFalse((out / "model.safetensors").exists())
        done = self.resume(out)
        self.assertIn(f"at step {step}", done.stdout)
        self.assert_same_run(whole, out)
        self.assert_audit(out, 40 * 600)

    def test_a_finished_run_can_go_on_for_more_epochs(self):
        whole, _ = self.train("whole", epochs=5)
        part, _ = self.train("part", epochs=2)
        self.resume(part, "--epochs", 5)
        self.assert_same_run(whole, part)

    def test_a_finished_run_has_nothing_left_to_do(self):
        for name, changes in (("epochs", {}), ("steps", {"checkpoint_every": 38}), ("hogwild", {"algorithm": "hogwild", "momentum": None})):
            with self.subTest(name):
                out, _ = self.train(name, epochs=2, **changes)
                before = contents_of(out)
                self.assert_one_line(self.resume(out).stdout, str(out), "finished after 2 epochs", "--epochs")
                done = self.resume(out, "--epochs", 1, expect=2)
                self.assert_one_line(done.stderr, str(out), "--epochs 2 or more")
                self.assertEqual(contents_of(out), before)

    def test_an_epoch_that_has_begun_is_not_left_out(self):
        out, _ = self.train("out", epochs=1, checkpoint_every=10)
        shutil.rmtree(checkpoints_of(out)[-1])
        (out / "summary.json").unlink()
        self.resume(out, "--epochs", 1)
        self.assertEqual(summary_of(out)["epochs"], 1)

    def test_other_data_is_refused_by_its_number_of_samples(self):
        out, _ = self.train("out", epochs=1)
        before = contents_of(out)
        done = self.resume(out, "--data", DATA.replace("600", "500"), "--epochs", 2, expect=2)
        self.assert_one_line(done.stderr, str(out), "has 500 samples", "the run has 600")
        self.assertEqual(contents_of(out), before)

    def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(self):
        whole, _ = self.train("whole", epochs=4)
        part, _ = self.train("part", epochs=3)
        newest, before = checkpoints_of(part)[-1], checkpoints_of(part)[-2]
        values = newest / "values.safetensors"
        content = bytearray(values.read_bytes())
        content[-5] ^= 1
        values.write_bytes(content)
        done = self.resume(part, "--epochs", 4)
        self.assertRegex(done.stdout, rf"{newest.name} cannot be used: .*values.safetensors")
        self.assertIn(f"at step {int(before.name.split('-')[1])},", done.stdout)
        self.assert_same_run(whole, part)

    def test_a_resumed_run_does_not_need_the_model_it_began_with(self):
        first, _ = self.train("first", epochs=1)
        whole, _ = self.train("whole", epochs=3, init=first)
        part, _ = self.train("part", epochs=2, init=first)
        shutil.rmtree(first)
        self.resume(part, "--epochs", 3)
        self.assert_same_run(whole, part)


class Diverged(TrainCase):
    def test_nan_stops_at_once_and_names_step_and_layer(self):
        out, done = self.train("out", expect=3, lr=1e30)
        self.assert_one_line(done.stderr, "at step ")
        self.assertRegex(done.stderr, r"at step \d+ .*first seen in (layer|parameter) '\w+")
        self.assertNotIn("-nan", done.stdout + done.stderr)
        self.assertFalse((out / "model.safetensors").exists())
        self.assertEqual(summary_of(out)["status"], "diverged")
        self.assertFalse((out / "checkpoints").exists())
        self.assertIn("there is no checkpoint yet", done.stderr)

    def test_a_parameter_that_breaks_at_a_finite_loss_is_named_at_once(self):
        out, _ = self.train("out", epochs=1, log_every=1000)
        good = {path.name for path in checkpoints_of(out)}
        done = self.resume(out, "--epochs", 2, "--lr", 1e30, "--weight-decay", 1e30, expect=3)
        self.assert_one_line(done.stderr, str(out / "checkpoints"))
        self.assertRegex(done.stderr, r"parameter '\w+\.weight' is not finite at step 39 \(epoch 2\), though the loss is \d")
        self.assertEqual({path.name for path in checkpoints_of(out)}, good)

    def test_the_last_good_checkpoint_stays_and_is_usable(self):
        whole, _ = self.train("whole", epochs=4)
        out, _ = self.train("out", epochs=2)
        good = {path.name for path in checkpoints_of(out)}
        done = self.resume(out, "--epochs", 4, "--lr", 1e30, expect=3)
        self.assert_one_line(done.stderr, str(out / "checkpoints"))
        self.assertEqual({path.name for path in checkpoints_of(out)}, good)
        self.resume(out, "--epochs", 4, "--lr", 0.02)
        self.assertEqual((out / "model.safetensors").read_bytes(), (whole / "model.safetensors").read_bytes())


class Hogwild(TrainCase):
    SPARSE = {"data": "synthetic:kind=sparse,shape=3000,samples=1500,nonzeros=20,seed=3", "model_options": None,
              "momentum": None, "batch": 4, "lr": 0.3, "log_every": 50}

    def hogwild(self, name, **changes):
        out, done = self.train(name, **{**self.SPARSE, "model": "logistic", "algorithm": "hogwild", **changes})
        return out, done

    def test_one_thread_makes_the_steps_of_local(self):
        for model, changes in (("logistic", {}), ("svm", {"optimizer": "adagrad"}),
                               ("factorization", {"schedule": "cosine"}),
                               ("mlp", {"data": DATA, "batch": 16, "lr": 0.05, "weight_decay": 0.01})):
            with self.subTest(model):
                hogwild, _ = self.hogwild(model, model=model, **changes)
                local, _ = self.hogwild(model + "-local", model=model, algorithm="local", **changes)
                self.assertEqual((hogwild / "model.safetensors").read_bytes(), (local / "model.safetensors").read_bytes())
                # Losses are added up in other groups: a last digit may differ.
                for one, other in zip(metrics_of(hogwild), metrics_of(local), strict=True):
                    self.assertEqual(one.keys(), other.keys())
                    for key in one:
                        self.assertAlmostEqual(one[key], other[key], 9, key)

    def test_two_threads_use_every_sample_once_and_learn_as_much(self):
        one, _ = self.hogwild("one", validation=0.1, checkpoint_every=100)
        for locks in ((), ("--hogwild-locks",)):
            two, done = self.hogwild("two" + "".join(locks), threads=2, validation=0.1, checkpoint_every=100, words=locks)
            self.assert_audit(two, 3 * 1350)
            self.assertIn("each on batches of its own", done.stdout)
            self.assertEqual(summary_of(two)["steps"], summary_of(one)["steps"])
            self.assertEqual([row["step"] for row in metrics_of(two)], [row["step"] for row in metrics_of(one)])
            self.assertLess(summary_of(two)["train_loss"], 1.2 * summary_of(one)["train_loss"])

    def test_a_run_that_stopped_goes_on_to_the_same_bits(self):
        whole, _ = self.hogwild("whole", optimizer="adagrad", epochs=4)
        part, _ = self.hogwild("part", optimizer="adagrad", epochs=2)
        self.resume(part, "--epochs", 4)
        self.assertEqual((part / "model.safetensors").read_bytes(), (whole / "model.safetensors").read_bytes())
        self.assert_audit(part, 4 * 1500)

    def test_an_interrupted_run_of_two_threads_loses_no_sample(self):
        out = self.folder / "out"
        process = self.start(*options({"data": self.SPARSE["data"], "model": "svm", "model-options": None,
                                       "momentum": None, "algorithm": "hogwild", "threads": 2, "batch": 1,
                                       "epochs": 2000, "checkpoint-every": 3000}), "--out", out)
        self.wait_for(lambda: (out / "checkpoints").exists() and checkpoints_of(out), process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        self.assertEqual(summary_of(out)["status"], "interrupted")
        epochs = summary_of(out)["epochs"] + 2
        self.resume(out, "--epochs", epochs)
        self.assert_audit(out, epochs * 1500)

    def test_nan_stops_it_and_names_step_and_culprit(self):
        for threads in (1, 2):
            out, done = self.hogwild(f"out{threads}", expect=3, lr=1e38, model="factorization", threads=threads)
            self.assertRegex(done.stderr, r"at step \d+ \(epoch 1\)")
            self.assertRegex(done.stderr, r"(layer|parameter) 'output|first seen in the loss")
            self.assertEqual(summary_of(out)["status"], "diverged")

    def test_what_does_not_go_without_locks_is_refused_in_one_line(self):
        for changes, says in (({"optimizer": "adam"}, "--optimizer adam does not bear: choose --optimizer sgd"),
                              ({"momentum": 0.9}, "which momentum does not bear"),
                              ({"accumulate": 2}, "choose a smaller --batch"),
                              ({"workers": 2}, "--algorithm hogwild trains in one process")):
            _, done = self.hogwild("refused", expect=2, **changes)
            self.assert_one_line(done.stderr, says)


class Transfer(TrainCase):
    def test_frozen_parameters_keep_their_bytes_and_a_changed_head_begins_anew(self):
        first, _ = self.train("first", epochs=2)
        second, done = self.train("second", epochs=2, init=first, freeze="hidden*",
                                  data=DATA.replace("classes=4", "classes=6"))
        before, after = tensors_of(first / "model.safetensors"), tensors_of(second / "model.safetensors")
        for name in ("hidden1.weight", "hidden1.bias"):
            self.assertEqual(before[name], after[name], name)
            self.assertIn(f"kept {name}", done.stdout)
        for name in ("output.weight", "output.bias"):
            self.assertNotEqual(before[name], after[name], name)
            self.assertIn(f"anew {name}", done.stdout)

    def test_without_freeze_everything_moves_on(self):
        first, _ = self.train("first", epochs=1)
        second, _ = self.train("second", epochs=1, init=first / "model.safetensors")
        before, after = tensors_of(first / "model.safetensors"), tensors_of(second / "model.safetensors")
        for name in before:
            self.assertNotEqual(before[name], after[name], name)


class Results(TrainCase):
    def test_summary_has_what_scripts_rely_on(self):
        out, _ = self.train("out")
        summary = summary_of(out)
        for key in ("algorithm", "model", "data", "seed", "epochs", "workers", "servers", "threads", "train_loss",
                    "test_loss", "test_accuracy", "train_seconds", "samples_per_second", "parameters", "samples"):
            self.assertIn(key, summary)
            self.assertIsNotNone(summary[key], key)
        self.assert_audit(out, 3 * 600)
        self.assertGreater(summary["test_accuracy"], 0.5)
        self.assertEqual({path.name for path in out.iterdir() if not path.name.startswith("events.")},
                         {"run.yaml", "metrics.jsonl", "checkpoints", "model.safetensors", "summary.json",
                          "report.html"})

    def test_early_stop_keeps_the_model_that_did_best_on_validation(self):
        out, done = self.train("out", epochs=80, validation=0.2, early_stop=4, lr=0.05)
        summary = summary_of(out)
        self.assertEqual(summary["status"], "stopped early")
        self.assertLess(summary["epochs"], 80)
        rows = [row for row in metrics_of(out) if "validation_accuracy" in row]
        best = max(rows, key=lambda row: row["validation_accuracy"])  # the first of equals
        self.assertEqual(summary["model_step"], best["step"])
        self.assertEqual(summary["epochs"], rows.index(best) + 1 + 4)
        kept = out / "checkpoints" / f"step-{best['step']:08}" / "values.safetensors"
        self.assertEqual(tensors_of(kept), tensors_of(out / "model.safetensors"))
        self.assertIn(f"\nstopped early after epoch {summary['epochs']}: no better for 4 epochs; "
                      f"the model is that of epoch {rows.index(best) + 1}\n", done.stdout)
        before = contents_of(out)
        self.assert_one_line(self.resume(out).stdout, str(out), "stopped early", "--early-stop")
        self.assertEqual(contents_of(out), before)
        self.assertIn("resume  at step", self.resume(out, "--early-stop", 6).stdout)

    def test_each_epoch_has_a_speed_also_when_no_step_of_it_was_logged(self):
        for log_every, points in ((1000, 3), (50, 3)):  # 38 steps an epoch
            with self.subTest(log_every=log_every):
                out, _ = self.train(f"out-{log_every}", epochs=3, log_every=log_every)
                rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
                self.assertEqual(len([row for row in rows if row.get("samples_per_second", 0) > 0]), points)

    def test_a_folder_with_a_run_is_never_overwritten(self):
        out, _ = self.train("out", epochs=1)
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        _, done = self.train("out", epochs=1, expect=2)
        self.assert_one_line(done.stderr, str(out), "--resume")
        self.assertEqual(before, {path: path.read_bytes() for path in out.rglob("*") if path.is_file()})


    def test_files_of_no_run_are_never_overwritten(self):
        for name in ("model.safetensors", "summary.json", "report.html", "metrics.jsonl", "checkpoints"):
            with self.subTest(name):
                out = self.folder / name.split(".")[0]
                out.mkdir()
                (out / name).mkdir() if name == "checkpoints" else (out / name).write_text("mine")
                before = contents_of(out)
                _, done = self.train(out.name, expect=2)
                self.assert_one_line(done.stderr, str(out / name))
                self.assertEqual(contents_of(out), before)

    def test_two_processes_do_not_train_in_one_folder(self):
        out = self.folder / "out"
        process = self.start(*options({"epochs": 100000, "out": out}))
        self.wait_for(lambda: (out / "checkpoints").exists() and checkpoints_of(out), process)
        config = (out / "run.yaml").read_bytes()
        done = self.resume(out, "--epochs", 200000, expect=2)
        self.assert_one_line(done.stderr, str(out), "another process")
        _, done = self.train("out", expect=2)
        self.assert_one_line(done.stderr, str(out))
        self.assertEqual((out / "run.yaml").read_bytes(), config)
        process.kill()
        process.wait()
        epochs = json.loads((checkpoints_of(out)[-1] / "manifest.json").read_text())["epoch"] + 1
        self.resume(out, "--epochs", epochs)

    def test_nothing_stays_of_a_new_run_that_cannot_use_its_input(self):
        data = self.folder / "photos"
        for name in ("a", "b"):
            (data / name).mkdir(parents=True)
            for i in range(3):
                png(data / name / f"{i}.png", 8, 8, 99)
        (data / "b" / "2.png").write_bytes((data / "b" / "2.png").read_bytes()[:30])
        kept = self.folder / "kept"
        kept.mkdir()
        (kept / "notes.txt").write_text("mine")
        changes = {"data": data, "model_options": "hidden=4", "epochs": 1, "batch": 2}
        for name in ("new", "deep/er", "kept"):
            with self.subTest(name):
                _, done = self.train(name, expect=2, **changes)
                self.assert_one_line(done.stderr, "b/2.png")
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"photos", "kept"})
        self.assertEqual([path.name for path in kept.iterdir()], ["notes.txt"])
        png(data / "b" / "2.png", 8, 8, 99)
        self.train("new", **changes)

    def test_a_data_file_that_shrinks_ends_the_run_and_is_named(self):
        data = self.folder / "x.npy"
        npy(data, (4000, 64), [i % 7 for i in range(4000 * 64)])
        npy(self.folder / "x_labels.npy", (4000,), [i % 3 for i in range(4000)])
        out = self.folder / "out"
        process = self.start(*options({"data": data, "epochs": 100000, "out": out}))
        self.wait_for(lambda: (out / "checkpoints").exists(), process)
        os.truncate(data, 1000)
        _, complaint = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 2, complaint)
        self.assert_one_line(complaint, str(data), "became shorter")


class FullDisk(TrainCase):
    def small_disk(self, name, megabytes=1, options=""):
        """A file system of its own, or the test is not run."""
        disk = self.folder / name
        disk.mkdir(parents=True, exist_ok=True)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m{options}", "tmpfs", disk],
                                 capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("mounting a small file system is not permitted here")
        self.addCleanup(subprocess.run, ["umount", "-l", disk], capture_output=True)
        return disk

    def fill(self, disk):
        with open(disk / "filler", "wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 12)):
                    pass
            except OSError:
                pass

    def read_until(self, process, words):
        """What the process says up to a line with these words."""
        said = ""
        while words not in said:
            line = process.stdout.readline()
            self.assertNotEqual(line, "", f"ended without '{words}': {said}")
            said += line
        return said

    def finish_elsewhere(self, out, process):
        """Stops the run and goes on from its last checkpoint to the end of the next epoch."""
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 130, said + errors)
        summary = summary_of(out)
        elsewhere = self.folder / f"elsewhere-{out.parent.name}"
        shutil.copytree(out, elsewhere)
        self.resume(elsewhere, "--epochs", summary["epochs"] + 2)
        self.assert_audit(elsewhere, (summary["epochs"] + 2) * 600)
        return summary

    def test_what_cannot_be_written_does_not_stop_training_and_earlier_checkpoints_stay(self):
        whole, _ = self.train("whole", epochs=4)
        out, _ = self.train("out", epochs=2)
        before = [path.name for path in checkpoints_of(out)]
        limit = (checkpoints_of(out)[-1] / "values.safetensors").stat().st_size // 2

        def limited():  # the program sees EFBIG where a full disk gives ENOSPC
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        done = self.resume(out, "--epochs", 4, expect=2, preexec_fn=limited, restore_signals=False)
        self.assertRegex(done.stdout, r"no checkpoint of step 114: .*File too large; training goes on, the one before stays")
        self.assertIn("epoch   4", done.stdout)
        self.assert_one_line(done.stderr, str(out / "model.safetensors"), "File too large")  # this one nobody can do without
        self.assertEqual([path.name for path in checkpoints_of(out)], before)
        self.assertEqual(leftovers_of(out), [])
        self.resume(out, "--epochs", 4)
        self.assert_same_run(whole, out)

    def test_training_goes_on_while_the_disk_is_full_and_checkpoints_come_again(self):
        disk = self.small_disk("disk")
        out = disk / "out"
        process = self.start(*options({"epochs": 1000000, "checkpoint-every": 10, "out": out}))
        self.wait_for(lambda: (out / "checkpoints").exists() and len(checkpoints_of(out)) > 1, process)
        self.fill(disk)
        said = self.read_until(process, "no checkpoint of step")
        self.assertIn("No space left on device; training goes on, the one before stays", said)
        self.assertGreaterEqual(len(checkpoints_of(out)), 1)
        (disk / "filler").unlink()
        said += self.read_until(process, "checkpoints are written again")
        summary = self.finish_elsewhere(out, process)
        self.assertGreater(summary["failed_checkpoints"], 0)
        self.assertLessEqual(said.count("no checkpoint of step"), 2)  # not each time, but as it begins to fail

    def test_a_folder_that_is_read_only_for_a_while_does_not_stop_training(self):
        out = self.folder / "out"
        process = self.start(*options({"epochs": 1000000, "checkpoint-every": 10, "out": out}))
        self.wait_for(lambda: (out / "checkpoints").exists() and len(checkpoints_of(out)) > 1, process)
        self.small_disk("out/checkpoints", options=",ro")
        self.assertIn("; training goes on, the one before stays", self.read_until(process, "no checkpoint of step"))
        subprocess.run(["umount", "-l", out / "checkpoints"], check=True)
        self.assertGreaterEqual(len(checkpoints_of(out)), 1)
        self.read_until(process, "checkpoints are written again")
        self.assertGreater(self.finish_elsewhere(out, process)["failed_checkpoints"], 0)

    def test_a_leader_that_dies_while_the_disk_is_full_finds_another_in_its_place(self):
        jobs = {"allreduce": ({"algorithm": "allreduce", "workers": 2}, "worker-0", ": one worker goes on after step "),
                "downpour": ({"algorithm": "downpour", "workers": 2, "servers": 2}, "server-2", "server 3 leads from here on")}
        for name, (changes, leader, goes_on) in jobs.items():
            with self.subTest(job=name):
                disk = self.small_disk(f"disk-{name}", megabytes=16)
                out = disk / "out"
                process = self.start(*options({**changes, "transport": "socket", "epochs": 1000000, "checkpoint-every": 200,
                                               "log-every": 50, "out": out}))
                self.wait_for(lambda: (out / "checkpoints").exists() and len(checkpoints_of(out)) > 1, process)
                pid = int(re.search(r"\(pid (\d+) on", (out / "logs" / f"{leader}.log").read_text())[1])
                self.fill(disk)
                self.read_until(process, "no checkpoint of step")
                os.kill(pid, signal.SIGKILL)
                self.read_until(process, goes_on)
                self.read_until(process, "no metrics of step")
                (disk / "filler").unlink()
                newest = checkpoints_of(out)[-1]
                while checkpoints_of(out)[-1] == newest:
                    self.read_until(process, "epoch ")
                self.assertEqual(self.finish_elsewhere(out, process)["status"], "interrupted")
                self.assertEqual((out / "leader").exists(), name == "allreduce")

    def test_a_small_disk_leaves_the_checkpoints_it_has_room_for(self):
        disk = self.small_disk("disk")
        changes = {"model_options": "hidden=256", "checkpoint_every": 10, "epochs": 3, "keep_checkpoints": 9}
        whole, _ = self.train("whole", **changes)
        out, done = self.train("disk/out", expect=2, **changes)
        self.assertIn("No space left on device; training goes on", done.stdout)
        self.assert_one_line(done.stderr, str(out), "No space left on device")
        self.assertEqual(leftovers_of(out), [])
        self.assertGreaterEqual(len(checkpoints_of(out)), 1)
        elsewhere = self.folder / "elsewhere"
        shutil.copytree(out, elsewhere)
        self.resume(elsewhere)
        self.assert_same_run(whole, elsewhere)

    def test_where_there_is_no_checkpoint_before_none_is_said_to_stay(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, 1 << 12))
        for name, changes in (("one", {}), ("served", {"algorithm": "async", "workers": 1, "servers": 1, "transport": "threads"})):
            done = run(*options({**changes, "epochs": 1, "out": self.folder / name}), preexec_fn=limited)
            self.assertRegex(done.stdout, r"no checkpoint of step \d+: .*File too large; training goes on, and the next is tried")
            self.assertNotIn("stays", done.stdout)

    def test_what_cannot_be_printed_changes_no_exit_code(self):
        full = open("/dev/full", "w")
        self.addCleanup(full.close)

        def code(*words, **keywords):
            return subprocess.run([PROGRAM, *map(str, words)], timeout=PATIENCE, **keywords).returncode
        for name, changes in (("one", {}), ("job", {"algorithm": "allreduce", "workers": 2, "transport": "socket"})):
            out = self.folder / name
            self.assertEqual(code("train", *options({**changes, "epochs": 1}), "--out", out, stdout=full, stderr=full), 0)
            self.assertEqual(summary_of(out)["status"], "finished")
        self.assertEqual(code("train", "--lr", "-1", stdout=full, stderr=full), 2)
        self.assertEqual(code("status", "nosuch", stdout=full, stderr=full), 2)
        for words in (["models"], ["--version"], ["train", "--help"], ["info", "mlp", "--data", DATA]):  # words are all they make
            self.assertEqual(code(*words, stdout=full, stderr=full), 2, words)

    def test_processes_whose_logs_are_on_a_full_disk_go_on(self):
        served = {"algorithm": "downpour", "workers": 2, "servers": 2, "transport": "socket", "epochs": 2}
        self.fill(self.small_disk("out/logs"))
        self.train("out", **served)

    def test_a_death_that_was_survived_is_not_why_a_model_could_not_be_written(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 13, 1 << 13))
        done = run(*options({"algorithm": "allreduce", "workers": 2, "transport": "socket", "out": self.folder / "out",
                             "chaos": "kill worker 1 at 50%"}), preexec_fn=limited)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn(": one worker goes on after step ", done.stdout)
        self.assert_one_line(done.stderr, "model.safetensors", "File too large")

    def test_a_server_that_cannot_write_the_model_nor_its_log_ends_the_job_with_code_2(self):
        served = {"algorithm": "downpour", "workers": 2, "servers": 2, "transport": "socket", "epochs": 2}
        self.fill(self.small_disk("out/logs"))

        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))
        done = run(*options({**served, "model-options": "hidden=256", "out": self.folder / "out"}), preexec_fn=limited)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assert_one_line(done.stderr, "server 2", "failed", "model.safetensors", "File too large")


class SecondPlace(TrainCase):
    def test_a_run_goes_on_from_the_copies_of_its_checkpoints(self):
        whole, _ = self.train("whole", epochs=4)
        copy = self.folder / "deep" / "copy"
        out, _ = self.train("out", epochs=2, checkpoint_copy=copy, keep_checkpoints=1)
        self.assertEqual([path.name for path in checkpoints_of(copy)], [path.name for path in checkpoints_of(out)])
        shutil.rmtree(out)
        done = self.resume(copy, "--epochs", 4)
        self.assertIn("no copies of checkpoints: this folder is their second place", done.stdout)
        self.assert_same_run(whole, copy)
        self.assertEqual(leftovers_of(copy), [])

    def test_a_copy_is_used_where_checkpoints_are_damaged(self):
        whole, _ = self.train("whole", epochs=4)
        copy = self.folder / "copy"
        out, _ = self.train("out", epochs=2, checkpoint_copy=copy)
        for path in checkpoints_of(out):
            (path / "manifest.json").write_text("{}")
        newest = checkpoints_of(copy)[-1]
        done = self.resume(out, "--epochs", 4)
        self.assertIn(f"instead there is a copy: {newest}\n", done.stdout)
        self.assert_same_run(whole, out)

    def test_a_place_that_cannot_be_written_does_not_stop_training(self):
        blocked = self.folder / "blocked"
        blocked.write_text("mine")
        out, done = self.train("out", checkpoint_copy=blocked / "copy")
        self.assertRegex(done.stdout, "no copy of the checkpoint of step 38: .*Not a directory; training goes on")
        self.assertEqual(summary_of(out)["failed_copies"], 3)
        self.assertEqual(summary_of(out)["failed_checkpoints"], 0)
        self.assertEqual(blocked.read_text(), "mine")

    def test_a_place_that_holds_a_run_is_refused(self):
        first, _ = self.train("first", epochs=1)
        _, done = self.train("second", expect=2, checkpoint_copy=first)
        self.assert_one_line(done.stderr, f"--checkpoint-copy {first}", "there is a run in this folder")
        _, done = self.train("second", expect=2, checkpoint_copy=self.folder / "second")
        self.assert_one_line(done.stderr, "--checkpoint-copy", "expected a second place")
        self.assertFalse((self.folder / "second").exists())


if __name__ == "__main__":
    main()
