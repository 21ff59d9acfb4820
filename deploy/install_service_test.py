"""Tests of install-service below a folder, with programs of ours and systemd's
tools replaced by a recorder: nothing of this machine is changed."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

DEPLOY = pathlib.Path(__file__).absolute().parent
SCRIPT = DEPLOY / "install-service"
LIB = "usr/lib/roundhouse"
sys.path.insert(0, str(DEPLOY / "install-service.d"))

import daemon_conf
import find_wheels

# What stands for roundhoused; $STATE/problem makes the doctor find one.
DAEMON = """#!/bin/sh
case $1 in
  --help) cat "$HELP" ;;
  --doctor) echo doctor "$@" >>"$STATE/calls"; [ ! -e "$STATE/problem" ] ;;
esac
"""
HELP = """roundhoused 0: a program.

Settings, as --key=value or in a --config file:
  --config FILE           a file with lines "key: value"
  --state-dir DIR         jobs, checkpoints, outputs; one daemon at a
                          time [XDG state directory/roundhouse]
  --listen unix:PATH      the socket [none]
  --data-root DIR[,DIR]   folders [the home directory]
  --hf-cache DIR          the cache
  --kill-at POINT         test only: a point
  --host-memory BYTES     the host arena [8GiB]

--help prints this text.
"""
# systemctl is-active and is-enabled answer by files; all else is written down.
TOOLS = {
    "systemctl": """#!/bin/sh
case $1 in
  is-active | is-enabled) [ -e "$STATE/$1" ]; exit ;;
  show) cat "$STATE/pid" 2>/dev/null; exit ;;
esac
echo systemctl "$@" >>"$STATE/calls"
case $1 in
  start | restart) touch "$STATE/is-active" ;;
  stop) rm -f "$STATE/is-active" ;;
  enable) touch "$STATE/is-enabled" ;;
  disable) rm -f "$STATE/is-enabled" ;;
esac
""",
    "systemd-sysusers": """#!/bin/sh
echo sysusers >>"$STATE/calls"; touch "$STATE/users"
""",
    "systemd-tmpfiles": """#!/bin/sh
echo tmpfiles >>"$STATE/calls"
mkdir -p "$ROOT/run/roundhouse" "$ROOT/var/lib/roundhouse" "$ROOT/srv/roundhouse"
""",
    "getent": """#!/bin/sh
[ -e "$STATE/users" ]
""",
    "userdel": """#!/bin/sh
echo userdel "$@" >>"$STATE/calls"
""",
    "groupdel": """#!/bin/sh
echo groupdel "$@" >>"$STATE/calls"
""",
    # What the service's user would run, with its limits, as this one.
    "setpriv": """#!/bin/sh
while [ "$1" != -- ]; do shift; done; shift; exec "$@"
""",
    "env": """#!/bin/sh
[ "$1" = -i ] && shift
exec /usr/bin/env "$@"
""",
    "prlimit": """#!/bin/sh
while [ "$1" != -- ]; do shift; done; shift; exec "$@"
""",
}


class InstallServiceTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="a b")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.root = self.folder / "root"
        self.state = self.folder / "state"
        self.programs = self.folder / "programs"
        for folder in (self.root, self.state):
            folder.mkdir()
        self.make_wheels()
        self.make_programs()
        for name, text in TOOLS.items():
            self.write_program(self.folder / "bin" / name, text)

    def write_program(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def make_wheels(self):
        self.wheels = self.folder / "cache/roundhouse/wheels"
        self.venv = self.folder / "cache/roundhouse/venv"
        (self.wheels / "torch/lib").mkdir(parents=True)
        (self.wheels / ".made-from").write_text("torch==1\n")
        (self.venv / "bin").mkdir(parents=True)
        (self.venv / "bin/python").symlink_to("/usr/bin/python3")
        (self.venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
        (self.venv / ".made-from").write_text("tokenizers==1\n")

    def compile(self, text, *words):
        subprocess.run(["cc", "-x", "c", "-", "-x", "none", *words],
                       input=text, text=True, check=True,
                       env={"PATH": "/usr/bin:/bin"})

    def make_programs(self, daemon=DAEMON):
        (self.folder / "help").write_text(HELP)
        self.write_program(self.programs / "server/roundhoused", daemon)
        self.write_program(self.programs / "client/roundhouse", "#!/bin/sh\n")
        self.write_program(
            self.programs / "worker/probe/roundhouse-gpu-probe", "#!/bin/sh\n")
        # A worker that loads its library from the wheels, as ours does.
        library = self.wheels / "torch/lib/libtorch_cpu.so"
        if not library.exists():
            self.compile("int answer(void) { return 42; }", "-shared", "-fPIC",
                         f"-Wl,-soname,{library.name}", "-o", library)
        self.compile("int answer(void); int main(void) { return answer(); }",
                     "-o", self.programs / "worker/roundhouse-worker",
                     library, f"-Wl,-rpath,{self.wheels}/torch/lib")

    def run_script(self, *words, runs="1", rc=0):
        done = subprocess.run(
            [SCRIPT, f"--root={self.root}", *words], capture_output=True,
            text=True, check=False,
            env={"HOME": str(self.folder), "STATE": str(self.state),
                 "ROOT": str(self.root), "HELP": str(self.folder / "help"),
                 "XDG_CACHE_HOME": str(self.folder / "cache"),
                 "ROUNDHOUSE_ROOT_RUNS": runs,
                 "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin"})
        self.assertEqual(done.returncode, rc, done.stderr)
        return done.stderr

    def install(self, **options):
        return self.run_script(f"--programs={self.programs}", **options)

    def calls(self):
        path = self.state / "calls"
        text = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
        return [line.split(f" --config={self.root}")[0]
                for line in text.splitlines()]

    def listing(self):
        """{path: (mode, text or target)} below the root."""
        found = {}
        for path in self.root.rglob("*"):
            name = str(path.relative_to(self.root))
            if path.is_symlink():
                found[name] = os.readlink(path)
            elif path.is_dir():
                found[name] = path.stat().st_mode
            else:
                found[name] = (path.stat().st_mode, path.read_bytes(),
                               path.stat().st_mtime_ns)
        return found

    def current(self):
        return os.readlink(self.root / LIB / "current")

    def test_installs_once_and_starts(self):
        said = self.install()
        self.assertEqual(
            self.calls(),
            ["sysusers", "tmpfiles", "doctor --doctor",
             "systemctl daemon-reload",
             "systemctl enable --quiet roundhoused.service",
             "systemctl start roundhoused.service"])
        self.assertIn("the release that runs", said)
        for name in ("usr/bin/roundhouse", "usr/sbin/roundhoused",
                     "etc/systemd/system/roundhoused.service",
                     "usr/lib/sysusers.d/roundhouse.conf",
                     "usr/lib/tmpfiles.d/roundhouse.conf",
                     "etc/roundhouse/client.conf", f"{LIB}/current"):
            self.assertIn(name, self.listing())
        release = self.root / LIB / self.current()
        for name in ("roundhoused", "roundhouse", "roundhouse-worker",
                     "roundhouse-gpu-probe", "prepare.py",
                     "rows/formats.py", "tokens/template.py",
                     "venv/bin/python", "docs/admin.md"):
            self.assertTrue((release / name).exists(), name)
        self.assertFalse((release / "prepare_test.py").exists())
        # The wheels that it was linked with may go.
        (self.wheels / "torch").rename(self.folder / "gone")
        self.assertEqual(subprocess.run([release / "roundhouse-worker"],
                                        check=False).returncode, 42)

    def test_the_second_run_changes_nothing(self):
        self.install()
        self.calls()
        before = self.listing()
        self.assertIn("nothing to change", self.install())
        self.assertEqual(self.listing(), before)
        self.assertEqual(self.calls(), ["doctor --doctor"])

    def test_an_earlier_run_that_was_cut_short_is_finished(self):
        self.install()
        self.calls()
        # The service runs another program than the release: this one.
        (self.state / "pid").write_text(f"{os.getpid()}\n")
        self.install()
        self.assertEqual(self.calls(),
                         ["doctor --doctor", "systemctl daemon-reload",
                          "systemctl restart roundhoused.service"])

    def test_everybody_may_read_it_whatever_the_umask(self):
        before = os.umask(0o077)
        self.addCleanup(os.umask, before)
        self.install()
        for path in (self.root / "usr").rglob("*"):
            if not path.is_symlink():
                wanted = 0o555 if path.is_dir() else 0o444
                self.assertEqual(path.stat().st_mode & wanted, wanted, path)

    def test_a_dry_run_changes_nothing(self):
        said = self.run_script(f"--programs={self.programs}", "--dry-run")
        self.assertIn("would start roundhoused.service", said)
        self.assertEqual(self.listing(), {})
        self.assertEqual(self.calls(), [])

    def test_an_image_gets_files_alone(self):
        self.install(runs="")
        self.assertIn("usr/bin/roundhouse", self.listing())
        self.assertEqual(self.calls(), [])

    def test_settings_that_are_there_stay(self):
        config = self.root / "etc/roundhouse/daemon.conf"
        config.parent.mkdir(parents=True)
        config.write_text("devices: cuda\n")
        self.install()
        self.assertEqual(config.read_text(), "devices: cuda\n")

    def test_an_upgrade_and_the_way_back(self):
        self.install()
        first = self.current()
        self.make_programs(DAEMON + "# new\n")
        self.calls()
        self.install()
        second = self.current()
        self.assertNotEqual(first, second)
        self.assertEqual(self.calls(),
                         ["doctor --doctor", "systemctl daemon-reload",
                          "systemctl restart roundhoused.service"])
        self.run_script("--rollback")
        self.assertEqual(self.current(), first)
        self.assertEqual(self.calls(),
                         ["systemctl restart roundhoused.service"])
        self.run_script("--rollback")
        self.assertEqual(self.current(), second)

    def test_a_problem_leaves_what_runs_alone(self):
        self.install()
        first = self.current()
        self.calls()
        self.make_programs(DAEMON + "# new\n")
        (self.state / "problem").touch()
        said = self.install(rc=1)
        self.assertIn("mend the problems above", said)
        self.assertEqual(self.current(), first)
        self.assertEqual(self.calls(), ["doctor --doctor"])

    def test_old_releases_go_and_those_in_use_stay(self):
        releases = []
        for number in range(6):
            self.make_programs(DAEMON + f"# {number}\n")
            self.install()
            releases.append(self.current())
        there = {f"releases/{path.name}"
                 for path in (self.root / LIB / "releases").iterdir()}
        self.assertLessEqual(len(there), 4)
        self.assertIn(releases[-1], there)
        self.assertIn(releases[-2], there)
        self.assertNotIn(releases[0], there)
        self.assertEqual(len(list((self.root / LIB / "deps").iterdir())), 2)

    def test_nothing_to_go_back_to(self):
        self.assertIn("there is no release before",
                      self.run_script("--rollback", rc=1))

    def test_uninstall_keeps_data_unless_told(self):
        self.install()
        (self.root / "var/lib/roundhouse/jobs.db").write_text("jobs")
        (self.root / "srv/roundhouse/data").write_text("data")
        self.calls()
        self.run_script("--uninstall")
        self.assertEqual(self.calls(),
                         ["systemctl stop roundhoused.service",
                          "systemctl disable --quiet roundhoused.service",
                          "systemctl daemon-reload"])
        there = self.listing()
        self.assertIn("var/lib/roundhouse/jobs.db", there)
        self.assertIn("etc/roundhouse/daemon.conf", there)
        self.assertNotIn(LIB, there)
        self.assertNotIn("etc/systemd/system/roundhoused.service", there)
        self.run_script("--uninstall", "--purge")
        self.assertEqual(self.calls(), ["userdel roundhouse",
                                        "groupdel roundhouse-users"])
        there = self.listing()
        self.assertNotIn("var/lib/roundhouse", there)
        self.assertNotIn("etc/roundhouse", there)
        # Members' own.
        self.assertIn("srv/roundhouse/data", there)

    def test_words_that_it_does_not_know(self):
        for words in (("--gpu",), ("install",), ("--root=",)):
            done = subprocess.run([SCRIPT, *words], capture_output=True,
                                  text=True, check=False,
                                  env={"PATH": "/usr/bin:/bin", "HOME": "/"})
            self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--purge goes with --uninstall",
                      self.run_script("--purge", rc=1))

    def test_programs_that_are_not_there(self):
        self.assertIn("has no server/roundhoused",
                      self.run_script(f"--programs={self.folder}", rc=1))
        (self.venv / ".made-from").unlink()
        self.assertIn("was not made by deploy/install-deps",
                      self.install(rc=1))


class PartsTest(unittest.TestCase):
    def test_settings_have_their_meaning_and_tests_none(self):
        text = daemon_conf.configuration(HELP)
        self.assertIn("# jobs, checkpoints, outputs; one daemon at a time [XDG "
                      "state\n# directory/roundhouse]\n"
                      "state-dir: /var/lib/roundhouse\n", text)
        self.assertIn("# the host arena [8GiB]\n#host-memory: BYTES\n", text)
        self.assertNotIn("kill-at", text)
        self.assertNotIn("config:", text)
        self.assertTrue(all(len(line) <= 80 for line in text.splitlines()))
        with self.assertRaises(ValueError):
            daemon_conf.configuration("no settings")

    def test_a_run_path_is_moved_entry_by_entry(self):
        self.assertEqual(
            find_wheels.moved("/w/nvidia/lib:/w/torch/lib:$ORIGIN/lib:/other",
                              "/w"),
            "$ORIGIN/wheels/nvidia/lib:$ORIGIN/wheels/torch/lib:$ORIGIN/lib")
        self.assertEqual(find_wheels.moved("/wide/lib", "/w"), "")

    def test_a_program_of_other_wheels_is_refused(self):
        with self.assertRaisesRegex(ValueError, "does not look for"):
            find_wheels.find_wheels(pathlib.Path("/bin/sh"), "/w")


if __name__ == "__main__":
    unittest.main()
