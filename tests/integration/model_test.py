"""`roundhouse model` through the real daemon and client."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

JOB = {"model_name_or_path": "family/model", "dataset": "train.jsonl",
       "max_length": 32, "batch_size": 4, "max_steps": 1}


class ModelTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("family/model", dtype="bf16")
        self.scratch.make_data("train.jsonl", count=8)
        self.daemon = self.scratch.daemon()
        self.daemon.start()

    def models(self):
        """{name: model} of the list."""
        listed = json.loads(
            self.daemon.client("model", "list", "-o", "json").stdout)
        self.assertFalse(listed["truncated"])
        return {model["name"]: model for model in listed["models"]}

    def show(self, name):
        return json.loads(self.daemon.client(
            "model", "show", name, "-o", "json").stdout)

    def test_directories_and_results_of_jobs(self):
        path = self.scratch.data / "family/model"
        broken = self.scratch.data / "broken"
        broken.mkdir()
        (broken / "config.json").write_text("{}")
        for fields in ({"output_name": "whole"}, {"method": "lora"}):
            self.daemon.wait(self.daemon.submit({**JOB, **fields}))
        models = self.models()
        self.assertEqual(list(models), ["job:job-2", "job:whole", str(broken),
                                        str(path)])
        tensors = harness.read_safetensors(path / "model.safetensors")
        size = sum(len(data) for _, _, data in tensors.values())
        model = models[str(path)]
        self.assertEqual(
            (model["family"], model["dtype"], model["bytes"],
             model["parameters"]), ("qwen3", "bf16", size, size // 2))
        self.assertIn("config.json", models[str(broken)]["problem"])
        self.assertEqual(models["job:whole"]["parameters"], size // 2)
        self.assertTrue(models["job:job-2"]["adapter"])
        self.assertEqual(models["job:job-2"]["base_model"], str(path))
        self.assertEqual(self.show("family/model"),
                         {**model, "name": "family/model"})
        self.assertEqual(self.show("job:whole"), models["job:whole"])
        text = self.daemon.client("model", "list").stdout
        self.assertIn("qwen3", text)
        self.assertRegex(text, rf"(?m)^{broken} is not usable: config\.json: ")
        self.assertIn("docs/models.md says which", text)

    def test_the_dtype_is_that_of_the_files(self):
        path = self.scratch.data / "family/model/config.json"
        for said in ("float32", "float16"):
            path.write_text(json.dumps({**json.loads(path.read_text()),
                                        "dtype": said}))
            self.assertEqual(self.show("family/model")["dtype"], "bf16")

    def test_what_fits_is_what_a_job_may_take(self):
        model = self.show("family/model")
        self.assertTrue(model["full"]["fits"] and model["lora"]["fits"])
        self.assertGreater(model["full"]["host_bytes"],
                           model["lora"]["host_bytes"])
        path = self.scratch.folder / "job.json"
        for method in ("full", "lora"):
            path.write_text(json.dumps({
                "model_name_or_path": "family/model", "dataset": "train.jsonl",
                "method": method, "max_length": 128}))
            needs = json.loads(self.daemon.client(
                "submit", "-f", path, "--dry-run", "-o", "json").stdout)
            needs = needs["needs"]
            self.assertEqual(
                model[method]["host_bytes"],
                needs["host_base_bytes"] + needs["host_state_bytes"] +
                needs["host_buffer_bytes"] + needs["host_table_bytes"])
        self.daemon.stop()
        self.daemon.start(host_memory="1MiB")
        least = self.show("family/model")["full"]["host_bytes"]
        self.assertLessEqual(least, model["full"]["host_bytes"])
        self.daemon.stop()
        self.daemon.start(host_memory=str(least - 1))
        model = self.show("family/model")
        self.assertFalse(model["full"]["fits"])
        self.assertIn("of host memory, the limit is",
                      model["full"]["problem"])
        self.assertTrue(model["lora"]["fits"])

    def test_no_such_model(self):
        for name, part in (("nothing", "nothing"), ("job:none", "no job"),
                           ("../outside", "../outside")):
            done = self.daemon.client("model", "show", name, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(part, done.stderr)


if __name__ == "__main__":
    unittest.main()
