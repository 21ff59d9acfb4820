"""Prompts to token ids, and drawn ids back to text.

The daemon starts this as a short-lived child, one for each sample:

    prepare_sample.py --tokenizer DIR --model DIR [--raw]
                      [--template-date YYYY-MM-DD]

Descriptor 3 is a file with the prompts, a JSON array of strings. A prompt is
written as a user's message in the chat template, with what begins the answer;
with --raw, or where the model has no template, it is the text itself. The
first line of standard output has the ids, which of them end a sequence, and the
prompts, by number, that have special tokens in what becomes a message:

    {"prompts": [[1, 2], ...], "end_tokens": [0], "control_tokens": []}

Then every line of descriptor 4, a socket, has drawn ids and whether they are the
last; it is answered with the text that they add (an unfinished character waits
for its rest):

    [[0, [17, 4], false], [1, [3, 0], true]]  ->  {"texts": ["a", "b"]}

The end of descriptor 4 ends the child. Its other words, its errors and exit
status are prepare.py's. --model has config.json, which --tokenizer has too
unless it is an adapter.
"""

import argparse
import datetime
import json
import os
import select
import sys

from common.limits import confine
from common.reporting import (OUR_EXITS, SILENT_SECONDS, DataError, fault_text,
                              refusal, speaker)
from tokens.tokenizer import listed_ends

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

PROMPTS_FD, DRAWN_FD = 3, 4


def prompt_ids(encoder, text, raw):
    """ValueError says what is wrong with the prompt."""
    if raw or encoder.template is None:
        ids = encoder.tokenizer.encode(text).ids
        # A sequence that goes on does not end here.
        if ids and ids[-1] == encoder.eos_id:
            ids.pop()
    else:
        text = encoder.template.prompt(text)
        ids = encoder.plain.encode(text, add_special_tokens=False).ids
    if not ids:
        raise ValueError("has no tokens")
    return ids


def all_prompt_ids(encoder, prompts, raw):
    found = []
    for number, text in enumerate(prompts):
        try:
            found.append(prompt_ids(encoder, text, raw))
        except ValueError as error:
            raise DataError(f"prompts[{number}]: {error}") from error
        except (*OUR_EXITS, DataError):
            raise
        except BaseException as error:  # a panic is no Exception
            text = fault_text(error, "tokenizing")
            raise DataError(f"prompts[{number}]: {text}") from error
        speaker.still("tokenizing")
    return found


def with_control_tokens(encoder, prompts, raw):
    """Numbers of those whose message has special tokens of the tokenizer."""
    if raw or encoder.template is None:
        return []
    return [number for number, text in enumerate(prompts)
            if encoder.special.search(text)]


def end_tokens(encoder, folders, raw):
    """Ids of the tokens that end a sequence, by any file that names some, or
    an answer, by the chat template."""
    found = {encoder.eos_id}
    for folder in folders:
        for name in ("generation_config.json", "config.json"):
            found |= listed_ends(folder, name)
    if not raw:
        found |= encoder.template_ends()
    return sorted(found)


class Completion:
    """What was drawn behind one prompt."""

    def __init__(self, tokenizer, prompt):
        self.tokenizer = tokenizer
        self.prompt_length = len(prompt)
        self.ids = list(prompt)
        self.prompt_text = tokenizer.decode(prompt)
        self.said = ""

    def add(self, ids, ended):
        """The text that these add to what was said."""
        self.ids += ids
        text = self.text()
        if not ended:
            text = text.rstrip("\ufffd")  # a character without its end
        if not text.startswith(self.said):
            return ""
        fresh, self.said = text[len(self.said):], text
        return fresh

    def text(self):
        # With the prompt: some decoders drop a space at the very beginning.
        whole = self.tokenizer.decode(self.ids)
        if whole.startswith(self.prompt_text):
            return whole[len(self.prompt_text):]
        return self.tokenizer.decode(self.ids[self.prompt_length:])


def wait_for(pipe):
    """Until there is something to read; says meanwhile that it is alive."""
    while not select.select([pipe], [], [], SILENT_SECONDS)[0]:
        speaker.still("waiting")


def drawn_lines(pipe):
    """Its lines as they come."""
    rest = b""
    while True:
        wait_for(pipe)
        read = os.read(pipe, 1 << 16)
        if not read:
            return
        *lines, rest = (rest + read).split(b"\n")
        yield from lines


def converse(encoder, options):
    with os.fdopen(PROMPTS_FD, encoding="utf-8") as file:
        prompts = json.load(file)
    ids = all_prompt_ids(encoder, prompts, options.raw)
    completions = [Completion(encoder.tokenizer, prompt) for prompt in ids]
    speaker.say(prompts=ids, end_tokens=end_tokens(
        encoder, [options.tokenizer, options.model], options.raw),
        control_tokens=with_control_tokens(encoder, prompts, options.raw))
    for line in drawn_lines(DRAWN_FD):
        speaker.say(texts=[completions[prompt].add(drawn, ended)
                           for prompt, drawn, ended in json.loads(line)])


def parse_options(arguments):
    parser = argparse.ArgumentParser(prog="prepare_sample.py",
                                     allow_abbrev=False)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--template-date", type=datetime.date.fromisoformat)
    return parser.parse_args(arguments)


def main(arguments):
    from tokens.encoder import Encoder

    options = parse_options(arguments)
    try:
        converse(Encoder(options.tokenizer, options.template_date), options)
    except (DataError, MemoryError) as error:
        print(refusal(error, options.tokenizer).as_json(), file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    confine()
    sys.exit(main(sys.argv[1:]))
