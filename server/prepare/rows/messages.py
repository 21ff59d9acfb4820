"""The messages of a row as a chat template wants them.

Every function here raises ValueError saying what is wrong with the row.
"""

import json
import re

from common.reporting import json_place, json_type, unique_object

# Whether one message is trained.
FLAGS = ("weight", "loss", "train", "training")
SHAREGPT_ROLES = {"human": "user", "user": "user", "gpt": "assistant",
                  "assistant": "assistant", "system": "system", "tool": "tool",
                  "observation": "tool", "function_call": "assistant"}
# Beside text, or in place of it; only text is trained here.
MEDIA = ("image", "images", "audio", "audios", "video", "videos")
# What str() and to_csv() make of a list of dicts.
PYTHON_LIST = re.compile(r"\s*\[\s*\{\s*'(\w*)'\s*:")
AS_JSON = ("as Python writes it, which is no JSON: json.dumps writes JSON, "
           "to_json(FILE, orient='records', lines=True) a table as JSON Lines")
MESSAGE_NAMES = ("role", "content", "from", "value")
PYTHON = "PYTHON"  # what messages_in_text says of those


def text_field(fields, name, where=""):
    if name not in fields:
        raise ValueError(f"{where}the field {name!r} is missing")
    value = fields[name]
    if not isinstance(value, str):
        empty = value is None and name in ("content", "value")
        raise ValueError(f"{where}the field {name!r} must be a string, not "
                         f"{json_type(value)}" +
                         ('; "" where a message has none' if empty else ""))
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where}the field {name!r} has half of a surrogate pair at "
            f"character {error.start + 1}") from error
    return value


def from_json_text(value, name):
    """What a string says that holds a JSON array, as tables have them; any
    other value is itself."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    try:
        return json.loads(value, object_pairs_hook=unique_object)
    except (ValueError, RecursionError) as error:
        raise no_json(value, name, error) from error


def no_json(text, name, error):
    if PYTHON_LIST.match(text):
        return ValueError(f"the field {name!r} is a list {AS_JSON}")
    return ValueError(f"the field {name!r} is a string but no JSON: "
                      f"{json_error(error)}")


def json_error(error):
    """What json.loads, with unique_object, did not like."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return (json_place(error) if isinstance(error, json.JSONDecodeError)
            else str(error))


def messages_in_text(text):
    """The messages that a text holds as JSON; PYTHON where they are as Python
    writes them, None where it is any other text."""
    if not isinstance(text, str) or not text.lstrip().startswith("["):
        return None
    python = PYTHON_LIST.match(text)
    if python and python[1] in MESSAGE_NAMES:
        return PYTHON
    try:
        value = json.loads(text, object_pairs_hook=unique_object)
    except (ValueError, RecursionError):
        return None
    said = isinstance(value, list) and value and all(
        isinstance(one, dict) and one.keys() & {"role", "from"}
        for one in value)
    return value if said else None


def read_cells(fields, wants_text):
    """The fields of a table's row, whose values all are text: with lists of
    messages where 'prompt' and 'completion' both hold some. One of them alone
    is a text that looks like it."""
    fields = {name: value for name, value in fields.items()
              if value or name != "chat_template_kwargs"}
    pair = {name: messages_in_text(fields.get(name))
            for name in ("prompt", "completion")}
    if all(pair.values()):
        for name, found in pair.items():
            if found is PYTHON:
                raise ValueError(
                    f"the field {name!r} is a list of messages {AS_JSON}")
        fields |= pair
    if not wants_text and messages_in_text(fields.get("text")):
        raise ValueError(
            "the field 'text' holds a JSON list of messages: dataset_columns "
            "{messages: text} reads them, dataset_format text trains the JSON")
    return fields


def present(fields, *kept):
    """Without the fields that are null, which are absent: tables, and those who
    write them as JSON, have a null wherever another row has a field. What lies
    deeper is a value, as a tool's default is."""
    return {name: value for name, value in fields.items()
            if value is not None or name in kept}


def present_in_calls(calls):
    """The calls of a message, in which but for the arguments the same holds."""
    if not isinstance(calls, list):
        return calls
    found = []
    for call in calls:
        if isinstance(call, dict):
            call = present(call)
            if isinstance(call.get("function"), dict):
                call["function"] = present(call["function"])
        found.append(call)
    return found


def present_in_message(message):
    """Templates tell a null content from none."""
    message = present(message, "content")
    if "tool_calls" in message:
        message["tool_calls"] = present_in_calls(message["tool_calls"])
    return message


def objects(value, name):
    """A list of objects that is not empty, each with the name of its place."""
    value = from_json_text(value, name)
    if isinstance(value, dict):
        value = objects_of_lists(value, name)
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


def objects_of_lists(value, name):
    """The objects of {"role": [...], "content": [...]}, as the datasets library
    keeps a Sequence of objects; anything else is itself."""
    lists = list(value.values())
    if not lists or not all(isinstance(one, list) for one in lists):
        return value
    if len(set(map(len, lists))) > 1:
        raise ValueError(f"the field {name!r} is an object of lists that "
                         "are not of one length")
    return [dict(zip(value, one)) for one in zip(*lists)]


def refuse_media(fields, where=""):
    for name in MEDIA:
        if fields.get(name) not in (None, "", []):
            raise ValueError(
                f"{where}has {name!r}; images, sounds and videos are not "
                "supported: leave such rows out, or remove the field and its "
                "marks in the text")


def tools_field(fields):
    """The tools, None when there are none; a string is read as JSON."""
    if fields.get("functions"):
        raise ValueError(
            "has 'functions', the older form of tools: write them as 'tools', "
            "each {\"type\": \"function\", \"function\": {...}}")
    tools = fields.get("tools")
    if isinstance(tools, str):
        if not tools.strip():
            return None
        try:
            tools = json.loads(tools, object_pairs_hook=unique_object)
        except (ValueError, RecursionError) as error:
            raise no_json(tools, "tools", error) from error
    if not tools and (tools is None or tools == []):
        return None
    return [tool for _, tool in objects(tools, "tools")]


# --- One message -------------------------------------------------------------


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
    if content is None and message.get("function_call"):
        raise ValueError(f"{where}has 'function_call', the older form of tool "
                         "calls: write it as 'tool_calls'")
    if not isinstance(content, list):
        return text_field(message, "content", where)
    texts = []
    for index, part in enumerate(content):
        place = f"{where}content[{index}]: "
        if not isinstance(part, dict):
            raise ValueError(f"{place}must be an object such as "
                             '{"type": "text", "text": "..."}, not '
                             f"{json_type(part)}")
        if part.get("type") != "text":
            raise ValueError(f"{place}is no part of the type 'text'; images "
                             "and sounds are not supported: leave such rows "
                             "out")
        texts.append(text_field(part, "text", place))
    return "".join(texts)


def read_message(message, where):
    """The message without our flags, and its flag."""
    refuse_media(message, where)
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


def renamed(message, where):
    """ShareGPT's 'from' and 'value' as 'role' and 'content'."""
    if "from" not in message or "role" in message:
        return message
    name = text_field(message, "from", where)
    if name not in SHAREGPT_ROLES:
        raise ValueError(f"{where}'from' is {name!r}, not one of "
                         f"{', '.join(SHAREGPT_ROLES)}")
    rest = {field: value for field, value in message.items()
            if field not in ("from", "value")}
    text = text_field(message, "value", where)
    if name == "function_call":
        rest["tool_calls"] = calls_in_text(text, where)
        text = ""
    return {"role": SHAREGPT_ROLES[name], "content": text, **rest}


def calls_in_text(text, where):
    """Tool calls from the JSON that a turn 'function_call' says."""
    try:
        value = json.loads(text, object_pairs_hook=unique_object)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}a 'function_call' must be JSON: "
                         f"{json_error(error)}") from error
    calls = value if isinstance(value, list) else [value]
    for call in calls:
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            raise ValueError(f"{where}a 'function_call' must be an object with "
                             "'name' and 'arguments', or a list of such")
    return [{"type": "function", "function": call} for call in calls]


def read_messages(value, name, default=True):
    """The messages, and per assistant message whether it is trained."""
    messages, trained = [], []
    for where, item in objects(value, name):
        item = renamed(present_in_message(item), where)
        message, flag = read_message(item, where)
        messages.append(message)
        if message["role"] == "assistant":
            trained.append(default if flag is None else flag)
    return messages, trained


# --- Tool calls --------------------------------------------------------------


def json_object(text):
    """The JSON object that a string is; None when it is none."""
    if not isinstance(text, str) or not text.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(text, object_pairs_hook=unique_object)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def decoded_call(call):
    """The call with its arguments as an object; itself when they are none in a
    string."""
    if not isinstance(call, dict):
        return call
    if isinstance(call.get("function"), dict):
        function = decoded_call(call["function"])
        return (call if function is call["function"] else
                {**call, "function": function})
    value = json_object(call.get("arguments"))
    return call if value is None else {**call, "arguments": value}


def decoded_calls(messages):
    """The messages with the arguments of their tool calls as objects, where
    they are JSON in strings as in OpenAI's files; None where there are none:
    templates write arguments as JSON, which would encode them twice."""
    found, changed = [], False
    for message in messages:
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            decoded = [decoded_call(call) for call in calls]
            if any(new is not old for new, old in zip(decoded, calls)):
                message, changed = {**message, "tool_calls": decoded}, True
        found.append(message)
    return found if changed else None


def arguments_of(messages):
    """Every object that tool calls have as arguments."""
    for message in messages:
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            call = call if isinstance(call, dict) else {}
            function = call.get("function")
            function = function if isinstance(function, dict) else call
            if isinstance(function.get("arguments"), dict):
                yield function["arguments"]
