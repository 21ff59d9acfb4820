"""Tests of how gpu-bundle makes programs movable and packs them."""

import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = pathlib.Path(__file__).absolute().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import pack  # noqa: E402  found by the line before
import run_path  # noqa: E402

WORKER = ROOT / "worker/roundhouse-worker"


class PackTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_run_path_is_replaced_and_the_rest_stays(self):
        path = self.folder / "worker"
        shutil.copyfile(WORKER, path)
        path.chmod(0o755)
        old = run_path.run_path(path)
        self.assertIn("/torch/lib", old)
        run_path.set_run_path(path, "$ORIGIN/lib")
        self.assertEqual(run_path.run_path(path), "$ORIGIN/lib")
        shown = subprocess.run(["readelf", "-d", path], capture_output=True,
                               text=True, check=True).stdout
        self.assertIn("[$ORIGIN/lib]", shown)
        before, after = WORKER.read_bytes(), path.read_bytes()
        self.assertEqual(len(before), len(after))
        self.assertLessEqual(sum(a != b for a, b in zip(before, after)),
                             len(old))
        with self.assertRaisesRegex(ValueError, "is longer than"):
            run_path.set_run_path(path, "x" * 12)

    def test_what_is_no_program_is_refused(self):
        path = self.folder / "text"
        path.write_text("no ELF at all")
        with self.assertRaises(run_path.NotElf):
            run_path.set_run_path(path, "")

    def test_libtorch_and_the_system_do_not_go_along(self):
        for name in pack.carried(WORKER):
            self.assertNotRegex(name, r"torch|c10|cuda|cudart|stdc\+\+|libc\.")

    def test_the_dataset_helper_goes_along_without_its_tests(self):
        found = {path.as_posix() for pattern in pack.FILES
                 if pattern.startswith("server/")
                 for path in pack.named_files(pattern)}
        there = {path.relative_to(ROOT).as_posix()
                 for path in (ROOT / "server/prepare").rglob("*.py")
                 if "test" not in path.name}
        self.assertEqual(found, there)
        self.assertIn("server/prepare/prepare.py", found)
        for name in ("prepare_testing", "prepare_test", "rows/nasty_test"):
            self.assertTrue(pack.LEFT_OUT.fullmatch(f"server/prepare/{name}.py"))

    def test_the_same_files_are_the_same_archive(self):
        (self.folder / "in").mkdir()
        (self.folder / "in/file").write_text("text")
        (self.folder / "in/link").symlink_to("file")
        made = []
        for name in ("a", "b"):
            pack.write_archive(self.folder / "in", self.folder / name)
            made.append((self.folder / name).read_bytes())
        self.assertEqual(made[0], made[1])
        with tarfile.open(self.folder / "a") as archive:
            self.assertEqual(archive.getnames(), ["roundhouse-gpu/file",
                                                  "roundhouse-gpu/link"])


if __name__ == "__main__":
    unittest.main()
