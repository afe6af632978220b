"""What each command does when all is well."""

import csv
import fcntl
import io
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import termios

from program import CLASSES, PROGRAM, REGRESSION, SPARSE, ProgramTest, idx, idx_labels, main, npy, png


class Help(ProgramTest):
    COMMANDS = ["train", "eval", "predict", "info", "plan", "models", "data", "doctor", "completion"]

    def test_no_arguments_show_every_command(self):
        text = self.succeed()
        self.assertEqual(text, self.succeed("--help"))
        for command in self.COMMANDS:
            self.assertRegex(text, rf"(?m)^  {command} +[A-Z]")
        self.assertIn("Examples:", text)

    def test_help_lists_each_group_once_and_nothing_that_is_not_for_people(self):
        text = self.succeed("--help")
        for group in ("Train and use", "Jobs", "Look around", "This machine"):
            self.assertEqual(text.count(f"\n{group}\n"), 1, text)
        for hidden in ("coordinator", "worker"):
            self.assertNotIn(f"  {hidden} ", text)

    def test_every_help_fits_100_columns(self):
        for command in self.COMMANDS:
            text = self.succeed(command, "--help")
            self.assertIn(f"Usage: distbelief {command}", text)
            for line in text.splitlines():
                self.assertLessEqual(len(line), 100, line)

    def on_a_terminal(self, columns, *arguments):
        """What the program writes to a terminal of this width."""
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
        program = subprocess.Popen([PROGRAM, *arguments], stdout=its, env=environment)
        os.close(its)
        text = b""
        try:
            while part := os.read(ours, 65536):
                text += part
        except OSError:  # how a terminal ends when nobody writes to it any more
            pass
        os.close(ours)
        self.assertEqual(program.wait(timeout=60), 0)
        return text.decode().replace("\r\n", "\n")

    def test_every_help_fits_the_terminal(self):
        for columns in [50, 80]:
            for command in self.COMMANDS:
                for line in self.on_a_terminal(columns, command, "--help").splitlines():
                    self.assertLessEqual(len(line), columns, line)
            for line in self.on_a_terminal(columns, "--help").splitlines():
                self.assertLessEqual(len(line), columns, line)

    def test_examples_that_are_broken_are_still_commands(self):
        text = self.on_a_terminal(50, "train", "--help").split("Examples:\n")[1]
        whole = self.succeed("train", "--help").split("Examples:\n")[1]
        self.assertIn(" \\\n", text)
        self.assertEqual(text.replace(" \\\n   ", "").splitlines()[2:], whole.splitlines()[1:])

    def test_version(self):
        self.assertRegex(self.succeed("--version"), r"^distbelief \d+\.\d+\.\d+\n$")


class Train(ProgramTest):
    def test_writes_what_the_documentation_lists(self):
        self.train("a")
        names = {path.name for path in (self.folder / "a").iterdir()}
        for name in ["run.yaml", "metrics.jsonl", "model.safetensors", "summary.json", "report.html", "checkpoints"]:
            self.assertIn(name, names)
        summary = json.loads((self.folder / "a/summary.json").read_text())
        for key in ("algorithm model data seed epochs workers servers threads train_loss test_loss test_accuracy "
                    "train_seconds samples_per_second parameters samples").split():  # fmt: skip
            self.assertIn(key, summary)
        self.assertEqual(summary["samples"]["leased"], 120)
        self.assertEqual(summary["samples"]["applied"], 120)

    def test_run_yaml_repeats_the_run(self):
        self.train("a")
        self.succeed("train", "a/run.yaml", "--out", "b")
        losses = [json.loads((self.folder / run / "summary.json").read_text())["train_loss"] for run in "ab"]
        self.assertEqual(losses[0], losses[1])

    def test_later_words_win(self):
        (self.folder / "run.yaml").write_text("epochs: 1\nbatch: 8\nseed: 3\nmodel: mlp\nmodel-options: {hidden: [4, 5]}\n")
        self.succeed("train", "run.yaml", "--set", "batch=16", "--set", "seed=4", "--seed", 5, "--data", CLASSES,
                     "--out", "a")  # fmt: skip
        text = (self.folder / "a/run.yaml").read_text()
        for line in ["epochs: 1", "batch: 16", "seed: 5", 'model-options: "hidden=4,5"']:
            self.assertIn(line + "\n", text)

    def test_plain_lines_without_a_terminal(self):
        self.assertNotIn("\x1b", self.train("a"))
        self.assertNotIn("\r", self.train("b"))

    def test_folders_count_up_when_none_is_named(self):
        for _ in range(2):
            self.succeed("train", "--model", "logistic", "--data", SPARSE, "--epochs", 1)
        self.assertEqual(sorted(p.name for p in (self.folder / "runs").iterdir()),
                         ["logistic-synthetic-1", "logistic-synthetic-2"])  # fmt: skip


class Eval(ProgramTest):
    def test_agrees_with_the_run(self):
        self.train("a")
        summary = json.loads((self.folder / "a/summary.json").read_text())
        for model in ["a", "a/model.safetensors"]:
            result = json.loads(self.succeed("eval", model, "--json"))
            self.assertEqual(result["part"], "test")
            self.assertEqual(result["samples"], 12)
            self.assertAlmostEqual(result["loss"], summary["test_loss"], places=5)
            self.assertAlmostEqual(result["accuracy"], summary["test_accuracy"], places=6)
            self.assertEqual(sum(c["samples"] for c in result["classes"]), 12)
            self.assertEqual(sum(c["correct"] for c in result["classes"]), result["correct"])

    def test_a_model_alone_knows_its_data_and_its_model_file(self):
        (self.folder / "net.yaml").write_text("layers: [flatten, {dense: {units: classes}}]\n")
        self.train("a", model="net.yaml")
        (self.folder / "a/model.safetensors").rename(self.folder / "alone.safetensors")
        (self.folder / "net.yaml").unlink()
        self.assertIn("accuracy", self.succeed("eval", "alone.safetensors"))
        self.assertIn("training part: 60 samples", self.succeed("eval", "alone.safetensors", "--split", "train"))

    def test_words_are_the_classes_of_the_training_data(self):
        rows = ["%d,%d,%s" % (i % 3 * 10, i % 7, ["ant", "bee", "cow"][i % 3]) for i in range(60)]
        (self.folder / "table.csv").write_text("a,b,kind\n" + "\n".join(rows) + "\n")
        (self.folder / "cows.csv").write_text("a,b,kind\n20,1,cow\n20,4,cow\n")
        self.train("a", "--lr", 0.5, data="table.csv", model="logistic")
        result = json.loads(self.succeed("eval", "a", "--data", "cows.csv", "--json"))
        self.assertEqual([c["samples"] for c in result["classes"]], [0, 0, 2])
        self.assertEqual([c["name"] for c in result["classes"]], ["ant", "bee", "cow"])

    def test_regression_has_no_accuracy(self):
        self.train("a", "--lr", 0.001, data=REGRESSION)
        self.assertNotIn("accuracy", json.loads(self.succeed("eval", "a", "--json")))


class Predict(ProgramTest):
    def table(self, *arguments):
        return list(csv.DictReader(io.StringIO(self.succeed("predict", *arguments))))

    def test_agrees_with_eval(self):
        self.train("a")
        right = json.loads(self.succeed("eval", "a", "--json"))["correct"]
        rows = self.table("a", CLASSES, "--top", 3, "--batch", 5)
        self.assertEqual(len(rows), 12)
        # Generated classes go round: sample i is of class i modulo 3.
        self.assertEqual(sum(int(row["class"]) == int(row["sample"]) % 3 for row in rows), right)
        for row in rows:
            total = sum(float(row[name]) for name in ["probability", "probability_2", "probability_3"])
            self.assertAlmostEqual(total, 1, places=4)

    def test_images_of_any_size(self):
        for name, grey in [("dark", 20), ("light", 230)]:
            (self.folder / "photos" / name).mkdir(parents=True)
            for i in range(6):
                png(self.folder / "photos" / name / f"{i}.png", 9 + i, 8, grey + i)
        self.train("a", "--image-size", 8, "--epochs", 20, data="photos")
        png(self.folder / "x.png", 50, 30, 10)
        png(self.folder / "y.png", 8, 20, 250)
        rows = self.table("a", "x.png", "y.png")
        self.assertEqual([(row["sample"], row["name"]) for row in rows], [("x.png", "dark"), ("y.png", "light")])
        self.assertEqual(len(self.table("a", "photos")), 12)
        self.assertEqual(len(self.table("a", "photos/dark", "x.png")), 7)

    def test_one_score_for_two_classes(self):
        for model, column in [("factorization", "probability"), ("svm", "score"), ("logistic", "probability")]:
            self.train(model, data=SPARSE, model=model)
            rows = self.table(model, SPARSE, "--top", 2)
            for row in rows:
                self.assertEqual({row["class"], row["class_2"]}, {"0", "1"})
                self.assertGreaterEqual(float(row[column]), float(row[column + "_2"]))
            right = json.loads(self.succeed("eval", model, "--json"))["correct"]
            self.assertEqual(sum(int(row["class"]) == int(row["sample"]) % 2 for row in rows), right)

    def test_values_of_a_regression(self):
        self.train("a", "--lr", 0.001, data=REGRESSION)
        result = json.loads(self.succeed("predict", "a", REGRESSION, "--format", "json"))
        self.assertEqual(len(result), 6)
        self.assertEqual(len(result[0]["values"]), 2)

    def test_arrays_tables_and_idx(self):
        self.train("a")
        npy(self.folder / "x.npy", (2, 1, 6, 6), [i / 72 for i in range(72)])
        idx(self.folder / "t10k-images-idx3-ubyte", 3, 6)
        self.assertEqual(len(self.table("a", "x.npy")), 2)
        self.assertEqual(len(self.table("a", "t10k-images-idx3-ubyte")), 3)
        self.train("b", data="synthetic:classes=3,shape=4,samples=30")
        (self.folder / "rows.csv").write_text("1,2,3,4\n5,6,7,8\n")
        (self.folder / "named.csv").write_text("a,b,species,c,d\n1,2,wasp,3,4\n")
        self.assertEqual(len(self.table("b", "rows.csv")), 2)
        self.assertEqual(len(self.table("b", "named.csv", "--label-column", "species")), 1)

    def test_a_table_with_its_labels_in_words(self):
        rows = ["%s,%d,%d" % (["ant", "bee", "cow"][i % 3], i % 3 * 10, i % 7) for i in range(60)]
        (self.folder / "table.csv").write_text("kind,a,b\n" + "\n".join(rows) + "\n")
        (self.folder / "plain.csv").write_text("a,b\n" + "\n".join(row.split(",", 1)[1] for row in rows) + "\n")
        (self.folder / "nameless.csv").write_text("\n".join(rows) + "\n")
        self.train("a", "--lr", 0.5, "--label-column", "kind", data="table.csv", model="logistic")
        plain = self.succeed("predict", "a", "plain.csv")
        self.assertIn("cow", plain)
        self.assertEqual(self.succeed("predict", "a", "table.csv"), plain)
        self.assertEqual(self.succeed("predict", "a", "table.csv", "--label-column", "kind"), plain)
        self.assertEqual(self.succeed("predict", "a", "nameless.csv"), plain)

    def test_names_with_quotes_are_read_and_written_as_csv_has_them(self):
        names = ['c"d', "a,b", 'say ""', "plain"]
        with open(self.folder / "t.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["x", "y", "label"])
            rows.writerows([i % 4, i % 3, names[i % 4]] for i in range(80))
        self.train("a", data="t.csv", model="logistic")
        self.assertEqual({row["name"] for row in json.loads(self.succeed("eval", "a", "--json"))["classes"]}, set(names))
        found = list(csv.DictReader(io.StringIO(self.succeed("predict", "a", "t.csv", "--top", 4))))
        self.assertEqual({found[0][key] for key in ("name", "name_2", "name_3", "name_4")}, set(names))

    def test_names_need_not_be_utf8(self):
        folder = os.fsencode(self.folder)
        with open(folder + b"/t\xe9.csv", "wb") as file:
            file.write(b"".join(b"%d,%d,%s\n" % (i % 4, i % 3, (b"caf\xe9", b"bar")[i % 2]) for i in range(60)))
        for name in (b"caf\xe9", b"bar"):
            os.makedirs(folder + b"/photos/" + name)
            for i in range(3):
                png(self.folder / "photos" / os.fsdecode(name) / f"{i}.png", 8, 8, 99)
        for out, data in (("table", "t\udce9.csv"), ("images", "photos")):
            with self.subTest(data=data):
                for words in (["train", "--data", data, "--model", "mlp", "--model-options", "hidden=4", "--epochs", 1,
                               "--threads", 1, "--out", out],
                              ["eval", out, "--json"], ["eval", out, "--data", data, "--json"],
                              ["predict", out, data, "--format", "json"], ["info", out, "--json"],
                              ["data", data, "--json"], ["train", "--resume", out, "--epochs", 2]):
                    done = self.run_bytes(*words)
                    self.assertEqual(done.returncode, 0, (words, done.stderr))
                    if "json" in words or "--json" in words:
                        json.loads(done.stdout.decode())
                json.loads((self.folder / out / "summary.json").read_bytes().decode())

    def run_bytes(self, *words):
        return subprocess.run([PROGRAM, *map(str, words)], cwd=self.folder, capture_output=True, timeout=120)

    def test_out_is_the_same_text(self):
        self.train("a")
        for name, option in [("x.csv", "csv"), ("x.json", "json")]:
            self.assertEqual(self.succeed("predict", "a", CLASSES, "--out", name), "")
            text = (self.folder / name).read_text()
            self.assertEqual(text, self.succeed("predict", "a", CLASSES, "--format", option))


class Look(ProgramTest):
    def test_info_counts(self):
        text = self.succeed("info", "lenet")
        self.assertIn("1,663,370", text)
        info = json.loads(self.succeed("info", "lenet", "--json", "--batch", 4, "--optimizer", "adam", "--threads", 1))
        self.assertEqual(info["parameters"], 1663370)
        self.assertGreaterEqual(info["memory"]["optimizer"], 2 * 4 * 1663370)
        self.assertGreater(info["memory"]["activations"], 4 * 4 * 32 * 28 * 28)
        more = json.loads(self.succeed("info", "lenet", "--json", "--batch", 400, "--threads", 1))
        self.assertGreater(more["memory"]["activations"], info["memory"]["activations"])

    def test_info_for_other_data(self):
        info = json.loads(self.succeed("info", "mlp", "--input", "3x4x5", "--classes", 7, "--model-options", "hidden=2,3",
                                       "--json"))  # fmt: skip
        self.assertEqual(info["layers"][0]["output"], [3, 4, 5])
        self.assertEqual(info["parameters"], 60 * 2 + 2 + 2 * 3 + 3 + 3 * 7 + 7)
        info = json.loads(self.succeed("info", "mlp", "--data", CLASSES, "--json"))
        self.assertEqual(info["layers"][-1]["output"], [3])

    def test_info_reads_data_as_train_does(self):
        (self.folder / "table.csv").write_text("kind,a,b\nant,1,2\nbee,3,4\n")
        info = json.loads(self.succeed("info", "logistic", "--data", "table.csv", "--label-column", "kind", "--json"))
        self.assertEqual(info["layers"][0]["output"], [2])
        (self.folder / "sets/mnist").mkdir(parents=True)
        for part, count in [("train", 20), ("t10k", 4)]:
            idx(self.folder / f"sets/mnist/{part}-images-idx3-ubyte", count, 5)
            idx_labels(self.folder / f"sets/mnist/{part}-labels-idx1-ubyte", [i % 3 for i in range(count)])
        info = json.loads(self.succeed("info", "mlp", "--data", "mnist", "--data-dir", "sets", "--json"))
        self.assertEqual(info["layers"][0]["output"], [1, 5, 5])

    def test_info_of_a_run(self):
        self.train("a")
        summary = json.loads((self.folder / "a/summary.json").read_text())
        for model in ["a", "a/model.safetensors"]:
            self.assertEqual(json.loads(self.succeed("info", model, "--json"))["parameters"], summary["parameters"])

    def test_models(self):
        models = json.loads(self.succeed("models", "--json"))
        text = self.succeed("models")
        self.assertIn("resnet50", [model["name"] for model in models])
        for model in models:
            self.assertRegex(text, rf"(?m)^{model['name']} ")

    def test_data(self):
        self.assertIn("fashion-mnist", self.succeed("data"))
        found = json.loads(self.succeed("data", CLASSES, "--json"))
        self.assertEqual([(c["train"], c["test"]) for c in found["classes"]], [(20, 4)] * 3)
        self.assertIn("1x6x6", self.succeed("data", CLASSES))
        self.assertIn("60", self.succeed("data", REGRESSION))

    def test_doctor(self):
        text = self.succeed("doctor")
        for what in ["CPU", "threads", "memory", "oneDNN", "MPI", "this folder"]:
            self.assertRegex(text, rf"(?m)^(ok|warn) +{what} ")
        self.assertEqual(self.files(), [])

    def test_doctor_counts_one_as_one(self):
        one = min(os.sched_getaffinity(0))
        done = subprocess.run([PROGRAM, "doctor"], cwd=self.folder, capture_output=True, text=True, timeout=120,
                              preexec_fn=lambda: os.sched_setaffinity(0, {one}))
        self.assertIn("1 thread may run, on ", done.stdout)

    def test_doctor_without_mpi(self):
        self.assertRegex(self.succeed("doctor", environment={"PATH": "/nowhere"}), r"(?m)^warn +MPI ")


class Documentation(ProgramTest):
    DOCS = pathlib.Path(__file__).parents[2] / "docs"

    def test_help_of_the_comparison_with_peers_installs_and_builds_nothing(self):
        for name in ["apt-get", "dpkg-query", "cmake"]:
            (self.folder / name).write_text('#!/bin/sh\ntouch "$0.was-run"\n')
            (self.folder / name).chmod(0o755)
        done = subprocess.run(["bash", self.DOCS.parent / "bench/peers.sh", "--help"], capture_output=True, text=True,
                              timeout=120, env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--cases", done.stdout)
        self.assertEqual(self.files(), ["apt-get", "cmake", "dpkg-query"])

    def test_the_largest_model_of_models_md_is_as_large_as_it_says(self):
        text = (self.DOCS / "models.md").read_text()
        command = re.search(r"`distbelief (info local-image [^`]*)`", text)[1]
        counted = json.loads(self.succeed(*command.split(), "--json"))["parameters"]
        self.assertLess(abs(counted - 1.7e9), 0.05e9)

    def test_options_md_has_every_option(self):
        text = (self.DOCS / "options.md").read_text()
        for key in set(re.findall(r"(?m)^  --([a-z0-9-]+)", self.succeed("train", "--help"))) - {"set", "resume"}:
            self.assertRegex(text, rf"(?m)^\| `--{key}[ `]")

    def test_run_folder_md_has_every_file_and_key(self):
        text = (self.DOCS / "run-folder.md").read_text()
        self.train("a", "--validation", 0.2, "--log-every", 1)
        for path in (self.folder / "a").iterdir():
            self.assertIn("`" + path.name.split(".tfevents")[0], text)
        for path in next((self.folder / "a/checkpoints").iterdir()).iterdir():
            self.assertIn(f"`{path.name}`", text)
        keys = set(json.loads((self.folder / "a/summary.json").read_text()))
        for line in (self.folder / "a/metrics.jsonl").read_text().splitlines():
            keys |= set(json.loads(line))
        for key in keys:
            self.assertIn(f"`{key}`", text)


class Completion(ProgramTest):
    def complete(self, *words):
        script = """source <("$PROGRAM" completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _distbelief
                    printf '%s\\n' "${COMPREPLY[@]}" """
        done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, cwd=self.folder,
                              env={**os.environ, "PROGRAM": PROGRAM})  # fmt: skip
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash(self):
        self.assertEqual(self.complete("distbelief", "tr"), ["train"])
        self.assertEqual(self.complete("distbelief", "train", "--weig"), ["--weight-decay"])
        self.assertEqual(self.complete("distbelief", "train", "--schedule", "c"), ["constant", "cosine"])
        self.assertEqual(self.complete("distbelief", "train", "--schedule", "=", "co"), ["constant", "cosine"])
        self.assertEqual(self.complete("distbelief", "train", "--model", "res"), ["resnet18", "resnet50"])
        self.assertEqual(self.complete("distbelief", "info", "len"), ["lenet"])
        self.assertEqual(self.complete("distbelief", "train", "--optimizer", "adam"), ["adam", "adamw"])
        (self.folder / "lenses.yaml").touch()
        self.assertEqual(sorted(self.complete("distbelief", "train", "--model", "len")), ["lenet", "lenses.yaml"])

    # What the other shells offer at the end of a line, with a file lenses.yaml and a folder lens.d beside them.
    OFFERED = {
        "distbelief tr": ["train"],
        "distbelief train --weig": ["--weight-decay"],
        "distbelief train --schedule c": ["constant", "cosine"],
        "distbelief train --model len": ["lens.d", "lenses.yaml", "lenet"],
        "distbelief train --data-dir len": ["lens.d"],
        "distbelief train --batch ": [],
        "distbelief info lene": ["lenet"],
        "distbelief eval lens": ["lens.d", "lenses.yaml"],
        "distbelief eval --split train --t": ["--test-data", "--threads"],
        "distbelief completion ": ["bash", "fish", "zsh"],
        "distbelief models ": [],
        "distbelief --v": ["--version"],
    }

    def output_of(self, *command):
        (self.folder / "lenses.yaml").touch()
        (self.folder / "lens.d").mkdir(exist_ok=True)
        environment = {**os.environ, "HOME": str(self.folder / "home"), "PROGRAM": PROGRAM}
        environment["PATH"] = os.path.dirname(PROGRAM) + ":" + environment["PATH"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, timeout=120, env=environment)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def test_zsh(self):
        script = pathlib.Path(__file__).with_name("complete.zsh")
        lines = [*self.OFFERED, "distbelief train --schedule=co"]
        text = self.output_of("zsh", "-f", str(script), PROGRAM, *lines)
        parts = [part.splitlines() for part in text.removeprefix("= ").split("\n= ")]
        self.assertEqual([part[0] for part in parts], lines)
        for line, *offered in parts:
            wanted = self.OFFERED.get(line, ["constant", "cosine"])
            self.assertEqual(sorted({word.rstrip("=") for word in offered}), sorted(wanted), line)

    def test_fish(self):
        for line, wanted in {**self.OFFERED, "distbelief train --schedule=co":
                             ["--schedule=constant", "--schedule=cosine"]}.items():  # fmt: skip
            text = self.output_of("fish", "--no-config", "-c",
                                  "$PROGRAM completion fish | source; complete -C $argv", line)  # fmt: skip
            offered = [word.split("\t")[0].rstrip("/") for word in text.splitlines()]
            self.assertEqual(sorted(offered), sorted(wanted), line)

    def test_other_shells_name_every_option(self):
        options = set(re.findall(r"--([a-z0-9-]+)", self.succeed("train", "--help").split("Examples")[0]))
        for shell, form in [("zsh", r"'\*?--{}=?\["), ("fish", " -l {} ")]:
            text = self.succeed("completion", shell)
            for option in options:
                self.assertRegex(text, form.format(option))


if __name__ == "__main__":
    main()
