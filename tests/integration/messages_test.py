"""messages.txt: wrong inputs and the exact text that each gives.

An entry is its title ("== ..."), a command ("$ ..."), the job file's lines
after those that every job has ("| ..."; "|! ..." makes a file of these lines
alone), lines of data files ("<NAME ..."; NAME.utf16 is written in UTF-16), and
what the client writes. DATA (the data root), CACHE (the hub's) and STATE (the
daemon's state directory) stand for the paths of the run. Where the texts
differ, the file as it would be lies in the test's undeclared outputs."""

import json
import os
import pathlib
import re
import shlex
import sys
import unittest

import pyarrow
from pyarrow import parquet

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness

LIST = pathlib.Path(__file__).absolute().parent / "messages.txt"
FEWEST = 131
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role not in ('system', 'user', 'assistant', 'tool') %}"
    "{{ raise_exception('roles are system, user, assistant and tool') }}"
    "{% endif %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    "{{ call.function.arguments | tojson }}{% endfor %}"
    "<|im_end|>\n{% endfor %}")
JOB = "model_name_or_path: model\ndataset: train.jsonl\nmax_steps: 2\n"


class Entry:
    """One of the list; `given` are the lines that the test reads."""

    def __init__(self, block):
        lines = block.splitlines()
        count = next((i for i, line in enumerate(lines)
                      if line[:2] not in ("==", "$ ", "| ", "|!", "|")
                      and line[:1] != "<"), len(lines))
        self.given, self.told = lines[:count], lines[count:]
        self.title = self.given[0].removeprefix("== ")
        self.words = shlex.split(self.given[1].removeprefix("$ "))
        own = [line for line in self.given[2:] if line.startswith("|!")]
        more = [line[2:] for line in self.given[2:]
                if line[:1] == "|" and not line.startswith("|!")]
        self.job = ("\n".join(line[3:] for line in own) if own
                    else JOB + "\n".join(more)) + "\n"
        self.files = {}
        for line in self.given[2:]:
            if match := re.match(r"<(\S+) ?(.*)", line):
                self.files.setdefault(match[1], []).append(match[2] + "\n")

    def write_files(self, folder):
        for name, lines in self.files.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            utf16 = name.endswith(".utf16")
            path.write_text("".join(lines) if lines != ["\n"] else "",
                            encoding="utf-16" if utf16 else "utf-8")


def entries():
    text = LIST.read_text(encoding="utf-8")
    blocks = ["== " + block for block in text.split("\n== ")]
    head, *rest = blocks
    return head.removeprefix("== "), [Entry(block) for block in rest]


class MessagesTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        data = self.scratch.data
        self.scratch.make_model("model")
        self.scratch.make_data("train.jsonl", count=40)
        (data / "models").mkdir()
        (data / "adapter").mkdir()
        (data / "adapter/adapter_config.json").write_text("{}")
        self.make_chat_models()
        self.make_pointers()
        parquet.write_table(pyarrow.table({"title": ["a"], "body": ["b"]}),
                            data / "titles.parquet")
        (data / "packed.zip").write_bytes(b"PK\x03\x04" + bytes(40))
        outside = self.scratch.folder / "outside.jsonl"
        outside.write_text('{"text": "a"}\n')
        (data / "link.jsonl").symlink_to(outside)
        self.names = {}  # and how many texts have each
        self.cache = self.scratch.folder / "hub"
        self.cache.mkdir()
        self.daemon = self.scratch.daemon(hf_cache=self.cache)
        self.daemon.start()
        self.daemon.wait(self.daemon.submit(
            JOB + "save_steps: 0\noutput_name: first\n"))

    def make_pointers(self):
        """What git-lfs leaves of a model that it has not downloaded."""
        pointer = ("version https://git-lfs.github.com/spec/v1\noid sha256:" +
                   64 * "0" + "\nsize 988097824\n")
        for name, file in (("weights", "model.safetensors"),
                           ("config", "config.json"),
                           ("template", "chat_template.jinja")):
            self.scratch.make_model(f"pointers/{name}")
            path = self.scratch.data / "pointers" / name / file
            path.write_text(pointer)

    def make_chat_models(self):
        """"chat" has a template; "small" has fewer rows than tokens too."""
        size = harness.make_tokenizer().get_vocab_size()
        for name in ("chat", "small"):
            self.scratch.make_model(name)
            self.scratch.give_template(name, TEMPLATE)
        path = self.scratch.data / "small/config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, "vocab_size": size - 1}))

    def told(self, entry):
        entry.write_files(self.scratch.data)
        folder = self.daemon.folder
        (folder / "job.yaml").write_text(entry.job, encoding="utf-8")
        words = [word.replace("JOB", str(folder / "job.yaml"))
                 for word in entry.words]
        done = self.daemon.client(*words, check=False)
        self.assertNotEqual(done.returncode, 0, entry.title)
        text = done.stdout + done.stderr
        for name, path in (("job.yaml", folder / "job.yaml"),
                           ("STATE", self.daemon.state),
                           ("CACHE", self.cache), ("DATA", self.scratch.data)):
            self.names[name] = self.names.get(name, 0) + text.count(str(path))
            text = text.replace(str(path), name)
        return text.splitlines()

    def test_each_input_gives_its_text(self):
        head, found = entries()
        self.assertGreaterEqual(len(found), FEWEST)
        titles = [entry.title for entry in found]
        self.assertEqual(len(set(titles)), len(titles))
        now = [head.rstrip("\n")]
        for entry in found:
            told = self.told(entry)
            now.append("\n".join(entry.given + told).rstrip("\n"))
        self.assertTrue(all(self.names.values()), self.names)
        outputs = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR")
        text = "\n\n".join(now) + "\n"
        if outputs:
            (pathlib.Path(outputs) / "messages.txt").write_text(text)
        self.assertEqual(text.splitlines(),
                         LIST.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    unittest.main()
