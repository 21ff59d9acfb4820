"""A soak: jobs of several kinds, one after the other and together, on a small
disk, while something goes wrong every few seconds, at random.

What goes wrong: SIGKILL of each kind of process and of the daemon, a full disk,
damage to checkpoints and prepared data at rest, workers that are stopped for a
while, clients that are killed within what they ask for. Every job must end
SUCCEEDED with the weights, losses and exports of its kind's undisturbed run,
byte for byte. The daemon's last life sees all but its own end; when its jobs
are over it must hold what it held after its first ones.

ROUNDHOUSE_SOAK_SECONDS: how long (25). ROUNDHOUSE_SEED: of what goes wrong, and
when. All of it, outside of a build, in the test's runfiles:

    ROUNDHOUSE_SOAK_SECONDS=1800 PYTHON -B tests/long/soak_test.py
"""

import collections
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness

SECONDS = int(os.environ.get("ROUNDHOUSE_SOAK_SECONDS", "25"))
SEED = int(os.environ.get("ROUNDHOUSE_SEED", "1"))
FULL = SECONDS >= 120
PAUSE = 5.0 if FULL else 1.5  # between two disturbances
STEPS, SAVE_STEPS = (300, 15) if FULL else (60, 6)
LIVE = 4  # jobs that have not ended; two of them run
LAST_LIFE = 0.4  # of the time
DISK = "160m"
# No change of state or step for so long is a job that is stuck. Stopped workers
# are killed after 30 s, and a full disk is tried again after up to a minute.
STUCK_SECONDS = 240
DRAIN_SECONDS = 400
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]
IN_NAMESPACE = "ROUNDHOUSE_TEST_MOUNTS"

JOB = {"model_name_or_path": "model", "dataset": "train.jsonl",
       "max_length": 32, "batch_size": 8, "micro_batch_size": 2,
       "max_steps": STEPS, "save_steps": SAVE_STEPS, "save_total_limit": 2,
       "learning_rate": 0.01, "seed": 1}
KINDS = {
    "full": {**JOB, "micro_batches_per_round": 3, "gradient_groups": 2},
    "lora": {**JOB, "method": "lora", "lora_dropout": 0.1,
             "target_modules": "all-linear"},
    "validation": {**JOB, "validation_dataset": "valid.jsonl",
                   "eval_steps": 10, "load_best_model_at_end": True},
    "prompts": {**JOB, "eval_prompts": ["one two", "six plus"],
                "eval_steps": STEPS // 3},
}
FINAL = {"SUCCEEDED", "FAILED", "CANCELLED"}
# The store's numbers: what a start takes up and loads.
TO_LOAD = {2, 3, 4, 6, 7}  # QUEUED LOADING RUNNING PAUSED RECOVERING
# What a job of its own leaves, beside checkpoints and outputs.
JOB_FILES = re.compile(
    r"data/(train|validation)/(tokens\.u32|labels\.u8|lines\.u32|offsets\.u64|"
    r"manifest\.json)|log|metrics\.jsonl|samples\.jsonl|model-config\.json|"
    r"tokenizer/(tokenizer|tokenizer_config)\.json|tokenizer-manifest\.json")
# The daemon's memory: what its allocator keeps. The first clients of a life
# cost 8 MiB that stay; seen: 20.3 MiB after its first jobs, 27.7 after 34 more
# under disturbance, 28.7 after another 34. What the last MiB is was not looked
# into: 4 MiB bound it.
COLD_TOLERANCE_BYTES, WARM_TOLERANCE_BYTES = 12 << 20, 4 << 20
# The daemon's threads have its name, but for those of pools that start threads
# as they need them and keep them: four that open files, and of gRPC's two
# executors up to two a core each.
OWN_THREAD = "roundhoused"
POOL_THREADS_TOLERANCE = 4 + 4 * os.cpu_count()

if IN_NAMESPACE not in os.environ and subprocess.run(
        [*UNSHARE, "true"], check=False, capture_output=True).returncode == 0:
    os.execvpe(UNSHARE[0], [*UNSHARE, sys.executable, "-B", *sys.argv],
               {**os.environ, IN_NAMESPACE: "1"})


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def without_times(lines):
    return [{name: value for name, value in line.items()
             if name != "step_seconds"} for line in lines]


class Results:
    """What of a job no disturbance may change."""

    # roundhouse.json and checkpoint.json name the job and its files' hashes.
    OWN = {"metrics.jsonl", "samples.jsonl", "trainer_state.json",
           "roundhouse.json", "checkpoint.json"}

    def __init__(self, daemon, job):
        found = daemon.job(job)
        self.log = daemon.log(job)
        self.metrics = without_times(daemon.metrics(job))
        self.output_metrics = without_times(map(json.loads, (
            pathlib.Path(found["output_path"]) / "metrics.jsonl").read_text()
            .splitlines()))
        self.saved = daemon.checkpoints(job)[-1:]
        output = pathlib.Path(found["output_path"])
        folders = [output, *(daemon.checkpoint(job, step)
                             for step in self.saved)]
        self.files = {f"{index}/{path.name}": sha256(path)
                      for index, folder in enumerate(folders)
                      for path in folder.iterdir()
                      if path.name not in self.OWN}
        states = [(folder / "trainer_state.json").read_text().replace(
            str(daemon.directory(job)), "JOB") for folder in folders]
        self.state = states[0]
        # A stop or a pause saves the last step before it is evaluated.
        self.history = json.loads(states[-1])["log_history"]
        self.samples = {}
        if (output / "samples.jsonl").exists():
            lines = (output / "samples.jsonl").read_text().splitlines()
            self.samples = {(line["step"], line["index"]): line
                            for line in map(json.loads, lines)}
        # A line that a death of the daemon cut has no norm behind it.
        self.losses = re.findall(r" step (\d+)/\d+ loss (\S+) grad_norm",
                                 self.log)

    def unsampled(self):
        """Steps whose samples were lost with their device or helper; the log
        says so, and the training goes on."""
        return {int(step) for step in
                re.findall(r"no samples after step (\d+): ", self.log)}

    def missing(self, wanted):
        """Lines of metrics.jsonl that are not there."""
        return [line for line in wanted.metrics if line not in self.metrics]

    def difference(self, wanted):
        """What differs from the undisturbed run; "" for nothing."""
        for name in ("output_metrics", "saved", "state", "files"):
            if getattr(self, name) != getattr(wanted, name):
                return (f"{name}: {getattr(self, name)}\nnot "
                        f"{getattr(wanted, name)}")
        if wrong := [line for line in self.metrics
                     if line not in wanted.metrics]:
            return f"metrics: {wrong}"
        if wrong := [entry for entry in self.history
                     if entry not in wanted.history]:
            return f"the checkpoint's history: {wrong}"
        known = dict(wanted.losses)
        for step, loss in self.losses:  # also of steps done twice
            if known[step] != loss:
                return f"loss {loss} of step {step}, not {known[step]}"
        lost = self.unsampled()
        for key, line in wanted.samples.items():
            found = self.samples.get(key)
            if found != line and not (found is None and key[0] in lost):
                return f"sample {found}, not {line}"
        return ""


class Figures:
    """What the daemon holds while it has nothing to do."""

    def __init__(self, soak):
        process = pathlib.Path(f"/proc/{soak.daemon.process.pid}")
        self.descriptors = collections.Counter()
        for entry in (process / "fd").iterdir():
            try:
                name = os.readlink(entry)
            except OSError:
                continue  # closed meanwhile
            self.descriptors[re.sub(r"\d+", "N", name)] += 1
        status = dict(re.findall(r"^(\w+):\s+(\d+)",
                                 (process / "status").read_text(), re.M))
        threads = collections.Counter()
        for entry in (process / "task").iterdir():
            try:
                threads[(entry / "comm").read_text().strip()] += 1
            except OSError:
                continue  # ended meanwhile
        self.own_threads = threads.pop(OWN_THREAD)
        self.pool_threads = threads
        # Pages of files are the kernel's to take back.
        self.memory = (int(status["RssAnon"]) + int(status["RssShmem"])) << 10
        self.arena = sum(soak.metric("roundhouse_host_arena_bytes").values())
        # A nursery that died is started again when a worker is to be.
        self.children = sorted(
            next((word for word in words if word.startswith("--role=")),
                 words[1] if len(words) > 1 else words[0])
            for words in harness.children(soak.daemon.process.pid).values()
            if "--role=nursery" not in words)
        self.leftovers = soak.leftovers()

    @classmethod
    def settled(cls, soak):
        """The figures that stay for a few seconds: pages, threads and caches
        are given back a moment after the work. Bases that nobody uses stay
        until another one is made, so one is made."""
        soak.daemon.client("sample", "other", "-p", "one", "--max-new-tokens",
                           "2")
        deadline = time.monotonic() + 60
        before = cls(soak)
        while True:
            time.sleep(4)
            found = cls(soak)
            if found.leak(before) == before.leak(found):
                return found  # nothing comes or goes; what is left over stays
            harness.remaining(deadline, f"a daemon at rest, "
                              f"{found.leak(before)}; {before.leak(found)}")
            before = found

    def leak(self, before, tolerance_bytes=WARM_TOLERANCE_BYTES):
        """What is more than it was, or left over; "" for nothing."""
        found = []
        more = self.descriptors - before.descriptors
        if more:
            found.append(f"descriptors: {dict(more)} more")
        if self.own_threads > before.own_threads:
            found.append(f"{self.own_threads} threads of the daemon's own, "
                         f"{before.own_threads} before")
        if (self.pool_threads.total() >
                before.pool_threads.total() + POOL_THREADS_TOLERANCE):
            found.append(f"threads of pools: {dict(self.pool_threads)}, "
                         f"{dict(before.pool_threads)} before")
        if self.memory > before.memory + tolerance_bytes:
            found.append(f"{self.memory} bytes of memory, {before.memory} "
                         "before")
        if self.arena > before.arena:
            found.append(f"arena {self.arena}, {before.arena} before")
        if self.children != before.children:
            found.append(f"{self.children}, {before.children} before")
        if self.leftovers:
            found.append(f"left over: {self.leftovers}")
        return "; ".join(found)

    def __str__(self):
        return (f"{sum(self.descriptors.values())} descriptors, "
                f"{self.own_threads} own threads, "
                f"{self.pool_threads.total()} of pools, "
                f"{self.memory / (1 << 20):.1f} MiB, "
                f"{self.arena / (1 << 20):.1f} MiB of arena, "
                f"{len(self.children)} children")


class LiveJob:
    def __init__(self, kind):
        self.kind = kind
        self.seen = None
        self.since = time.monotonic()  # it is as it is now
        self.resume_at = None
        self.damaged = set()  # folders of checkpoints
        self.data_damaged = False
        self.daemon_died = False


class Soak:
    """The daemon under disturbance, and what is wanted of it."""

    def __init__(self, scratch, wanted):
        self.scratch = scratch
        self.wanted = wanted
        self.random = random.Random(SEED)
        self.daemon = scratch.daemon(metrics_listen="127.0.0.1:0")
        self.daemon.state.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none",
                        self.daemon.state], check=True)
        self.counts = collections.Counter()
        self.ended = collections.Counter()
        self.noticed = collections.Counter()
        self.wrong = []
        self.live = {}
        self.asked = {}  # request id -> kind: not answered yet
        self.requests = 0
        self.submitting = True
        self.full_until = None
        self.stopped = {}  # pid -> until
        self.clients = []  # (process, until)
        self.hunt_until = 0
        self.helper_kills = []  # when
        self.slots = {}  # device -> slots at its last death
        self.next_poll = 0
        self.last_change = time.monotonic()

    # --- asking the daemon ---

    def metric(self, name):
        """{labels: value} of one scrape."""
        page = re.findall(r"metrics on (127\.0\.0\.1:\d+)",
                          self.daemon.log_path.read_text())[-1]
        with urllib.request.urlopen(f"http://{page}/metrics",
                                    timeout=60) as answer:
            text = answer.read().decode()
        return {labels: float(value) for labels, value in
                re.findall(rf"^{name}(\{{.*\}})? (\S+)$", text, re.M)}

    def call(self, *words):
        return self.daemon.client(*words, check=False)

    def submit(self, request, kill_after=None):
        path = self.scratch.folder / f"{request}.json"
        path.write_text(json.dumps(KINDS[self.asked[request]]))
        words = ["submit", "-f", path, "--request-id", request, "-o", "json"]
        if kill_after is not None:
            self.client_killed_after(kill_after, *words)
            return
        done = self.call(*words)
        if done.returncode == 0:
            made = json.loads(done.stdout)
            job = made["name"].rsplit("/", 1)[1]
            self.daemon.directories[job] = (self.daemon.state / "jobs" /
                                            made["uid"])
            self.live[job] = LiveJob(self.asked.pop(request))
        elif done.returncode != 7:  # no room on the disk
            raise harness.Failure(f"submit: {done.returncode}: {done.stderr}")

    def ask(self, kind=None, kill_after=None):
        request = f"soak-{self.requests}"
        self.requests += 1
        self.asked[request] = kind or self.random.choice(sorted(KINDS))
        self.submit(request, kill_after)

    # --- what has to come about ---

    def poll(self):
        for request in list(self.asked):
            self.submit(request)
        for job in list(self.live):
            self.look_at(job)
        if self.submitting and len(self.live) + len(self.asked) < LIVE:
            self.ask()

    def look_at(self, job):
        found = self.daemon.job(job)
        live, now = self.live[job], time.monotonic()
        seen = (found["state"], found["step"], found["attempts"])
        if seen != live.seen:
            live.seen, live.since, live.resume_at = seen, now, None
            self.last_change = now
        if found["state"] in FINAL:
            self.over(job, found)
        # With a reason and its memory it goes on by itself.
        elif found["state"] == "PAUSED" and not (
                found["memory"] == "KEPT" and
                found["reason"] != "JOB_REASON_UNSPECIFIED"):
            if live.resume_at is None:
                live.resume_at = now + self.random.uniform(0.2, 2)
            elif now >= live.resume_at:
                self.counts["resumed"] += self.call("resume",
                                                    job).returncode == 0
        # A queued job waits for others.
        since = (self.last_change if found["state"] == "QUEUED" else
                 live.since)
        if now - since > STUCK_SECONDS:
            raise harness.Failure(f"{job} is stuck: {found}\n"
                                  f"{self.daemon.log(job)[-3000:]}\n"
                                  f"{self.daemon.tail()}")

    def is_wrong(self, text):
        """Told at once; the soak goes on, and fails at its end."""
        print(f"WRONG: {text}\n{self.daemon.tail(20)}", flush=True)
        self.wrong.append(text.splitlines()[0])

    def over(self, job, found):
        live = self.live.pop(job)
        self.ended[live.kind] += 1
        if found["state"] != "SUCCEEDED":
            self.is_wrong(f"{job}, {live.kind}, is {found['state']}: "
                          f"{found['reason']}: {found['message']}\n"
                          f"{self.daemon.log(job)}")
            return
        results = Results(self.daemon, job)
        if difference := results.difference(self.wanted[live.kind]):
            self.is_wrong(f"{job}, {live.kind}: {difference}\n{results.log}")
        missing = results.missing(self.wanted[live.kind])
        # A daemon that dies takes along what a full disk had not yet taken.
        if missing and not live.daemon_died:
            self.is_wrong(f"{job}: no metrics of {missing}\n{results.log}")
        self.noticed["metrics lost"] += len(missing)
        for folder in live.damaged:
            if f"checkpoint {folder} is not used: " not in results.log:
                self.is_wrong(f"{job}: the damage to {folder} was not noticed"
                              f"\n{results.log}")
        if live.data_damaged and ("the prepared data were damaged: " not in
                                  results.log + self.notes(job)):
            self.is_wrong(f"{job}: the damage to its data was not noticed"
                          f"\n{results.log}")
        self.noticed["checkpoints"] += results.log.count(" is not used: ")
        self.noticed["prepared data"] += results.log.count(
            "the prepared data were damaged: ")
        self.noticed["samples lost"] += len(results.unsampled())
        # As their owner does who needs the room.
        shutil.rmtree(found["output_path"])
        for folder in self.daemon.directory(job).glob("checkpoint-*"):
            shutil.rmtree(folder)

    def notes(self, job):
        """The job's notes among its events: of a daemon that is killed while
        the disk is full they have what the log lost."""
        store = sqlite3.connect(f"file:{self.daemon.state}/jobs.db?mode=ro",
                                uri=True)
        try:
            return "\n".join(text for text, in store.execute(
                "SELECT message FROM events WHERE type = 'note' AND job = ?",
                (int(job.rpartition("-")[2]),)))
        finally:
            store.close()

    def leftovers(self):
        """Files that nobody needs any more, once all jobs are over."""
        state = self.daemon.state
        known = {"jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db.backup",
                 "jobs.mark", "lock", "reserve", "jobs", "outputs", "datasets",
                 "uploads"}
        found = [path.name for path in state.iterdir()
                 if path.name not in known]
        found += [f"uploads/{path.parent.name}/{path.name}"
                  for path in (state / "uploads").glob("*/*")]
        found += [f"outputs/{path.name}"
                  for path in (state / "outputs").iterdir()]
        found += [str(path.relative_to(state))
                  for path in (state / "jobs").glob("*/**/*")
                  if path.is_file() and not JOB_FILES.fullmatch(
                      str(pathlib.Path(*path.relative_to(state).parts[2:])))]
        found += [f"datasets/{path.name}"
                  for path in (state / "datasets").iterdir()
                  if not re.fullmatch(r"[0-9a-f]{64}|lock", path.name)]
        return sorted(found)

    # --- time goes by ---

    def tick(self):
        now = time.monotonic()
        if self.daemon.ended():
            raise harness.Failure(f"the daemon exited "
                                  f"{self.daemon.process.returncode}\n"
                                  f"{self.daemon.tail(100)}")
        if self.full_until is not None:
            self.fill() if now < self.full_until else self.free()
        for pid in [pid for pid, until in self.stopped.items()
                    if now >= until]:
            self.go_on(pid)
        for process, until in list(self.clients):
            if now >= until or process.poll() is not None:
                process.kill()
                process.wait()
                self.clients.remove((process, until))
        if now < self.hunt_until:
            self.hunt()
        if now >= self.next_poll:
            self.poll()
            self.next_poll = time.monotonic() + 0.3

    def run(self, seconds, disturbances):
        end = time.monotonic() + seconds
        following = time.monotonic() + PAUSE
        names = [name for name, weight in disturbances.items()
                 for _ in range(weight)]
        while time.monotonic() < end:
            self.tick()
            if time.monotonic() >= following:
                following += PAUSE
                name = self.random.choice(names)
                if getattr(self, name)() is not False:
                    self.counts[name] += 1
            time.sleep(0.03)

    def quiet(self):
        """No disturbance is going on any more."""
        self.free()
        for pid in list(self.stopped):
            self.go_on(pid)
        self.clients = [(process, 0) for process, _ in self.clients]
        self.hunt_until = 0

    def drain(self):
        """Until every job is over, without new ones."""
        self.submitting = False
        self.quiet()
        harness.wait_until(lambda: self.tick() or not (self.live or self.asked),
                           "the end of all jobs", DRAIN_SECONDS, 0.03)
        for path in (self.daemon.state / "outputs").glob("x-*"):
            shutil.rmtree(path)  # clients that got their export
        self.submitting = True

    # --- disturbances ---

    def kill_worker(self, name, number=signal.SIGKILL):
        pid = self.daemon.workers().get(name)
        if pid is None or pid in self.stopped:
            return False
        if name.isdigit():  # without a slot between deaths it would be lost
            done = sum(value for labels, value in
                       self.metric("roundhouse_slots_total").items()
                       if f'device="{name}"' in labels and '"ok"' in labels)
            if done <= self.slots.get(name, -1):
                return False
            self.slots[name] = done
        os.kill(pid, number)
        return pid

    def kill_device(self):
        return self.kill_worker(self.random.choice("01"))

    def kill_host(self):
        return self.kill_worker("host")

    def kill_files(self):
        return self.kill_worker("files")

    def kill_nursery(self):
        return self.kill_worker("nursery")

    def kill_helper(self):
        """The next one that runs; each piece of work bears two deaths."""
        now = time.monotonic()
        self.helper_kills = [when for when in self.helper_kills
                             if now - when < 20]
        if len(self.helper_kills) == 2:
            return False
        self.hunt_until = now + PAUSE
        self.clients_dataset()
        return False  # hunt() counts it

    def hunt(self):
        for pid, words in harness.children(self.daemon.process.pid).items():
            script = next((word for word in words[:3]
                           if "/prepare" in word), None)
            if script is None or not script.endswith(".py"):
                continue
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            self.helper_kills.append(time.monotonic())
            self.hunt_until = 0
            self.counts["kill_helper"] += 1
            return

    def stop_worker(self):
        name = self.random.choice(["0", "1", "host", "files", "nursery"])
        pid = self.kill_worker(name, signal.SIGSTOP)
        if pid is False:
            return False
        long = FULL and name != "nursery" and self.random.random() < 0.15
        self.stopped[pid] = time.monotonic() + (
            40 if long else self.random.uniform(0.2, 0.8 * PAUSE))
        return True

    def go_on(self, pid):
        del self.stopped[pid]
        if pid in harness.children(self.daemon.process.pid):
            os.kill(pid, signal.SIGCONT)

    def fill_disk(self):
        if self.full_until is not None:
            return False
        self.full_until = time.monotonic() + self.random.uniform(1, 4)
        self.fill()
        return True

    def fill(self):
        with open(self.daemon.state / "fill", "ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
            except OSError:
                pass

    def free(self):
        self.full_until = None
        (self.daemon.state / "fill").unlink(missing_ok=True)

    def dead_daemon(self):
        """Its workers die with it, and clients see it go."""
        self.daemon.kill()
        self.note_death()
        self.stopped.clear()
        self.slots.clear()

    def note_death(self):
        for live in self.live.values():
            live.daemon_died = True

    def kill_daemon(self):
        self.dead_daemon()
        self.daemon.start()

    def stop_daemon(self):
        for pid in list(self.stopped):
            self.go_on(pid)
        self.daemon.stop()
        if self.full_until is not None:
            self.note_death()
        self.slots.clear()
        self.daemon.start()

    def damage_a_stopped_state(self):
        self.dead_daemon()
        loaded = self.to_load()
        jobs = [job for job in self.live if job in loaded]
        self.random.shuffle(jobs)
        try:
            return any(self.random.choice(
                [self.damage_checkpoint, self.damage_data])(job)
                for job in jobs)
        finally:
            self.daemon.start()

    def to_load(self):
        """Jobs that the next start loads, by the store of a daemon that is
        gone."""
        copy = self.scratch.folder / "copy"
        copy.mkdir(exist_ok=True)
        for path in copy.iterdir():
            path.unlink()
        for name in ("jobs.db", "jobs.db-wal"):
            if (self.daemon.state / name).exists():
                shutil.copy(self.daemon.state / name, copy)
        store = sqlite3.connect(copy / "jobs.db")
        states = dict(store.execute("SELECT job, state FROM events "
                                    "WHERE type = 'state' ORDER BY revision"))
        store.close()
        return {job if str(job).startswith("job-") else f"job-{job}"
                for job, state in states.items() if state in TO_LOAD}

    def damage_a_paused_job(self):
        """Its newest checkpoint, while it lies there: it is resumed later."""
        for job, live in self.live.items():
            found = self.daemon.job(job)
            if (found["state"] == "PAUSED" and found["memory"] != "KEPT" and
                    self.damage_checkpoint(job)):
                live.resume_at = 0
                return True
        return False

    def damage_checkpoint(self, job):
        saved = self.daemon.checkpoints(job)
        if not saved:
            return False
        folder = self.daemon.checkpoint(job, saved[-1])
        if folder in self.live[job].damaged:
            return False
        self.damage(self.random.choice(sorted(folder.iterdir())))
        self.live[job].damaged.add(folder)
        self.counts["damaged checkpoints"] += 1
        return True

    def damage_data(self, job):
        files = sorted((self.daemon.directory(job) / "data").glob("*/*.*"))
        if not files:
            return False
        self.damage(self.random.choice(files))
        self.live[job].data_damaged = True
        self.counts["damaged prepared data"] += 1
        return True

    def damage(self, path):
        """A flipped bit, or a cut; of the inode, which others may share."""
        size = path.stat().st_size
        at = self.random.randrange(size)
        with open(path, "r+b") as file:
            if self.random.random() < 0.3:
                file.truncate(at)
                return
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << self.random.randrange(8)]))

    # Clients, which are killed within what they do.

    def client_killed_after(self, seconds, *words):
        process = subprocess.Popen(
            [harness.ROOT / "client/roundhouse",
             f"--server=unix:{self.daemon.socket}", *map(str, words)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"HOME": str(self.scratch.folder), "PATH": "/usr/bin:/bin"})
        self.clients.append((process, time.monotonic() + seconds))
        self.counts["clients"] += 1

    def a_job(self):
        return self.random.choice(sorted(self.live))

    def clients_verbs(self):
        if not self.live:
            return False
        seconds = self.random.uniform(0, 0.2)
        if self.random.random() < 0.3:
            self.ask(kill_after=seconds)
        verb = self.random.choice(["pause", "pause", "resume"])
        self.client_killed_after(seconds, verb, self.a_job())
        return True

    def pause_jobs(self):
        """Told in full; look_at() resumes them."""
        if not self.live:
            return False
        flags = self.random.choice([[], ["--give-back"]])
        return self.call("pause", self.a_job(), *flags).returncode == 0

    def clients_streams(self):
        for job in list(self.live)[:2]:
            for words in (["logs", "-f", job], ["watch", job],
                          ["trace", job, "--steps", "3"]):
                self.client_killed_after(self.random.uniform(0.1, 4), *words)
        return True

    def clients_results(self):
        """Samples and exports, of the model and of running jobs."""
        for source in ["model", *list(self.live)[:1]]:
            self.client_killed_after(
                self.random.uniform(0.05, 3), "export", source, "--output",
                f"x-{self.counts['clients']}")
            self.client_killed_after(
                self.random.uniform(0.05, 3), "sample", source, "-p",
                "one two three", "--max-new-tokens", "32")
        return True

    def clients_dataset(self):
        self.client_killed_after(
            self.random.uniform(0.05, 3), "dataset", "preview", "train.jsonl",
            "--model", "model", "--max-length", "32")
        return True


# {disturbance: how often among all}.
DISTURBANCES = {
    "kill_device": 3, "kill_host": 2, "kill_files": 2, "kill_nursery": 1,
    "kill_helper": 2, "stop_worker": 2, "fill_disk": 3,
    "damage_a_paused_job": 2, "pause_jobs": 3, "clients_verbs": 2,
    "clients_streams": 2, "clients_results": 2, "clients_dataset": 1}
OF_THE_DAEMON = {"kill_daemon": 4, "stop_daemon": 1,
                 "damage_a_stopped_state": 3}


@unittest.skipUnless(IN_NAMESPACE in os.environ,
                     "this system lets nobody mount in a namespace")
class SoakTest(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(harness.Scratch())
        self.scratch.make_model("model")
        self.scratch.make_model("other", seed=2)
        self.scratch.make_data("train.jsonl", count=60)
        self.scratch.make_data("valid.jsonl", count=12, seed=2)

    def undisturbed(self):
        daemon = self.scratch.daemon()
        daemon.start()
        found = {}
        for kind, spec in KINDS.items():
            job = daemon.submit(spec)
            daemon.wait(job)
            found[kind] = Results(daemon, job)
            self.assertEqual(found[kind].unsampled(), set())
        daemon.stop()
        return found

    @staticmethod
    def one_of_each_kind(soak):
        for kind in KINDS:
            soak.ask(kind)
        soak.drain()

    def test_every_job_ends_as_if_nothing_had_happened(self):
        print(f"ROUNDHOUSE_SEED={SEED} ROUNDHOUSE_SOAK_SECONDS={SECONDS}",
              flush=True)
        soak = Soak(self.scratch, self.undisturbed())
        self.addCleanup(subprocess.run, ["umount", "-l", soak.daemon.state],
                        check=True)
        soak.daemon.start()
        soak.run(SECONDS * (1 - LAST_LIFE), {**DISTURBANCES, **OF_THE_DAEMON})
        soak.quiet()
        soak.stop_daemon()
        soak.drain()
        self.one_of_each_kind(soak)
        first = Figures.settled(soak)
        ended = soak.ended.total()
        found = [first]
        parts = 2 if FULL else 1
        for _ in range(parts):
            soak.run(SECONDS * LAST_LIFE / parts, DISTURBANCES)
            soak.drain()
            self.one_of_each_kind(soak)
            found.append(Figures.settled(soak))
        print(f"{SECONDS} s with seed {SEED}: {dict(soak.counts)}; "
              f"{soak.ended.total()} jobs ended {dict(soak.ended)}, "
              f"{soak.ended.total() - ended} in the last life; noticed: "
              f"{dict(soak.noticed)}; held at first and later: "
              f"{' | '.join(map(str, found))}", flush=True)
        self.assertEqual(soak.wrong, [])
        self.assertEqual(found[-1].leak(first, COLD_TOLERANCE_BYTES), "")
        if FULL:  # nothing is cold any more
            self.assertEqual(found[-1].leak(found[-2]), "")
        soak.daemon.stop()


if __name__ == "__main__":
    unittest.main()
