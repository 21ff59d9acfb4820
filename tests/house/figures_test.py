"""Tests of the figures: what they count, and what --check lets pass."""

import pathlib
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import builds
import calls
import doors
import figures
import links
import source
import words

HEADER = """
#define BEGIN { (  // a directive is no code
namespace house {
class Later;
enum class Colour { kRed, kBlue };

// Comment with a brace { and a "quote.
template <typename T>
class ABSL_LOCKABLE(3) Room final : public Base<std::pair<int, T>>,
                                    private Other {
 public:
  using Callback = std::function<void(int)>;
  enum Kind { kOne, kTwo };
  struct Options {
    int size_bytes = 3;
    std::vector<int> sizes{1, 2};
  };
  Room() = default;
  Room(const Room&) = delete;
  explicit Room(int size) : size_(size), map_{{1, 2}} {
    auto inner = [this](int at) { return at; };
    size_ = inner(3);
  }
  int size() const { return size_; }
  bool operator==(const Room& other) const = default;
  void operator()(int a, int b);
  absl::Status Open(absl::string_view name = "a;{",
                    Callback done = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  virtual ~Room() = 0;

 private:
  friend class Later;
  static constexpr int kLimit = 1'000'000;
  static_assert(kLimit > 3);
  int size_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void(int, char)> done_;
  std::map<int, std::vector<int>> map_ = {{1, {2}}};
  char low_ = '{', high_ = '}';
  const char* text_ = R"(; } int no_field_; {)";
  struct { int x; } point_;
  absl::Mutex mutex_;
};
}  // namespace house
"""

BODIES = """
int Long(int a,
         int b) {
  if (a) {
    return 1;
  }
  return 2;
}
Room::Room(int a) : Base{a}, b_(3) {
}
TEST_F(RoomTest, IsThere) { EXPECT_TRUE(true); }
const int kTable[] = {
    1,
    2,
};
auto kLambda = [](int a) {
  return a;
};
bool Room::operator()(int a) const {
  return a;
}
"""


class SourceTest(unittest.TestCase):
    def test_counts_fields_and_methods(self):
        types = {kind.name: (kind.fields, kind.methods)
                 for kind in source.Reader(HEADER).types}
        # size_, done_, map_, low_, high_, text_, point_, mutex_; a
        # constructor, size, (), Open, the destructor. Defaulted functions
        # are no methods.
        self.assertEqual(types, {"Room": (8, 5), "Room::Options": (2, 0),
                                 "Room::(unnamed)": (1, 0)})

    def test_says_where_a_type_is(self):
        room = source.Reader(HEADER).types[0]
        self.assertIn("private Other {", HEADER.splitlines()[room.line - 1])

    def test_measures_functions(self):
        found = [(function.name, function.line, function.lines)
                 for function in source.Reader(BODIES).functions]
        self.assertEqual(found, [
            ("Long", 2, 7), ("Room::Room", 9, 2),
            ("TEST_F(RoomTest, IsThere)", 11, 1),
            ("Room::operator()", 19, 3)])

    def test_a_line_that_is_a_macro_begins_no_function(self):
        found = source.Reader("CREAT(creat)\nCREAT(creat64)\n\n" + "\n" * 70 +
                              "long syscall(long number) {\n  return 0;\n}\n")
        self.assertEqual([(function.name, function.line, function.lines)
                          for function in found.functions],
                         [("syscall", 74, 3)])

    def test_a_function_of_61_lines_is_told_from_one_of_60(self):
        for statements in (58, 59):
            text = "void F() {\n" + "  G();\n" * statements + "}\n"
            function, = source.Reader(text).functions
            self.assertEqual(function.lines, statements + 2)

    def test_blank_keeps_every_line(self):
        for text in (HEADER, BODIES, 'a("\\"//"); // "b"\n/* x\n" */ c'):
            self.assertEqual(source.blank(text).count("\n"),
                             text.count("\n"))
        self.assertEqual(source.blank('a("\\"//"); // "b"').rstrip(),
                         'a("    ");')

    def test_reads_comments(self):
        self.assertEqual(
            source.cpp_comments('a = "// no"; // One.\n// Two,\n// three.\n\n'
                                "// Four.\n/* Five\n * six. */\n"),
            [source.Comment(1, "One."), source.Comment(2, "Two,\nthree."),
             source.Comment(5, "Four."), source.Comment(6, "Five\nsix.")])
        self.assertEqual(
            source.python_comments('"""Doc."""\nx = "# no"  # One.\n'
                                   'def f():\n    """Of f."""\n'),
            [source.Comment(1, "Doc."), source.Comment(2, "One."),
             source.Comment(4, "Of f.")])
        self.assertEqual(
            source.shell_comments('#!/bin/sh\n# One\n# two.\n'
                                  'a="# no"; b=$# # Three.\n'),
            [source.Comment(2, "One\ntwo."), source.Comment(4, "Three.")])
        self.assertEqual(
            [comment.text for comment in source.html_comments(
                "<!-- One -->\n<a href='//x'>\n// Two\n")], ["One", "Two"])

    def test_measures_python(self):
        text = "@wrapped\ndef f():\n    def g():\n        pass\n    g()\n"
        self.assertEqual({f.name: f.lines
                          for f in source.python_functions(text)},
                         {"f": 4, "g": 2})


    def test_counts_parameters(self):
        for header, count in (
                ("void F()", 0), ("void F(int a)", 1),
                ("std::map<int, int> F(std::map<int, int> a, int b) const", 2),
                ("Room::Room(int a, std::vector<int> b = {1, 2}, "
                 "std::function<void(int, int)> c) : a_(a, 1)", 3),
                ("bool operator()(const T& a, T b) const noexcept", 2),
                ("template <typename A, typename B>\nA F(A a, B b)", 2),
                ("T F(int a) ABSL_EXCLUSIVE_LOCKS_REQUIRED(b, c)", 1)):
            self.assertEqual(len(source.parameters(header)), count, header)
        function, = source.Reader("int F(int a,\n      int b) {\n}").functions
        self.assertEqual(function.parameters, 2)


class CallsTest(unittest.TestCase):
    OURS = {"Open", "Lease", "set_open"}

    def found(self, text):
        return [(boolean.name, boolean.line)
                for boolean in calls.booleans(text, self.OURS)]

    def test_finds_a_bare_boolean_of_our_own_calls(self):
        for text, name in (
                ("Open(true);", "Open"), ("a.Open(b, false, c);", "Open"),
                ("Open(b(1, 2), {3},\n\n     /*whole=*/true);", "Open"),
                ("F(Open(true));", "Open"), ("door->set_open(true);",
                                             "set_open"),
                ("Lease lease(1, true);", "Lease"),
                ("return Lease{true, 3};", "Lease"),
                ("new Lease(true)", "Lease"),
                ("std::make_unique<Lease>(1, false)", "Lease"),
                ("std::make_unique<house::Lease>(true)", "Lease"),
                ("Open<int>(true)", "Open"),
                ("auto add = [&](int a, bool b) {};\nadd(1, true);", "add")):
            line = text.count("\n") + 1
            self.assertEqual(self.found(text), [(name, line)], text)

    def test_leaves_what_has_a_name_or_is_not_ours(self):
        for text in ("Open({.whole = true});", "Lease{.whole = true};",
                     "bool whole = true;", "Other(true);", "open(true);",
                     "Open(a == true);", "Open(!true);", "Open(x[true]);",
                     "EXPECT_EQ(true, Open(1));", "std::exchange(a, true);",
                     "Open(a, b ? true : false);", "a.store(true);",
                     "// Open(true)", 'Open("true, ");',
                     "void Open(bool whole = true);"):
            self.assertEqual(self.found(text), [], text)

    def test_knows_the_names_of_a_file(self):
        reader = source.Reader(
            "struct Lease { bool Held() const { return true; }\n"
            "  bool open() const { return x; }\n"
            "  void set_open(bool to) { x = to; } };\n"
            "void House::Open(int a) {}\nbool BoolOr(bool a) {}\n")
        self.assertEqual(calls.names(reader),
                         {"Lease", "Held", "set_open", "Open"})


class WordsTest(unittest.TestCase):
    def test_finds_the_dialect_where_a_comment_begins(self):
        comment = source.Comment(7, "Of slots.\nThat goes on.\n\n"
                                    "Those are.\nOften.")
        self.assertEqual(list(words.dialect(comment)),
                         [(7, "Of slots."), (10, "Those are.")])
        for text in ("Often it is.", "Thatch.", "A list of those.",
                     "of one word"):
            self.assertEqual(list(words.dialect(source.Comment(1, text))), [])

    def test_counts_words_of_sentences(self):
        text = textwrap.dedent("""\
            # A heading

            One two three.
            Four `five and six` [seven eight](nine.md). Ten e.g. eleven.

            - a b
              c
            - d

            | x y | z |
            |---|---|

            ```
            not this one
            ```
            <!-- nor
            this -->
            """)
        self.assertEqual([(line, len(found))
                          for line, found in words.sentences(text)],
                         [(1, 2), (3, 3), (3, 4), (3, 3), (6, 3), (8, 1),
                          (10, 2), (10, 1)])

    def test_finds_documents_that_are_missing(self):
        paths = {"docs/guide.md", "README.md", "tests/README.md"}
        names = {"guide.md", "README.md"}
        text = ("See guide.md and [this](../README.md), docs/guide.md\n"
                "but DESIGN.md, docs/lost.md, the fault table\n"
                "and CONTROL_PLANE's R1; https://x.org/their.md *.md x.mdx\n")
        self.assertEqual(
            list(words.missing_documents("docs/a.md", text, paths, names)),
            [(2, "DESIGN.md"), (2, "docs/lost.md"), (2, "fault table"),
             ])
        self.assertEqual(
            list(words.missing_documents("docs/a.md", "CONTROL_PLANE's R1",
                                         paths, names)),
            [(1, "CONTROL_PLANE's")])


class LinksTest(unittest.TestCase):
    TEXTS = {
        "README.md": "# House\n",
        "docs/a.md": "# A & B, `c`\n## Twice\n```\n# Code\n```\n## Twice\n"
                     "<a id=\"own\"></a>\n",
        "docs/in/b.md": "", "server/x/y.h": "", "server/x/y.cc": "",
        "tests/run.py": "", "docs/z.svg": "",
    }

    def missing(self, text, path="docs/in/b.md"):
        texts = self.TEXTS | {path: text}
        targets = links.Targets(["docs/picture.png", *texts], texts)
        return list(links.missing(path, text, targets))

    def test_a_link_must_lead_to_a_file_or_folder(self):
        self.assertEqual(self.missing(
            "[a](../a.md) [r](../../README.md) [f](../../server/x/) [.](.)\n"
            "![p](../picture.png \"title\") [root](../..) [s](<../z.svg>)\n"
            "[out](https://x.org/y.md) [m](mailto:a@b) `[no](link.md)`\n"
            "```\n[no](link.md)\n```\n"), [])
        self.assertEqual(self.missing("[r](../server/x)", "docs/a.md"), [])
        for link in ("a.md", "../b.md", "../../../README.md", "/README.md",
                     "../../server/x/y", "../../server/z/"):
            self.assertEqual(self.missing(f"x\n\nSee [`y`]({link})."),
                             [(3, f"the link {link} leads nowhere")])
        self.assertEqual(self.missing("[x](server/lost)", "README.md"),
                         [(1, "the link server/lost leads nowhere")])
        self.assertEqual(self.missing("[1]: lost.md"),
                         [(1, "the link lost.md leads nowhere")])

    def test_an_anchor_must_be_in_the_document(self):
        self.assertEqual(self.missing(
            "[1](../a.md#a--b-c) [2](../a.md#twice) [3](../a.md#twice-1)\n"
            "[4](../a.md#own) [5](#here) [6](../../server/x/y.h#L3)\n"
            "# Here\n"), [])
        for anchor in ("code", "twice-2", "A--b-c", "ab-c"):
            self.assertEqual(self.missing(f"[1](../a.md#{anchor})"), [
                (1, f"docs/a.md has no anchor {anchor}")])
        self.assertEqual(self.missing("[1](#there)\n# Here\n"),
                         [(1, "docs/in/b.md has no anchor there")])

    def test_a_path_must_be_in_the_repository(self):
        self.assertEqual(self.missing(
            "`server/x/y.h`, `server/x/y`, server/x/y.cc, `server/x/`,\n"
            "`tests/run --flag`; (`server/*/y.*`) bazel test tests/...\n"
            "`docs/z.svg:3`, (server/x). https://x.org/server/lost.h\n"
            "bazel-bin/server/lost //server/lost:z fileserver/lost lost.h\n"
            "```\nserver/lost.h\n```\n"), [])
        for name in ("server/lost.h", "server/x/y.py", "server/x/z",
                     "server/lost/", "server/y/", "tests/*.cc", "base/x",
                     ".ci/run", "server/x/y/"):
            for text in (f"See\n`{name}`.", f"|a|\n| x, {name} |",
                         f"a\n`ls {name}`", f"1. One.\n2. **{name}** is.",
                         f"b\n[{name}](../a.md)"):
                self.assertEqual(self.missing(text), [
                    (2, f"{name} is not in the repository")], text)

    def test_a_mark_lets_its_paragraph_name_what_was(self):
        text = textwrap.dedent("""\
            <!-- not in this tree -->
            - Before: `server/lost.h`,
              [gone](gone.md).
            - `server/lost2.h`

            - `server/lost3.h`
            """)
        self.assertEqual(self.missing(text), [
            (6, "server/lost3.h is not in the repository")])

    def test_a_mark_that_nothing_needs_is_reported(self):
        mark = links.MARK
        self.assertEqual(self.missing(
            f"{mark}\n`server/lost.h`\n\n{mark}\n`server/x/y.h`\n"
            f"```\n{mark}\n```\n"),
            [(4, f"nothing is missing under {mark}")])


class BuildsTest(unittest.TestCase):
    def test_tells_tests_from_production(self):
        found = builds.Builds()
        found.add("a/BUILD.bazel", textwrap.dedent("""\
            load("//bazel:cc.bzl", "cc_library", "cc_test")
            package(default_visibility = ["//visibility:public"])
            cc_library(name = "x", srcs = ["x.cc"] + select({
                "//c": ["y.cc"], "//d": []}), hdrs = [":x.h"])
            cc_library(name = "f", testonly = True, srcs = ["fake.cc", "x.h"])
            cc_test(name = "t", srcs = ["t_test.cc", "t.h"], deps = [":x"])
            """))
        found.add("BUILD.bazel", 'package(default_testonly = True)\n'
                                 'cc_library(name = "r", srcs = ["r.cc"])\n')
        self.assertEqual(found.libraries, 3)
        for path, only in (("a/x.cc", False), ("a/y.cc", False),
                           ("a/x.h", False), ("a/fake.cc", True),
                           ("a/t.h", True), ("r.cc", True)):
            self.assertEqual(found.only_tests(path), only, path)


class TreeTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        self.paths = []

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)
        self.paths.append(path)

    def tree(self):
        return figures.Tree(self.root, self.paths)

    def fill(self):
        fields = "".join(f"  int f{n}_;\n" for n in range(31))
        self.write("a/x.h", f"// Of x.\nclass X {{\n  void F();\n{fields}}};\n")
        self.write("a/x.cc", "// See DESIGN.md\nvoid F() {\n" +
                   "  G();\n" * 59 + "}\n")
        self.write("a/y.cc", "void Many(int a, int b, int c, int d, int e, "
                   "int f, int g) {}\nvoid Few(bool a, int b, int c, int d, "
                   "int e, int f) {}\nvoid G() { Few(true, 1, 2, 3, 4, 5); }\n")
        self.write("a/x_test.cc", "// Those.\nvoid G(int a, int b, int c, "
                   "int d, int e, int f, int g) { Few(true); }\n")
        self.write("a/fake.cc", "int a;\n" * 10)
        self.write("a/tool.py", '"""A tool."""\n')
        self.write("a/run", "#!/bin/sh\n# Likewise.\n")
        self.write("a/BUILD.bazel", 'cc_library(name = "x", srcs = ["x.cc"], '
                   'hdrs = ["x.h"])\ncc_library(name = "fake", testonly = '
                   'True, srcs = ["fake.cc"])\n')
        self.write("tests/t.cc", "int b;\n" * 6000)
        self.write("a/README.md", "word " * 41 + ".\n\n" + "word " * 40)
        self.write("docs/x.md", "word " * 41 + "\n`tests/lost.cc`\n")
        self.write("a/large.bin", "")
        (self.root / "a/large.bin").write_bytes(b"\xff\xfe\x00")

    def test_finds_every_broken_rule_with_its_place(self):
        self.fill()
        broken = self.tree().broken()
        places = {rule: [str(place) for place in found]
                  for rule, found in broken.items()}
        self.assertEqual(places, {
            "comments": ["a/x.h:1: Of x.", "a/x_test.cc:1: Those.",
                         "a/run:2: Likewise."],
            "sentences": [f"a/README.md:1: 41 words: {'word ' * 8}..."],
            "documents": ["a/x.cc:1: DESIGN.md is not in the repository"],
            "links": ["docs/x.md:2: tests/lost.cc is not in the repository"],
            "functions": ["a/x.cc:2: F has 61 lines"],
            "parameters": ["a/y.cc:1: Many has 7 parameters"],
            "booleans": ["a/y.cc:3: Few(... true ...)"],
            "fields": ["a/x.h:2: X has 31 fields"],
            "rooms": [],
            "circles": [],
            "clock": [],
            "descriptors": [],
            "sleeps": []})
        self.assertEqual(set(broken), set(figures.RULES))

    def test_a_list_of_values_may_be_long(self):
        fields = "".join(f"  int f{n};\n" for n in range(31))
        equal = "  friend bool operator==(const X&, const X&) = default;\n"
        for methods, broken in ((equal, 0), (equal + "  int Sum();\n", 1)):
            self.write("a/x.h", f"struct X {{\n{fields}{methods}}};\n")
            self.write("a/BUILD.bazel",
                       'cc_library(name = "x", hdrs = ["x.h"])\n')
            self.assertEqual(len(self.tree().broken()["fields"]), broken)

    def test_a_room_is_its_production_code(self):
        self.fill()
        tree = self.tree()
        self.assertEqual(tree.rooms(), {"a": {".h": [1, 35], ".cc": [2, 65],
                                              ".py": [1, 1]}})
        self.write("b/y.cc", "int c;\n" * 5001)
        self.write("c/y.cc", "int c;\n" * 5000)
        self.assertEqual([(place.key, place.count)
                          for place in self.tree().broken()["rooms"]],
                         [("b", 5001)])

    def circles(self):
        return [(place.key, place.file, place.line)
                for place in self.tree().broken()["circles"]]

    def test_rooms_that_include_each_other_in_a_circle(self):
        self.write("server/a/x.h", '#include "server/b/y.h"\n')
        self.write("server/b/y.h", '#include <map>\n#include "server/c/z.h"\n')
        self.write("server/c/z.h", '#include "base/w.h"\n')
        self.write("worker/main.cc", '#include "worker/d/v.h"\n')
        self.write("worker/d/v.h", '#include "worker/clock.h"\n'
                                   '#include "worker/d/e/u.h"\n')
        self.write("worker/d/e/u.h", '#include "worker/d/v.h"\n')
        self.assertEqual(self.circles(), [])
        self.write("server/c/z_test.cc", '#include "server/a/x.h"\n')
        self.assertEqual(self.circles(), [], "tests may include all")
        self.write("server/c/z.cc", '#include "server/a/x.h"\n')
        self.assertEqual(self.circles(), [
            ("server/a", "server/a/x.h", 1), ("server/b", "server/b/y.h", 2),
            ("server/c", "server/c/z.cc", 1)])

    def test_the_report_has_all_figures(self):
        self.fill()
        found = self.tree().figures()
        self.assertEqual(found["production_lines"], 101)
        self.assertEqual(found["other_lines"], 6012)
        self.assertEqual(found["libraries"], 2)
        self.assertEqual(found["small_library_files"], 1)
        self.assertEqual(found["sentences"], {"a/README.md": [2, 1],
                                              "docs/x.md": [1, 1]})
        text = "\n".join(figures.table(found))
        for line in ("| `X` | a/x.h | 31 | 1 |",
                     "| a | 4 | 65 | 35 | 0 | 1 | 101 |",
                     "| production lines | 101 |", "| docs/x.md | 1 | 1 |",
                     "- a/x.cc:2: F has 61 lines"):
            self.assertIn(line, text)


class DoorsTest(unittest.TestCase):
    def places(self, rule, path, text, production=True):
        if not doors.applies(rule, path, production):
            return []
        return list(doors.past(rule, text))

    def test_reads_of_the_clock(self):
        text = ("a = absl::Now();\n// absl::Now() in a comment\n"
                "using std::chrono::seconds;\n"
                'clock_gettime(CLOCK_MONOTONIC, &b); c("absl::Now()");\n'
                "d = time(nullptr); e = clock_.WallTime(); f = NoTime(0);\n")
        self.assertEqual(self.places("clock", "server/a.cc", text),
                         [(1, "absl::Now"), (3, "std::chrono"),
                          (4, "clock_gettime"), (5, "time(nullptr)")])
        for path in ("base/clock.cc", "base/mutex.h", "client/a.cc"):
            self.assertEqual(self.places("clock", path, text), [])
        self.assertEqual(self.places("clock", "server/a_test.cc", text, False),
                         [])

    def test_descriptors(self):
        text = ("close(a);\nfile.close(); b->close(); Unclose(c);\n"
                "::close(d);\n")
        self.assertEqual(self.places("descriptors", "base/a.h", text),
                         [(1, "close"), (3, "::close")])
        self.assertEqual(
            self.places("descriptors", "base/files/descriptor.h", text), [])

    def test_sleeps(self):
        text = "absl::SleepFor(a);\nb.asleep(); usleep(3);\n"
        self.assertEqual(self.places("sleeps", "server/a_test.cc", text, False),
                         [(1, "SleepFor"), (2, "usleep")])
        self.assertEqual(self.places("sleeps", "server/a.cc", text), [])


class RatchetTest(unittest.TestCase):
    def places(self, rule, **numbers):
        return {rule: [figures.Place(key, 1, key, at + 1, "x")
                       for key, count in numbers.items()
                       for at in range(count)]}

    def problems(self, broken, allowed):
        return list(figures.problems(broken, allowed))

    def test_what_is_not_listed_fails_with_its_place(self):
        found = self.problems(self.places("comments", a=1, b=2),
                              {"comments": {"a": 1}})
        self.assertEqual([line.split(" ")[0] for line in found],
                         ["b:1:", "b:2:"])

    def test_one_more_than_listed_fails(self):
        self.assertEqual(self.problems(self.places("comments", a=2),
                                       {"comments": {"a": 2}}), [])
        self.assertEqual(len(self.problems(self.places("comments", a=3),
                                           {"comments": {"a": 2}})), 3)

    def test_a_number_that_is_too_high_fails(self):
        found, = self.problems(self.places("comments", a=1),
                               {"comments": {"a": 2}})
        self.assertIn("--lower", found)
        found, = self.problems({"comments": []}, {"comments": {"a": 2}})
        self.assertIn("--lower", found)

    def test_sizes_may_lie_below_their_number_while_they_break_the_rule(self):
        room = figures.Place("a", 6000, "a", 1, "x")
        allowed = {"rooms": {"a": 6100}}
        self.assertEqual(self.problems({"rooms": [room]}, allowed), [])
        self.assertEqual(len(self.problems({"rooms": []}, allowed)), 1)
        self.assertEqual(len(self.problems(
            {"rooms": [room]}, {"rooms": {"a": 5999}})), 1)

    def test_lower_never_raises(self):
        for found, before, after in (
                ({"a": 1, "b": 1}, {"a": 2, "b": 3}, {"a": 1, "b": 1}),
                ({"a": 5, "b": 1}, {"a": 2, "b": 3}, {"a": 2, "b": 1}),
                ({"new": 2}, {"old": 2}, {"new": 2}),
                ({"new": 3}, {"old": 2}, None), ({}, {"a": 1}, None)):
            with self.subTest(found=found):
                self.assertEqual(
                    figures.lowered(self.places("comments", **found),
                                    {"comments": before}),
                    {"comments": after} if after else {})
        room = figures.Place("a", 6001, "a", 1, "x")
        for before, after in ((7000, 6500), (6050, 6050)):
            self.assertEqual(figures.lowered({"rooms": [room]},
                                             {"rooms": {"a": before}}),
                             {"rooms": {"a": after}})


if __name__ == "__main__":
    unittest.main()
