"""One network over several workers: cut inside layers and into stages, in real processes, some of which are killed.

partition_test.py PROGRAM    the distbelief executable

DISTBELIEF_TEST_TRANSPORTS ("threads socket mpi") says over which of them.
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys

import job_test
from served_test import TRANSPORTS
from test_main import main

STEPS = 20
BATCH = 12
MODELS = {
    "mlp": ["--model", "mlp", "--model-options", "hidden=48,40", "--data", "synthetic:classes=4,shape=1x12x12"],
    "lenet": ["--model", "lenet", "--data", "synthetic:classes=4,shape=1x12x12"],
    "speech": ["--model", "speech", "--model-options", "hidden=64,48,64,40", "--data", "synthetic:classes=12,shape=440"],
    "local-image": ["--model", "local-image", "--model-options", "kernel=3,stages=2,filters=6", "--data",
                    "synthetic:classes=4,shape=3x20x20"],
    "resnet50": ["--model", "resnet50", "--model-options", "stem=small,zero_init=true", "--data",
                 "synthetic:classes=4,shape=3x8x8"],
}
GRIDS = {"stages": (2, 1, 1), "tensor": (1, 2, 1), "grid": (2, 2, 2)}  # stages, tensor, replicas
# How layers are cut: said, since of networks as small as these the planner would leave most whole.
CUTS = {
    "mlp": ("hidden?=outputs,output=outputs", "hidden?=inputs,output=inputs", "hidden1=outputs,hidden2=inputs"),
    "lenet": ("conv?=outputs,pool?=channels,hidden=inputs", "conv1=outputs,conv2=inputs,hidden=outputs",
              "conv?=region,relu1=region,relu2=region,pool?=region"),
    "speech": ("hidden?=outputs", "hidden1=outputs,sigmoid1=channels,hidden2=inputs,hidden3=outputs,hidden4=inputs"),
    "local-image": ("local?=outputs,pool?=channels", "local1=outputs,local2=inputs", "local?=region,pool?=region,norm?=region"),
    "resnet50": ("layer1.*conv?=region,layer1.*bn?=region,layer4.*conv?=outputs,layer4.*bn?=channels",),
}


class PartTest(job_test.JobTest):
    def recipe(self, model, name, *more, samples=STEPS * BATCH, batch=BATCH, noise=1):
        options = [f"{word},samples={samples},seed=3,noise={noise}" if word.startswith("synthetic:") else word
                   for word in MODELS[model]]
        return [*options, "--set", "epochs=1", "--set", "lr=0.02", "--batch", str(batch), "--log-every", "1", "--threads",
                "1", "--out", self.path(name), *more]

    def cut(self, stages, tensor, replicas):
        return ["--stages", str(stages), "--tensor", str(tensor), "--replicas", str(replicas)]

    def config(self, name):
        with open(self.path(name) + "/run.yaml") as file:
            return file.read()

    def expect_close(self, found, wanted, within=1e-4):
        self.assertEqual(len(found), len(wanted))
        for one, other in zip(found, wanted):
            self.assertLess(abs(one - other), within * other)


class Partition(PartTest):
    def test_a_network_that_is_cut_has_the_losses_of_the_whole(self):
        for number, model in enumerate(MODELS):
            # Batch norm normalises over what a worker has of a micro-batch, so the whole has as many.
            parts = 2 if model == "resnet50" else 1
            batch = 32 if model == "resnet50" else BATCH  # few samples make the statistics, and so losses, shaky
            size = {"batch": batch, "samples": STEPS * batch}
            whole = {}
            kinds = [(kind, cuts) for kind in GRIDS for cuts in ([""] if kind == "stages" else CUTS[model])]
            if model == "resnet50":  # the largest
                kinds = [(kind, cuts) for kind, cuts in kinds if kind != "stages"]
            for replicas, accumulate in {(GRIDS[kind][2], parts if GRIDS[kind][0] > 1 else 1) for kind, _ in kinds}:
                name = f"{model}-{replicas}-{accumulate}"
                self.train(*self.recipe(model, name, **size), "--algorithm", "allreduce", "--workers", str(replicas), "--accumulate",
                           str(accumulate), "--transport", "threads")
                whole[replicas, accumulate] = self.losses(name)
                self.assertEqual(len(whole[replicas, accumulate]), STEPS)
            real = [transport for transport in TRANSPORTS if transport != "threads"] or TRANSPORTS
            for index, (kind, cuts) in enumerate(kinds):
                stages, _, replicas = GRIDS[kind]
                accumulate = parts if stages > 1 else 1
                for transport in TRANSPORTS if model == "mlp" else [real[(number + index) % len(real)]]:
                    with self.subTest(model=model, grid=kind, cuts=cuts, transport=transport):
                        name = f"{model}-{index}-{transport}"
                        more = ["--micro-batches", str(parts if parts > 1 else 4), *(["--cuts", cuts] if cuts else [])]
                        self.train(*self.recipe(model, name, **size), *self.cut(*GRIDS[kind]), *more, "--transport",
                                   transport)
                        self.expect_close(self.losses(name), whole[replicas, accumulate])
                        self.expect_every_sample_once(name, STEPS * batch)
                        self.expect_nothing_left(name)

    def test_a_faster_worker_may_have_a_larger_share(self):
        for number, model in enumerate(("mlp", "lenet", "local-image")):
            with self.subTest(model):
                self.train(*self.recipe(model, model), "--algorithm", "local")
                self.train(*self.recipe(model, model + "-cut"), *self.cut(1, 2, 1), "--shares", "3,1", "--transport",
                           TRANSPORTS[number % len(TRANSPORTS)])
                self.expect_close(self.losses(model + "-cut"), self.losses(model))

    def test_a_slower_worker_gets_less_of_the_work(self):
        self.train(*self.recipe("mlp", "whole"), "--algorithm", "local")
        for number, algorithm in enumerate((["allreduce"], ["async", "--servers", "2"])):
            with self.subTest(algorithm=algorithm[0]):
                name = algorithm[0]
                output = self.train(*self.recipe("mlp", name), *self.cut(1, 2, 1), "--algorithm", *algorithm, "--shares",
                                    "auto", "--chaos", "slow worker 1 x100 from step 1 to step 1", "--transport",
                                    TRANSPORTS[number % len(TRANSPORTS)])
                shares = re.search(r'(?m)^shares: "?([\d.]+),([\d.]+)"?$', self.config(name))
                self.assertIsNotNone(shares, self.config(name))
                self.assertLess(float(shares[2]), float(shares[1]))
                self.expect_close([self.summary(name)["train_loss"]], [self.summary("whole")["train_loss"]])
                self.assertIn(f"shares  {shares[1]},{shares[2]} of the work of a stage", output)
                # What was measured is written down: the same cut again, without measuring.
                self.train(self.path(name) + "/run.yaml", "--chaos", "", "--out", self.path(name + "-again"))
                self.assertEqual(self.model(name), self.model(name + "-again"))

    def test_batch_norm_of_regions_has_the_statistics_of_the_whole(self):
        with open(self.path("net.yaml"), "w") as file:
            file.write("layers:\n"
                       "  - conv2d: {name: conv1, filters: 8, kernel: 3, padding: same}\n"
                       "  - batch_norm: {name: norm1}\n  - relu: {name: relu1}\n"
                       "  - conv2d: {name: conv2, filters: 8, kernel: 3, padding: same}\n"
                       "  - batch_norm: {name: norm2}\n  - relu: {name: relu2}\n"
                       "  - flatten\n  - dense: {name: output, units: classes}\n")
        recipe = ["--model", self.path("net.yaml"), "--data", f"synthetic:classes=4,shape=3x12x12,samples={STEPS * BATCH},seed=3,"
                  "noise=1", "--epochs", "1", "--batch", str(BATCH), "--lr", "0.02", "--log-every", "1", "--threads", "1"]
        self.train(*recipe, "--out", self.path("whole"))
        cuts = "conv?=region,norm?=region,relu?=region"
        for number, tensor in enumerate(("2", "3")):
            with self.subTest(tensor):
                self.train(*recipe, "--tensor", tensor, "--stages", "1", "--cuts", cuts, "--transport",
                           TRANSPORTS[number % len(TRANSPORTS)], "--out", self.path(tensor))
                self.expect_close(self.losses(tensor), self.losses("whole"))
                self.expect_close([self.summary(tensor)["test_loss"]], [self.summary("whole")["test_loss"]])

    def test_each_order_of_a_pipeline_has_the_same_bits(self):
        models = set()
        for number, order in enumerate((["--pipeline", "1f1b"], ["--pipeline", "gpipe"], ["--recompute"],
                                        ["--pipeline", "gpipe", "--recompute"])):
            self.train(*self.recipe("lenet", f"run{number}"), *self.cut(3, 1, 1), *order, "--micro-batches", "6",
                       "--transport", "socket")
            models.add(self.model(f"run{number}"))
        self.assertEqual(len(models), 1)

    def test_a_gradient_is_clipped_by_the_length_of_the_whole(self):
        more = ["--clip-norm", "0.1", "--micro-batches", "4"]
        self.train(*self.recipe("mlp", "whole"), "--clip-norm", "0.1")
        self.train(*self.recipe("mlp", "cut"), *self.cut(2, 2, 1), *more, "--transport", "socket")
        self.expect_close(self.losses("cut"), self.losses("whole"))

    def test_the_planner_cuts_by_itself_and_writes_down_how(self):
        self.train(*self.recipe("lenet", "run"), "--partition", "2", "--transport", "socket")
        self.assertRegex(self.config("run"), r"(?m)^(stage-at|cuts): .*\w")
        # What it wrote down gives the same run.
        self.train(self.path("run") + "/run.yaml", "--out", self.path("again"))
        self.assertEqual(self.model("run"), self.model("again"))

    def test_other_algorithms_train_copies_of_a_network_that_is_cut(self):
        for algorithm in ("sync", "averaging", "gossip"):
            with self.subTest(algorithm):
                self.train(*self.recipe("mlp", algorithm, samples=1200), *self.cut(1, 2, 2), "--algorithm", algorithm,
                           "--transport", "socket")
                self.assertGreater(self.summary(algorithm)["test_accuracy"], 0.7)
                self.expect_every_sample_once(algorithm, 1200)

    def test_a_run_goes_on_bit_for_bit_and_with_another_cut(self):
        more = ["--momentum", "0.9", "--transport", "socket"]
        self.train(*self.recipe("lenet", "whole"), *self.cut(2, 2, 1), *more, "--epochs", "4")
        self.train(*self.recipe("lenet", "part"), *self.cut(2, 2, 1), *more, "--epochs", "2")
        self.train("--resume", self.path("part"), "--epochs", "4")
        self.assertEqual(self.model("whole"), self.model("part"))
        self.assertIn("is finished after 4 epochs", self.train("--resume", self.path("part")))
        self.assertEqual(self.model("whole"), self.model("part"))
        cuts = {"stages": ["--partition", "3", "--stages", "3", "--tensor", "1", "--workers", "3"],
                "one": ["--partition", "0", "--stages", "1", "--tensor", "1", "--workers", "1"],
                "tensor": ["--stages", "1", "--tensor", "2", "--workers", "2"]}
        for name, cut in cuts.items():
            with self.subTest(name):
                self.train(*self.recipe("lenet", name), *self.cut(2, 2, 1), *more, "--epochs", "2")
                self.train("--resume", self.path(name), "--epochs", "4", *cut)
                self.expect_close(self.losses(name)[2 * STEPS:], self.losses("whole")[2 * STEPS:], within=0.02)
                self.expect_every_sample_once(name, 4 * STEPS * BATCH)

    def test_a_run_begun_with_workers_goes_on_with_as_many(self):
        self.train(*self.recipe("mlp", "run"), "--workers", "4", "--stages", "2", "--transport", "socket")
        self.train("--resume", self.path("run"), "--epochs", "2")
        self.assertEqual(self.summary("run")["workers"], 4)
        self.expect_every_sample_once("run", 2 * STEPS * BATCH)

    def test_a_frozen_weight_beside_a_trained_bias_is_not_cut_by_inputs(self):
        output = self.train(*self.recipe("mlp", "run"), "--tensor", "2", "--cuts", "hidden1=inputs", "--freeze",
                            "hidden1.weight", code=2)
        self.assertIn("its weight is frozen, and its bias is not", output)

    def test_ctrl_c_stops_all_at_the_same_step(self):
        process = self.start(*self.recipe("mlp", "run", samples=6000), *self.cut(2, 2, 2), "--epochs", "50", "--transport",
                             "socket")
        self.wait_for_steps("run", process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=job_test.DEADLINE)
        self.assertEqual(process.returncode, 130, output)
        self.assertIn("--resume", output)
        epochs = self.summary("run")["epochs"] + 1
        self.train("--resume", self.path("run"), "--epochs", str(epochs))
        self.expect_every_sample_once("run", epochs * 6000)

    def test_a_loss_that_is_no_number_ends_all_with_its_layer(self):
        output = self.train(*self.recipe("mlp", "run"), *self.cut(2, 2, 1), "--lr", "1e30", "--transport", "socket", code=3)
        self.assertRegex(output, "first seen in (layer|parameter) '")
        self.expect_nothing_left("run")

    def test_beginning_with_a_model_and_keeping_the_best(self):
        self.train(*self.recipe("mlp", "first"), "--epochs", "2")
        output = self.train(*self.recipe("mlp", "second"), *self.cut(2, 1, 1), "--init", self.path("first"), "--freeze",
                            "hidden1.*", "--validation", "0.2", "--epochs", "3", "--transport", "socket")
        self.assertIn("kept hidden1.weight", output)
        self.assertEqual(self.tensor("first", "hidden1.weight"), self.tensor("second", "hidden1.weight"))
        self.assertNotEqual(self.tensor("first", "output.weight"), self.tensor("second", "output.weight"))

    def tensor(self, name, key):
        import json
        data = self.model(name)
        length = int.from_bytes(data[:8], "little")
        begin, end = json.loads(data[8:8 + length])[key]["data_offsets"]
        return data[8 + length + begin:8 + length + end]

    def test_a_model_too_large_for_a_process_trains_when_it_is_cut(self):
        with open(job_test.PROGRAM, "rb") as file:
            if b"__asan_init" in file.read():
                self.skipTest("AddressSanitizer maps more memory than any limit")
        # 19 million parameters: 77 MB, and as much for gradients and for momentum.
        model = ["--model", "speech", "--model-options", "hidden=2560,2560,2560", "--data",
                 "synthetic:classes=2000,shape=440,samples=64,seed=3", "--epochs", "1", "--batch", "16", "--threads", "1",
                 "--momentum", "0.9", "--lr", "0.01", "--validation", "0", "--transport", "socket"]

        def limited(*arguments):
            def limit():
                resource.setrlimit(resource.RLIMIT_DATA, (200 << 20, 200 << 20))

            return subprocess.run([job_test.PROGRAM, "train", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, timeout=job_test.DEADLINE, preexec_fn=limit,
                                  env={**os.environ, "TMPDIR": self.scratch.name, "XDG_CACHE_HOME": self.path("cache")})

        whole = limited(*model, "--algorithm", "allreduce", "--workers", "1", "--out", self.path("whole"))
        self.assertNotEqual(whole.returncode, 0)
        cut = limited(*model, "--tensor", "4", "--out", self.path("cut"))
        self.assertEqual(cut.returncode, 0, cut.stdout)
        self.expect_every_sample_once("cut", 64)

    def test_what_cannot_be_cut_is_refused_before_anything_runs(self):
        cases = {
            ("--cuts", "hidden1=outputs"): "--cuts hidden1=outputs: the network is in one process",
            ("--stage-at", "output"): "expected --stages 2 or more too",
            ("--shares", "2,1"): "--shares 2,1: no stage is shared out; expected --tensor 2 or more too",
            ("--tensor", "2", "--shares", "2,1,1"): "--shares 2,1,1: 3 shares, where there are 2 workers for each stage",
            ("--tensor", "2", "--shares", "2,x"): "--shares 2,x: expected auto or numbers above 0 such as 3,1, got 'x'",
            ("--tensor", "2", "--shares", "2,1/1,1"): "--shares 2,1/1,1: shares of 2 stages, where there are 1",
            ("--stages", "2", "--tensor", "1", "--shares", "auto"): "--shares auto: no stage is shared out",
            ("--stages", "9"): "--stages 9: expected at most 6, the layers of model mlp",
            ("--partition", "4", "--stages", "3"): "--partition 4: expected a multiple of --stages 3",
            ("--partition", "4", "--stages", "2", "--tensor", "4"): "--partition 4 is not --stages 2 times --tensor 4",
            ("--tensor", "2", "--workers", "3"): "--workers 3: expected a multiple of 2",
            ("--tensor", "2", "--workers", "4", "--replicas", "4"): "--workers 4 contradicts --replicas 4",
            ("--tensor", "2", "--algorithm", "hogwild"): "--algorithm hogwild: a network over 2 workers is trained with",
            ("--tensor", "2", "--algorithm", "sandblaster", "--servers", "0"): "--servers 0: with parameter servers that is",
            ("--tensor", "2", "--algorithm", "downpour", "--servers", "0"): "--servers 0: with parameter servers that is",
            ("--tensor", "2", "--replicas", "2", "--algorithm", "sync", "--backup-workers", "2"):
                "--backup-workers 2: with --replicas 2 at most 1 can be late",
            ("--tensor", "2", "--replicas", "8", "--algorithm", "sync", "--backup-workers", "1"):
                f"--batch {BATCH}: expected a multiple of 7, the gradients of a step (--replicas 8 less --backup-workers 1), "
                "such as 14",
            ("--tensor", "2", "--cuts", "hidden1=region"): "layer 'hidden1' (dense) cannot be cut by region",
            ("--tensor", "2", "--cuts", "hiden1=outputs"): "has no layer 'hiden1'",
            ("--tensor", "2", "--cuts", "hidden1"): "expected LAYER=outputs",
            ("--stages", "2", "--stage-at", "output,relu1"): "is not behind",
            ("--stages", "2", "--stage-at", "nothing"): "has no layer 'nothing'",
            ("--tensor", "200"): "200",
            ("--stages", "2", "--micro-batches", "300"): "--micro-batches 300: expected at most 256",
            ("--tensor", "2", "--replicas", "2", "--algorithm", "gossip", "--gossip-quorum", "2"): "--gossip-quorum 2",
        }
        for arguments, wanted in cases.items():
            with self.subTest(arguments):
                output = self.train(*self.recipe("mlp", "run"), *arguments, code=2)
                self.assertEqual(output.count("\n"), 1, output)
                self.assertIn(wanted, output)
                self.assertFalse(os.path.exists(self.path("run")))


class DeathTest(PartTest):
    SAMPLES = 600
    KILLED = r"worker {} \(pid \d+ on \S+\) (was killed by signal 9|ended without a word)[^\n]*"

    def expect_whole(self, name, output, lost, workers, left, losses, joined=()):
        summary = self.summary(name)
        self.assertEqual(summary["status"], "finished", output)
        self.assertEqual((summary["workers"], summary["workers_at_end"], summary["restarts"]), (workers, left, 0), output)
        for what, ranks in (("lost", lost), ("joined", joined)):
            self.assertEqual(sorted(re.match(r"worker (\d+) ", event["who"])[1] for event in summary["events"]
                                    if event["what"] == what), sorted(str(rank) for rank in ranks), output)
        self.expect_every_sample_once(name, self.SAMPLES)
        self.expect_close(self.losses(name), losses)
        self.assertTrue(self.model(name))
        self.expect_nothing_left(name)

    def undisturbed(self, *more):
        self.train(*self.recipe("mlp", "undisturbed", samples=self.SAMPLES), "--transport", "threads", *more)
        return self.losses("undisturbed")


class Deaths(DeathTest):
    """Workers that are killed, each of which has a part of the network."""

    def test_the_copies_that_are_whole_go_on_from_memory(self):
        losses = self.undisturbed(*self.cut(1, 1, 2), "--algorithm", "allreduce")
        for transport in job_test.SURVIVABLE:
            for grid, victim, copy, rest in (((2, 1, 2), 0, 1, "worker 1 ends"), ((1, 2, 2), 3, 2, "worker 2 ends"),
                                             ((2, 2, 2), 2, 1, "workers 0, 1, 3 end")):
                with self.subTest(transport=transport, grid=grid, victim=victim):
                    name = f"{transport}-{victim}"
                    parts = grid[0] * grid[1]
                    output = self.train(*self.recipe("mlp", name, samples=self.SAMPLES), *self.cut(*grid), "--transport",
                                        transport, "--chaos", f"kill worker {victim} at step 23")
                    self.assertIn("copies  each part is held by 2 workers", output)
                    self.assertRegex(output, self.KILLED.format(victim) +
                                     f": copy {copy} of 2 is given up, {rest}; one copy goes on after step 22\\n")
                    self.expect_whole(name, output, [victim], 2 * parts, parts, losses)

    def test_what_is_left_of_two_copies_is_one(self):
        losses = self.undisturbed(*self.cut(1, 1, 3), "--algorithm", "allreduce")
        for number, victims in enumerate(([0, 3], [2, 5])):
            transport = job_test.SURVIVABLE[number % len(job_test.SURVIVABLE)]
            with self.subTest(transport=transport, victims=victims):
                name = f"{transport}-{victims[0]}"
                script = "; ".join(f"kill worker {victim} at step 23" for victim in victims)
                output = self.train(*self.recipe("mlp", name, samples=self.SAMPLES), *self.cut(2, 1, 3), "--transport", transport,
                                    "--chaos", script)
                # Who is killed a little later than the other may find its copy given up.
                self.assertRegex(output, "(2 copies go|one copy goes) on after step 2[23]\n")
                self.expect_whole(name, output, victims, 6, self.summary(name)["workers_at_end"], losses)

    def test_a_kill_from_outside_in_the_middle_of_a_step(self):
        for number, transport in enumerate(job_test.SURVIVABLE):
            with self.subTest(transport=transport):
                process = self.start(*self.recipe("mlp", transport, samples=self.SAMPLES), *self.cut(2, 1, 2), "--epochs", "9000",
                                     "--transport", transport)
                self.wait_for_steps(transport, process)
                os.kill(job_test.workers_in(self.path(transport))[number], signal.SIGKILL)
                self.line_with(process, "one copy goes on after step")
                rows = os.path.getsize(self.path(transport) + "/metrics.jsonl")
                self.wait_until(lambda: os.path.getsize(self.path(transport) + "/metrics.jsonl") > rows + 500, "steps")
                process.send_signal(signal.SIGINT)
                output, _ = process.communicate(timeout=job_test.DEADLINE)
                self.assertEqual(process.returncode, 130, output)
                self.expect_nothing_left(transport)
                epochs = self.epochs_begun(transport)
                self.train("--resume", self.path(transport), "--epochs", epochs)
                self.expect_every_sample_once(transport, int(epochs) * self.SAMPLES)

    def test_one_copy_goes_back_to_its_checkpoint_with_another_cut(self):
        losses = self.undisturbed()
        for transport in job_test.SURVIVABLE:
            for grid, victim, left, now in (((2, 1, 1), 0, 1, "1 worker with the whole network"),
                                            ((1, 3, 1), 1, 2, "one copy of the network of "),
                                            ((2, 2, 1), 3, 3, "one copy of the network of ")):
                with self.subTest(transport=transport, grid=grid, victim=victim):
                    name = f"{transport}-{victim}"
                    output = self.train(*self.recipe("mlp", name, samples=self.SAMPLES), *self.cut(*grid), "--transport",
                                        transport, "--checkpoint-every", "5", "--chaos", f"kill worker {victim} at step 23")
                    self.assertIn("copies  each part is held by one worker", output)
                    self.assertRegex(output, self.KILLED.format(victim) + ": a part of the network is nowhere else: back to the "
                                     f"checkpoint of step 20, [23] steps are made again; now {now}")
                    self.expect_whole(name, output, [victim], grid[0] * grid[1], left, losses)

    def test_of_other_algorithms_whole_copies_go_on_from_memory_too(self):
        losses = self.undisturbed(*self.cut(1, 1, 3), "--algorithm", "allreduce")
        for number, algorithm in enumerate((["sync"], ["averaging", "--average-every", "4"], ["gossip"])):
            transport = job_test.SURVIVABLE[number % len(job_test.SURVIVABLE)]
            with self.subTest(transport=transport, algorithm=algorithm):
                name = algorithm[0]
                output = self.train(*self.recipe("mlp", name, samples=self.SAMPLES), *self.cut(2, 1, 3), "--transport",
                                    transport, "--algorithm", *algorithm, "--checkpoint-every", "7", "--chaos",
                                    "kill worker 0 at step 18")  # who leads, and with `sync` has the optimizer's state
                self.assertIn("copies  each part is held by 3 workers: when one dies its copy is given up", output)
                self.assertRegex(output, self.KILLED.format(0) + ": copy 1 of 3 is given up, worker 1 ends; 2 copies go on after "
                                 r"step 1[4567]\n")
                self.assertEqual(self.summary(name)["workers_at_end"], 4)
                self.expect_every_sample_once(name, self.SAMPLES)
                self.expect_nothing_left(name)
                if name == "sync":
                    self.expect_close(self.losses(name), losses)

    def test_a_part_that_nobody_has_comes_from_the_checkpoint(self):
        losses = self.undisturbed(*self.cut(1, 1, 2), "--algorithm", "allreduce")
        for number, (algorithm, victims) in enumerate(((["allreduce"], [1, 3]), (["sync"], [0, 2]))):
            transport = job_test.SURVIVABLE[number % len(job_test.SURVIVABLE)]
            with self.subTest(transport=transport, algorithm=algorithm, victims=victims):
                name = algorithm[0]
                script = "; ".join(f"kill worker {victim} at step 23" for victim in victims)
                output = self.train(*self.recipe("mlp", name, samples=self.SAMPLES), *self.cut(1, 2, 2), "--transport", transport,
                                    "--algorithm", *algorithm, "--checkpoint-every", "5", "--chaos", script)
                # Two at once leave two; if the others go on before the second dies, its partner has ended by then.
                left = self.summary(name)["workers_at_end"]
                self.assertIn(left, (1, 2) if len(victims) == 2 else (2,), output)
                self.expect_whole(name, output, victims, 4, left, losses)


class Served(PartTest):
    """The same with parameter servers, which hold the parameters of each part."""

    def test_one_copy_has_the_losses_of_plain_sgd(self):
        for number, model in enumerate(("mlp", "lenet", "speech", "local-image")):
            self.train(*self.recipe(model, model), "--algorithm", "local")
            for name, grid in {"tensor": (1, 2, 1), "stages": (2, 1, 1), "grid": (2, 2, 1)}.items():
                transport = TRANSPORTS[(number + len(name)) % len(TRANSPORTS)]
                with self.subTest(model=model, grid=name, transport=transport):
                    cut = f"{model}-{name}"
                    self.train(*self.recipe(model, cut), *self.cut(*grid), "--algorithm", "async", "--servers", "2",
                               "--transport", transport)
                    for key in ("train_loss", "test_loss"):
                        self.expect_close([self.summary(cut)[key]], [self.summary(model)[key]])
                    self.expect_every_sample_once(cut, STEPS * BATCH)
                    self.expect_nothing_left(cut)

    def test_copies_train_together_with_each_algorithm(self):
        for number, algorithm in enumerate((["downpour", "--n-push", "2", "--n-fetch", "3", "--warm-start", "10"],
                                            ["softsync", "--n", "2"], ["async", "--prefetch", "on"],
                                            ["downpour", "--adaptive", "on"])):
            transport = TRANSPORTS[number % len(TRANSPORTS)]
            with self.subTest(algorithm=algorithm, transport=transport):
                name = str(number)
                self.train(*self.recipe("mlp", name, samples=960), *self.cut(2, 2, 2), "--servers", "2", "--epochs", "2",
                           "--transport", transport, "--algorithm", *algorithm)
                self.assertGreater(self.summary(name)["test_accuracy"], 0.9)
                self.expect_every_sample_once(name, 1920)
                self.expect_nothing_left(name)

    def test_a_gradient_is_clipped_by_the_length_of_the_whole(self):
        self.train(*self.recipe("mlp", "free"), "--algorithm", "local")
        self.train(*self.recipe("mlp", "whole"), "--algorithm", "local", "--clip-norm", "0.1")
        self.train(*self.recipe("mlp", "cut"), *self.cut(2, 2, 1), "--algorithm", "async", "--servers", "2",
                   "--clip-norm", "0.1", "--cuts", "hidden1=outputs", "--transport", "socket")
        for key in ("train_loss", "test_loss"):
            self.expect_close([self.summary("cut")[key]], [self.summary("whole")[key]])
        self.assertGreater(self.summary("whole")["train_loss"], 1.01 * self.summary("free")["train_loss"])

    def test_what_servers_refuse_of_a_copy_all_of_it_gives_back_and_is_trained_later(self):
        for number, (name, algorithm) in enumerate({"bounded": ["async", "--max-staleness", "1"],
                                                    "backup": ["sync", "--backup-workers", "1"]}.items()):
            transport = TRANSPORTS[number % len(TRANSPORTS)]
            with self.subTest(name, transport=transport):
                self.train(*self.recipe("mlp", name, samples=960), *self.cut(1, 2, 3), "--servers", "2", "--epochs", "2",
                           "--transport", transport, "--chaos", "slow worker 1 x20 from step 2", "--algorithm", *algorithm)
                audit = self.summary(name)["samples"]
                self.assertGreater(audit["dropped"], 0)
                self.assertEqual(audit, {"leased": 1920 + audit["dropped"], "applied": 1920, "dropped": audit["dropped"],
                                         "lost": 0, "duplicated": 0})
                self.assertGreater(self.summary(name)["test_accuracy"], 0.9)
                self.expect_nothing_left(name)

    def test_sandblaster_has_the_objectives_of_a_network_that_is_whole(self):
        recipe = ["--algorithm", "sandblaster", "--servers", "2", "--iterations", "8", "--weight-decay", "0.01"]
        cuts = {"mlp": [*self.cut(2, 2, 2), "--cuts", "hidden1=outputs,hidden2=inputs"],
                "lenet": [*self.cut(1, 2, 2), "--cuts", "conv1=region,hidden=inputs"], "speech": self.cut(2, 1, 1)}
        for number, (model, cut) in enumerate(cuts.items()):
            transport = TRANSPORTS[number % len(TRANSPORTS)]
            with self.subTest(model=model, transport=transport):
                self.blast(model, f"{model}-whole", *recipe, "--workers", "1", "--transport", "socket")
                self.blast(model, f"{model}-cut", *recipe, *cut, "--transport", transport)
                self.expect_close(self.objectives(f"{model}-cut"), self.objectives(f"{model}-whole"))
                audit = self.summary(f"{model}-cut")["samples"]
                self.assertEqual((audit["lost"], audit["duplicated"], audit["leased"] - audit["dropped"]),
                                 (0, 0, audit["applied"]))
                self.expect_nothing_left(f"{model}-cut")

    def test_sandblaster_loses_a_part_of_a_copy_and_goes_on_with_another_cut(self):
        recipe = ["--algorithm", "sandblaster", "--servers", "2", "--transport", "socket"]
        self.blast("mlp", "whole", *recipe, "--workers", "1", "--iterations", "10")
        output = self.blast("mlp", "run", *recipe, *self.cut(1, 2, 2), "--iterations", "6", "--chaos",
                            "kill worker 1 at 40%")
        self.assertIn("lost: worker 1 (pid ", output)
        self.train("--resume", self.path("run"), "--iterations", "10", "--stages", "2", "--tensor", "1", "--chaos", "")
        self.expect_close(self.objectives("run"), self.objectives("whole"))

    def blast(self, model, name, *more):
        return self.train(*(word for word in self.recipe(model, name) if word not in ("epochs=1", "lr=0.02", "--set")),
                          *more)

    def objectives(self, name):
        with open(self.path(name) + "/metrics.jsonl") as file:
            return [row["objective"] for row in map(json.loads, file) if "objective" in row]

    def test_a_killed_part_stops_no_other_copy_and_its_samples_are_trained_by_others(self):
        for number, (victim, grid) in enumerate({0: (2, 1, 2), 1: (1, 2, 2), 2: (1, 2, 2), 3: (2, 1, 2)}.items()):
            transport = job_test.SURVIVABLE[number % len(job_test.SURVIVABLE)]
            with self.subTest(transport=transport, victim=victim):
                name = str(victim)
                output = self.train(*self.recipe("mlp", name, samples=960), *self.cut(*grid), "--servers", "2",
                                    "--algorithm", "async", "--epochs", "3", "--transport", transport, "--chaos",
                                    f"kill worker {victim} at 30%")
                self.assertIn(f"lost: worker {victim} (pid ", output)
                self.assertIn("is of no use without worker", output)
                self.expect_every_sample_once(name, 2880)
                self.expect_nothing_left(name)

    def test_servers_may_die_who_leads_too(self):
        for number, algorithm in enumerate((["async"], ["downpour", "--n-push", "2", "--n-fetch", "3"], ["softsync", "--n", "2"],
                                            ["sync", "--backup-workers", "1"])):
            transport = job_test.SURVIVABLE[number % len(job_test.SURVIVABLE)]
            with self.subTest(algorithm=algorithm, transport=transport):
                name = str(number)
                output = self.train(*self.recipe("mlp", name, samples=960), *self.cut(2, 1, 2), "--servers", "3", "--epochs", "4",
                                    "--transport", transport, "--algorithm", *algorithm, "--chaos",
                                    "kill server 2 at step 20; kill server 0 at 60%")
                self.assertIn("copies  each parameter is on two servers: one of them may die", output)
                self.assertIn("server 5 leads from here on", output)
                audit = self.summary(name)["samples"]
                self.assertEqual((audit["applied"], audit["lost"], audit["duplicated"]), (3840, 0, 0))
                self.expect_nothing_left(name)

    def test_one_copy_goes_on_bit_for_bit_after_an_interrupt(self):
        recipe = [*self.cut(2, 2, 1), "--servers", "2", "--algorithm", "async", "--momentum", "0.9", "--epochs", "3",
                  "--transport", "socket"]
        self.train(*self.recipe("mlp", "whole", samples=960), *recipe)
        process = self.start(*self.recipe("mlp", "broken", samples=960), *recipe, "--chaos",
                             "slow worker 0 x20 from step 20")
        self.wait_for_steps("broken", process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=job_test.DEADLINE)
        self.assertEqual(process.returncode, 130, output)
        self.train("--resume", self.path("broken"), "--chaos", "")
        self.assertEqual(self.model("broken"), self.model("whole"))
        self.expect_every_sample_once("broken", 2880)
        output = self.train("--resume", self.path("broken"), "--epochs", "4", "--stages", "1", "--tensor", "4")
        self.assertIn("tensor 4 (2", output)
        self.assertNotIn("begins anew", output)
        self.expect_every_sample_once("broken", 3840)


if __name__ == "__main__":
    job_test.PROGRAM = sys.argv.pop(1)
    main()
