"""One row's fields to a row to encode: the formats that a dataset may have.

Every function here raises ValueError saying what is wrong with the row.
"""

import collections
import json

from prepare_common import json_type, unique_object

NAMED_FIELDS = 32  # in messages, and of ignored fields
FLAGS = ("weight", "loss", "train")  # of one message: is it trained?
SHAREGPT_ROLES = {"human": "user", "user": "user", "gpt": "assistant",
                  "assistant": "assistant", "system": "system", "tool": "tool"}

# Plain text; of a row without a prompt everything is a target.
TextRow = collections.namedtuple("TextRow", "line prompt completion has_prompt")
# trained: per assistant message, in order, whether its turn is a target.
ChatRow = collections.namedtuple("ChatRow", "line messages tools trained")
# How it is written depends on whether the model has a chat template.
AlpacaRow = collections.namedtuple("AlpacaRow", "line user output")

Format = collections.namedtuple("Format", "name required optional convert")


# --- Fields ------------------------------------------------------------------


def text_field(fields, name, where=""):
    if name not in fields:
        raise ValueError(f"{where}the field {name!r} is missing")
    value = fields[name]
    if not isinstance(value, str):
        raise ValueError(f"{where}the field {name!r} must be a string, not "
                         f"{json_type(value)}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where}the field {name!r} has half of a surrogate pair at "
            f"character {error.start + 1}") from error
    return value


def objects(value, name):
    """A list of objects that is not empty, each with the name of its place."""
    if not isinstance(value, list):
        raise ValueError(
            f"the field {name!r} must be an array, not {json_type(value)}")
    if not value:
        raise ValueError(f"the field {name!r} is empty")
    for index, item in enumerate(value):
        where = f"{name}[{index}]: "
        if not isinstance(item, dict):
            raise ValueError(
                f"{where}must be an object, not {json_type(item)}")
        yield where, item


def tools_field(fields):
    """The tools, None when there are none; a string is read as JSON."""
    tools = fields.get("tools")
    if isinstance(tools, str):
        if not tools.strip():
            return None
        try:
            tools = json.loads(tools, object_pairs_hook=unique_object)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"the field 'tools' is a string but no JSON: {error}"
            ) from error
    if not tools and (tools is None or tools == []):
        return None
    return [tool for _, tool in objects(tools, "tools")]


# --- Messages ----------------------------------------------------------------


def train_flag(message, where):
    """What the message's own flag says; None when it has none."""
    given = [name for name in FLAGS if message.get(name) is not None]
    if not given:
        return None
    if len(given) > 1:
        raise ValueError(f"{where}has {given[0]!r} beside {given[1]!r}, which "
                         "mean the same")
    name, value = given[0], message[given[0]]
    if name == "weight":
        if isinstance(value, bool) or value not in (0, 1):
            raise ValueError(f"{where}'weight' must be 0 or 1, not {value!r}")
    elif not isinstance(value, bool):
        raise ValueError(
            f"{where}{name!r} must be true or false, not {json_type(value)}")
    return bool(value)


def message_text(message, where):
    """The content as a template wants it: text parts are joined."""
    content = message.get("content")
    if content is None and message.get("tool_calls"):
        return None
    if not isinstance(content, list):
        return text_field(message, "content", where)
    texts = []
    for index, part in enumerate(content):
        place = f"{where}content[{index}]: "
        if not isinstance(part, dict) or part.get("type") != "text":
            raise ValueError(f"{place}is no part of the type 'text'; images "
                             "and sounds are not supported")
        texts.append(text_field(part, "text", place))
    return "".join(texts)


def read_message(message, where):
    """The message without our flags, and its flag."""
    role = text_field(message, "role", where)
    flag = train_flag(message, where)
    if flag and role != "assistant":
        raise ValueError(f"{where}only the turns of the assistant are "
                         f"trained, this is one of the role {role!r}")
    plain = {name: value for name, value in message.items()
             if name not in FLAGS}
    if "content" in plain or not plain.get("tool_calls"):
        plain["content"] = message_text(message, where)
    return plain, flag


def read_messages(value, name, default=True):
    """The messages, and per assistant message whether it is trained."""
    messages, trained = [], []
    for where, item in objects(value, name):
        message, flag = read_message(item, where)
        messages.append(message)
        if message["role"] == "assistant":
            trained.append(default if flag is None else flag)
    return messages, trained


# --- Formats -----------------------------------------------------------------


def text_row(line, fields):
    return TextRow(line, "", text_field(fields, "text"), False)


def pair_row(line, fields):
    return TextRow(line, text_field(fields, "prompt"),
                   text_field(fields, "completion"), True)


def message_pair_row(line, fields):
    prompt, before = read_messages(fields["prompt"], "prompt")
    completion, trained = read_messages(fields["completion"], "completion")
    return ChatRow(line, prompt + completion, tools_field(fields),
                   [False] * len(before) + trained)


def messages_row(line, fields):
    messages, trained = read_messages(fields["messages"], "messages")
    return ChatRow(line, messages, tools_field(fields), trained)


def sharegpt_row(line, fields):
    messages = []
    if fields.get("system"):
        messages.append({"role": "system",
                         "content": text_field(fields, "system")})
    trained = []
    for where, item in objects(fields["conversations"], "conversations"):
        name = text_field(item, "from", where)
        if name not in SHAREGPT_ROLES:
            raise ValueError(f"{where}'from' is {name!r}, not one of "
                             f"{', '.join(SHAREGPT_ROLES)}")
        flags = {flag: item[flag] for flag in FLAGS if flag in item}
        message, flag = read_message(
            {"role": SHAREGPT_ROLES[name],
             "content": text_field(item, "value", where), **flags}, where)
        messages.append(message)
        if message["role"] == "assistant":
            trained.append(flag is not False)
    return ChatRow(line, messages, tools_field(fields), trained)


def alpaca_row(line, fields):
    user = text_field(fields, "instruction")
    if fields.get("input") is not None:
        context = text_field(fields, "input")
        user += "\n\n" + context if context else ""
    return AlpacaRow(line, user, text_field(fields, "output"))


FORMATS = (
    Format("text", ("text",), (), text_row),
    Format("prompt/completion", ("prompt", "completion"), (), pair_row),
    Format("messages", ("messages",), ("tools",), messages_row),
    Format("conversations", ("conversations",), ("system", "tools"),
           sharegpt_row),
    Format("instruction/output", ("instruction", "output"), ("input",),
           alpaca_row),
)
MESSAGE_PAIRS = Format("prompt/completion messages", ("prompt", "completion"),
                       ("tools",), message_pair_row)


def row_format(fields):
    complete = [f for f in FORMATS if all(n in fields for n in f.required)]
    if len(complete) > 1:
        raise ValueError(
            f"has the fields of two formats, {complete[0].name} and "
            f"{complete[1].name}; a line is of one format")
    if not complete:
        raise ValueError(missing_fields(fields))
    found = complete[0]
    if found.name == "text" and fields.keys() & {"prompt", "completion"}:
        raise ValueError("has 'text' beside 'prompt' or 'completion'; "
                         "a line is of one format")
    if found.name == "prompt/completion":
        return pair_format(fields)
    return found


def pair_format(fields):
    lists = [isinstance(fields[n], list) for n in ("prompt", "completion")]
    if all(lists):
        return MESSAGE_PAIRS
    if any(lists):
        raise ValueError("'prompt' and 'completion' must both be strings or "
                         "both lists of messages")
    return FORMATS[1]


def missing_fields(fields):
    for form in FORMATS:
        missing = [name for name in form.required if name not in fields]
        if len(missing) < len(form.required):
            return f"the field {missing[0]!r} is missing"
    if "chosen" in fields:
        return "the field 'chosen' (preference pairs) is not supported"
    names = ", ".join(repr(n) for n in list(fields)[:NAMED_FIELDS]) or "none"
    return ("needs the field 'text', or 'prompt' and 'completion', or "
            "'messages', or 'conversations', or 'instruction' and 'output'; "
            f"has {names}")


def alpaca_chat(row):
    return ChatRow(row.line, [{"role": "user", "content": row.user},
                              {"role": "assistant", "content": row.output}],
                   None, [True])


def alpaca_text(row):
    """For a model without a chat template; docs/datasets.md shows it."""
    return TextRow(row.line,
                   f"### Instruction:\n{row.user}\n\n### Response:\n",
                   row.output, True)
