"""Every mistake ends with code 2 and one line that names the culprit; nothing is written."""

import json
import os
import pathlib
import struct
import subprocess
import tempfile

from program import CLASSES, PROGRAM, REGRESSION, SPARSE, ProgramTest, idx, idx_labels, main, merged, npy, png

QUICK = ["--data", CLASSES, "--epochs", 1, "--threads", 1]


class Arguments(ProgramTest):
    def test_table(self):
        for culprits, arguments in [
            (["no command 'trian'", "'train'"], ["trian"]),
            (["no option '--modle'", "'--model'"], ["train", "--modle", "mlp"]),
            (["no option '--jsn'", "'--json'"], ["eval", "x", "--jsn"]),
            (["unexpected argument 'more'"], ["train", "a.yaml", "more"]),
            (["--lr needs a value"], ["train", "--lr"]),
            (["--lr is given 2 times"], ["train", "--lr", 1, "--lr", 2]),
            (["MODEL|RUN is missing"], ["eval"]),
            (["INPUT is missing"], ["predict", "a"]),
            (["--split", "test or train", "'both'"], ["eval", "x", "--split", "both"]),
            (["--batch", "whole number", "'0'"], ["eval", "x", "--batch", 0]),
            (["--top", "'some'"], ["predict", "a", "b", "--top", "some"]),
            (["tcsh"], ["completion", "tcsh"]),
            (["'--frobnicate'; see distbelief train --help"], ["train", "--frobnicate"]),
            (["'--version'; see distbelief train --help"], ["train", "--version"]),
            (["--threads", "'-1'"], ["info", "mlp", "--threads", -1]),
        ]:
            with self.subTest(arguments=arguments):
                self.refuse(culprits, *arguments)


class Configuration(ProgramTest):
    def test_values(self):
        for culprits, arguments in [
            (["lr", "above 0", "'fast'"], ["--lr", "fast"]),
            (["lr", "'-1'"], ["--lr", "-1"]),
            (["lr", "'nan'"], ["--lr", "nan"]),
            (["epochs", "whole number", "'2.5'"], ["--epochs", "2.5"]),
            (["batch", "'0'"], ["--batch", 0]),
            (["batch", "'99999999999999999999'"], ["--batch", "99999999999999999999"]),
            (["schedule", "cosine", "'linear'"], ["--schedule", "linear"]),
            (["optimizer", "'adm'", "adam"], ["--optimizer", "adm"]),
            (["beta1"], ["--optimizer", "adam", "--beta1", "1"]),
            (["momentum"], ["--momentum", "7"]),
            (["--early-stop", "--validation"], ["--early-stop", 2]),
            (["--schedule step"], ["--schedule", "step"]),
            (["validation"], ["--validation", "1"]),
            (["'conf*'"], ["--freeze", "conf*"]),
            (["no key 'learning-rate'"], ["--set", "learning-rate=1"]),
            (["no key 'epoch'", "'epochs'"], ["--set", "epoch=1"]),
            (["KEY=VALUE"], ["--set", "epochs"]),
            (["'lenett'", "'lenet'"], ["--model", "lenett"]),
            (["nowhere.yaml"], ["--model", "nowhere.yaml"]),
            (["hiden", "hidden"], ["--model", "mlp", "--model-options", "hiden=3"]),
            (["hidden"], ["--model", "mlp", "--model-options", "hidden=-3"]),
            (["model-options"], ["--model", "mlp", "--model-options", "=3"]),
            (["'fashion-mnits'", "'fashion-mnist'"], ["--data", "fashion-mnits"]),
            (["kind"], ["--data", "synthetic:kind=noise"]),
            (["shape=99999999x99999999x99999", "product", "268435456"],
             ["--data", "synthetic:shape=99999999x99999999x99999"]),
            (["lenet", "floats 4"], ["--model", "lenet", "--data", REGRESSION]),
            (["flip"], ["--data", REGRESSION, "--model", "mlp", "--flip"]),
            (["init.safetensors"], ["--model", "mlp", "--init", "init.safetensors"]),
            (["nowhere"], ["--resume", "nowhere"]),
            (["--out"], ["--model", "mlp", "--out", "/dev/null/a"]),
        ]:
            with self.subTest(arguments=arguments):
                self.refuse(culprits, "train", *merged(QUICK, arguments))

    def test_run_yaml(self):
        for text, culprits in [
            ("epochs: 2\nlr: fast\n", ["run.yaml:2", "lr", "fast"]),
            ("epochs: 2\nmodle: mlp\n", ["run.yaml:2", "modle", "'model'"]),
            ("epochs: [1, {a: b}]\n", ["run.yaml:1", "epochs"]),
            ("epochs: {a: {b: c}}\n", ["run.yaml:1", "epochs"]),
            ("- epochs\n", ["run.yaml:1", "key: value"]),
            ("epochs: [1\n", ["run.yaml", "YAML"]),
            ("\x00\x01", ["run.yaml"]),
            (", a", ["run.yaml"]),
            ("? [a]\n: b\n", ["run.yaml:1"]),
            ('model: "a\\nb"\n', ["a", "b"]),
        ]:
            with self.subTest(text=text):
                (self.folder / "run.yaml").write_text(text)
                self.refuse(culprits, "train", "run.yaml", *QUICK)
        self.refuse(["nowhere.yaml"], "train", "nowhere.yaml")
        self.refuse([str(self.folder)], "train", self.folder)

    def test_model_file(self):
        for text, culprits in [
            ("layers: [flatten, {dense: {units: 3, bais: no}}]\n", ["net.yaml:1", "bais", "bias"]),
            ("layers: [flatten, {dense: {units: 5}}]\n", ["5", "3 classes"]),
            ("layers: [{conv2d: {filters: 2, kernel: 9}}, flatten, {dense: {units: classes}}]\n", ["conv2d1"]),
            ("layers:\n  - densee\n", ["net.yaml:2", "densee", "dense"]),
            ("layer:\n  - dense\n", ["net.yaml:1", "'layer'", "'layers'"]),
        ]:
            with self.subTest(text=text):
                (self.folder / "net.yaml").write_text(text)
                self.refuse(culprits, "train", "--model", "net.yaml", *QUICK)
        (self.folder / "net.yaml").write_text("layers: [flatten, {dense: {units: classes}}]\n")
        self.refuse(["model-options", "net.yaml"], "train", "--model", "net.yaml", "--model-options", "a=1", *QUICK)

    def test_a_folder_with_a_run_is_left_alone(self):
        self.train("a")
        before = (self.folder / "a/summary.json").read_bytes()
        self.refuse(["--out a", "--resume a"], "train", "--model", "mlp", *QUICK, "--out", "a")
        self.assertEqual((self.folder / "a/summary.json").read_bytes(), before)


class BrokenFiles(ProgramTest):
    def test_data_files(self):
        idx(self.folder / "train-images-idx3-ubyte", 4, 6, bytes_missing=7)
        idx_labels(self.folder / "train-labels-idx1-ubyte", [0, 1, 0, 1])
        npy(self.folder / "short.npy", (3, 4), [0.0] * 12, bytes_missing=5)
        npy(self.folder / "short_labels.npy", (3,), [0.0, 1.0, 0.0])
        npy(self.folder / "bare.npy", (3, 4), [0.0] * 12)
        (self.folder / "bad.csv").write_text("a,b,label\n1,2,0\n1,x,1\n")
        (self.folder / "ragged.csv").write_text("a,b,label\n1,2,0\n1,1\n")
        (self.folder / "empty.csv").write_text("")
        (self.folder / "bad.libsvm").write_text("0 1:2\n1 2:a\n")
        (self.folder / "cut.csv.gz").write_bytes(bytes.fromhex("1f8b0800000000000003"))
        (self.folder / "what.bin").write_text("?")
        (self.folder / "empty").mkdir()
        for source, culprits in [
            ("train-images-idx3-ubyte", ["train-images-idx3-ubyte"]),
            ("short.npy", ["short.npy"]),
            ("bare.npy", ["bare.npy", "labels"]),
            ("bad.csv", ["bad.csv:3", "column 2", "'x'"]),
            ("ragged.csv", ["ragged.csv:3", "2 columns", "3"]),
            ("empty.csv", ["empty.csv"]),
            ("bad.libsvm", ["bad.libsvm:2"]),
            ("cut.csv.gz", ["cut.csv.gz"]),
            ("what.bin", ["what.bin"]),
            ("empty", ["empty"]),
            ("nowhere.csv", ["nowhere.csv"]),
        ]:
            with self.subTest(source=source):
                self.refuse(culprits, "train", "--model", "mlp", "--data", source, "--epochs", 1)
                self.refuse(culprits, "data", source)

    def test_what_is_no_regular_file_is_not_waited_for(self):
        os.mkfifo(self.folder / "pipe.csv")
        os.symlink("pipe.csv", self.folder / "link.csv")
        os.symlink("/dev/zero", self.folder / "zero.npy")
        for name in ["pipe.csv", "link.csv", "zero.npy"]:
            with self.subTest(name=name):
                self.refuse([name], "train", "--model", "mlp", "--data", name, "--epochs", 1)

    def test_a_class_without_images_is_named(self):
        for name in ["dark", "light", "none"]:
            (self.folder / "photos" / name).mkdir(parents=True)
        (self.folder / "photos/.cache").mkdir()
        for name in ["dark", "light"]:
            for i in range(3):
                png(self.folder / "photos" / name / f"{i}.png", 8, 8, 99)
        self.refuse(["photos/none"], "train", "--model", "mlp", "--data", "photos", "--epochs", 1)
        (self.folder / "photos/none/readme.txt").write_text("later")
        self.refuse(["photos/none"], "train", "--model", "mlp", "--data", "photos", "--epochs", 1)
        (self.folder / "photos/none/readme.txt").unlink()
        (self.folder / "photos/none").rmdir()
        self.train("a", data="photos")

    def test_a_broken_image_names_itself(self):
        for name in ["dark", "light"]:
            (self.folder / "photos" / name).mkdir(parents=True)
            for i in range(3):
                png(self.folder / "photos" / name / f"{i}.png", 8, 8, 99)
        broken = self.folder / "photos/light/2.png"
        broken.write_bytes(broken.read_bytes()[:30])
        done = self.run_program("train", "--model", "mlp", "--data", "photos", "--epochs", 1, "--out", "a")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("photos/light/2.png", done.stderr)

    def test_models(self):
        self.train("a")
        whole = (self.folder / "a/model.safetensors").read_bytes()
        (self.folder / "a/model.safetensors").unlink()
        cases = {"cut": whole[: len(whole) - 5], "head": whole[:6], "none": b"", "text": b"not a model at all, no"}
        header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        cases["foreign"] = struct.pack("<Q", len(header)) + header + b"\0\0\0\0"
        for name, content in cases.items():
            (self.folder / f"{name}.safetensors").write_bytes(content)
            for command in [["eval"], ["predict"], ["info"]]:
                with self.subTest(name=name, command=command):
                    inputs = [CLASSES] if command == ["predict"] else []
                    self.refuse([f"{name}.safetensors"], *command, f"{name}.safetensors", *inputs)
        self.refuse(["a", "model.safetensors"], "eval", "a")
        self.refuse(["nowhere", "model.safetensors"], "eval", "nowhere")
        self.refuse(["nowhere", "model.safetensors"], "predict", "nowhere", CLASSES)
        self.refuse(["nowhere"], "info", "nowhere")
        self.refuse(["foreign.safetensors"], "train", "--model", "mlp", *QUICK, "--init", "foreign.safetensors")


class Misfits(ProgramTest):
    def test_data_of_another_shape(self):
        self.train("a")
        (self.folder / "rows.csv").write_text("1,2,3\n4,5,6\n")
        png(self.folder / "x.png", 9, 9, 9)
        self.refuse(["1x6x6", "1x9x9"], "eval", "a", "--data", "synthetic:classes=3,shape=1x9x9,samples=9")
        self.refuse(["classes"], "eval", "a", "--data", "synthetic:classes=4,shape=1x6x6,samples=9")
        self.refuse(["rows.csv", "a table", "images of 1x6x6"], "predict", "a", "rows.csv")
        self.refuse(["1x6x6", "sparse"], "predict", "a", SPARSE)
        self.refuse(["nothing.png"], "predict", "a", "x.png", "nothing.png")
        self.train("b", data="synthetic:classes=3,shape=4,samples=30")
        self.refuse(["x.png", "4"], "predict", "b", "x.png")

    def test_info(self):
        self.train("a")
        self.refuse(["--input", "3y4"], "info", "mlp", "--input", "3y4")
        self.refuse(["--input", "0x4"], "info", "mlp", "--input", "0x4")
        self.refuse(["--input"], "info", "mlp", "--input", "3x")
        self.refuse(["--classes", "--input"], "info", "mlp", "--classes", 3)
        self.refuse(["'mpl'", "'mlp'"], "info", "mpl")
        self.refuse(["lenet", "floats 7"], "info", "lenet", "--input", 7)
        self.refuse(["'addam'", "adam"], "info", "mlp", "--optimizer", "addam")
        self.refuse(["--data"], "info", "a", "--data", CLASSES)
        self.refuse(["--label-column", "--data"], "info", "mlp", "--label-column", "kind")

    def test_a_table_with_a_column_too_many(self):
        (self.folder / "table.csv").write_text("a,b,kind\n" + "1,2,ant\n3,4,bee\n" * 9)
        (self.folder / "numbers.csv").write_text("a,b,c\n1,2,3\n")
        (self.folder / "nameless.csv").write_text("1,2,3\n")
        (self.folder / "others.csv").write_text("a,b,kind\n1,2,cow\n")
        self.train("a", data="table.csv", model="logistic")
        self.refuse(["numbers.csv", "3 columns", "takes 2", "--label-column c"], "predict", "a", "numbers.csv")
        self.refuse(["nameless.csv", "--label-column 3"], "predict", "a", "nameless.csv")
        self.refuse(["others.csv", "--label-column kind"], "predict", "a", "others.csv")


class Outputs(ProgramTest):
    def test_predict_writes_all_or_nothing(self):
        self.train("a")
        (self.folder / "kept.csv").write_text("mine")
        (self.folder / "folder").mkdir()
        (self.folder / "bad.csv").write_text("1,2\n")
        self.refuse(["/dev/full", "space"], "predict", "a", CLASSES, "--out", "/dev/full")
        self.assertTrue(pathlib.Path("/dev/full").is_char_device())
        self.refuse(["kept.csv/x"], "predict", "a", CLASSES, "--out", "kept.csv/x")
        self.refuse(["nowhere/x"], "predict", "a", CLASSES, "--out", "nowhere/x")
        self.refuse(["folder"], "predict", "a", CLASSES, "--out", "folder")
        self.refuse(["bad.csv"], "predict", "a", "bad.csv", "--out", "kept.csv")
        self.refuse(["--out"], "predict", "a", "bad.csv", "--out", "bad.csv")
        self.refuse(["--out"], "predict", "a/model.safetensors", CLASSES, "--out", "a/model.safetensors")
        self.refuse(["--out"], "predict", "a", CLASSES, "--out", "a/model.safetensors")
        self.assertEqual((self.folder / "kept.csv").read_text(), "mine")

    def test_a_full_standard_output_is_no_success(self):
        self.train("a")
        for command in [["predict", "a", CLASSES], ["eval", "a"], ["models"], ["--help"]]:
            with self.subTest(command=command), open("/dev/full", "w") as full:
                done = subprocess.run([PROGRAM, *command], cwd=self.folder, stdout=full, stderr=subprocess.PIPE)
                self.assertEqual(done.returncode, 2)
                self.assertEqual(done.stderr.count(b"\n"), 1)

    def test_a_full_disk_keeps_what_was_there(self):
        disk = tempfile.mkdtemp(prefix="distbelief-disk-")
        self.addCleanup(os.rmdir, disk)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("mounting is not allowed here")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        done = self.run_program("train", "--model", "mlp", *QUICK, "--model-options", "hidden=8192", "--out", f"{disk}/a")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(f"{disk}/a", done.stderr)
        self.assertIn("space", done.stderr)
        left = [path.name for path in pathlib.Path(disk).rglob("*")]
        self.assertFalse([name for name in left if "partial" in name], left)
        self.assertNotIn("model.safetensors", left)


if __name__ == "__main__":
    main()
