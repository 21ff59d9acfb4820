"""What BUILD files say: libraries, and which files are for tests alone."""

import ast
import dataclasses

TESTS = ("cc_test", "fuzz_test", "py_test", "python_test", "sh_test")
SOURCES = ("srcs", "src", "hdrs")


@dataclasses.dataclass
class Builds:
    """What the BUILD files that were added declare."""

    libraries: int = 0
    library_files: set = dataclasses.field(default_factory=set)
    test_files: set = dataclasses.field(default_factory=set)
    other_files: set = dataclasses.field(default_factory=set)

    def add(self, path, text):
        """Reads one BUILD file; path is from the root."""
        folder = path.rpartition("/")[0]
        default = False
        for call in calls(text):
            kind, arguments = call
            if kind == "package":
                default = truth(arguments.get("default_testonly"))
                continue
            files = {place(folder, name) for source in SOURCES
                     for name in strings(arguments.get(source))
                     if not name.startswith(("@", "//"))}
            testonly = kind in TESTS or truth(
                arguments.get("testonly"), default)
            (self.test_files if testonly else self.other_files).update(files)
            if kind in ("cc_library", "cuda_library"):
                self.libraries += 1
                self.library_files.update(files)

    def only_tests(self, path):
        """Whether test targets have this file and no other target has."""
        return path in self.test_files and path not in self.other_files


def calls(text):
    """(name, {keyword: expression}) of each rule, in order."""
    for statement in ast.parse(text).body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield node.func.id, {keyword.arg: keyword.value
                                     for keyword in node.keywords}


def strings(node):
    """Every string of an expression, the branches of a select too."""
    return [] if node is None else [
        part.value for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def truth(node, default=False):
    return bool(node.value) if isinstance(node, ast.Constant) else default


def place(folder, name):
    name = name.removeprefix(":")
    return f"{folder}/{name}" if folder else name
