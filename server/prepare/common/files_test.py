"""What the dataset helper may open: what the daemon has given it, and its own."""

import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from common import files


class GivenFilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "a.json").write_text('{"a": 1}')
        (self.folder / "b.json").write_text('{"b": 2}')
        self.given = os.open(self.folder / "a.json", os.O_RDONLY)
        self.addCleanup(os.close, self.given)

    def give(self, names):
        return mock.patch.object(files, "GIVEN", names)

    def test_names_are_paths_when_nothing_is_given(self):
        self.assertEqual(
            files.read_json_object(str(self.folder / "b.json")), {"b": 2})

    def test_only_what_is_given_is_there(self):
        with self.give({"/models/m/config.json": self.given}):
            for _ in range(2):  # each time from the beginning
                self.assertEqual(
                    files.read_json_object("/models/m/config.json"), {"a": 1})
            path = str(self.folder / "b.json")
            self.assertIsNone(files.read_json_object(path))
            self.assertIsNone(files.user_file_sha256(path, 1 << 20))
            with self.assertRaises(FileNotFoundError):
                files.open_regular(path, 1 << 20)
            self.assertEqual(files.read_json_object(path, own=True), {"b": 2})

    def test_a_given_file_keeps_to_its_limit(self):
        with self.give({"x": self.given}):
            with self.assertRaises(files.DataError):
                files.open_regular("x", 3)


if __name__ == "__main__":
    unittest.main()
