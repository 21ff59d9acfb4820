"""What the tests of the dataset helper share: small tokenizers, chat
templates of each family, and a case that runs the helper and reads back what
it wrote."""

import array
import contextlib
import hashlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

from tokenizers import (Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

HERE = pathlib.Path(__file__).parent
PREPARE = HERE / "prepare.py"
sys.path.insert(0, str(HERE))
import prepare  # noqa: E402  found by the line before

EOS, BOS = "<|end|>", "<|begin|>"
WORDS = "one two three four five six seven eight nine ten plus is".split()
CODES = {"tokens.u32": "I", "labels.u8": "B", "offsets.u64": "Q",
         "lines.u32": "I", "rows.u64": "Q"}

CHATML = """\
{% if tools %}<|im_start|>system
Tools: {{ tools | tojson }}<|im_end|>
{% endif %}
{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif -%}
<|im_end|>
{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

LLAMA3 = """\
{{ bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
{{- message.content | trim + '<|eot_id|>' }}
{%- endfor %}"""

MISTRAL = """\
{{ bos_token }}
{%- for message in messages %}
{%- if message.role == 'user' %}{{ '[INST] ' + message.content + '[/INST]' }}
{%- elif message.role == 'tool' %}
{{- '[TOOL_RESULTS] ' + message.content + '[/TOOL_RESULTS]' }}
{%- elif message.role == 'assistant' %}
{{- ' ' + message.content + eos_token }}
{%- else %}{{ raise_exception('no role ' + message.role + ' here') }}
{%- endif %}
{%- endfor %}"""

# Markers of no family, and marks of its own.
MARKED = """\
{% for message in messages %}
{%- if message.role == 'assistant' %}
{{- 'A:\n' }}
{%- generation %}{{ message.content }}<|end|>{% endgeneration %}
{%- else %}
{{- 'U:' + message.content + '\n' }}
{%- endif %}
{%- endfor %}"""


def byte_level(special):
    """A byte-level BPE as of Qwen, Llama 3 and GPT."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        [" ".join(WORDS), " one"] * 20,
        trainers.BpeTrainer(
            vocab_size=400, special_tokens=special, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def sentence_piece():
    """A BPE over characters with byte fallback, spaces as U+2581, as of Llama
    2 and Mistral."""
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_RESULTS]",
               "[/TOOL_RESULTS]"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(),
         decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.train_from_iterator(
        [" ".join(WORDS)] * 20,
        trainers.BpeTrainer(
            vocab_size=400, show_progress=False, special_tokens=special +
            [f"<0x{byte:02X}>" for byte in range(256)]))
    # Bytes are ordinary tokens.
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = state["added_tokens"][:len(special)]
    return Tokenizer.from_str(json.dumps(state))


def add_post_processor(tokenizer, begin, end=None):
    """Begins (and ends) each text with a token, and cuts spaces off the
    offsets, as Llama 3's does."""
    special = [(token, tokenizer.token_to_id(token))
               for token in (begin, end) if token]
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=True),
         processors.TemplateProcessing(
             single=f"{begin} $A {end or ''}".strip(),
             special_tokens=special)])


def save_tokenizer(folder, tokenizer, **config):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def make_tokenizer(folder, post_processor=False, files=True):
    tokenizer = byte_level([EOS, BOS])
    if post_processor:
        add_post_processor(tokenizer, BOS, EOS)
    save_tokenizer(folder, tokenizer, eos_token=EOS)
    if not files:
        (folder / "tokenizer_config.json").unlink()
    return tokenizer


def make_chatml(folder, template=CHATML):
    tokenizer = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    save_tokenizer(folder, tokenizer, eos_token="<|im_end|>",
                   chat_template=template)
    return tokenizer


def make_llama3(folder, template=LLAMA3):
    tokenizer = byte_level(["<|begin_of_text|>", "<|end_of_text|>",
                            "<|start_header_id|>", "<|end_header_id|>",
                            "<|eot_id|>"])
    add_post_processor(tokenizer, "<|begin_of_text|>")
    save_tokenizer(folder, tokenizer, bos_token="<|begin_of_text|>",
                   eos_token="<|eot_id|>", chat_template=template)
    return tokenizer


def make_mistral(folder, template=MISTRAL):
    tokenizer = sentence_piece()
    save_tokenizer(folder, tokenizer, bos_token="<s>",
                   eos_token={"content": "</s>"}, chat_template=template)
    return tokenizer


class PrepareTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(
            dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.model = self.folder / "model"
        self.tokenizer = self.make_model()
        self.eos = self.tokenizer.token_to_id(EOS)

    def make_model(self):
        return make_tokenizer(self.model)

    def write(self, *rows, name="data.jsonl"):
        """Rows are bytes (raw lines) or objects."""
        path = self.folder / name
        path.write_bytes(b"".join(
            row if isinstance(row, bytes) else
            json.dumps(row, ensure_ascii=False).encode() + b"\n"
            for row in rows))
        return path

    def start(self, *arguments, stdin=""):
        """Runs the helper here: its status, standard output and error."""
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(errors), \
                mock.patch.object(sys, "stdin", io.StringIO(stdin)):
            try:
                status = prepare.main(list(map(str, arguments)))
            except SystemExit as end:
                status = end.code
        return Done(status, out.getvalue(), errors.getvalue())

    def prepare(self, data, *more, max_length=64, out="out",
                split="train"):
        return self.start("--tokenizer", self.model, "--data", data, "--out",
                          self.folder / out, "--max-length", max_length,
                          "--split", split, *more)

    def prepared(self, *rows, out="out", more=(), **kwargs):
        done = self.prepare(self.write(*rows, name=out + ".jsonl"), *more,
                            out=out, **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return self.load(out)

    def load(self, out="out"):
        """The manifest, the sequences as (ids, labels), and their lines."""
        folder = self.folder / out
        manifest = json.loads((folder / "manifest.json").read_text())
        values = {name: self.values(folder, name, manifest)
                  for name in manifest["files"]}
        self.assertEqual({*values, "manifest.json"},
                         {path.name for path in folder.iterdir()})
        offsets = values["offsets.u64"]
        sequences = [(values["tokens.u32"][a:b], values["labels.u8"][a:b])
                     for a, b in zip(offsets, offsets[1:])]
        self.assertEqual(offsets[0], 0)
        self.assertEqual(offsets[-1], len(values["tokens.u32"]))
        self.assertEqual(len(sequences), manifest["sequences"])
        self.assertEqual(manifest["tokens"], offsets[-1])
        self.assertEqual(manifest["target_tokens"],
                         sum(values["labels.u8"]))
        return manifest, sequences, values["lines.u32"]

    def values(self, folder, name, manifest):
        data = (folder / name).read_bytes()
        self.assertEqual(manifest["files"][name], {
            "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)})
        return list(array.array(CODES[name], data))

    def error(self, *rows, max_length=64, more=()):
        done = self.prepare(self.write(*rows), *more, max_length=max_length)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertFalse((self.folder / "out" / "manifest.json").exists())
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        return json.loads(lines[0])

    def assert_error(self, rows, line, message):
        found = self.error(*rows)
        self.assertEqual(found["file"], str(self.folder / "data.jsonl"))
        self.assertEqual(found.get("line"), line)
        self.assertIn(message, found["error"])

    def report(self, mode, *rows, more=()):
        """What --validate or --preview N says last."""
        done = self.start("--tokenizer", self.model, "--data",
                          self.write(*rows), "--max-length", 64, *mode, *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def ids(self, text):
        return self.tokenizer.encode(text).ids


class Done:
    def __init__(self, returncode, stdout, stderr):
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr
