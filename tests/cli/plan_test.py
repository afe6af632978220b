"""`distbelief plan`: what it shows, what it remembers, what it refuses, and that training does as it says."""

import json
import re

from program import CLASSES, ProgramTest, main

QUICK = ["--model", "mlp", "--model-options", "hidden=64,64", "--input", "1x8x8", "--batch", 32]


class PlanTest(ProgramTest):
    def plan(self, *arguments, **options):
        options.setdefault("environment", {"XDG_CACHE_HOME": str(self.folder / "cache")})
        return self.succeed("plan", *arguments, **options)


class Plan(PlanTest):
    def test_says_what_each_process_does_and_what_was_rejected(self):
        text = self.plan(*QUICK, "--partition", 4, "--speed", "10G")
        for words in ["parameters", "activations", "memory", "computes", "exchanges", "waits", "sends",
                      "Step", "Samples per second", "instead of it", "why not", "1 process, uncut"]:  # fmt: skip
            self.assertIn(words, text)
        for line in text.splitlines():
            self.assertLessEqual(len(line), 100, line)

    def test_json_has_all_grids_and_adds_up(self):
        plan = json.loads(self.plan(*QUICK, "--partition", 4, "--speed", "10G", "--json"))
        grids = {(plan["stages"], plan["tensor"])} | {(r["stages"], r["tensor"]) for r in plan["rejected"]}
        self.assertEqual(grids, {(1, 4), (2, 2), (4, 1)})
        self.assertEqual(len(plan["processes"]), 4)
        for process in plan["processes"]:
            seconds = sum(process[f"{what}_seconds"] for what in ["compute", "exchange", "wait", "update"])
            self.assertAlmostEqual(seconds, plan["step_seconds"], delta=1e-6 * plan["step_seconds"] + 1e-9)
            memory = process["memory"]
            self.assertEqual(memory["total"], sum(v for k, v in memory.items() if k != "total"))

    def test_slow_links_change_the_plan(self):
        fast = json.loads(self.plan("--model", "speech", "--partition", 2, "--speed", "10G", "--json",
                                    "--bandwidth", "100GB", "--latency", "1us"))  # fmt: skip
        slow = json.loads(self.plan("--model", "speech", "--partition", 2, "--speed", "10G", "--json",
                                    "--bandwidth", "10Mbit", "--latency", "1ms"))  # fmt: skip
        self.assertGreater(slow["step_seconds"], 1.5 * fast["step_seconds"])

    def test_a_plan_says_all_of_it_even_when_nothing_is_worth_cutting(self):
        plan = json.loads(self.plan(*QUICK, "--tensor", 2, "--speed", "10G", "--bandwidth", "1kbit", "--json"))
        self.assertEqual(plan["cuts"], "*=whole")  # or workers would plan again, each by itself

    def test_machines_that_are_not_here_hold_copies(self):
        plan = json.loads(self.plan(*QUICK, "--machines", 8, "--partition", 2, "--speed", "10G", "--json"))
        self.assertEqual(plan["replicas"], 4)

    def test_models_that_no_machine_could_hold(self):
        text = self.plan("--model", "speech", "--model-options", "hidden=100000,100000", "--tensor", 8, "--speed", "1T",
                         "--batch", 8)  # fmt: skip
        self.assertIn("parameters", text)

    def test_page_needs_nothing_but_itself(self):
        self.plan(*QUICK, "--stages", 2, "--tensor", 2, "--speed", "10G", "--html", "plan.html")
        page = (self.folder / "plan.html").read_text()
        self.assertIn("<svg", page)
        self.assertEqual(page.count('<rect class="box"'), 4)
        self.assertNotRegex(page, r"(src|href)=")
        self.assertNotIn("http://", page)
        self.assertNotIn("https://", page)

    def test_speedup_counts_machines(self):
        text = self.plan("--model", "speech", "--speedup", "1,2,4", "--bandwidth", "1Gbit", "--speed", "50G")
        rows = re.findall(r"(?m)^ +(\d+) +\S+ \S+ +([\d.]+)  ", text)
        self.assertEqual([row[0] for row in rows], ["1", "2", "4"])
        self.assertEqual(rows[0][1], "1.00")


class Memory(PlanTest):
    def test_cuts_that_do_not_fit_are_rejected_and_said_so(self):
        arguments = ["--model", "speech", "--partition", 4, "--speed", "10G", "--json", "--batch", 64, "--micro-batches", 16]
        every = json.loads(self.plan(*arguments))
        most = max([every["memory"]] + [r["memory"] for r in every["rejected"]])
        limited = json.loads(self.plan(*arguments, "--memory", f"{(most - 1) // 1000000}MB"))
        self.assertTrue(any(not r["fits"] for r in limited["rejected"]), limited["rejected"])

    def test_nothing_fits(self):
        message = self.refuse(["--memory", "the least is"], "plan", "--model", "speech", "--partition", 2, "--speed", "10G",
                              "--memory", "1MB")  # fmt: skip
        self.assertIn("need less", message)


class Cache(PlanTest):
    def files_of_cache(self):
        return list((self.folder / "cache/distbelief").glob("layers-*.txt"))

    def test_layers_are_measured_once(self):
        first = self.plan(*QUICK, "--stages", 2)
        self.assertRegex(first, r"measured on this\s+machine")
        self.assertRegex(first, r"of\s+them\s+now")
        self.assertEqual(len(self.files_of_cache()), 1)
        again = self.plan(*QUICK, "--stages", 2)
        self.assertNotRegex(again, r"of\s+them\s+now")

    def test_a_broken_cache_is_a_note(self):
        self.plan(*QUICK, "--stages", 2)
        file = self.files_of_cache()[0]
        file.write_text("something else\n")
        text = self.plan(*QUICK, "--stages", 2)
        self.assertIn("note:", text)
        self.assertIn("measured anew", " ".join(text.split()))
        self.assertTrue(file.read_text().startswith("distbelief layer times"))

    def test_the_link_is_remembered(self):
        first = json.loads(self.plan(*QUICK, "--tensor", 2, "--speed", "10G", "--json"))
        again = json.loads(self.plan(*QUICK, "--tensor", 2, "--speed", "10G", "--json"))
        self.assertAlmostEqual(first["step_seconds"], again["step_seconds"], delta=1e-3 * first["step_seconds"])
        (file,) = (self.folder / "cache/distbelief").glob("link-*.txt")
        for text in ["", "distbelief link 1\n", "distbelief link 1\n0\n1\n", "distbelief link 1\n1\n1", "\x00" * 9]:
            file.write_text(text)
            self.assertIn("measured anew", " ".join(self.plan(*QUICK, "--tensor", 2, "--speed", "10G").split()))

    def test_a_cache_that_cannot_be_written_is_a_note(self):
        (self.folder / "cache").write_text("a file")
        text = self.plan(*QUICK, "--stages", 2)
        self.assertIn("not kept", " ".join(text.split()))

    def test_without_a_home_nothing_is_kept(self):
        text = self.plan(*QUICK, "--stages", 2, environment={"XDG_CACHE_HOME": "", "HOME": ""})
        self.assertIn("Step", text)


class Training(PlanTest):
    def test_a_saved_plan_is_what_trains(self):
        usual = ["--model", "mlp", "--model-options", "hidden=32,32", "--data", CLASSES, "--batch", 16]
        plan = json.loads(self.plan(*usual, "--stages", 2, "--tensor", 2, "--save", "plan.yaml", "--json"))
        self.succeed("train", "plan.yaml", "--epochs", 1, "--threads", 1, "--out", "a", "--transport", "threads")
        text = (self.folder / "a/run.yaml").read_text()
        for key, value in [("stages", 2), ("tensor", 2), ("stage-at", plan["stage_at"]), ("cuts", plan["cuts"])]:
            self.assertRegex(text, rf'(?m)^{key}: "?{re.escape(str(value))}"?$')


    def test_a_plan_is_measured_once_and_then_the_same(self):
        usual = ["--model", "mlp", "--model-options", "hidden=64,48", "--data", CLASSES, "--batch", 16, "--epochs", 1,
                 "--threads", 1, "--transport", "threads"]  # fmt: skip
        for cut in (["--partition", 4], ["--stages", 2]):
            cache = {"XDG_CACHE_HOME": str(self.folder / f"cache{cut[1]}")}
            first = self.succeed("train", *usual, *cut, "--out", f"first{cut[1]}", environment=cache)
            again = self.succeed("train", *usual, *cut, "--out", f"again{cut[1]}", environment=cache)
            self.assertEqual(first.count("plan    measures"), 1, first)
            self.assertNotIn("plan    measures", again)
            texts = [(self.folder / f"{name}{cut[1]}/run.yaml").read_text() for name in ("first", "again")]
            for key in ("stages", "tensor", "stage-at", "cuts", "micro-batches"):
                lines = [re.search(rf"(?m)^{key}: .*$", text)[0] for text in texts]
                self.assertEqual(*lines)
        self.assertRegex(texts[0], r"(?m)^micro-batches: [1-9]")

    def test_train_does_what_plan_shows(self):
        cache = {"XDG_CACHE_HOME": str(self.folder / "cache")}
        usual = ["--model", "mlp", "--model-options", "hidden=64,48", "--data", CLASSES, "--batch", 16, "--threads", 1,
                 "--partition", 2]  # fmt: skip
        plan = json.loads(self.plan(*usual, "--json"))
        self.succeed("train", *usual, "--epochs", 1, "--transport", "threads", "--out", "run", environment=cache)
        text = (self.folder / "run/run.yaml").read_text()
        for key, value in [("stages", plan["stages"]), ("tensor", plan["tensor"]), ("stage-at", plan["stage_at"]),
                           ("cuts", plan["cuts"])]:  # fmt: skip
            self.assertRegex(text, rf'(?m)^{key}: "?{re.escape(str(value))}"?$')


class BadInput(PlanTest):
    def test_table(self):
        for culprits, arguments in [
            (["--partition N"], []),
            (["--bandwidth fast", "10Gbit"], ["--partition", 2, "--bandwidth", "fast"]),
            (["--bandwidth 10", "10Gbit"], ["--partition", 2, "--bandwidth", "10"]),
            (["--latency 5", "50us"], ["--partition", 2, "--latency", "5"]),
            (["--latency -5us"], ["--partition", 2, "--latency=-5us"]),
            (["--memory lots", "2GB"], ["--partition", 2, "--memory", "lots"]),
            (["--speed nan", "50G"], ["--partition", 2, "--speed", "nan"]),
            (["--machines 6", "multiple of 4"], ["--partition", 4, "--machines", 6]),
            (["--machines 8", "--replicas 3"], ["--partition", 2, "--machines", 8, "--replicas", 3]),
            (["--machines", "'0'"], ["--machines", 0]),
            (["--partition 6", "--stages 4"], ["--partition", 6, "--stages", 4]),
            (["expected at most", "--stages 40"], ["--stages", 40]),
            (["--stage-at", "'hiden1'", "hidden1"], ["--stages", 2, "--stage-at", "hiden1"]),
            (["--speedup 1,x"], ["--speedup", "1,x"]),
            (["--save", "--data"], ["--partition", 2, "--speed", "1G", "--save", "a.yaml"]),
            (["--classes", "--input"], ["--partition", 2, "--classes", 3]),
            (["--input 3x"], ["--partition", 2, "--input", "3x"]),
            (["no option '--machine'", "--machines"], ["--machine", 2]),
            (["'mlpp'", "'mlp'"], ["--model", "mlpp", "--partition", 2]),
        ]:
            with self.subTest(arguments=arguments):
                model = [] if "--model" in arguments else ["--model", "mlp"]
                self.refuse(culprits, "plan", *model, *arguments)


if __name__ == "__main__":
    main()
