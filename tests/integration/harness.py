"""Runs the real daemon, workers and client over a tiny model, for tests.

    with harness.Scratch() as scratch:
        scratch.make_model("model", tied=True, dtype="bf16")
        scratch.make_data("train.jsonl", count=40, seed=1)
        daemon = scratch.daemon(devices="cpu:2")
        daemon.start()
        job = daemon.submit({"model_name_or_path": "model",
                             "dataset": "train.jsonl", "max_steps": 4})
        daemon.wait(job)            # the job's JSON; raises unless SUCCEEDED
        daemon.metrics(job)         # [{"step": 1, "loss": ...}, ...]
        daemon.tensors(job, step=4) # {"x.weight": (dtype, shape, bytes), ...}
        os.kill(daemon.worker("host"), signal.SIGKILL)
        daemon.kill()               # SIGKILL; then start() on the same state
        daemon.stop()               # SIGTERM; raises unless it exits 0

A test names its needs as Bazel data: //tests/integration:programs. All waits
have a deadline; what runs when a Scratch closes is killed.
"""

import array
import json
import math
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

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).absolute().parents[2]  # of the runfiles
# Sees what a daemon's event loop opens; absent where harness.py is used beside
# other programs than those of the tests.
LOOP_GUARD = ROOT / "tests/fakes/libloop_guard.so"
EOS = "<|end|>"
WORDS = ("one two three four five six seven eight nine ten plus minus is and "
         "day month kilometre gram").split()
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INNER = 32, 4, 2, 1, 16, 64
VOCABULARY = 280  # at most
EXPERTS, DENSE_LAYER = 4, 1  # of a mixture
DEADLINE_SECONDS = 120.0
# config.json of a family, beside what every tiny model has.
FAMILIES = {
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
              "attention_bias": False, "use_sliding_window": False},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
              "use_sliding_window": False},
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
              "attention_bias": False, "mlp_bias": False},
    "mistral": {"architectures": ["MistralForCausalLM"],
                "model_type": "mistral", "sliding_window": None},
    "qwen3_moe": {"architectures": ["Qwen3MoeForCausalLM"],
                  "model_type": "qwen3_moe", "num_experts": EXPERTS,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                  "norm_topk_prob": True, "mlp_only_layers": [DENSE_LAYER]},
    "qwen2_moe": {"architectures": ["Qwen2MoeForCausalLM"],
                  "model_type": "qwen2_moe", "num_experts": EXPERTS,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                  "shared_expert_intermediate_size": 40,
                  "mlp_only_layers": [DENSE_LAYER]},
    "mixtral": {"architectures": ["MixtralForCausalLM"],
                "model_type": "mixtral", "num_local_experts": EXPERTS,
                "num_experts_per_tok": 2, "sliding_window": None},
}


class Failure(Exception):
    """The program under test did not do what was asked, or not in time."""


# --- inputs ---

def mixture_shapes(family):
    inner = FAMILIES[family].get("moe_intermediate_size", INNER)
    shared = FAMILIES[family].get("shared_expert_intermediate_size", 0)
    module, *matrices = (
        ("block_sparse_moe", "w1", "w3", "w2") if family == "mixtral" else
        ("mlp", "gate_proj", "up_proj", "down_proj"))
    mlps = {f"experts.{expert}": inner for expert in range(EXPERTS)}
    shapes = {f"{module}.gate": [EXPERTS, HIDDEN]}
    if shared:
        mlps["shared_expert"] = shared
        shapes[f"{module}.shared_expert_gate"] = [1, HIDDEN]
    for name, width in mlps.items():
        for matrix, shape in zip(matrices, ([width, HIDDEN], [width, HIDDEN],
                                            [HIDDEN, width])):
            shapes[f"{module}.{name}.{matrix}"] = shape
    return shapes


def layer_shapes(family="qwen3", layer=0):
    experts = family == "mixtral" or (family.endswith("_moe") and
                                      layer != DENSE_LAYER)
    return {
        "input_layernorm": [HIDDEN],
        "self_attn.q_proj": [HEADS * HEAD_DIM, HIDDEN],
        "self_attn.k_proj": [KV_HEADS * HEAD_DIM, HIDDEN],
        "self_attn.v_proj": [KV_HEADS * HEAD_DIM, HIDDEN],
        "self_attn.o_proj": [HIDDEN, HEADS * HEAD_DIM],
        "self_attn.q_norm": [HEAD_DIM],
        "self_attn.k_norm": [HEAD_DIM],
        "post_attention_layernorm": [HIDDEN],
        **(mixture_shapes(family) if experts else
           {"mlp.gate_proj": [INNER, HIDDEN], "mlp.up_proj": [INNER, HIDDEN],
            "mlp.down_proj": [HIDDEN, INNER]}),
    }


def parameter_shapes(vocabulary, tied, family="qwen3"):
    """{name: shape} of every tensor of a model's files, in their order."""
    shapes = {"model.embed_tokens.weight": [vocabulary, HIDDEN]}
    for layer in range(LAYERS):
        for name, shape in layer_shapes(family, layer).items():
            path = f"model.layers.{layer}.{name}"
            if (family.startswith("qwen3")
                    or name[-6:] not in ("q_norm", "k_norm")):
                shapes[f"{path}.weight"] = shape
            if family.startswith("qwen2") and name[-6:] in ("q_proj", "k_proj",
                                                   "v_proj"):
                shapes[f"{path}.bias"] = shape[:1]
    shapes["model.norm.weight"] = [HIDDEN]
    if not tied:
        shapes["lm_head.weight"] = [vocabulary, HIDDEN]
    return shapes


def write_safetensors(path, tensors):
    """`tensors`: {name: (dtype, shape, bytes)}."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text
                     + b"".join(data for _, _, data in tensors.values()))


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    begin = 8 + size
    return {name: (tensor["dtype"], tensor["shape"],
                   data[begin + tensor["data_offsets"][0]:
                        begin + tensor["data_offsets"][1]])
            for name, tensor in header.items()}


def as_fp32(dtype, data):
    """The bytes of a tensor of "F32", "BF16" or "F16" as fp32; exact."""
    if dtype == "F32":
        return data
    if dtype == "F16":
        count = len(data) // 2
        return struct.pack(f"<{count}f", *struct.unpack(f"<{count}e", data))
    wide = bytearray(2 * len(data))
    wide[2::4], wide[3::4] = data[::2], data[1::2]
    return bytes(wide)


def random_values(shape, dtype, chosen, mean=None):
    """Norms near one, matrices near zero; never a plain constant, so that a
    wrong offset shows."""
    count = 1
    for size in shape:
        count *= size
    deviation = 0.1 if len(shape) == 1 else 0.08
    if mean is None:
        mean = 1.0 if len(shape) == 1 else 0.0
    values = array.array("f", (chosen.gauss(mean, deviation)
                               for _ in range(count)))
    if sys.byteorder != "little":
        values.byteswap()
    if dtype == "fp32":
        return "F32", values.tobytes()
    if dtype == "fp16":
        return "F16", struct.pack(f"<{count}e", *values)
    words = array.array("H", values.tobytes())  # low half first
    return "BF16", words[1::2].tobytes()


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        [" ".join(WORDS)] * 20,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=[EOS], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def make_model(folder, tied=False, dtype="fp32", seed=1, family="qwen3",
               **fields):
    """A Hugging Face directory of a tiny random model with its tokenizer;
    `fields` are more of config.json."""
    folder.mkdir(parents=True)
    tokenizer = make_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": EOS}))
    vocabulary = tokenizer.get_vocab_size()
    (folder / "config.json").write_text(json.dumps({
        "hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "max_position_embeddings": 128, "vocab_size": vocabulary,
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "attention_dropout": 0.0, "initializer_range": 0.02,
        "tie_word_embeddings": tied,
        "eos_token_id": tokenizer.token_to_id(EOS),
        "dtype": {"fp32": "float32", "bf16": "bfloat16",
                  "fp16": "float16"}[dtype], **FAMILIES[family], **fields}))
    chosen = random.Random(seed)
    tensors = {}
    for name, shape in parameter_shapes(vocabulary, tied, family).items():
        mean = 0.0 if name.endswith(".bias") else None
        file_dtype, data = random_values(shape, dtype, chosen, mean)
        tensors[name] = (file_dtype, shape, data)
    write_safetensors(folder / "model.safetensors", tensors)


def make_data(path, count, seed=1, words=(2, 12)):
    """`count` JSONL lines of `words` (from, to) random words each."""
    chosen = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            text = " ".join(chosen.choices(WORDS, k=chosen.randint(*words)))
            file.write(json.dumps({"text": text}) + "\n")


# --- processes ---

def remaining(deadline, what):
    """Seconds left until `deadline` (of time.monotonic)."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise Failure(f"{what}: not within its deadline")
    return left


def wait_until(condition, what, seconds=DEADLINE_SECONDS, pause=0.01):
    """Answers condition()'s first true value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        remaining(deadline, what)
        time.sleep(pause)
    return value


def children(pid):
    """{pid: command line} of a process's live children."""
    found = {}
    for tasks in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in map(int, tasks.read_text().split()):
                words = pathlib.Path(f"/proc/{child}/cmdline").read_bytes()
                if words:  # a dead child not yet reaped has none
                    found[child] = words.decode().split("\0")[:-1]
        except OSError:
            continue  # ended while we looked
    return found


def become(uid):
    """For Popen's preexec_fn: the program is another user's. Needs root."""
    def drop():
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    return drop


def open_the_way(path):
    """Everybody may pass through the folders above `path`, also where tests
    have a folder that is root's alone."""
    for folder in path.parents:
        if folder.stat().st_uid == 0 and folder != pathlib.Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)


def start_ticks(pid):
    """When a process started, in ticks since the machine did; inf: it is gone."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return math.inf
    return int(stat.rpartition(")")[2].split()[19])


class Daemon:
    """One roundhoused and its state directory; may be started again and again
    on it. Flags as on the command line, with underscores."""

    def __init__(self, folder, data_root, **flags):
        self.folder = folder
        self.state = folder / "state"
        self.socket = folder / "socket"
        self.log_path = folder / "daemon.log"
        self.opened_path = folder / "opened-by-loop"  # LOOP_GUARD's report
        self.process = None
        self.directories = {}  # of jobs
        self.file_limits = None  # (soft, hard) of descriptors, or as here
        self.environment = {}  # besides HOME and PATH
        self.prefix = []  # words before the program: another namespace
        self.flags = {"devices": "cpu:2", "device_threads": 1,
                      "device_memory": "256MiB", "host_memory": "256MiB",
                      "metrics_listen": "", **flags}
        self.fixed = {"state_dir": self.state, "data_root": data_root,
                      "listen": f"unix:{self.socket}",
                      "worker_program": ROOT / "worker/roundhouse-worker",
                      "prepare_script": ROOT / "server/prepare/prepare.py",
                      "python": sys.executable}

    # Life.

    def start(self, **flags):
        """`flags` hold for this start only (kill points). Answers when the
        daemon takes calls."""
        self.launch(**flags)
        wait_until(lambda: self.ended() or self.serves(), "daemon start")
        if self.ended():
            raise Failure(f"daemon exited {self.process.returncode} while "
                          f"starting:\n{self.tail()}")

    def launch(self, **flags):
        """Only begins to start: for a daemon that may die at once."""
        assert self.ended()
        self.socket.unlink(missing_ok=True)
        words = [f"--{key.replace('_', '-')}={value}" for key, value in
                 {**self.flags, **self.fixed, **flags}.items()]
        environment = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin",
                       **self.environment}
        if LOOP_GUARD.exists():
            environment["ROUNDHOUSE_LOOP_GUARD"] = str(self.opened_path)
            environment["LD_PRELOAD"] = " ".join(filter(None, [
                str(LOOP_GUARD.resolve()), environment.get("LD_PRELOAD")]))
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, ROOT / "server/roundhoused", *words], stdout=log,
                stderr=log, stdin=subprocess.DEVNULL,
                env=environment, preexec_fn=self.limit_files)

    def limit_files(self):
        if self.file_limits is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, self.file_limits)

    def opened(self):
        """What the event loop's thread opened, a line a call; "": nothing."""
        return (self.opened_path.read_text(errors="replace")
                if self.opened_path.exists() else "")

    def ended(self):
        """Also before the first start."""
        return self.process is None or self.process.poll() is not None

    def serves(self):
        return (self.socket.exists() and
                self.client("list", check=False).returncode == 0)

    def kill(self):
        """SIGKILL of the daemon; its workers die with it."""
        self.process.kill()
        self.process.wait(DEADLINE_SECONDS)

    def stop(self):
        """SIGTERM; raises unless it exits 0 in time."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(DEADLINE_SECONDS)
        if status != 0:
            raise Failure(f"daemon exited {status} after SIGTERM:\n"
                          f"{self.tail()}")

    def workers(self):
        """{"0": pid, ..., "host": pid, "files": pid, "nursery": pid} of those
        alive."""
        found = {}
        # A process that was just forked shows its nursery's arguments, until it
        # has its own: the older of two is the nursery.
        for pid, words in sorted(children(self.process.pid).items(),
                                 key=lambda child: -start_ticks(child[0])):
            flags = dict(word[2:].split("=", 1) for word in words
                         if word.startswith("--") and "=" in word)
            if "role" in flags:
                device = flags["role"] == "device"
                found[flags["index"] if device else flags["role"]] = pid
        return found

    def worker(self, name):
        """The pid of one of workers(), once it is there."""
        return wait_until(lambda: self.workers().get(name), f"worker {name}")

    def killed_workers(self):
        """The numbers of workers that SIGKILL ended, in order. The pool tells
        each once; others, such as a group of peers, repeat its words."""
        return re.findall(
            r"process_lives\.cc:\d+ (?:device|host|files) worker (\d+) "
            "killed by signal 9", self.log_path.read_text())

    def tail(self, lines=40):
        text = self.log_path.read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def let_everybody_in(self):
        """Other users of this machine may open the socket."""
        open_the_way(self.socket)
        self.socket.chmod(0o666)

    # Jobs, through the client.

    def client(self, *words, check=True, seconds=DEADLINE_SECONDS):
        try:
            done = subprocess.run(
                [ROOT / "client/roundhouse", f"--server=unix:{self.socket}",
                 *map(str, words)], capture_output=True, text=True,
                check=False, timeout=seconds, stdin=subprocess.DEVNULL,
                env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"})
        except subprocess.TimeoutExpired as error:
            raise Failure(f"{words}: no end in {seconds} s\n"
                          f"{self.tail()}") from error
        if check and done.returncode != 0:
            raise Failure(f"{words}: exit status {done.returncode}\n"
                          f"{done.stderr}\n{self.tail()}")
        return done

    def submit(self, spec):
        """`spec`: the job file's text, or a dict of its fields. Answers the
        job's id."""
        text = spec if isinstance(spec, str) else json.dumps(spec)
        path = self.folder / "job.yaml"
        path.write_text(text)
        done = self.client("submit", "-f", path, "-o", "json")
        made = json.loads(done.stdout)
        job = made["name"].rsplit("/", 1)[1]
        self.directories[job] = self.state / "jobs" / made["uid"]
        return job

    def job(self, job):
        return json.loads(self.client("get", job, "-o", "json").stdout)

    def wait(self, job, state="SUCCEEDED", seconds=DEADLINE_SECONDS):
        """The job's JSON when it has ended; raises unless in `state`."""
        self.client("watch", job, check=False, seconds=seconds)
        found = self.job(job)
        if found["state"] != state:
            raise Failure(f"{job} is {found['state']}: "
                          f"{found.get('message')}\n{self.log(job)}\n"
                          f"{self.tail()}")
        return found

    def finish(self, job):
        """The job's JSON after an early end. For jobs with so many steps that
        they run until they are told: that is certain on any machine."""
        wait_until(lambda: self.job(job)["state"] == "RUNNING",
                   f"{job} RUNNING")
        self.client("finish", job)
        return self.wait(job)

    # A job's files. Each takes a job's id; no daemon needs to run for one that
    # submit() made.

    def directory(self, job):
        if job not in self.directories:
            self.directories[job] = (self.state / "jobs" /
                                     self.job(job)["uid"])
        return self.directories[job]

    def log(self, job):
        path = self.directory(job) / "log"
        return path.read_text() if path.exists() else ""

    def metrics(self, job):
        """Entries of metrics.jsonl; a line being written is left out."""
        path = self.directory(job) / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True)
                if line.endswith("\n")]

    def checkpoint(self, job, step):
        return self.directory(job) / f"checkpoint-{step}"

    def checkpoints(self, job):
        """Steps of those that are whole, ascending."""
        return sorted(int(path.name.split("-")[1]) for path in
                      self.directory(job).glob("checkpoint-*")
                      if path.name.split("-")[1].isdigit())

    def tensors(self, job, step):
        """Every tensor of a checkpoint: compute weights "x", and "x.master",
        "x.exp_avg", "x.exp_avg_sq"."""
        found = {}
        for path in sorted(self.checkpoint(job, step).glob("*.safetensors")):
            found.update(read_safetensors(path))
        return found


class Scratch:
    """A folder under /tmp, or ROUNDHOUSE_SCRATCH, (a socket's path must be
    short) with the inputs, which is the data root, and the daemons of a
    test."""

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(
            prefix="rh", dir=os.environ.get("ROUNDHOUSE_SCRATCH", "/tmp")))
        self.data = self.folder / "data"
        self.data.mkdir()
        self.daemons = []
        return self

    def __exit__(self, kind=None, *_):
        for daemon in self.daemons:
            if not daemon.ended():
                daemon.kill()
        opened = "".join(daemon.opened() for daemon in self.daemons)
        shutil.rmtree(self.folder, ignore_errors=True)
        if opened and kind is None:
            raise Failure("the event loop's thread opened files "
                          f"(tests/fakes/loop_guard.cc):\n{opened}")

    def make_model(self, name, **options):
        make_model(self.data / name, **options)

    def give_template(self, model, template):
        """A chat template, to one of these models."""
        (self.data / model / "tokenizer_config.json").write_text(
            json.dumps({"eos_token": EOS, "chat_template": template}))

    def make_data(self, name, count, **options):
        make_data(self.data / name, count, **options)

    def fake_worker(self, costs, *flags):
        """A worker program that takes the times of `costs` (a CSV text, in
        milliseconds) and computes nothing: tests/fakes/fake_worker.cc."""
        path = self.folder / "costs.csv"
        path.write_text(costs)
        script = self.folder / "worker.sh"
        program = ROOT / "tests/fakes/fake_worker"
        script.write_text(f'#!/bin/sh\nexec "{program}" "--costs={path}" '
                          f'{" ".join(flags)} "$@"\n')
        script.chmod(0o700)
        return script

    def daemon(self, **flags):
        folder = self.folder / f"d{len(self.daemons)}"
        folder.mkdir()
        self.daemons.append(Daemon(folder, self.data, **flags))
        return self.daemons[-1]
