"""One row's fields to a row to encode: the formats that a dataset may have.

Every function here raises ValueError saying what is wrong with the row.
"""

import collections

from common.reporting import json_type, shown
from rows.messages import (from_json_text, read_messages, refuse_media,
                           text_field, tools_field)

NAMED_FIELDS = 32  # of ignored fields
SHOWN_FIELDS = 8  # in a message
# Fields of data that says which of two answers is better, or how good one is.
PREFERENCES = ("chosen", "rejected", "rejected_response", "rejected_messages",
               "preferred_output", "non_preferred_output", "kto_tag")
# What a template gets by these names is not the row's to say.
TAKEN_VARIABLES = ("messages", "tools", "documents", "add_generation_prompt")

# Plain text; of a row without a prompt everything is a target.
TextRow = collections.namedtuple("TextRow", "line prompt completion has_prompt")
# trained: per assistant message, in order, whether its turn is a target.
# variables: what else the template gets.
ChatRow = collections.namedtuple("ChatRow", "line messages tools trained "
                                 "variables", defaults=({},))
# How it is written depends on whether the model has a chat template. history:
# earlier turns, (user, output) each.
AlpacaRow = collections.namedtuple("AlpacaRow",
                                   "line user output system history",
                                   defaults=("", ()))

class NoKnownField(ValueError):
    """No field of the row is one of a format's."""


Format = collections.namedtuple("Format", "name required optional convert")


# --- Formats -----------------------------------------------------------------


def text_row(line, fields):
    return TextRow(line, "", text_field(fields, "text"), False)


def pair_row(line, fields):
    return TextRow(line, text_field(fields, "prompt"),
                   text_field(fields, "completion"), True)


def template_variables(fields):
    value = fields.get("chat_template_kwargs", {})
    if not isinstance(value, dict):
        raise ValueError("the field 'chat_template_kwargs' must be an object, "
                         f"not {json_type(value)}")
    for name in value.keys() & set(TAKEN_VARIABLES):
        raise ValueError(f"'chat_template_kwargs' must not have {name!r}")
    return value


def chat_row(line, messages, fields, trained):
    return ChatRow(line, messages, tools_field(fields), trained,
                   template_variables(fields))


def message_pair_row(line, fields):
    prompt, before = read_messages(fields["prompt"], "prompt")
    completion, trained = read_messages(fields["completion"], "completion")
    return chat_row(line, prompt + completion, fields,
                    [False] * len(before) + trained)


def messages_row(line, fields):
    messages, trained = read_messages(fields["messages"], "messages")
    return chat_row(line, messages, fields, trained)


def sharegpt_row(line, fields):
    messages = []
    if fields.get("system"):
        messages.append({"role": "system",
                         "content": text_field(fields, "system")})
    said, trained = read_messages(fields["conversations"], "conversations")
    return chat_row(line, messages + said, fields, trained)


def alpaca_row(line, fields):
    user = text_field(fields, "instruction")
    if fields.get("input") is not None:
        context = text_field(fields, "input")
        user += "\n\n" + context if context else ""
    system = text_field(fields, "system") if fields.get("system") else ""
    return AlpacaRow(line, user, text_field(fields, "output"), system,
                     history_field(fields))


def history_field(fields):
    """Earlier turns of the same conversation."""
    turns = from_json_text(fields.get("history") or [], "history")
    if not isinstance(turns, list):
        raise ValueError("the field 'history' must be an array, not "
                         f"{json_type(turns)}")
    found = []
    for index, turn in enumerate(turns):
        where = f"history[{index}]: "
        if not isinstance(turn, list) or len(turn) != 2:
            raise ValueError(f"{where}must be an array of two strings, what "
                             "was asked and what was answered")
        pair = dict(zip(("0", "1"), turn))
        found.append((text_field(pair, "0", where),
                      text_field(pair, "1", where)))
    return tuple(found)


CHAT_FIELDS = ("tools", "chat_template_kwargs", "parallel_tool_calls")
FORMATS = (
    Format("text", ("text",), (), text_row),
    Format("prompt_completion", ("prompt", "completion"), (), pair_row),
    Format("messages", ("messages",), CHAT_FIELDS, messages_row),
    Format("sharegpt", ("conversations",), ("system", *CHAT_FIELDS),
           sharegpt_row),
    Format("alpaca", ("instruction", "output"),
           ("input", "system", "history"), alpaca_row),
)
TEXT, PAIRS, _, _, ALPACA = FORMATS
MESSAGE_PAIRS = Format("prompt_completion of messages", ("prompt", "completion"),
                       CHAT_FIELDS, message_pair_row)
FORMAT_NAMES = {"text": TEXT, "prompt_completion": PAIRS,
                "messages": FORMATS[2], "sharegpt": FORMATS[3],
                "alpaca": ALPACA}
# What dataset_columns may name.
COLUMNS = sorted({name for form in (*FORMATS, MESSAGE_PAIRS)
                  for name in (*form.required, *form.optional)})


def with_columns(fields, columns):
    """The fields under our names, {ours: theirs}; the others as they are."""
    rest = {name: value for name, value in fields.items()
            if name not in columns and name not in columns.values()}
    return rest | {ours: fields.get(theirs) for ours, theirs in
                   columns.items()}


def row_format(fields, nulls=(), choice=None):
    """The format of a row; `nulls` are names of fields that are null, which
    is to be absent. `choice` (dataset.py) may say the format and the columns;
    who says a column of preferences wants those."""
    columns = choice.columns if choice else {}
    if not any(theirs in PREFERENCES for theirs in columns.values()):
        refuse_other_data(fields)
    refuse_media(fields)
    if choice and choice.format:
        return forced_format(fields, nulls, choice.format, columns)
    complete = [f for f in FORMATS if all(n in fields for n in f.required)]
    if len(complete) > 1:
        # Alpaca's own file has the whole text as a fourth field.
        if complete == [TEXT, ALPACA]:
            return ALPACA
        raise ValueError(
            f"has the fields of two formats, {complete[0].name} and "
            f"{complete[1].name}: say dataset_format: {name_of(complete[0])} "
            f"or dataset_format: {name_of(complete[1])}")
    if not complete:
        raise missing_fields(fields, nulls, columns)
    found = complete[0]
    if found is TEXT and fields.keys() & {"prompt", "completion"}:
        raise ValueError("has 'text' beside 'prompt' or 'completion': say "
                         "dataset_format: text or dataset_format: "
                         "prompt_completion")
    return pair_format(fields) if found is PAIRS else found


def refuse_other_data(fields):
    """What is there for another kind of training: to train on the rest of the
    row would be wrong, and silent."""
    for name in PREFERENCES:
        if fields.get(name) not in (None, ""):
            raise ValueError(
                f"has {name!r}: these are preferences, which are not "
                "supported; write the answer to be learned as the "
                "assistant's last message, or as the completion, and remove "
                "the field")
    label = fields.get("label")
    judged = isinstance(label, bool) or \
        isinstance(label, str) and label.lower() in ("true", "false")
    if judged and "text" not in fields:
        raise ValueError(
            "has a 'label' that is true or false: these are judged answers "
            "(KTO), which are not supported; keep the rows whose answers are "
            "to be learned, and remove the field")


def pair_format(fields):
    lists = [isinstance(fields[n], list) for n in ("prompt", "completion")]
    if all(lists):
        return MESSAGE_PAIRS
    if any(lists):
        raise ValueError("'prompt' and 'completion' must both be strings or "
                         "both lists of messages")
    return PAIRS


def name_of(form):
    """As dataset_format has it."""
    return next(name for name, one in FORMAT_NAMES.items() if one is form)


def forced_format(fields, nulls, form, columns):
    missing = [name for name in form.required if name not in fields]
    if missing:
        raise ValueError(missing_field(missing[0], fields, nulls, columns) +
                         f", which dataset_format {name_of(form)} needs")
    return pair_format(fields) if form is PAIRS else form


def missing_field(name, fields, nulls, columns):
    column = f" (the column {columns[name]!r})" if name in columns else ""
    null = name in nulls and name not in columns
    alike = next((f"; there is {other!r}" for other in fields if
                  other.strip().lower() == name), "")
    return (f"the field {name!r}{column} is "
            f"{'null' if null else 'missing'}{alike}")


def missing_fields(fields, nulls, columns):
    """The error of a row that is of no format."""
    for form in FORMATS:
        missing = [name for name in form.required if name not in fields]
        if len(missing) < len(form.required) or set(missing) & set(nulls):
            return ValueError(missing_field(missing[0], fields, nulls,
                                            columns))
    if "segments" in fields:
        return ValueError(
            "has 'segments' (axolotl's input_output), which are not "
            "supported; write 'prompt' and 'completion', or 'messages'")
    inner = list(fields.values())
    if len(inner) == 1 and isinstance(inner[0], list) and inner[0] and \
            isinstance(inner[0][0], dict):
        return ValueError(
            f"has but {shown(next(iter(fields)))!r}, a list of objects: if "
            "those are the rows, jq -c '.[][]' FILE writes them as JSON Lines")
    return NoKnownField(
        "needs the field 'text', or 'prompt' and 'completion', or 'messages', "
        "or 'conversations', or 'instruction' and 'output'; has "
        f"{some_names(fields) or 'none'} (dataset_columns says which is which)")


def some_names(names):
    """The first few, and how many more there are."""
    some = ", ".join(repr(shown(name)) for name in list(names)[:SHOWN_FIELDS])
    more = len(names) - SHOWN_FIELDS
    return f"{some} and {more} more" if more > 0 else some


def alpaca_chat(row):
    messages = []
    if row.system:
        messages.append({"role": "system", "content": row.system})
    for user, output in (*row.history, (row.user, row.output)):
        messages += [{"role": "user", "content": user},
                     {"role": "assistant", "content": output}]
    return ChatRow(row.line, messages, None, [True] * (len(row.history) + 1))


def alpaca_text(row):
    """For a model without a chat template; docs/datasets.md shows it."""
    if row.history:
        raise ValueError("has a 'history', which only a model with a chat "
                         "template can take")
    system = f"{row.system}\n\n" if row.system else ""
    return TextRow(row.line, f"{system}### Instruction:\n{row.user}\n\n"
                   "### Response:\n", row.output, True)
