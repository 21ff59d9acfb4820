"""Conversations through the dataset helper and through real transformers:
text, token ids and the mask of what the assistant says.

    chat_masks.py              compares random conversations, 2,000 a family
    chat_masks.py --write FILE writes goldens for server/jobs/prepare_chat_test

transformers tells what is the assistant's only by {% generation %}, so that it
gets each family's template with those tags; the helper gets it without. Run in
the environment that tests/parity/setup makes.
"""

import json
import pathlib
import random
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "server/jobs"))
import prepare_testing as families  # noqa: E402  found by the line before
from prepare_formats import messages_row  # noqa: E402
from prepare_tokens import Encoder  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

COMPARED = 2000
WRITTEN = 20
PIECES = [" ", "  ", "\n", "\n\n", "one", "two ", "three", "三", "größe", "\t",
          "{", '"', "<b>", "'", "é"]
BEGIN, END = "{% generation %}", "{% endgeneration %}"

# Per family: who makes its tokenizer and template, the template with the
# assistant's part in tags, and whether it has a system role.
FAMILIES = {
    "chatml": (families.make_chatml, (
        "{% for message in messages %}"
        "{{ '<|im_start|>' + message.role + '\n' }}"
        "{% if message.role == 'assistant' %}" + BEGIN +
        "{{ message.content + '<|im_end|>\n' }}" + END + "{% else %}"
        "{{ message.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"), True),
    "llama3": (families.make_llama3, (
        "{{ bos_token }}{% for message in messages %}"
        "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}"
        "{% if message.role == 'assistant' %}" + BEGIN +
        "{{ message.content | trim + '<|eot_id|>' }}" + END + "{% else %}"
        "{{ message.content | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"),
        True),
    "mistral": (families.make_mistral, (
        "{{ bos_token }}{% for message in messages %}"
        "{% if message.role == 'user' %}"
        "{{ '[INST] ' + message.content + '[/INST]' }}{% else %}" + BEGIN +
        "{{ ' ' + message.content + eos_token }}" + END +
        "{% endif %}{% endfor %}"), False),
}


def random_text(source):
    return "".join(source.choices(PIECES, k=source.randint(1, 12)))


def random_messages(source, system):
    messages = []
    if system and source.random() < 0.3:
        messages.append({"role": "system", "content": random_text(source)})
    for _ in range(source.randint(1, 4)):
        for role in ("user", "assistant"):
            messages.append({"role": role, "content": random_text(source)})
    return messages


def oracle(folder, template):
    config = json.loads((folder / "tokenizer_config.json").read_text())
    special = {name: value["content"] if isinstance(value, dict) else value
               for name, value in config.items() if name.endswith("_token")}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), **special)
    tokenizer.chat_template = template
    return tokenizer


def expected(tokenizer, messages):
    out = tokenizer.apply_chat_template(
        messages, tokenize=True, return_dict=True,
        return_assistant_tokens_mask=True)
    return {"messages": messages,
            "text": tokenizer.apply_chat_template(messages, tokenize=False),
            "ids": list(out["input_ids"]),
            "mask": list(out["assistant_masks"])}


def prepared(encoder, messages):
    row = messages_row(1, {"messages": messages})
    sequence, = encoder.encode([row])
    text, _ = encoder.template.render(row.messages, row.tools, row.trained)
    return {"messages": messages, "text": text, "ids": list(sequence.ids),
            "mask": list(sequence.labels)}


def cases(name, folder, count):
    """The encoder of a family, and what transformers makes of conversations."""
    make, template, system = FAMILIES[name]
    make(folder)
    tokenizer = oracle(folder, template)
    source = random.Random(name)
    return Encoder(str(folder)), [
        expected(tokenizer, random_messages(source, system))
        for _ in range(count)]


def compare(name, folder):
    encoder, wanted = cases(name, folder, COMPARED)
    different = [case for case in wanted
                 if prepared(encoder, case["messages"]) != case]
    print(f"chat_{name}: {len(different)} of {len(wanted)} conversations "
          "differ from transformers in text, ids or mask")
    for case in different[:1]:
        print("  ", json.dumps(case), "\n  ",
              json.dumps(prepared(encoder, case["messages"])))
    return not different


def written(name, folder):
    _, wanted = cases(name, folder, WRITTEN)
    files = {file: json.loads((folder / file).read_text())
             for file in ("tokenizer.json", "tokenizer_config.json")}
    return {"files": files, "cases": wanted}


def main(arguments):
    if arguments and (arguments[0] != "--write" or len(arguments) != 2):
        sys.exit(__doc__)
    results = {}
    for name in FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            do = written if arguments else compare
            results[name] = do(name, pathlib.Path(folder))
    if not arguments:
        return 0 if all(results.values()) else 1
    text = json.dumps(results, ensure_ascii=False, separators=(",", ":"))
    pathlib.Path(arguments[1]).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
