"""Models named by their ids on the hub, from a made-up Hugging Face cache."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

EXIT_ERROR = 1
ID, FOLDER = "Org/Tiny-0.1M", "models--Org--Tiny-0.1M"
REVISION = "0123456789abcdef0123456789abcdef01234567"
JOB = {"model_name_or_path": ID, "dataset": "train.jsonl", "max_length": 32,
       "batch_size": 4, "micro_batch_size": 2, "max_steps": 2,
       "learning_rate": 0.01}


class HubTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_data("train.jsonl", count=12)
        self.cache = self.scratch.folder / "hub"
        self.snapshot = self.cache / FOLDER / "snapshots" / REVISION
        self.daemon = self.scratch.daemon(hf_cache=self.cache)

    def fill_cache(self):
        """As `hf download` leaves it: files are links to blobs."""
        harness.make_model(self.snapshot)
        blobs = self.cache / FOLDER / "blobs"
        blobs.mkdir()
        for number, path in enumerate(sorted(self.snapshot.iterdir())):
            path.rename(blobs / f"{number:040}")
            path.symlink_to(f"../../blobs/{number:040}")
        (self.cache / FOLDER / "refs").mkdir()
        (self.cache / FOLDER / "refs/main").write_text(REVISION)

    def refused(self, *parts, **fields):
        path = self.scratch.folder / "job.yaml"
        path.write_text(json.dumps({**JOB, **fields}))
        done = self.daemon.client("submit", "-f", path, check=False)
        self.assertEqual(done.returncode, EXIT_ERROR, done.stderr)
        for part in parts:
            self.assertIn(str(part), done.stderr)

    def test_a_job_on_an_id_and_one_on_its_resolved_spec(self):
        self.fill_cache()
        self.daemon.start()
        job = self.daemon.submit(JOB)
        found = self.daemon.wait(job)
        self.assertEqual(found["resolved_spec"]["model_name_or_path"],
                         str(self.snapshot))
        output = pathlib.Path(found["output_path"])
        self.assertEqual([path for path in output.iterdir()
                          if path.is_symlink()], [])
        again = self.daemon.submit(json.dumps(found["resolved_spec"]))
        self.daemon.wait(again)
        self.assertEqual(self.daemon.tensors(job, 2),
                         self.daemon.tensors(again, 2))
        done = self.daemon.client("dataset", "validate", "train.jsonl",
                                  "--model", ID, "--max-length=32", "-o",
                                  "json")
        self.assertEqual(json.loads(done.stdout)["sequences"], 12)

    def test_an_adapter_on_an_id_is_merged(self):
        self.fill_cache()
        self.daemon.start()
        job = self.daemon.wait(self.daemon.submit(
            {**JOB, "method": "lora", "lora_r": 2}))
        config = (pathlib.Path(job["output_path"]) / "adapter_config.json")
        text = json.loads(config.read_text())
        saved = json.loads((self.daemon.checkpoint("job-1", 2) /
                            "adapter_config.json").read_text())
        for said in (text, saved):
            self.assertEqual((said["base_model_name_or_path"],
                              said["revision"]), (ID, REVISION))
        # Its base is that revision, whatever main is now.
        main = self.cache / FOLDER / "refs/main"
        main.write_text("f" * 40)
        self.daemon.client("export", "job-1", "--merge", "--output=one")
        main.write_text(REVISION)
        # As other tools and older jobs have it.
        text["base_model_name_or_path"] = str(self.snapshot)
        text["revision"] = None
        config.write_text(json.dumps(text))
        self.daemon.client("export", "job-1", "--merge", "--output=two")
        outputs = self.daemon.state / "outputs"
        # Beside the model's files, whose export it is.
        names = {path.name for path in (outputs / "one").iterdir()}
        names.remove("roundhouse.json")
        self.assertEqual(names, {path.name
                                 for path in self.snapshot.iterdir()})
        for name in names:
            self.assertEqual((outputs / "one" / name).read_bytes(),
                             (outputs / "two" / name).read_bytes(), name)

    def sample(self, model):
        done = self.daemon.client("sample", model, "-pone two", "-o", "json")
        return json.loads(done.stdout)["samples"]

    def test_samples_of_an_id_and_of_an_adapter_on_it(self):
        self.fill_cache()
        self.daemon.start()
        job = self.daemon.wait(self.daemon.submit(
            {**JOB, "method": "lora", "lora_r": 2, "max_steps": 20}))
        base, adapted = self.sample(ID), self.sample("job-1")
        self.assertNotEqual(base, adapted)
        config = pathlib.Path(job["output_path"]) / "adapter_config.json"
        text = json.loads(config.read_text())
        text["revision"] = None  # main, then
        config.write_text(json.dumps(text))
        self.assertEqual(self.sample("job-1"), adapted)

    def test_an_adapter_goes_on_without_a_warning_of_its_base(self):
        self.fill_cache()
        self.daemon.start()
        first = self.daemon.submit({**JOB, "method": "lora", "lora_r": 2})
        self.daemon.wait(first)
        second = self.daemon.submit({**JOB, "method": "lora",
                                     "adapter_name_or_path": f"job:{first}"})
        self.daemon.wait(second)
        self.assertNotIn("made for the base model", self.daemon.log(second))

    def test_a_plan_needs_the_configuration_alone(self):
        self.fill_cache()
        weights = self.snapshot / "model.safetensors"
        weights.unlink()
        weights.symlink_to("../../blobs/none")
        self.daemon.start()
        plan = ("plan", "--devices=1xrtx4090", "--model")
        self.daemon.client(*plan, ID)
        self.refused("lacks models--Org--Tiny-0.1M/snapshots/" + REVISION +
                     "/model.safetensors (a link to nothing: its download has "
                     "not ended); the server downloads nothing by itself: "
                     f"roundhouse model pull {ID} fetches it where there is "
                     "a hub, else get it on the server, as the daemon's "
                     "user: "
                     f"hf download {ID} --cache-dir")
        done = self.daemon.client(*plan, "Org/Other", check=False)
        self.assertIn("as the daemon's user: hf download Org/Other config.json "
                      "--cache-dir", done.stderr)

    def test_models_of_the_cache_are_listed(self):
        self.fill_cache()
        (self.cache / "models--Org--Half/snapshots").mkdir(parents=True)
        (self.cache / "datasets--Org--Other").mkdir()
        self.daemon.start()
        listed = json.loads(self.daemon.client(
            "model", "list", "-o", "json").stdout)["models"]
        self.assertEqual([model["name"] for model in listed],
                         ["Org/Half", ID])
        half, whole = listed
        self.assertIn("lacks models--Org--Half/refs/main;", half["problem"])
        self.assertEqual((whole["path"], whole["problem"]),
                         (str(self.snapshot), ""))
        shown = json.loads(self.daemon.client(
            "model", "show", ID, "-o", "json").stdout)
        self.assertEqual(shown, whole)

    def test_what_is_not_there_is_told(self):
        self.daemon.start()
        self.refused(f'model_name_or_path: "{ID}" does not exist under the data roots',
                     f"the Hugging Face cache {self.cache} lacks it",
                     f"hf download {ID} --cache-dir {self.cache}")
        self.fill_cache()
        self.refused('"Org/Other" does not exist', "hf download Org/Other",
                     model_name_or_path="Org/Other")
        (self.snapshot / "model.safetensors").unlink()
        self.refused(self.snapshot, "model.safetensors", "is there")

    def test_no_link_leads_out(self):
        self.fill_cache()
        secret = self.scratch.folder / "secret.json"
        secret.write_text("{}")
        path = self.snapshot / "tokenizer_config.json"
        path.unlink()
        path.symlink_to(secret)
        self.daemon.start()
        for name in (ID, str(self.snapshot)):
            self.refused(f"model_name_or_path: {path}: leads out of the cache",
                         model_name_or_path=name)

    def test_a_directory_under_a_data_root_comes_first(self):
        self.fill_cache()
        self.scratch.make_model(ID, seed=2)
        self.daemon.start()
        found = self.daemon.wait(self.daemon.submit(JOB))
        self.assertEqual(found["resolved_spec"]["model_name_or_path"],
                         str(self.scratch.data / ID))


if __name__ == "__main__":
    unittest.main()
