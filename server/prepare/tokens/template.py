"""The model's own chat template: a conversation to text, and which characters
of it are the assistant's turns."""

import collections
import datetime
import functools
import hashlib
import itertools
import json
import os
import re

from jinja2 import TemplateError, TemplateSyntaxError, ext, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from common.files import (MAX_TEMPLATE_BYTES, files_in, read_json_object,
                          read_text)
from common.limits import TEMPLATE_SECONDS, TookTooLong, cpu_time
from common.reporting import (DataError, fault_text, json_type, refusal,
                              size_text)

# What a template may write for one conversation, in UTF-8.
MAX_RENDERED_BYTES = 16 << 20
# Fields of messages that carry nothing to be read, or are checked otherwise.
NEEDLESS = {"role", "content", "tool_call_id", "id"}
EMPTY = (None, "", [], {}, False)
MAX_NAMES = 256  # of fields that are remembered
# Written as JSON, a message has all its fields.
WHOLE_MESSAGE = re.compile(r"\bmessages?\s*\|\s*tojson")
# A folder of templates by name, beside chat_template.jinja.
ADDITIONAL = "additional_chat_templates"
MAX_TEMPLATES = 32
# Noncharacters of Unicode, which no text of a dataset has.
OPEN, CLOSE = "\U0010fffe", "\U0010ffff"

# How a family writes turns. opens: what begins any segment; assistant: what a
# segment of the assistant begins with; end: the last of what is trained.
Family = collections.namedtuple("Family", "name signs opens assistant end")
FAMILIES = (
    Family("ChatML", ("<|im_start|>", "<|im_end|>"),
           re.compile(r"<\|im_start\|>"),
           re.compile(r"<\|im_start\|>assistant\n"),
           re.compile(r"<\|im_end\|>\n?")),
    Family("Llama 3", ("<|start_header_id|>", "<|eot_id|>"),
           re.compile(r"<\|start_header_id\|>"),
           re.compile(r"<\|start_header_id\|>assistant<\|end_header_id\|>"
                      r"\n\n"),
           re.compile(r"<\|eot_id\|>|<\|eom_id\|>")),
    # A segment that is blank is no turn: there the next marker follows.
    Family("Mistral", ("[INST]", "[/INST]"),
           re.compile(r"\[/?(?:INST|TOOL_RESULTS|AVAILABLE_TOOLS|"
                      r"SYSTEM_PROMPT)\]"),
           re.compile(r"\[/(?:INST|TOOL_RESULTS)\](?!\s*(?:\[/?(?:INST|"
                      r"TOOL_RESULTS|AVAILABLE_TOOLS|SYSTEM_PROMPT)\]|\Z))"),
           re.compile(r"</s>")),
)


class Generation(ext.Extension):
    """{% generation %}...{% endgeneration %}: what the assistant says. Its
    body is written between `marks`, which are empty but while its places are
    looked for."""

    tags = {"generation"}

    def __init__(self, environment):
        super().__init__(environment)
        self.used = False
        self.marks = ("", "")

    def parse(self, parser):
        self.used = True
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",),
                                       drop_needle=True)
        call = self.call_method("_mark")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _mark(self, caller):
        return self.marks[0] + caller() + self.marks[1]


def marked_spans(text):
    """The text without its marks, and the (start, end) of what they wrap;
    of wraps within wraps the outermost counts."""
    pieces, spans = [], []
    length = depth = start = 0
    for piece in re.split(f"([{OPEN}{CLOSE}])", text):
        if piece == OPEN:
            start = start if depth else length
            depth += 1
        elif piece == CLOSE:
            depth -= 1
            if not depth:
                spans.append((start, length))
        else:
            pieces.append(piece)
            length += len(piece)
    return "".join(pieces), spans


def scanned_spans(family, text):
    """The (start, end) of the assistant's turns by the family's markers; one
    that another segment cuts short is none."""
    starts = [match.start() for match in family.opens.finditer(text)]
    spans = []
    for start, stop in zip(starts, starts[1:] + [len(text)]):
        header = family.assistant.match(text, start)
        if header is None:
            continue
        ends = [match.end() for match in
                family.end.finditer(text, header.end(), stop)]
        if ends or stop == len(text):
            spans.append((header.end(), ends[-1] if ends else stop))
    return spans


def to_json(value, ensure_ascii=False, indent=None, separators=None,
            sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent,
                      separators=separators, sort_keys=sort_keys)


class TooMuchText(Exception):
    """A conversation became longer than MAX_RENDERED_BYTES."""


def raise_exception(message):
    raise TemplateError(message)


class Template:
    """One compiled template."""

    def __init__(self, text, path, clock):
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True,
            extensions=[Generation, ext.loopcontrols])
        environment.filters["tojson"] = to_json
        environment.globals["raise_exception"] = raise_exception
        environment.globals["strftime_now"] = clock
        try:
            with cpu_time(TEMPLATE_SECONDS):
                self.template = environment.from_string(text)
        except TemplateSyntaxError as error:
            raise DataError(f"malformed chat template: {error.message} (line "
                            f"{error.lineno} of the template)", path) from error
        except TookTooLong as error:
            raise DataError("compiling the chat template takes more than "
                            f"{TEMPLATE_SECONDS} s of CPU time", path
                            ) from error
        except Exception as error:  # constant expressions are computed here
            raise refusal(error, path, None,
                          "compiling the chat template") from error
        self.generation = environment.extensions[Generation.identifier]
        self.text, self.path = text, path
        self.names = {}  # of fields -> whether the text has them

    @functools.cached_property
    def family(self):
        """Whose markers tell the assistant's turns; None: its own marks do."""
        if self.generation.used:
            return None
        return find_family(self.text, self.path)

    @property
    def masks(self):
        return self.family.name if self.family else "generation"

    def reads(self, name):
        """Whether it names this field of messages anywhere."""
        if name not in self.names:
            self.names[name] = (
                name in NEEDLESS or len(self.names) > MAX_NAMES or
                bool(WHOLE_MESSAGE.search(self.text)) or
                bool(re.search(rf"\b{re.escape(name)}\b", self.text)))
        return self.names[name]

    def render(self, **variables):
        """Text and spans of the assistant's turns."""
        family = self.family
        text = self.write(**variables)
        if family is not None:
            return text, scanned_spans(family, text)
        if OPEN in text or CLOSE in text:
            raise ValueError("has U+10FFFE or U+10FFFF, which are no "
                             "characters")
        self.generation.marks = (OPEN, CLOSE)
        try:
            unmarked, spans = marked_spans(self.write(**variables))
        finally:
            self.generation.marks = ("", "")
        if unmarked != text:
            raise ValueError("the chat template changes the text that {% "
                             "generation %} wraps: what is trained cannot be "
                             "told")
        return text, spans

    def write(self, **variables):
        """The text alone."""
        try:
            with cpu_time(TEMPLATE_SECONDS):
                return self._bounded(variables)
        except TookTooLong as error:
            raise ValueError("the chat template takes more than "
                             f"{TEMPLATE_SECONDS} s of CPU time for this "
                             "conversation") from error
        except TooMuchText as error:
            raise ValueError("the chat template writes more than "
                             f"{size_text(MAX_RENDERED_BYTES)} for this "
                             "conversation") from error
        except TemplateError as error:
            refuse_null(variables["messages"], error)
            raise ValueError("the chat template refuses this conversation: "
                             f"{error.message or type(error).__name__}"
                             ) from error
        except UnicodeEncodeError as error:
            raise ValueError("has half of a surrogate pair in a message, a "
                             "call or a tool: was it cut within an emoji?"
                             ) from error
        except (MemoryError, RecursionError) as error:
            raise ValueError(fault_text(
                error, "the chat template's writing of this conversation")
                ) from error
        except Exception as error:  # whatever its expressions come to
            refuse_null(variables["messages"], error)
            raise ValueError("the chat template fails on this conversation: "
                             f"{type(error).__name__}: {error}") from error

    def _bounded(self, variables):
        """Piece by piece, so that what is too much is never held at once."""
        pieces, letters = [], 0
        for piece in self.template.generate(variables):
            letters += len(piece)
            if letters > MAX_RENDERED_BYTES:
                raise TooMuchText
            pieces.append(piece)
        text = "".join(pieces)
        if len(text.encode("utf-8")) > MAX_RENDERED_BYTES:
            raise TooMuchText
        return text


def refuse_null(messages, error):
    """Says so where it is a message's null content that the template cannot
    take: "can only concatenate str", "'None' has no attribute"."""
    null = next((index for index, message in enumerate(messages)
                 if "content" in message and message["content"] is None), None)
    if null is not None and "None" in str(error):
        raise ValueError("the chat template fails on this conversation: it "
                         f"cannot take a null content (messages[{null}]); "
                         'write ""') from error


def find_family(text, path):
    found = [family for family in FAMILIES
             if all(sign in text for sign in family.signs)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(family.name for family in FAMILIES)
    raise DataError(
        "cannot tell which tokens of this chat template are the assistant's: "
        "it has no {% generation %} block and its turn markers are of "
        f"{'two families' if found else 'no family'} known here ({known}); "
        "put {% generation %} and {% endgeneration %} around what the "
        "assistant writes, its end-of-turn token included", path)


class ChatTemplate:
    """The template (or templates, by name) of a model directory."""

    def __init__(self, texts, path, special_tokens, today):
        self.path = path
        self.texts = texts
        self.special_tokens = special_tokens
        self.today = today
        self.dated = False  # whether a row asked for the date
        self.used = {}  # name -> Template

    def render(self, messages, tools, trained, variables=None):
        """The conversation's text and the spans of its trained turns, None
        where they cannot be told; `trained` is per turn of the assistant.
        ValueError says what the template does not like."""
        template = self._pick(tools)
        text, spans = template.render(**{
            **self.special_tokens, **(variables or {}), "messages": messages,
            "tools": tools, "documents": None,
            "add_generation_prompt": False})
        if len(spans) == len(trained):
            return text, list(itertools.compress(spans, trained))
        if not any(trained):
            return text, []
        # A template's own marks need no message to go with.
        told = template.family is None and all(trained)
        return text, spans if told else None

    def prompt(self, text):
        """A user's message and what begins the answer to it."""
        return self._pick(None).write(
            messages=[{"role": "user", "content": text}], tools=None,
            documents=None, add_generation_prompt=True, **self.special_tokens)

    def unread_fields(self, messages, tools):
        """Fields of messages, not empty, that the template never names."""
        template = self._pick(tools)
        return sorted({name for message in messages for name, value in
                       message.items() if value not in EMPTY and
                       not template.reads(name)})

    def noted(self):
        """What record() says of rows, for add_noted."""
        return sorted(self.used), self.dated

    def add_noted(self, noted):
        names, dated = noted
        for name in names:
            self._named(name)
        self.dated |= dated

    def _pick(self, tools):
        name = "default"
        if tools is not None and "tool_use" in self.texts:
            name = "tool_use"
        return self._named(name)

    def _named(self, name):
        if name not in self.texts:
            raise DataError(
                "has chat templates by the names "
                f"{', '.join(sorted(self.texts))}; one must be 'default'",
                self.path)
        if name not in self.used:
            self.used[name] = Template(self.texts[name], self.path,
                                       self._clock)
        return self.used[name]

    def _clock(self, form):
        self.dated = True
        return self.today.strftime(form)

    def asks_for_date(self):
        return any("strftime_now" in text for text in self.texts.values())

    def markers_in(self, messages):
        """Whether a message itself has markers of turns."""
        signs = [sign for template in self.used.values() if template.family
                 for sign in template.family.signs]
        return any(sign in content for content in contents(messages)
                   for sign in signs)

    def record(self):
        texts = json.dumps(self.texts, sort_keys=True).encode()
        record = {"file": os.path.basename(self.path),
                  "sha256": hashlib.sha256(texts).hexdigest(),
                  "masks": {name: template.masks for name, template in
                            sorted(self.used.items())}}
        return record | ({"date": self.today.date().isoformat()}
                         if self.dated else {})


def contents(messages):
    return [message["content"] for message in messages
            if isinstance(message.get("content"), str)]


def load_template(folder, today):
    """The model's ChatTemplate; None when it has none. `today` is the
    datetime.date that the template sees."""
    texts, path = template_texts(folder)
    if texts is None:
        return None
    midnight = datetime.datetime.combine(today, datetime.time())
    return ChatTemplate(texts, path, special_tokens(folder), midnight)


def template_texts(folder):
    """{name: template} of the first source there is, and its file."""
    path = os.path.join(folder, "chat_template.jinja")
    text = read_text(path, MAX_TEMPLATE_BYTES)
    texts = additional_templates(folder)
    if text is not None:
        texts["default"] = text
    if texts:
        return texts, path
    for name in ("tokenizer_config.json", "chat_template.json"):
        path = os.path.join(folder, name)
        value = (read_json_object(path) or {}).get("chat_template")
        if value is not None:
            return named_templates(value, path), path
    return None, None


def additional_templates(folder):
    """{name: template} of the folder beside chat_template.jinja."""
    place = os.path.join(folder, ADDITIONAL)
    names = [name for name in files_in(place) if name.endswith(".jinja")]
    if len(names) > MAX_TEMPLATES:
        raise DataError(f"has more than {MAX_TEMPLATES} templates", place)
    texts = {}
    for name in sorted(names):
        text = read_text(os.path.join(place, name), MAX_TEMPLATE_BYTES)
        if text is not None:
            texts[name.removesuffix(".jinja")] = text
    return texts


def named_templates(value, path):
    if isinstance(value, str):
        return {"default": value}
    items = value if isinstance(value, list) else [None]
    texts = {}
    for item in items:
        item = item if isinstance(item, dict) else {}
        name, text = item.get("name"), item.get("template")
        if not isinstance(name, str) or not isinstance(text, str):
            raise DataError(
                "chat_template must be a string or a list of objects with "
                f"'name' and 'template', not {json_type(value)}", path)
        texts[name] = text
    return texts


def special_tokens(folder):
    """The special tokens by their names, as templates use them."""
    tokens = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        config = read_json_object(os.path.join(folder, name)) or {}
        for key, value in config.items():
            if isinstance(value, dict):
                value = value.get("content")
            if key.endswith("_token") and isinstance(value, str):
                tokens.setdefault(key, value)
    return tokens
