"""Takes C++ and other source text apart, well enough to count things in it.

Nothing here is a parser of the language: comments and strings are blanked,
braces are matched, and what stands before a brace says what the brace opens.
That is sound for code that clang-format has laid out.
"""

import ast
import bisect
import dataclasses
import io
import re
import tokenize

# What is blanked: comments, raw strings, strings, characters. A quote between
# digits only separates them.
IGNORED = re.compile(
    r"(?P<line>//(?:\\\n|[^\n])*)"
    r"|(?P<block>/\*.*?\*/)"
    r'|R"(?P<end>[^\s()\\]*)\(.*?\)(?P=end)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
TYPE = re.compile(
    r"\b(?:class|struct|union)\b(?:\s*\[\[.*?\]\]|\s+[A-Z][A-Z_]+\(.*?\)"
    r"|\s+alignas\(.*?\))*\s*(?P<name>[\w:]+)?\s*(?:<.*>)?\s*(?:final\s*)?"
    r"(?::(?!:).*)?$",
    re.DOTALL,
)
# A macro that annotates, with its arguments.
ANNOTATION = re.compile(r"\b(?:ABSL|ROUNDHOUSE|GUARDED|REQUIRES|EXCLUDES|"
                        r"ACQUIRE|RELEASE|LOCKS|PT_GUARDED)[A-Z_]*\s*\(")
ACCESS = re.compile(r"\b(?:public|protected|private)\s*:(?!:)")
MACRO_LINE = re.compile(r"^[A-Z][A-Z0-9_]*\([^()\n]*\) *\n", re.MULTILINE)
NOT_A_MEMBER = re.compile(
    r"^(?:using|typedef|friend|static_assert|enum|class|struct|union|"
    r"namespace)\b")
SHELL_COMMENT = re.compile(
    r"^(?:[^'\"#]|'[^']*'|\"(?:\\.|[^\"\\])*\"|(?<=\S)#)*?"
    r"(?:(?<=\s)|^)#(?!!)(?P<text>.*)")


@dataclasses.dataclass(frozen=True)
class Comment:
    """One comment: lines that follow each other are one."""

    line: int
    text: str


@dataclasses.dataclass(frozen=True)
class Function:
    """A function with a body, from its first line to its closing brace."""

    name: str
    line: int
    lines: int
    parameters: int = 0  # in C++


@dataclasses.dataclass
class Type:
    """A class or struct and how much it declares."""

    name: str
    line: int
    fields: int = 0
    methods: int = 0


class Lines:
    """Line numbers of offsets into a text."""

    def __init__(self, text):
        self._starts = [0] + [m.end() for m in re.finditer("\n", text)]

    def of(self, offset):
        return bisect.bisect_right(self._starts, offset)


def spaces(text):
    return re.sub(r"[^\n]", " ", text)


def blank(text):
    """The code alone: everything else is spaces, every line is in its place.
    A string leaves its quotes, so that something stands there."""
    def replace(match):
        found = match[0]
        if match["line"] or match["block"]:
            return spaces(found)
        return found[0] + spaces(found[1:-1]) + found[-1]
    code = IGNORED.sub(replace, text)
    return DIRECTIVE.sub(lambda match: spaces(match[0]), code)


def joined(pieces):
    """Comments of (line, whole line or not, text), lines in a row as one."""
    found, last = [], None
    for line, alone, text in pieces:
        if alone and last == line - 1:
            found[-1] = Comment(found[-1].line, f"{found[-1].text}\n{text}")
        else:
            found.append(Comment(line, text))
        last = line if alone else None
    return found


def cpp_comments(text):
    """Comments of C++, CUDA and protocol buffers."""
    lines, pieces = Lines(text), []
    for match in IGNORED.finditer(text):
        before = text[text.rfind("\n", 0, match.start()) + 1:match.start()]
        line = lines.of(match.start())
        if match["line"]:
            pieces.append((line, not before.strip(),
                           match[0].lstrip("/").strip()))
        elif match["block"]:
            pieces.append((line, False, re.sub(
                r"(?m)^[ \t]*\*+[ \t]?", "", match[0][2:-2]).strip(" *\n")))
    return joined(pieces)


def python_comments(text):
    """Comments and docstrings of Python; comments of Starlark too."""
    pieces = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            pieces.append((token.start[0],
                           not token.line[:token.start[1]].strip(),
                           token.string.lstrip("#").strip()))
    found = joined(pieces)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef,
                             ast.AsyncFunctionDef)):
            words = ast.get_docstring(node)
            if words:
                found.append(Comment(node.body[0].lineno, words))
    return sorted(found, key=lambda comment: comment.line)


def shell_comments(text):
    """Comments of shell, YAML and other files that begin them with #."""
    pieces = []
    for number, line in enumerate(text.splitlines(), 1):
        found = SHELL_COMMENT.match(line)
        if found:
            pieces.append((number, line.lstrip().startswith("#"),
                           found["text"].strip()))
    return joined(pieces)


def html_comments(text):
    """Comments of a page, its style and its script, each of one line."""
    found = [Comment(Lines(text).of(match.start()), match[1].strip())
             for match in re.finditer(r"<!--(.*?)-->|/\*(.*?)\*/", text,
                                      re.DOTALL) if match[1]]
    pieces = [(number, True, match[1].strip())
              for number, line in enumerate(text.splitlines(), 1)
              if (match := re.match(r"\s*(?://|/\*)\s*(.*)", line))]
    return sorted(found + joined(pieces), key=lambda comment: comment.line)


def closing(code, start, pair="()"):
    """The offset of what closes the bracket at start; the end if nothing."""
    depth = 0
    for at in range(start, len(code)):
        if code[at] == pair[0]:
            depth += 1
        elif code[at] == pair[1]:
            depth -= 1
            if depth == 0:
                return at
    return len(code)


def without_angles(text):
    """The text without template arguments, which may have parentheses."""
    kept, depth = [], 0
    text = re.sub(r"\btemplate\s+<", "template<", text)
    for at, character in enumerate(text):
        if character == "<" and at and (depth or re.match(
                r"[\w:]", text[at - 1])) and text[at:at + 2] != "<=":
            depth += 1
        elif character == ">" and depth and text[at - 1] != "-":
            depth -= 1
        elif not depth:
            kept.append(character)
    return "".join(kept)


def without_annotations(text):
    while found := ANNOTATION.search(text):
        text = (text[:found.start()] +
                text[closing(text, found.end() - 1) + 1:])
    text = re.sub(r"\[\[.*?\]\]", " ", text, flags=re.DOTALL)
    return re.sub(r"\balignas\s*\([^()]*\)", " ", text)


def opens(header):
    """What a brace after this text opens: a type (its match), a namespace,
    a function, an initialiser, or a value."""
    plain = without_annotations(header).strip()
    if re.match(r"(?:inline\s+)?namespace\b|extern\s*\"", plain):
        return "namespace"
    bare = without_angles(plain)
    bare = re.sub(r"^template\s*", "", bare)
    if re.match(r"enum\b|using\b|typedef\b", bare):
        return "value"
    found = TYPE.match(bare)
    if found and "(" not in bare.split(":")[0] and "=" not in bare:
        return found
    if "(" not in bare and "operator" not in bare:
        return "value"
    parameters = bare.find("(")
    if re.search(r"operator\s*$", bare[:parameters]):  # operator()(...)
        parameters = bare.find("(", closing(bare, parameters))
    after = bare[closing(bare, parameters) + 1:].strip()
    if "=" in bare[:parameters] and "operator" not in bare[:parameters]:
        return "value"
    if re.match(r":(?!:)", after) and re.search(r"[\w>]$", after):
        return "initialiser"
    return "function"


def name_of(header):
    plain = without_annotations(header).strip()
    plain = re.sub(r"^template\s*", "", without_angles(plain))
    found = re.search(r"([\w:~]*operator[^(]*(?:\(\))?|[\w:~]+)\s*\(", plain)
    if not found:
        return "?"
    name = found[1].strip()
    if re.fullmatch(r"TEST(_[FP])?|TYPED_TEST(_P)?", name):
        inside = plain[found.end():closing(plain, found.end() - 1)]
        return f"{name}({' '.join(inside.split())})"
    return name


def pieces(text):
    """What commas outside every bracket separate; nothing for nothing."""
    found, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "({[") - (character in ")}]")
        if character == "," and depth == 0:
            found.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return found + [last] if last or found else []


def parameters(header):
    """The parameters of the function that has this before its brace."""
    plain = without_annotations(header).strip()
    plain = re.sub(r"^template\s*", "", without_angles(plain)).strip()
    begin = plain.find("(")
    if re.search(r"operator\s*$", plain[:begin]):  # operator()(...)
        begin = plain.find("(", closing(plain, begin))
    return pieces(plain[begin + 1:closing(plain, begin)])


class Reader:
    """Walks a blanked file's braces once; has its functions and types."""

    def __init__(self, text):
        self._code = blank(text)
        self._lines = Lines(text)
        self.functions = []
        self.types = []
        self._scope(0, len(self._code), None, "")

    def _scope(self, at, end, owner, prefix):
        """Reads declarations up to end; those of a type if there is owner."""
        code, start = self._code, at
        while at < end:
            character = code[at]
            if character in "([":
                at = closing(code, at, character + ")]"["([".find(character)])
            elif character == ";":
                self._declared(code[start:at], owner)
                start = at + 1
            elif character == ":" and owner and ACCESS.search(
                    code[start:at + 1]) and code[at + 1:at + 2] != ":":
                start = at + 1
            elif character == "{":
                close = min(closing(code, at, "{}"), end)
                if self._body(start, at, close, owner, prefix):
                    start = close + 1
                at = close
            at += 1

    def _body(self, start, brace, close, owner, prefix):
        """Reads what the brace opens; whether a declaration ends there."""
        header = self._code[start:brace]
        # Lines such as CREAT(creat64): macros, each a declaration by itself.
        macros = list(MACRO_LINE.finditer(header))
        if macros:
            start += macros[-1].end()
            header = header[macros[-1].end():]
        kind = opens(header)
        if kind == "namespace":
            self._scope(brace + 1, close, None, prefix)
            return True
        if kind == "function":
            first = self._lines.of(start + len(header) -
                                   len(header.lstrip()))
            self.functions.append(Function(
                name_of(header), first, self._lines.of(close) - first + 1,
                len(parameters(header))))
            self._declared(header, owner)
            return True
        if isinstance(kind, str):
            return False
        name = f"{prefix}{kind['name'] or '(unnamed)'}"
        kept = Type(name, self._lines.of(brace))
        self.types.append(kept)
        self._scope(brace + 1, close, kept, f"{name}::")
        return False

    def _declared(self, text, owner):
        if owner is None:
            return
        text = without_annotations(ACCESS.sub(" ", text)).strip()
        text = re.sub(r"^template\b", "", without_angles(text)).strip()
        text = re.sub(r"\{.*\}", "{}", text, flags=re.DOTALL)
        nested = re.match(r"(?:class|struct|union|enum)\b[^{]*\{\}", text)
        if nested:  # the type is counted apart; it may declare a field, too
            text = f"x {text[nested.end():].strip()}"
            if text == "x ":
                return
        if not text or NOT_A_MEMBER.match(text):
            return
        before_value = re.split(r"(?<!operator)=(?!=)|\{", text, maxsplit=1)[0]
        if "(" in before_value or "operator" in before_value:
            if not re.search(r"=\s*(?:delete|default)\s*$", text):
                owner.methods += 1
        elif not re.match(r"(?:inline\s+)?static\b|constexpr\b", text):
            owner.fields += 1 + self._more(text)

    @staticmethod
    def _more(text):
        """Declarators after the first one: int a, b."""
        depth = count = 0
        for character in text:
            depth += (character in "({[") - (character in ")}]")
            count += character == "," and depth == 0
        return count


def python_functions(text):
    """Functions of Python, without what stands before def."""
    return [Function(node.name, node.lineno,
                     node.end_lineno - node.lineno + 1)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
