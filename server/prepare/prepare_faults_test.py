"""Tests of prepare.py on what people bring from elsewhere: data for another
kind of training, fields that nothing reads, tokens and templates that lie
beside the usual files. One small input for each fault that was found."""

import json
import os
import pathlib
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import prepare_sample  # noqa: E402  found by the line before
from common import files  # noqa: E402
from prepare_testing import (EOS, PrepareTest, make_chatml,  # noqa: E402
                             make_tokenizer, save_tokenizer)
from tokens.encoder import Encoder  # noqa: E402

# Takes the calls' arguments as JSON, as Qwen2.5, Llama 3 and Mistral do.
CALLS = """\
{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}CALL({{ call.function.name }},
{{- call.function.arguments | tojson }}){% endfor %}<|im_end|>
{% endfor %}"""
# What transformers has for a small model, where it has none.
ONE_CALL = """\
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if 'tool_calls' in m and m.tool_calls|length != 1 -%}
{{ raise_exception('one call at a time') }}{% endif %}{{ m.content }}<|im_end|>
{% endfor %}"""


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


def chat(**more):
    return {"messages": [turn("user", "one"), turn("assistant", "two")],
            **more}


def call(arguments):
    return {"id": "c1", "type": "function",
            "function": {"name": "plus", "arguments": arguments}}


class FaultTest(PrepareTest):
    def make_model(self):
        return make_chatml(self.model)

    def set_template(self, text):
        (self.model / "chat_template.jinja").write_text(text)

    def texts(self, *rows, **kwargs):
        """The decoded sequences, and the manifest."""
        manifest, sequences, _ = self.prepared(*rows, **kwargs)
        return manifest, [self.tokenizer.decode(ids, skip_special_tokens=False)
                          for ids, _ in sequences]

    def warning(self, manifest, kind):
        found = [warning for warning in manifest["warnings"]
                 if warning["kind"] == kind]
        self.assertLessEqual(len(found), 1)
        return found[0] if found else None


class OtherDataTest(FaultTest):
    def test_preferences_are_refused_by_name(self):
        pair = {"from": "gpt", "value": "good"}
        turns = [{"from": "human", "value": "a?"},
                 {"from": "gpt", "value": "b"}]
        alpaca = {"instruction": "a", "output": "b"}
        for row, name in (
                ({"conversations": turns, "chosen": pair, "rejected": pair},
                 "'chosen'"),
                (chat(rejected=[turn("assistant", "x")]), "'rejected'"),
                (chat(rejected_response="x"), "'rejected_response'"),
                (chat(label=False), "'label'"), (chat(label=True), "'label'"),
                ({"prompt": "a", "completion": "b", "label": True}, "'label'"),
                ({**alpaca, "kto_tag": False}, "'kto_tag'"),
                ({"prompt": "a", "chosen": "b", "rejected": "c"}, "'chosen'"),
                ({"input": {"messages": []}, "preferred_output": [],
                  "non_preferred_output": []}, "'preferred_output'"),
                ({"text": "a", "rejected": "b"}, "'rejected'")):
            with self.subTest(name, row=row):
                good = {key: value for key, value in row.items()
                        if key in ("messages", "instruction", "output")}
                self.assert_error([*[good] * bool(good), row],
                                  1 + bool(good), "has " + name if name !=
                                  "'label'" else "has a " + name)

    def test_fields_of_those_names_that_say_nothing_are_none(self):
        manifest, _, _ = self.prepared(chat(chosen=None, label=None,
                                            images=[], audio=""),
                                       chat(label=3))
        self.assertEqual(manifest["sequences"], 2)
        self.assertEqual(manifest["ignored_fields"],
                         {"images": 1, "audio": 1, "label": 1})

    def test_images_and_sounds_are_refused_by_name(self):
        seen = turn("user", "<image>What is it?")
        for row, message in (
                ({"messages": [seen, turn("assistant", "A cat.")],
                  "images": ["cat.jpg"]}, "has 'images'"),
                (chat(audios=["a.wav"]), "has 'audios'"),
                (chat(videos=[{"bytes": "x"}]), "has 'videos'"),
                (chat(image={"path": "x.png"}), "has 'image'"),
                ({"prompt": "a", "completion": "b", "image": "x"},
                 "has 'image'"),
                ({"messages": [turn("user", "x", images=["y"])]},
                 "messages[0]: has 'images'")):
            with self.subTest(message, row=row):
                self.assert_error([row], 1, message)

    def test_older_forms_say_what_they_are_now(self):
        for row, message in (
                ({"messages": [turn("assistant", None, function_call={
                    "name": "f", "arguments": "{}"})]}, "'tool_calls'"),
                (chat(functions=[{"name": "f"}]), "'tools'"),
                ({"segments": [{"label": True, "text": "x"}]}, "'segments'")):
            with self.subTest(message):
                self.assert_error([row], 1, message)

    def test_no_row_with_an_answer_says_so(self):
        row = {"messages": [turn("user", "2+2?")], "reference_answer": "4"}
        self.assert_error([row, row], 1, "no row has a message of the "
                          "assistant, so there is nothing to train")


class ShapesTest(FaultTest):
    def test_alpaca_with_system_and_history(self):
        _, texts = self.texts({
            "instruction": "And 3?", "input": "", "output": "9",
            "system": "You square numbers.", "history": [["2?", "4"]]})
        _, wanted = self.texts({"messages": [
            turn("system", "You square numbers."), turn("user", "2?"),
            turn("assistant", "4"), turn("user", "And 3?"),
            turn("assistant", "9")]}, out="wanted")
        self.assertEqual(texts, wanted)
        spans = self.report(["--preview", 1], {
            "instruction": "a", "output": "b", "history": [["2?", "4"]]})
        trained = [span["text"] for span in spans["samples"][0]["spans"]
                   if span["trained"]]
        self.assertEqual(trained, ["4<|im_end|>\n", "b<|im_end|>\n"])

    def test_history_of_another_shape(self):
        for history, message in (("x", "must be an array"),
                                 ([["a"]], "history[0]: must be an array of"),
                                 ([["a", 5]], "must be a string")):
            with self.subTest(message):
                self.assert_error([{"instruction": "a", "output": "b",
                                    "history": history}], 1, message)

    def test_alpaca_with_its_whole_text_as_a_fourth_column(self):
        row = {"instruction": "a", "input": "", "output": "b"}
        _, wanted = self.texts(row, out="wanted")
        manifest, texts = self.texts({**row, "text": "a b"})
        self.assertEqual(texts, wanted)
        self.assertEqual(manifest["ignored_fields"], {"text": 1})

    def test_conversations_and_messages_have_either_names(self):
        ours = [turn("system", "ten"), turn("user", "one"),
                turn("assistant", "two")]
        theirs = [{"from": "system", "value": "ten"},
                  {"from": "human", "value": "one"},
                  {"from": "gpt", "value": "two"}]
        made = [self.texts({name: turns}, out=f"{name}{i}")[1]
                for name in ("messages", "conversations")
                for i, turns in enumerate((ours, theirs))]
        self.assertEqual(made, [made[0]] * 4)

    def test_calls_and_observations_of_sharegpt(self):
        self.set_template(CALLS)
        _, texts = self.texts({"conversations": [
            {"from": "human", "value": "w?"},
            {"from": "function_call",
             "value": "{\"name\": \"plus\", \"arguments\": {\"a\": 1}}"},
            {"from": "observation", "value": "sun"},
            {"from": "gpt", "value": "sunny"}]})
        _, wanted = self.texts({"messages": [
            turn("user", "w?"), turn("assistant", "",
                                     tool_calls=[call({"a": 1})]),
            turn("tool", "sun"), turn("assistant", "sunny")]}, out="wanted")
        self.assertEqual(texts, wanted)
        self.assert_error([{"conversations": [
            {"from": "function_call", "value": "plus(1)"}]}], 1, "must be JSON")

    def test_variables_for_the_template(self):
        self.set_template("{{ mode | default('x') }}{% for m in messages %}"
                          "{% generation %}{{ m.content }}{% endgeneration %}"
                          "{% endfor %}")
        _, texts = self.texts(chat(chat_template_kwargs={"mode": "nine"}),
                              chat())
        self.assertEqual([text[:4] for text in texts], ["nine", "xone"])
        for value, message in ((5, "must be an object"),
                               ({"messages": []}, "must not have 'messages'")):
            self.assert_error([chat(chat_template_kwargs=value)], 1, message)

    def test_messages_that_are_json_in_a_string(self):
        _, texts = self.texts({"messages": json.dumps(chat()["messages"])})
        _, wanted = self.texts(chat(), out="wanted")
        self.assertEqual(texts, wanted)
        self.assert_error([{"messages": "[1"}], 1, "is a string but no JSON")


class NullTest(FaultTest):
    def test_a_null_is_absent_in_json_lines_too(self):
        self.set_template(ONE_CALL)
        _, texts = self.texts({"messages": [
            turn("user", "hi", tool_calls=None),
            turn("assistant", "hello", tool_calls=None, weight=None)],
            "tools": None, "prompt": None, "chosen": None})
        _, wanted = self.texts({"messages": [
            turn("user", "hi"), turn("assistant", "hello")]}, out="wanted")
        self.assertEqual(texts, wanted)

    def test_nulls_of_calls_are_absent_but_in_arguments_and_tools(self):
        self.set_template(
            "{{ tools | tojson }}{{ kinds | tojson }}{% for m in messages %}"
            "{% generation %}{{ m.tool_calls | tojson }}{% endgeneration %}"
            "{% endfor %}")
        tool = {"function": {"name": "plus", "parameters": {"properties": {
            "a": {"default": None, "enum": [1, None]}}}}}
        one = call({"a": 1, "b": None, "c": [None, {"d": None}]})
        turns = [turn("assistant", None, name=None, tool_calls=[
            {**one, "index": None,
             "function": {**one["function"], "strict": None}}])]
        wanted = (json.dumps([tool]) + '{"e": null}' + json.dumps([one]))
        for number, messages in enumerate((turns, json.dumps(turns))):
            _, texts = self.texts(
                {"messages": messages, "tools": [tool],
                 "chat_template_kwargs": {"kinds": {"e": None}}},
                out=f"out{number}", max_length=256)
            self.assertEqual(texts, [wanted])

    def test_nulls_of_turns_that_are_json_in_a_string(self):
        self.set_template(ONE_CALL)
        turns = [{"from": "human", "value": "hi", "role": None,
                  "tool_calls": None},
                 {"from": "gpt", "value": "hello", "weight": None}]
        _, texts = self.texts({"conversations": json.dumps(turns)})
        _, wanted = self.texts({"messages": [
            turn("user", "hi"), turn("assistant", "hello")]}, out="wanted")
        self.assertEqual(texts, wanted)

    def test_what_is_missing_but_null_says_null(self):
        self.assert_error([{"messages": None}], 1, "'messages' is null")
        self.assert_error([{"instruction": "a", "output": None}], 1,
                          "'output' is null")


class ToolArgumentsTest(FaultTest):
    def row(self, arguments):
        return {"messages": [
            turn("user", "w?"), turn("assistant", None,
                                     tool_calls=[call(arguments)]),
            turn("tool", "sun", tool_call_id="c1"),
            turn("assistant", "sunny")]}

    def test_a_string_that_is_an_object_is_decoded_and_counted(self):
        self.set_template(CALLS)
        manifest, texts = self.texts(self.row('{"city": "Ulm"}'),
                                     self.row('{"city":"Ulm"}'))
        plain, wanted = self.texts(self.row({"city": "Ulm"}), out="wanted")
        self.assertEqual(texts, wanted * 2)
        self.assertIn('CALL(plus,{"city": "Ulm"})', texts[0])
        found = self.warning(manifest, "tool_arguments")
        self.assertEqual((found["rows"], found["lines"]), (2, [1, 2]))
        self.assertEqual(plain["warnings"], [])

    def test_any_other_string_stays(self):
        self.set_template(CALLS)
        for text in ("", "Ulm", "[1]", '{"a": 1', '{"a": 1, "a": 2}',
                     '{"a":' * 5000):
            manifest, texts = self.texts(self.row(text))
            self.assertIn(f"CALL(plus,{json.dumps(text)[:20]}", texts[0])
            self.assertIsNone(self.warning(manifest, "tool_arguments"))

    def test_templates_that_want_the_string_get_it(self):
        wanted = '{"city":"Ulm"}'
        for expression in ("'x' + call.function.arguments",
                           "call.function.arguments",
                           "(call.function.arguments if call.function."
                           "arguments is string else raise_exception('no'))"):
            with self.subTest(expression):
                self.set_template(CALLS.replace(
                    "call.function.arguments | tojson", expression))
                manifest, texts = self.texts(self.row(wanted))
                self.assertIn(wanted + ")", texts[0])
                self.assertIsNone(self.warning(manifest, "tool_arguments"))


class UnreadTest(FaultTest):
    def test_fields_of_messages_that_no_template_reads(self):
        rows = [chat(), {"messages": [
            turn("user", "c?", name=""),
            turn("assistant", "d", thinking="because", loss_weight=0.5,
                 tool_call_id="x")]}]
        manifest, _, _ = self.prepared(*rows)
        found = self.warning(manifest, "unread_fields")
        self.assertEqual((found["rows"], found["lines"]), (1, [2]))
        self.assertIn("loss_weight, thinking", found["warning"])
        self.set_template("{% for m in messages %}{% generation %}{{ m.content"
                          " }}{{ m.thinking }}{{ m['loss_weight'] }}"
                          "{% endgeneration %}{% endfor %}")
        manifest, _, _ = self.prepared(*rows)
        self.assertIsNone(self.warning(manifest, "unread_fields"))

    def test_a_turn_marked_training_false_is_not_trained(self):
        report = self.report(["--preview", 1], {"messages": [
            turn("user", "a?"), turn("assistant", "b", training=False),
            turn("user", "c?"), turn("assistant", "d")]})
        self.assertEqual([span["text"] for span in
                          report["samples"][0]["spans"] if span["trained"]],
                         ["d<|im_end|>\n"])

    def test_text_that_the_template_leaves_out(self):
        self.set_template("{% for m in messages if m.role != 'critic' %}"
                          "<|im_start|>{{ m.role }}\n{{ m.content | trim }}"
                          "<|im_end|>\n{% endfor %}")
        left = {"messages": [turn("user", "one"), turn("critic", "nine"),
                             turn("assistant", "two")]}
        manifest, _, _ = self.prepared(chat(), left)
        found = self.warning(manifest, "text_left_out")
        self.assertEqual((found["rows"], found["lines"]), (1, [2]))

    def test_text_that_is_written_otherwise_is_not_left_out(self):
        self.set_template("{% for m in messages %}{{ m.content | tojson }}"
                          "<|im_start|>assistant\n{{ m.content | trim }}"
                          "<|im_end|>{% endfor %}")
        manifest, _, _ = self.prepared({"messages": [
            turn("assistant", ' a "b"\n\n c ')]})
        self.assertEqual(manifest["warnings"], [])

    def test_thoughts_of_earlier_turns_are_named(self):
        self.set_template(
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content if "
            "loop.last else m.content.split('</think>')[-1] }}<|im_end|>\n"
            "{% endfor %}")
        thought = turn("assistant", "<think>x</think>two")
        manifest, _, _ = self.prepared(
            {"messages": [turn("user", "a"), thought]},
            {"messages": [turn("user", "a"), thought, turn("user", "b"),
                          turn("assistant", "two")]})
        self.assertEqual(
            self.warning(manifest, "text_left_out")["lines"], [2])


class TwoBeginsTest(PrepareTest):
    def make_model(self):
        return make_tokenizer(self.model, post_processor=True)

    def test_a_text_that_brings_its_own(self):
        manifest, _, _ = self.prepared({"text": "one"},
                                       {"text": "<|begin|>one"})
        found, = manifest["warnings"]
        self.assertEqual((found["kind"], found["rows"], found["lines"]),
                         ("two_begins", 1, [2]))
        self.assertTrue(found["warning"].startswith(
            "1 row begins with the token <|begin|> twice: "),
                        found["warning"])


class TurnEndsTest(FaultTest):
    """A base model: its files name <|endoftext|> alone as an end."""

    def make_model(self):
        tokenizer = make_chatml(self.model)
        config = self.model / "tokenizer_config.json"
        config.write_text(config.read_text().replace(
            '"eos_token": "<|im_end|>"', '"eos_token": "<|endoftext|>"'))
        (self.model / "generation_config.json").write_text(
            '{"eos_token_id": 0}')
        return tokenizer

    def test_the_end_of_turns_is_named_and_recorded(self):
        manifest, _, _ = self.prepared(chat(), chat())
        found, = manifest["warnings"]
        self.assertEqual((found["kind"], found["rows"], found["lines"]),
                         ("turn_ends", 1, [1]))
        self.assertIn("<|im_end|>", found["warning"])
        self.assertEqual(manifest["turn_end_ids"], [2])

    def test_ends_that_the_files_name_are_not(self):
        (self.model / "generation_config.json").write_text(
            '{"eos_token_id": [0, 2]}')
        manifest, _, _ = self.prepared(chat())
        self.assertEqual((manifest["warnings"], manifest["turn_end_ids"]),
                         ([], []))

    def test_samples_stop_there(self):
        encoder = Encoder(str(self.model))
        for raw, ends in ((False, [0, 2]), (True, [0])):
            self.assertEqual(prepare_sample.end_tokens(
                encoder, [str(self.model)], raw), ends)

    def test_marks_of_its_own_tell_it_too(self):
        self.set_template("{% for m in messages %}{% generation %}"
                          "{{ m.content }}<|im_start|>\n{% endgeneration %}"
                          "{% endfor %}")
        manifest, _, _ = self.prepared(chat())
        self.assertEqual(manifest["turn_end_ids"], [1])
        self.assertEqual(Encoder(str(self.model)).template_ends(), {1})


class TokensTest(PrepareTest):
    """What tokenizer.json does not know, and files beside it do."""

    TICKET = {"content": "<ticket>", "lstrip": False, "rstrip": False,
              "normalized": False, "single_word": False, "special": True}

    def config(self, **more):
        (self.model / "tokenizer_config.json").write_text(
            json.dumps({"eos_token": EOS, **more}))

    def expect_one_token(self):
        size = self.tokenizer.get_vocab_size(with_added_tokens=True)
        _, sequences, _ = self.prepared({"text": "one<ticket> two"})
        self.assertEqual(sequences[0][0], self.ids("one") + [size] +
                         self.ids(" two") + [self.eos])

    def test_each_file_that_may_name_one(self):
        size = self.tokenizer.get_vocab_size(with_added_tokens=True)
        added = self.model / "added_tokens.json"
        for make in (
                lambda: self.config(added_tokens_decoder={
                    str(size): self.TICKET}),
                lambda: self.config(additional_special_tokens=["<ticket>"]),
                lambda: self.config(extra_special_tokens=[self.TICKET]),
                lambda: self.config(extra_special_tokens={
                    "image_token": "<ticket>"}),
                lambda: self.config(pad_token="<ticket>"),
                lambda: self.config() or added.write_text(
                    json.dumps({"<ticket>": size}))):
            make()
            self.expect_one_token()

    def test_another_id_than_its_file_says_is_refused(self):
        self.config(added_tokens_decoder={"7777": self.TICKET})
        found = self.error({"text": "one"})
        self.assertIn("'<ticket>' has the id 7777", found["error"])
        self.assertEqual(found["file"],
                         str(self.model / "tokenizer_config.json"))

    def test_tokens_that_are_there_change_nothing(self):
        _, plain, _ = self.prepared({"text": "one two"}, out="plain")
        self.config(added_tokens_decoder={
            str(number): {"content": token.content, "special": token.special,
                          "normalized": token.normalized}
            for number, token in
            self.tokenizer.get_added_tokens_decoder().items()},
            additional_special_tokens=[EOS])
        _, sequences, _ = self.prepared({"text": "one two"})
        self.assertEqual(sequences, plain)

    def test_malformed(self):
        for more in ({"added_tokens_decoder": 5},
                     {"added_tokens_decoder": {"x": self.TICKET}},
                     {"added_tokens_decoder": {"500": {"content": ""}}},
                     {"added_tokens_decoder": {"500": 5}},
                     {"additional_special_tokens": 5},
                     {"additional_special_tokens": [7]},
                     {"unk_token": []}):
            with self.subTest(more):
                self.config(**more)
                self.assertIn("tokenizer_config.json",
                              self.error({"text": "one"})["file"])

    def test_a_token_that_the_model_has_no_row_for(self):
        size = self.tokenizer.get_vocab_size(with_added_tokens=True)
        nine = self.ids("nine")[-1]
        (self.model / "config.json").write_text(json.dumps(
            {"vocab_size": size}))
        self.prepared({"text": "nine"})
        for config in ({"vocab_size": nine},
                       {"text_config": {"vocab_size": nine}}):
            (self.model / "config.json").write_text(json.dumps(config))
            self.assert_error([{"text": "one"}, {"text": "nine"}], 2,
                              f"the model's vocab_size is {nine}")
            done = self.start("--tokenizer", self.model, "--data",
                              self.write({"text": "nine"}), "--max-length",
                              64, "--validate")
            self.assertEqual(json.loads(done.stderr)["line"], 1)


class TemplatesTest(FaultTest):
    def setUp(self):
        super().setUp()
        save_tokenizer(self.model, self.tokenizer, eos_token="<|im_end|>")
        form = ("{% for m in messages %}{% generation %}{{ m.content }}"
                "{% endgeneration %}{% endfor %}")
        self.set_template("A" + form)
        self.more = self.model / "additional_chat_templates"
        self.more.mkdir()
        (self.more / "tool_use.jinja").write_text("B" + form)

    def test_tool_use_of_the_folder_is_taken_for_rows_with_tools(self):
        rows = [chat(), chat(tools=[{"name": "f"}])]
        manifest, texts = self.texts(*rows)
        self.assertEqual([text[0] for text in texts], ["A", "B"])
        self.assertEqual(manifest["template"]["masks"], {
            "default": "generation", "tool_use": "generation"})

    def test_it_is_part_of_the_key(self):
        keys = set()
        for text in ("C", "D"):
            (self.more / "other.jinja").write_text(text)
            keys.add(self.prepared(chat())[0]["key"])
        self.assertEqual(len(keys), 2)

    def test_only_what_was_given(self):
        given = {str(path): os.open(path, os.O_RDONLY)
                 for path in [*self.model.glob("*.json*"),
                              *self.model.glob("*.jinja"),
                              self.more / "tool_use.jinja"]}
        for number in given.values():
            self.addCleanup(os.close, number)
        (self.more / "rag.jinja").write_text("C")
        with mock.patch.object(files, "GIVEN", given):
            encoder = Encoder(str(self.model))
            self.assertEqual(set(encoder.template.texts),
                             {"default", "tool_use"})

    def test_too_many(self):
        for number in range(40):
            (self.more / f"t{number}.jinja").write_text("x")
        self.assertIn("more than 32 templates", self.error(chat())["error"])


class LfsPointerTest(FaultTest):
    def test_a_file_that_was_not_downloaded(self):
        (self.model / "tokenizer.json").write_text(
            "version https://git-lfs.github.com/spec/v1\n"
            "oid sha256:4d7a2146\nsize 12345\n")
        found = self.error(chat())
        self.assertIn("is a Git LFS pointer", found["error"])
        self.assertEqual(found["file"], str(self.model / "tokenizer.json"))


if __name__ == "__main__":
    unittest.main()
