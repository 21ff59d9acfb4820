"""Conversations through the dataset helper and through real transformers:
text, token ids and the mask of what the assistant says.

    chat_masks.py              compares random conversations, 2,000 a family
    chat_masks.py --write FILE writes goldens for //server/prepare/tokens:chat_test

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
sys.path.insert(0, str(ROOT / "server/prepare"))
import prepare_testing as families  # noqa: E402  found by the line before
from rows.formats import messages_row  # noqa: E402
from tokens.encoder import Encoder  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

COMPARED = 2000
WRITTEN = 16
PIECES = [" ", "  ", "\n", "\n\n", "one", "two ", "three", "三", "größe", "\t",
          "{", '"', "<b>", "'", "é"]
TOOLS = [{"type": "function", "function": {
    "name": name, "description": "größe of <b>",
    "parameters": {"type": "object", "properties": {"one": {
        "type": "string"}}, "required": ["one"]}}} for name in ("add", "plus")]

# Templates that write conversations as those of the families do, with the
# assistant's part in tags. In ours: system text by default, tools in the system
# turn, calls behind the text, results of tools as a user's turn.
QWEN2 = """\
{% macro system(text) %}<|im_start|>system
{{ text }}{% if tools %}


# Tools
<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}
</tools>{% endif %}<|im_end|>
{% endmacro %}
{%- if messages[0].role == 'system' %}{{ system(messages[0].content) }}
{%- else %}{{ system('Answer in words.') }}{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{%- if loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}
{{- '<|im_end|>\n' }}{% endif %}
{%- elif message.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}
{%- generation %}{{ message.content }}
{%- for call in message.tool_calls or [] %}
{{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{ '}\n</tool_call>' }}{% endfor %}
{{- '<|im_end|>\n' }}{% endgeneration %}
{%- elif not loop.first or message.role != 'system' %}
{{- '<|im_start|>' + message.role + '\n' + message.content }}
{{- '<|im_end|>\n' }}{% endif %}
{%- endfor %}"""

# No system text by default; what was thought stays in the turns behind the
# last question, and the last turn always has a place for it.
QWEN3 = """\
{% if tools or messages[0].role == 'system' %}
{{- '<|im_start|>system\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{%- if tools %}{{ '\n\n# Tools\n<tools>' }}
{%- for tool in tools %}{{ '\n' }}{{ tool | tojson }}{% endfor %}
{{- '\n</tools>' }}{% endif %}
{{- '<|im_end|>\n' }}{% endif %}
{%- set state = namespace(question=0) %}
{%- for message in messages %}{% if message.role == 'user' %}
{%- set state.question = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{%- if loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}
{{- '<|im_end|>\n' }}{% endif %}
{%- elif message.role == 'assistant' %}
{%- set parts = message.content.split('</think>') %}
{%- set thought = message.reasoning_content or
    (parts[0].split('<think>')[-1] if parts | length > 1 else '') %}
{{- '<|im_start|>assistant\n' }}
{%- generation %}
{%- if loop.index0 > state.question and (loop.last or thought) %}
{{- '<think>\n' + thought.strip('\n') + '\n</think>\n\n' }}
{{- parts[-1].lstrip('\n') }}
{%- else %}{{ parts[-1] }}{% endif %}
{%- for call in message.tool_calls or [] %}
{{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{ '}\n</tool_call>' }}{% endfor %}
{{- '<|im_end|>\n' }}{% endgeneration %}
{%- elif not loop.first or message.role != 'system' %}
{{- '<|im_start|>' + message.role + '\n' + message.content }}
{{- '<|im_end|>\n' }}{% endif %}
{%- endfor %}"""

# A system turn with the date in any case, tools in the first question, calls
# as JSON instead of text, results under a role of their own; texts trimmed.
LLAMA3 = """\
{% set has_system = messages[0].role == 'system' %}
{{- bos_token + '<|start_header_id|>system<|end_header_id|>\n\n' }}
{{- 'Today Date: ' + date_string | default('26 Jul 2024') + '\n\n' }}
{%- if has_system %}{{ messages[0].content | trim }}{% endif %}
{{- '<|eot_id|>' }}
{%- for message in messages[1 if has_system else 0:] %}
{%- if message.role == 'tool' %}
{{- '<|start_header_id|>ipython<|end_header_id|>\n\n' }}
{{- message.content | tojson + '<|eot_id|>' }}
{%- elif message.role == 'assistant' %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- generation %}
{%- if message.tool_calls %}
{%- set call = message.tool_calls[0].function %}
{{- '{"name": "' + call.name + '", "parameters": ' }}
{{- call.arguments | tojson + '}' }}
{%- else %}{{ message.content | trim }}{% endif %}
{{- '<|eot_id|>' }}{% endgeneration %}
{%- else %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
{%- if loop.first and tools %}{{ 'Functions:\n\n' }}
{%- for tool in tools %}{{ tool | tojson(indent=4) + '\n\n' }}{% endfor %}
{%- endif %}
{{- message.content | trim + '<|eot_id|>' }}{% endif %}
{%- endfor %}"""

# The system text and the tools before the last question, calls as a list.
MISTRAL = """\
{{ bos_token }}
{%- set state = namespace(question=0, system='') %}
{%- for message in messages %}
{%- if message.role == 'user' %}{% set state.question = loop.index0 %}
{%- elif message.role == 'system' %}{% set state.system = message.content %}
{%- endif %}{% endfor %}
{%- for message in messages %}
{%- if message.role == 'user' %}
{%- if tools and loop.index0 == state.question %}
{{- '[AVAILABLE_TOOLS] ' }}{{ tools | tojson }}{{ '[/AVAILABLE_TOOLS]' }}
{%- endif %}
{{- '[INST] ' }}
{%- if state.system and loop.index0 == state.question %}
{{- state.system + '\n\n' }}{% endif %}
{{- message.content + '[/INST]' }}
{%- elif message.role == 'tool' %}
{{- '[TOOL_RESULTS] {"content": ' + message.content | tojson }}
{{- '}[/TOOL_RESULTS]' }}
{%- elif message.role == 'assistant' %}
{%- generation %}
{%- if message.tool_calls %}{{ '[TOOL_CALLS] [' }}
{%- for call in message.tool_calls %}{{ call.function | tojson }}
{%- if not loop.last %}{{ ', ' }}{% endif %}{% endfor %}{{ ']' }}
{%- else %}{{ ' ' + message.content }}{% endif %}
{{- eos_token }}{% endgeneration %}
{%- endif %}
{%- endfor %}"""


def make_qwen(folder, template):
    """Its markers of turns are special, those of thoughts and calls not."""
    tokenizer = families.byte_level(["<|endoftext|>", "<|im_start|>",
                                     "<|im_end|>"])
    tokenizer.add_tokens(["<think>", "</think>", "<tool_call>",
                          "</tool_call>"])
    families.save_tokenizer(folder, tokenizer, eos_token="<|im_end|>",
                            chat_template=template)


# Per family: who makes its tokenizer, and its template.
FAMILIES = {"qwen2": (make_qwen, QWEN2), "qwen3": (make_qwen, QWEN3),
            "llama3": (families.make_llama3, LLAMA3),
            "mistral": (families.make_mistral, MISTRAL)}


def without_tags(template):
    """Writes the same text and does not say what is the assistant's."""
    return template.replace("{% endgeneration", "{% endif").replace(
        "{%- generation", "{%- if true")


def random_text(source):
    return "".join(source.choices(PIECES, k=source.randint(1, 12)))


def random_call(source):
    return {"type": "function", "function": {
        "name": source.choice(TOOLS)["function"]["name"],
        "arguments": {"one": random_text(source), "two": [1, None]}}}


def random_answer(source, tools):
    """A random answer of the assistant, which may ask tools before."""
    messages = []
    while tools and source.random() < 0.4:
        messages.append({"role": "assistant", "content": "",
                         "tool_calls": [random_call(source)]})
        messages += [{"role": "tool", "content": random_text(source)}
                     for _ in range(source.randint(1, 2))]
    text = random_text(source)
    if source.random() < 0.2:
        text = f"<think>\n{random_text(source)}\n</think>\n\n{text}"
    return [*messages, {"role": "assistant", "content": text}]


def random_row(source):
    tools = source.random() < 0.4
    messages = []
    if source.random() < 0.3:
        messages.append({"role": "system", "content": random_text(source)})
    for _ in range(source.randint(1, 4)):
        messages.append({"role": "user", "content": random_text(source)})
        messages += random_answer(source, tools)
    return {"messages": messages, **({"tools": TOOLS} if tools else {})}


def oracle(folder, template):
    config = json.loads((folder / "tokenizer_config.json").read_text())
    special = {name: value["content"] if isinstance(value, dict) else value
               for name, value in config.items() if name.endswith("_token")}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), **special)
    tokenizer.chat_template = template
    return tokenizer


def expected(tokenizer, row):
    messages, tools = row["messages"], row.get("tools")
    out = tokenizer.apply_chat_template(
        messages, tools=tools, tokenize=True, return_dict=True,
        return_assistant_tokens_mask=True)
    return {"row": row,
            "text": tokenizer.apply_chat_template(messages, tools=tools,
                                                  tokenize=False),
            "ids": list(out["input_ids"]),
            "mask": list(out["assistant_masks"])}


def prepared(encoder, row):
    given = messages_row(1, row)
    sequence, = encoder.encode([given])
    text, _ = encoder.template.render(given.messages, given.tools,
                                      given.trained)
    return {"row": row, "text": text, "ids": list(sequence.ids),
            "mask": list(sequence.labels)}


def cases(name, folder, count):
    """The encoder of a family, and what transformers makes of conversations."""
    make, template = FAMILIES[name]
    make(folder, without_tags(template))
    tokenizer = oracle(folder, template)
    source = random.Random(name)
    return Encoder(str(folder)), [
        expected(tokenizer, random_row(source)) for _ in range(count)]


def compare(name, folder):
    encoder, wanted = cases(name, folder, COMPARED)
    different = [case for case in wanted
                 if prepared(encoder, case["row"]) != case]
    print(f"chat_{name}: {len(different)} of {len(wanted)} conversations "
          "differ from transformers in text, ids or mask")
    for case in different[:1]:
        print("  ", json.dumps(case), "\n  ",
              json.dumps(prepared(encoder, case["row"])))
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
