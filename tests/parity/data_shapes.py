"""Datasets in the shapes that people bring, through the dataset helper and
through real transformers: token ids and masks of the same conversations.

    data_shapes.py         2,000 conversations a shape and kind of file

Each shape is a file of rows as another tool writes them. transformers gets the
messages that they mean, and AutoTokenizer the directories whose tokens or
templates lie beside the usual files. Run in the environment that
tests/parity/setup makes.
"""

import csv
import gzip
import json
import pathlib
import random
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "server/prepare"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import chat_masks  # noqa: E402  found by the lines before
import prepare_testing as families  # noqa: E402
import pyarrow  # noqa: E402
import pyarrow.parquet  # noqa: E402
from rows.dataset import open_reader  # noqa: E402
from tokens.encoder import Encoder  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

COMPARED = 2000
ROLES = {"user": "human", "assistant": "gpt", "system": "system",
         "tool": "observation"}


# --- Shapes: a row of messages as another tool writes it ---------------------


def with_nulls(row):
    """As `datasets` and pandas write JSON: every message has every field."""
    names = {name for message in row["messages"] for name in message}
    names |= {"tool_calls", "name"}
    return {"messages": [{**dict.fromkeys(names), **message}
                         for message in row["messages"]],
            "tools": row.get("tools"), "chosen": None}


def with_strings(row):
    """As OpenAI's files: arguments are JSON in a string, and so are tools."""
    row = json.loads(json.dumps(row))
    for message in row["messages"]:
        for call in message.get("tool_calls", []):
            call["id"] = "c1"
            call["function"]["arguments"] = json.dumps(
                call["function"]["arguments"])
    if "tools" in row:
        row["tools"] = json.dumps(row["tools"])
    return row


def sharegpt(row):
    messages = row["messages"]
    turns = []
    for message in messages:
        name, text = ROLES[message["role"]], message["content"]
        if "tool_calls" in message:
            name = "function_call"
            text = json.dumps([call["function"]
                               for call in message["tool_calls"]])
        turns.append({"from": name, "value": text})
    return {"conversations": turns, **({"tools": json.dumps(row["tools"])}
                                       if "tools" in row else {})}


def alpaca(row):
    """The row in alpaca's form; None unless it is a conversation without
    tools."""
    messages = list(row["messages"])
    system = ""
    if messages[0]["role"] == "system":
        system = messages.pop(0)["content"]
    roles = [message["role"] for message in messages]
    if roles != ["user", "assistant"] * (len(roles) // 2) or \
            "tools" in row:
        return None
    texts = [message["content"] for message in messages]
    pairs = [list(pair) for pair in zip(texts[::2], texts[1::2])]
    return {"instruction": pairs[-1][0], "input": "", "output": pairs[-1][1],
            "system": system, "history": pairs[:-1], "text": "all of it"}


SHAPES = {"nulls": with_nulls, "strings": with_strings, "sharegpt": sharegpt,
          "alpaca": alpaca}


# --- Files: the rows of a shape as a file of some kind, its names ------------


def json_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [path]


def json_array(path, rows):
    path.write_text(json.dumps(rows, indent=2, ensure_ascii=False))
    return [path]


def gzipped(path, rows):
    path.write_bytes(gzip.compress(json.dumps(rows).encode()))
    return [path]


def zstandard(path, rows):
    with pyarrow.CompressedOutputStream(str(path), "zstd") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows).encode())
    return [path]


def parquet(path, rows):
    # The first row's names are the columns.
    names = dict.fromkeys(name for row in rows for name in row)
    rows = [{**names, **row} for row in rows]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path,
                                compression="zstd", row_group_size=300)
    return [path]


def table(path, rows):
    """CSV; what is no text is JSON."""
    names = list(rows[0])
    for row in rows:
        names += [name for name in row if name not in names]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for row in rows:
            writer.writerow([value if isinstance(value, str) else
                             "" if value is None else json.dumps(value)
                             for value in (row.get(name) for name in names)])
    return [path]


def several(path, rows):
    cuts = [0, 100, 101, 1500, len(rows)]
    return [writer(path.with_name(f"{number}-{path.name}"), rows[a:b])[0]
            for number, (writer, a, b) in enumerate(zip(
                (json_lines, json_array, parquet, gzipped), cuts, cuts[1:]))]


WRITERS = {"jsonl": json_lines, "json": json_array, "json.gz": gzipped,
           "jsonl.zst": zstandard, "parquet": parquet, "csv": table,
           "several": several}


# --- Comparisons -------------------------------------------------------------


def conversations(name, shape):
    """(row in the shape, the messages that it means)."""
    source = random.Random(f"{name} {shape}")
    while True:
        row = chat_masks.random_row(source)
        shaped = SHAPES[shape](row)
        if shaped is not None:
            yield shaped, row


def prepared(encoder, paths):
    names = [str(path) for path in paths]
    reader = open_reader(names, names)
    return [{"ids": list(one.ids), "mask": list(one.labels)}
            for rows, _ in reader.batches() for one in encoder.encode(rows)]


def compare_shapes(name, folder):
    make, template = chat_masks.FAMILIES[name]
    make(folder, chat_masks.without_tags(template))
    encoder = Encoder(str(folder))
    tokenizer = chat_masks.oracle(folder, template)
    ok = True
    for shape in SHAPES:
        source = conversations(name, shape)
        pairs = [next(source) for _ in range(COMPARED)]
        wanted = []
        for _, row in pairs:
            case = chat_masks.expected(tokenizer, row)
            wanted.append({"ids": case["ids"], "mask": case["mask"]})
        for kind, write in WRITERS.items():
            paths = write(folder / f"data.{kind}",
                          [shaped for shaped, _ in pairs])
            found = prepared(encoder, paths)
            different = sum(a != b for a, b in zip(found, wanted, strict=True))
            print(f"shape_{name}_{shape}_{kind}: {different} of {len(wanted)} "
                  "conversations differ from transformers in ids or mask")
            ok &= not different
    return ok


def compare_tokens(folder):
    """Tokens that only a file beside tokenizer.json knows."""
    families.make_tokenizer(folder)
    size = Encoder(str(folder)).vocab_size
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    token = {"content": "<ticket>", "lstrip": False, "rstrip": True,
             "normalized": False, "single_word": False, "special": True}
    places = {
        "decoder": ({"added_tokens_decoder": {str(size): token}}, {}, {}),
        "additional": ({"additional_special_tokens": ["<ticket>"]}, {}, {}),
        "extra": ({"extra_special_tokens": ["<ticket>", "six"]}, {}, {}),
        "roles": ({"pad_token": "<ticket>", "bos_token": "one"}, {}, {}),
        "map": ({}, {"pad_token": "<ticket>"}, {}),
        "legacy": ({}, {}, {"<ticket>": size, "<other>": size + 1})}
    source = random.Random(5)
    texts = ["".join(source.choices(chat_masks.PIECES + ["<ticket>", "six",
                                                         "<other>"], k=8))
             for _ in range(COMPARED)]
    ok = True
    for name, (more, special, added) in places.items():
        for file, value in (("tokenizer_config.json", {**config, **more}),
                            ("special_tokens_map.json", special),
                            ("added_tokens.json", added)):
            (folder / file).write_text(json.dumps(value))
        theirs = AutoTokenizer.from_pretrained(str(folder))
        ours = Encoder(str(folder)).tokenizer
        different = sum(ours.encode(text).ids != theirs(text).input_ids
                        for text in texts)
        print(f"tokens_{name}: {different} of {len(texts)} texts differ from "
              "AutoTokenizer in ids")
        ok &= not different
    return ok


def compare_templates(folder):
    """Templates by name, in a folder of their own."""
    make, template = chat_masks.FAMILIES["qwen2"]
    make(folder, None)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["chat_template"]
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text("A" + template)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates/tool_use.jinja").write_text(
        "B" + template)
    encoder = Encoder(str(folder))
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    source = random.Random(6)
    wanted = [chat_masks.expected(tokenizer, chat_masks.random_row(source))
              for _ in range(COMPARED)]
    different = sum(chat_masks.prepared(encoder, case["row"]) != case
                    for case in wanted)
    print(f"templates_by_name: {different} of {len(wanted)} conversations "
          "differ from transformers in text, ids or mask")
    return not different


def main():
    checks = [lambda folder, name=name: compare_shapes(name, folder)
              for name in chat_masks.FAMILIES]
    results = []
    for check in (*checks, compare_tokens, compare_templates):
        with tempfile.TemporaryDirectory() as folder:
            results.append(check(pathlib.Path(folder)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
