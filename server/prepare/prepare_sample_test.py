"""Prompts to ids and drawn ids to text, through the helper as the daemon runs
it."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import prepare_testing as testing

SCRIPT = pathlib.Path(__file__).parent / "prepare_sample.py"


class Helper:
    """One child; `ids`, `ends` and `controls` are its first answer."""

    def __init__(self, model, prompts, *words):
        with tempfile.TemporaryFile() as file:
            file.write(json.dumps(prompts).encode())
            file.seek(0)
            # Away from 3 and 4, which are the child's.
            source = os.dup(file.fileno())
        reading, self.pipe = os.pipe()
        descriptors = {3: source, 4: reading}
        high = {want: os.dup2(fd, 60 + want) for want, fd in
                descriptors.items()}
        self.child = subprocess.Popen(
            ["/bin/bash", "-c", "exec \"$0\" \"$@\" 3<&63 4<&64 63<&- 64<&-",
             sys.executable, str(SCRIPT), "--tokenizer", str(model),
             "--model", str(model), *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, pass_fds=list(high.values()))
        for fd in [source, reading, *high.values()]:
            os.close(fd)
        line = self.child.stdout.readline()
        first = json.loads(line) if line else {}
        self.ids, self.ends = first.get("prompts"), first.get("end_tokens")
        self.controls = first.get("control_tokens")

    def say(self, *drawn):
        os.write(self.pipe, json.dumps(drawn).encode() + b"\n")
        return json.loads(self.child.stdout.readline())["texts"]

    def close(self):
        """Exit status and error."""
        os.close(self.pipe)
        output, errors = self.child.communicate(timeout=60)
        assert output == "", output
        return self.child.returncode, errors


class SampleTest(unittest.TestCase):
    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.model = pathlib.Path(folder) / "model"

    def start(self, prompts, *words):
        self.helper = Helper(self.model, prompts, *words)
        self.addCleanup(self.helper.child.kill)
        return self.helper

    def refused(self, prompts, *words):
        helper = self.start(prompts, *words)
        status, errors = helper.close()
        self.assertEqual(status, 3, errors)
        return json.loads(errors.splitlines()[-1])["error"]

    def test_plain_text_keeps_what_begins_a_text_but_not_what_ends_it(self):
        tokenizer = testing.make_tokenizer(self.model, post_processor=True)
        helper = self.start(["one two", "three"])
        begin = tokenizer.token_to_id(testing.BOS)
        plain = [tokenizer.encode(text, add_special_tokens=False).ids
                 for text in ("one two", "three")]
        self.assertEqual(helper.ids, [[begin] + ids for ids in plain])
        self.assertEqual(helper.ends, [tokenizer.token_to_id(testing.EOS)])
        self.assertEqual(helper.close()[0], 0)

    def test_a_chat_model_is_asked_as_a_user(self):
        tokenizer = testing.make_chatml(self.model)
        helper = self.start(["one"])
        self.assertEqual(
            tokenizer.decode(helper.ids[0], skip_special_tokens=False),
            "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n")
        helper.close()
        helper = self.start(["one"], "--raw")
        self.assertEqual(tokenizer.decode(helper.ids[0]), "one")
        helper.close()

    def test_a_template_of_no_known_family_can_be_asked(self):
        testing.make_chatml(self.model, "{{ messages[0].content }} is")
        helper = self.start(["one"])
        self.assertEqual(len(helper.ids), 1)
        self.assertEqual(helper.close()[0], 0)

    def test_control_tokens_in_a_message_are_told(self):
        testing.make_chatml(self.model)
        prompts = ["one", "one<|im_end|>", "<|im_start|>two"]
        helper = self.start(prompts)
        self.assertEqual(helper.controls, [1, 2])
        helper.close()
        helper = self.start(prompts, "--raw")  # who writes them means them
        self.assertEqual(helper.controls, [])
        helper.close()

    def test_every_file_may_name_ends(self):
        tokenizer = testing.make_tokenizer(self.model)
        (self.model / "generation_config.json").write_text(
            json.dumps({"eos_token_id": [7, 5]}))
        (self.model / "config.json").write_text(
            json.dumps({"eos_token_id": 9}))
        helper = self.start(["one"])
        self.assertEqual(
            helper.ends, sorted({5, 7, 9, tokenizer.token_to_id(testing.EOS)}))
        helper.close()

    def test_text_comes_in_whole_characters_and_without_the_end(self):
        tokenizer = testing.make_tokenizer(self.model)
        helper = self.start(["one", "two"])
        # Bytes of "\u00e9" are two tokens here.
        accent = tokenizer.encode("\u00e9").ids
        self.assertEqual(len(accent), 2)
        end = tokenizer.token_to_id(testing.EOS)
        plus = tokenizer.encode(" plus").ids
        self.assertEqual(helper.say([0, accent[:1], False], [1, plus, False]),
                         ["", " plus"])
        self.assertEqual(
            helper.say([0, accent[1:] + plus, False], [1, [end], True]),
            ["\u00e9 plus", ""])
        # One that never ends is said as what it is.
        self.assertEqual(helper.say([0, accent[:1], True]), ["\ufffd"])
        self.assertEqual(helper.close()[0], 0)

    def test_a_space_at_the_beginning_is_kept(self):
        testing.save_tokenizer(self.model, testing.sentence_piece(),
                               eos_token="</s>")
        helper = self.start(["one"])
        tokenizer = testing.sentence_piece()
        two = tokenizer.encode("two").ids
        self.assertEqual(helper.say([0, two, True]), [" two"])
        helper.close()

    def test_bad_prompts_are_named(self):
        testing.make_tokenizer(self.model)
        self.assertEqual(self.refused(["one", ""]),
                         "prompts[1]: has no tokens")
        self.model = self.model.parent / "mistral"
        testing.make_chatml(
            self.model, "{{ raise_exception('nobody may ask') }}")
        self.assertIn("prompts[0]: the chat template refuses",
                      self.refused(["one"]))


if __name__ == "__main__":
    unittest.main()
