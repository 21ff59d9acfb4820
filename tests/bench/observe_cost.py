"""What being watched costs a job: scrapes of the metrics, and a trace that is
recorded all the time.

    bazel run //tests/bench:observe_cost -- [--cycles 8] [--steps 100]
        [--daemons 3] [-o csv]

The quickstart's job (deploy/quickstart.d) without evaluations and saves, on
four CPU workers. In one daemon, so that drift cancels, blocks of so many steps
follow each other: unwatched, scraped once a second, unwatched, traced; each
watched block is compared with the unwatched one before it. Then daemons with a
scraped metrics port beside daemons without a port, in turn.

Per step: seconds as the job's metrics.jsonl has them, and processor seconds
(user and system) of the daemon and its workers up to the answer's end. What
machines that are shared do to the threads that compute is much more than what
watching costs; so a third line leaves their changes out: what the daemon and
the other threads of the device workers came to need, over the step's processor
time. A trace's file is written by the client when the recording is over, while
the steps of no block are measured.
"""

import argparse
import json
import pathlib
import re
import statistics
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

import harness
import staleness

WARM_UP_STEPS = 60  # a plan is searched for after four
QUANTITIES = ("step", "processor time of a step",
              "the same, computing as if unwatched")


def process_seconds(pid):
    """User and system time, of threads that have ended too."""
    return time.clock_gettime((~pid << 3) | 2)  # CPUCLOCK_SCHED of the process


def busiest_seconds(pid):
    """CPU time of the process's thread that computes."""
    return 1e-9 * max(int(path.read_text().split()[0]) for path in
                      pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"))


def cpu_seconds(daemon):
    """CPU times of the daemon with its workers, and of the threads that
    compute."""
    workers = daemon.workers()
    compute = sum(busiest_seconds(pid) for name, pid in workers.items()
                  if name.isdigit()) + process_seconds(workers["host"])
    return sum(map(process_seconds, (daemon.process.pid,
                                     *workers.values()))), compute


class Job:
    """The quickstart's, endless, and where it is."""

    def __init__(self, scratch, **flags):
        self.daemon = scratch.daemon(devices="cpu:4", **flags)
        self.daemon.start()
        spec = {**staleness.fields(), "max_steps": 1000000, "save_steps": 0,
                "warmup_steps": 0, "lr_scheduler_type": "constant",
                "output_name": "observed"}
        spec.pop("validation_dataset")
        self.id = self.daemon.submit("".join(
            f"{name}: {value}\n" for name, value in spec.items()))
        self.seconds = {}  # by step
        self.path = self.daemon.directory(self.id) / "metrics.jsonl"
        self.read_bytes = 0
        self.wait(WARM_UP_STEPS)

    def look(self):
        """The newest step."""
        if not self.path.exists():
            return 0
        with open(self.path, "rb") as file:
            file.seek(self.read_bytes)
            for line in file.read().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    entry = json.loads(line)
                    self.seconds[entry["step"]] = entry["step_seconds"]
                    self.read_bytes += len(line)
        return max(self.seconds, default=0)

    def wait(self, step):
        harness.wait_until(lambda: self.look() >= step, f"step {step}",
                           seconds=600, pause=0.1)

    def at_a_step(self):
        """Right after the next step: its number, processor seconds so far."""
        step = self.look()
        harness.wait_until(lambda: self.look() > step, f"step after {step}",
                           pause=0.001)
        return self.look(), cpu_seconds(self.daemon)

    def block(self, watch):
        """Seconds a step, processor seconds, those that compute, while watch()
        runs, which answers the first and the last step of its own."""
        begun, before = self.at_a_step()
        first, last = watch(self)
        ended, after = self.at_a_step()
        return (statistics.mean(self.seconds[step]
                                for step in range(first, last + 1)),
                *((b - a) / (ended - begun) for a, b in zip(before, after)))

    def end(self):
        self.daemon.client("cancel", self.id)
        self.daemon.wait(self.id, "CANCELLED")
        self.daemon.stop()


def unwatched(count):
    def watch(job):
        first = job.look() + 2  # the one that runs is not all in the block
        job.wait(first + count - 1)
        return first, first + count - 1
    return watch


def scraped(count):
    def watch(job):
        address = re.findall(r"metrics on (127\.0\.0\.1:\d+)",
                             job.daemon.log_path.read_text())[-1]
        over = threading.Event()

        def scrape():
            while not over.is_set():
                urllib.request.urlopen(f"http://{address}/metrics").read()
                over.wait(1)
        thread = threading.Thread(target=scrape)
        thread.start()
        try:
            return unwatched(count)(job)
        finally:
            over.set()
            thread.join()
    return watch


def traced(count):
    def watch(job):
        path = job.daemon.folder / "trace.json"
        job.daemon.client("trace", job.id, "--steps", count, "--output", path,
                          seconds=600)
        about = json.loads(path.read_text())["otherData"]
        assert about["steps"] == count, about
        job.look()
        return about["first_step"], about["first_step"] + count - 1
    return watch


def ratios(pairs):
    """Watched over unwatched, by QUANTITIES."""
    return [[after[0] / before[0] for before, after in pairs],
            [after[1] / before[1] for before, after in pairs],
            [(after[1] - after[2] + before[2]) / before[1]
             for before, after in pairs]]


def blocks(scratch, options):
    """{what: [(unwatched, watched)]} of one daemon's blocks."""
    job = Job(scratch, metrics_listen="127.0.0.1:0")
    found = {"scraped once a second": [], "traced": []}
    for _ in range(options.cycles):
        for what, watch in zip(found, (scraped, traced)):
            before = job.block(unwatched(options.steps))
            found[what].append((before, job.block(watch(options.steps))))
    job.end()
    return found


def daemons(scratch, options):
    pairs = []
    for _ in range(options.daemons):
        pair = []
        for address, watch in (("", unwatched), ("127.0.0.1:0", scraped)):
            job = Job(scratch, metrics_listen=address)
            pair.append(job.block(watch(2 * options.steps)))
            job.end()
        pairs.append(tuple(pair))
    return {"a port scraped once a second, beside a daemon without": pairs}


def rows(pairs):
    for quantity, of in zip(QUANTITIES, ratios(pairs)):
        measured = 0 if quantity == QUANTITIES[0] else 1
        alone = statistics.median(before[measured] for before, _ in pairs)
        yield [quantity, f"{1000 * alone:.4g}", f"{statistics.median(of):.4f}",
               f"{min(of):.4f}", f"{max(of):.4f}", str(len(of))]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cycles", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--daemons", type=int, default=3)
    parser.add_argument("-o", dest="form", choices=("table", "csv"),
                        default="table")
    options = parser.parse_args()
    if not (1 <= options.cycles and 1 <= options.steps <= 100
            and 0 <= options.daemons):
        parser.error("at least one cycle, 1 to 100 steps")

    def show(cells):
        print(",".join(cells) if options.form == "csv"
              else "| " + " | ".join(cells) + " |", flush=True)

    header = ["watched", "quantity", "unwatched, ms", "median ratio", "least",
              "greatest", "pairs"]
    show(header)
    if options.form == "table":
        print("|---" * len(header) + "|", flush=True)
    with harness.Scratch() as scratch:
        staleness.make_inputs(scratch.data)
        for measure in (blocks, daemons) if options.daemons else (blocks,):
            for what, pairs in measure(scratch, options).items():
                for row in rows(pairs):
                    show([what, *row])


if __name__ == "__main__":
    main()
