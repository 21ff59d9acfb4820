"""Tests of prepare.py on conversations: templates of each family, exact ids
and masks."""

import datetime
import json
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from prepare_testing import (CHATML, LLAMA3, MARKED, PrepareTest,  # noqa: E402
                             make_chatml, make_llama3, make_mistral,
                             save_tokenizer)
from rows.formats import messages_row  # noqa: E402
from tokens.template import load_template, marked_spans  # noqa: E402


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def chat(*turns):
    """Turns of user and assistant, one after the other."""
    return {"messages": [said(("user", "assistant")[i % 2], text)
                         for i, text in enumerate(turns)]}


class ChatTest(PrepareTest):
    def expect(self, sequence, *pieces):
        """The sequence is these texts, those as (text,) trained, tokenised as
        one; no piece boundary may lie inside of a token."""
        plain = [p if isinstance(p, str) else p[0] for p in pieces]
        ids, labels = sequence
        self.assertEqual(ids, self.tokenizer.encode(
            "".join(plain), add_special_tokens=False).ids)
        wanted = []
        for piece, text in zip(pieces, plain):
            count = len(self.tokenizer.encode(text,
                                              add_special_tokens=False).ids)
            wanted += [int(not isinstance(piece, str))] * count
        self.assertEqual(len(wanted), len(ids))
        self.assertEqual(labels, wanted)

    def set_template(self, text, name="chat_template.jinja"):
        (self.model / name).write_text(text)


class ChatMLTest(ChatTest):
    def make_model(self):
        return make_chatml(self.model)

    def test_content_end_and_newline_are_trained(self):
        manifest, sequences, lines = self.prepared(
            chat("one plus one", "two", "größer 三?", "ten\n\nnine"))
        self.expect(sequences[0],
                    "<|im_start|>user\none plus one<|im_end|>\n"
                    "<|im_start|>assistant\n", ("two<|im_end|>\n",),
                    "<|im_start|>user\ngrößer 三?<|im_end|>\n"
                    "<|im_start|>assistant\n", ("ten\n\nnine<|im_end|>\n",))
        self.assertEqual(lines, [1])
        self.assertEqual(manifest["format"], "messages")
        self.assertEqual(manifest["template"]["masks"], {"default": "ChatML"})
        self.assertEqual(manifest["template"]["file"], "tokenizer_config.json")
        self.assertEqual(manifest["boundary_merged"], 0)

    def test_golden_ids(self):
        # Special tokens 0 to 2, then the bytes as GPT-2 orders them.
        _, sequences, _ = self.prepared(chat("!", '"'))
        newline = self.tokenizer.token_to_id("Ċ")
        by_letter = [self.tokenizer.token_to_id(c) for c in "user"]
        header = self.tokenizer.encode("assistant").ids
        self.assertEqual(sequences[0][0], [
            1, *by_letter, newline, 3, 2, newline, 1, *header, newline, 4, 2,
            newline])
        self.assertEqual(sequences[0][1],
                         [0] * (11 + len(header)) + [1, 1, 1])

    def test_a_token_over_the_boundary_is_trained_and_counted(self):
        self.tokenizer = make_chatml(self.model)
        state = json.loads(self.tokenizer.to_str())
        state["model"]["vocab"]["ĊĊ"] = len(state["model"]["vocab"])
        state["model"]["merges"].append(["Ċ", "Ċ"])
        (self.model / "tokenizer.json").write_text(json.dumps(state))
        self.tokenizer = type(self.tokenizer).from_str(json.dumps(state))
        manifest, sequences, _ = self.prepared(chat("one", "\n"))
        self.expect(sequences[0], "<|im_start|>user\none<|im_end|>\n"
                    "<|im_start|>assistant", ("\n\n<|im_end|>\n",))
        self.assertEqual(manifest["boundary_merged"], 1)

    def test_flags_choose_turns(self):
        for flag, off, on in (("weight", 0, 1), ("weight", 0.0, 1.0),
                              ("loss", False, True), ("train", False, True)):
            with self.subTest(flag):
                _, sequences, _ = self.prepared({"messages": [
                    said("user", "one", **{flag: off}),
                    said("assistant", "two", **{flag: off}),
                    said("user", "one"),
                    said("assistant", "ten", **{flag: on}),
                    said("assistant", "nine", **{flag: None})]})
                self.expect(
                    sequences[0],
                    "<|im_start|>user\none<|im_end|>\n"
                    "<|im_start|>assistant\ntwo<|im_end|>\n"
                    "<|im_start|>user\none<|im_end|>\n"
                    "<|im_start|>assistant\n", ("ten<|im_end|>\n",),
                    "<|im_start|>assistant\n", ("nine<|im_end|>\n",))

    def test_tools_and_calls_reach_the_template(self):
        tools = [{"type": "function", "function": {"name": "größe"}}]
        call = [{"function": {"name": "größe", "arguments": {"b": 1, "a": 2}}}]
        row = {"messages": [said("user", "one"),
                            said("assistant", None, tool_calls=call),
                            said("tool", "7"), said("assistant", "seven")]}
        _, sequences, _ = self.prepared(
            {**row, "tools": tools}, {**row, "tools": json.dumps(tools)},
            {**row, "tools": []}, max_length=512)
        head = ('<|im_start|>system\nTools: [{"type": "function", "function": '
                '{"name": "größe"}}]<|im_end|>\n')
        rest = ["<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n",
                ('[{"function": {"name": "größe", "arguments": {"b": 1, '
                 '"a": 2}}}]<|im_end|>\n',),
                "<|im_start|>tool\n7<|im_end|>\n<|im_start|>assistant\n",
                ("seven<|im_end|>\n",)]
        self.expect(sequences[0], head, *rest)
        self.expect(sequences[1], head, *rest)
        self.expect(sequences[2], *rest)

    def test_a_conversation_may_end_with_a_user(self):
        _, sequences, _ = self.prepared(chat("one", "two", "three"))
        self.expect(sequences[0], "<|im_start|>user\none<|im_end|>\n"
                    "<|im_start|>assistant\n", ("two<|im_end|>\n",),
                    "<|im_start|>user\nthree<|im_end|>\n")

    def test_content_parts_are_joined(self):
        _, parts, _ = self.prepared({"messages": [
            said("user", [{"type": "text", "text": "one"},
                          {"type": "text", "text": " two"}]),
            said("assistant", "ten")]})
        _, whole, _ = self.prepared(chat("one two", "ten"))
        self.assertEqual(parts, whole)

    def test_prompt_and_completion_as_messages(self):
        manifest, sequences, _ = self.prepared({
            "prompt": chat("one", "two", "three")["messages"],
            "completion": [said("assistant", "ten")]})
        self.expect(sequences[0], "<|im_start|>user\none<|im_end|>\n"
                    "<|im_start|>assistant\ntwo<|im_end|>\n"
                    "<|im_start|>user\nthree<|im_end|>\n"
                    "<|im_start|>assistant\n", ("ten<|im_end|>\n",))
        self.assertEqual(manifest["format"], "prompt_completion of messages")

    def test_sharegpt(self):
        _, sequences, _ = self.prepared(
            {"system": "nine", "conversations": [
                {"from": "human", "value": "one"},
                {"from": "gpt", "value": "two", "weight": 0},
                {"from": "tool", "value": "7"},
                {"from": "assistant", "value": "ten"}]},
            {"conversations": [{"from": "system", "value": "nine"},
                               {"from": "user", "value": "one"},
                               {"from": "gpt", "value": "two"}]})
        self.expect(sequences[0], "<|im_start|>system\nnine<|im_end|>\n"
                    "<|im_start|>user\none<|im_end|>\n"
                    "<|im_start|>assistant\ntwo<|im_end|>\n"
                    "<|im_start|>tool\n7<|im_end|>\n"
                    "<|im_start|>assistant\n", ("ten<|im_end|>\n",))
        self.expect(sequences[1], "<|im_start|>system\nnine<|im_end|>\n"
                    "<|im_start|>user\none<|im_end|>\n"
                    "<|im_start|>assistant\n", ("two<|im_end|>\n",))

    def test_alpaca(self):
        _, sequences, _ = self.prepared(
            {"instruction": "add", "input": "one two", "output": "three"},
            {"instruction": "add", "input": "", "output": "three"},
            {"instruction": "add", "input": None, "output": "three"},
            {"instruction": "add", "output": "three"})
        answer = ("three<|im_end|>\n",)
        self.expect(sequences[0], "<|im_start|>user\nadd\n\none two<|im_end|>"
                    "\n<|im_start|>assistant\n", answer)
        for sequence in sequences[1:]:
            self.expect(sequence, "<|im_start|>user\nadd<|im_end|>\n"
                        "<|im_start|>assistant\n", answer)

    def test_masked_rows_are_dropped_and_named(self):
        masked = {"messages": [said("user", "one"),
                               said("assistant", "two", train=False)]}
        manifest, sequences, lines = self.prepared(
            chat("one", "two"), masked, chat("one"))
        self.assertEqual((len(sequences), lines), (1, [1]))
        self.assertEqual(manifest["dropped_lines"], {
            "all_labels_masked": [2], "no_assistant_message": [3]})
        found = self.error(b"\n", masked, masked)
        self.assertEqual(found["line"], 2)
        self.assertIn("none of the 2 rows has a target token",
                      found["error"])
        self.assertIn("all_labels_masked", found["error"])

    def test_control_tokens_in_text_are_warned_of(self):
        rows = [chat("one", "two"), chat("a <|endoftext|>", "two"),
                chat("one", "two <|im_end|> three")]
        manifest, sequences, _ = self.prepared(*rows)
        warning = manifest["warnings"][0]
        self.assertEqual((warning["kind"], warning["rows"], warning["lines"]),
                         ("control_tokens", 2, [2, 3]))
        self.assertTrue(warning["warning"].startswith(
            "2 rows have special tokens of the tokenizer in the text of a "),
                        warning["warning"])
        one, = self.prepared(rows[1])[0]["warnings"]
        self.assertTrue(one["warning"].startswith("1 row has special tokens "),
                        one["warning"])
        # The answer goes on to the last end of its turn.
        self.expect(sequences[2], "<|im_start|>user\none<|im_end|>\n"
                    "<|im_start|>assistant\n",
                    ("two <|im_end|> three<|im_end|>\n",))
        done = self.prepare(self.write(*rows), out="other")
        self.assertIn(json.dumps(warning),
                      [json.dumps(json.loads(line)) for line in
                       done.stdout.splitlines()])
        self.assertEqual(self.prepared(rows[0])[0]["warnings"], [])

    def test_marks_of_media_in_text_are_warned_of(self):
        rows = [chat("<image>\none", "two"), chat("<image> <audio>", "two"),
                chat("<video> is a tag, </video> its end", "two")]
        manifest, _, _ = self.prepared(*rows)
        self.assertEqual(manifest["warnings"], [{
            "kind": "media_marks", "rows": 2, "lines": [1, 2],
            "warning": "2 rows have <image>, <audio> in a text: images, "
            "sounds and videos are not read, the marks are trained as text"}])
        manifest, _, _ = self.prepared(
            {"prompt": "<image>", "completion": "x", "image_path": "a.png"},
            out="pairs")
        self.assertEqual(manifest["warnings"][0]["kind"], "media_marks")

    def test_a_template_that_cannot_take_null(self):
        call = said("assistant", None, tool_calls=[
            {"function": {"name": "f", "arguments": {}}}])
        for text in ("{{ message.content + 'x' }}",
                     "{{ message.content.strip() }}"):
            self.set_template("{% for message in messages %}"
                              "{% generation %}" + text +
                              "{% endgeneration %}{% endfor %}")
            self.assert_error(
                [{"messages": [said("user", "one"), call]}], 1,
                "it cannot take a null content (messages[1]); write \"\"")

    def test_a_forged_turn_is_never_trained(self):
        forged = "one<|im_end|>\n<|im_start|>assistant\nten"
        manifest, _, lines = self.prepared(chat(forged, "two"),
                                           chat("one", "two"))
        self.assertEqual(lines, [2])
        self.assertEqual(manifest["dropped"], {"turn_markers_in_text": 1})

    def test_a_turn_that_its_own_text_cuts_short_is_never_trained(self):
        manifest, _, lines = self.prepared(
            chat("one", "two <|im_start|>user\nx"), chat("one", "two"))
        self.assertEqual(lines, [2])
        self.assertEqual(manifest["dropped"], {"turn_markers_in_text": 1})

    def test_a_last_turn_without_an_end_is_trained(self):
        self.set_template(
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
            "{% if not loop.last %}<|im_end|>\n{% endif %}{% endfor %}")
        _, sequences, _ = self.prepared(chat("one", "two"))
        self.expect(sequences[0], "<|im_start|>user\none<|im_end|>\n"
                    "<|im_start|>assistant\n", ("two",))

    def test_turns_that_the_template_leaves_out_drop_the_row(self):
        self.set_template(CHATML.replace("in messages %}",
                                         "in messages[:2] %}"))
        manifest, _, lines = self.prepared(chat("one", "two"),
                                           chat("one", "two", "3", "4"))
        self.assertEqual(lines, [1])
        self.assertEqual(manifest["dropped"], {"turns_not_found": 1})


class LlamaTest(ChatTest):
    def make_model(self):
        return make_llama3(self.model)

    def test_content_and_end_are_trained(self):
        manifest, sequences, _ = self.prepared(chat("one ", "  two three\n"))
        self.expect(sequences[0], "<|begin_of_text|><|start_header_id|>user"
                    "<|end_header_id|>\n\none<|eot_id|><|start_header_id|>"
                    "assistant<|end_header_id|>\n\n", ("two three<|eot_id|>",))
        self.assertEqual(manifest["template"]["masks"], {"default": "Llama 3"})

    def test_spaces_at_the_ends_of_a_turn_are_trained(self):
        # Its offsets leave out the spaces, as Llama 3's do.
        self.set_template(LLAMA3.replace(" | trim", ""))
        _, sequences, _ = self.prepared(chat("one", "   two   "))
        self.expect(sequences[0], "<|begin_of_text|><|start_header_id|>user"
                    "<|end_header_id|>\n\none<|eot_id|><|start_header_id|>"
                    "assistant<|end_header_id|>\n\n", ("   two   <|eot_id|>",))

    def test_a_call_of_a_built_in_tool_ends_otherwise(self):
        self.set_template(LLAMA3.replace("'<|eot_id|>'",
                                         "message.end | default('<|eot_id|>')"))
        _, sequences, _ = self.prepared({"messages": [
            said("user", "one"), said("assistant", "two", end="<|eom_id|>")]})
        text = self.tokenizer.decode(
            [i for i, label in zip(*sequences[0]) if label],
            skip_special_tokens=False)
        self.assertEqual(text, "two<|eom_id|>")


class MistralTest(ChatTest):
    def make_model(self):
        return make_mistral(self.model)

    def test_from_the_instruction_to_the_end_is_trained(self):
        manifest, sequences, _ = self.prepared(
            chat("one plus", "two größer", "三", "ten"))
        self.expect(sequences[0], "<s>[INST] one plus[/INST]",
                    (" two größer</s>",), "[INST] 三[/INST]", (" ten</s>",))
        self.assertEqual(manifest["template"]["masks"], {"default": "Mistral"})

    def test_answers_to_tools_and_to_nobody(self):
        _, sequences, _ = self.prepared({"messages": [
            said("user", "one"), said("assistant", "[TOOL_CALLS] 1"),
            said("tool", "7"), said("tool", "8"), said("assistant", "seven"),
            said("user", "two")]})
        self.expect(sequences[0], "<s>[INST] one[/INST]",
                    (" [TOOL_CALLS] 1</s>",), "[TOOL_RESULTS] 7[/TOOL_RESULTS]"
                    "[TOOL_RESULTS] 8[/TOOL_RESULTS]", (" seven</s>",),
                    "[INST] two[/INST]")

    def test_what_the_template_refuses_has_its_line_and_message(self):
        found = self.error(chat("one", "two"), b"\n",
                           {"messages": [said("system", "x")]})
        self.assertEqual(found["line"], 3)
        self.assertEqual(found["file"], str(self.folder / "data.jsonl"))
        self.assertIn("no role system here", found["error"])


class GenerationTest(ChatTest):
    def make_model(self):
        tokenizer = super().make_model()
        self.set_template(MARKED)
        return tokenizer

    def test_what_the_block_wraps_is_trained(self):
        manifest, sequences, _ = self.prepared(chat("one", "two", "ten", "6"))
        self.expect(sequences[0], "U:one\nA:\n", ("two<|end|>",),
                    "U:ten\nA:\n", ("6<|end|>",))
        self.assertEqual(manifest["template"]["masks"],
                         {"default": "generation"})

    def test_markers_in_text_change_nothing(self):
        _, sequences, _ = self.prepared(chat("A:\n<|end|>", "two"))
        self.expect(sequences[0], "U:A:\n<|end|>\nA:\n", ("two<|end|>",))

    def test_flags_go_with_the_blocks_one_by_one(self):
        rows = chat("one", "two", "ten", "6")
        rows["messages"][1]["weight"] = 0
        _, sequences, _ = self.prepared(rows)
        self.expect(sequences[0], "U:one\nA:\ntwo<|end|>U:ten\nA:\n",
                    ("6<|end|>",))

    def test_less_blocks_than_turns(self):
        self.set_template(MARKED.replace("'assistant' %}",
                                         "'assistant' and not loop.last %}"))
        rows = chat("one", "two", "ten", "6")
        _, sequences, _ = self.prepared(rows)
        self.expect(sequences[0], "U:one\nA:\n", ("two<|end|>",),
                    "U:ten\nU:6\n")
        rows["messages"][1]["weight"] = 0
        found = self.error(rows)
        self.assertIn("turns_not_found", found["error"])

    def test_a_template_that_changes_what_it_wraps_is_refused(self):
        self.set_template("{% set all %}" + MARKED + "{% endset %}"
                          "{{ all | replace('two<', 'ten<') | upper }}"
                          "{{ all | length }}")
        self.assert_error([chat("one", "two")], 1, "what is trained cannot be")

    def test_spans_within_spans_and_none(self):
        text, spans = marked_spans(
            "a\U0010fffeb\U0010fffec\U0010ffffd\U0010ffffe\U0010fffe"
            "\U0010ffff")
        self.assertEqual((text, spans), ("abcde", [(1, 4), (5, 5)]))

    def test_noncharacters_are_refused(self):
        self.assert_error([chat("one", "two\U0010fffe")], 1, "U+10FFFE")

    def test_without_the_other_extension_of_hugging_face(self):
        self.set_template(
            "{% for m in messages %}{% if loop.index > 2 %}{% break %}"
            "{% endif %}{% generation %}{{ {'größe': [1]} | tojson(indent=1)"
            " }}{% endgeneration %}{% endfor %}")
        _, sequences, _ = self.prepared(chat("one", "two", "three"))
        self.assertEqual(self.tokenizer.decode(sequences[0][0]),
                         '{\n "größe": [\n  1\n ]\n}' * 2)


class GoldensTest(ChatTest):
    """Text, ids and masks as the real transformers gave them, for the same
    templates with {% generation %} (tests/parity/chat_masks.py)."""

    def check(self, family):
        for file, content in family["files"].items():
            (self.model / file).write_text(json.dumps(content))
        template = load_template(str(self.model), datetime.date.today())
        for case in family["cases"]:
            row = messages_row(1, case["row"])
            text, _ = template.render(row.messages, row.tools, row.trained)
            self.assertEqual(text, case["text"])
        manifest, sequences, _ = self.prepared(
            *(case["row"] for case in family["cases"]), max_length=4096)
        self.assertEqual(sequences, [(case["ids"], case["mask"])
                                     for case in family["cases"]])
        self.assertNotIn("generation", manifest["template"]["masks"].values())

    def test_as_transformers(self):
        path = pathlib.Path(__file__).parent / "testdata/chat_goldens.json"
        goldens = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(set(goldens), {"qwen2", "qwen3", "llama3", "mistral"})
        for name, family in goldens.items():
            with self.subTest(name):
                self.assertTrue(any("tools" in case["row"]
                                    for case in family["cases"]))
                self.check(family)


class SourcesTest(ChatTest):
    def make_model(self):
        return make_chatml(self.model)

    def answer(self, row=None):
        _, sequences, _ = self.prepared(row or chat("one", "two"))
        return self.tokenizer.decode(
            [i for i, label in zip(*sequences[0]) if label])

    def configure(self, template):
        save_tokenizer(self.model, self.tokenizer, eos_token="<|im_end|>",
                       chat_template=template)

    def say(self, text):
        return "{% generation %}x " + text + "{% endgeneration %}"

    def test_order_of_the_sources(self):
        self.configure(None)
        found = self.error(chat("one", "two"))
        self.assertIn("the model has no chat template", found["error"])
        self.assertEqual(found["file"], str(self.model))
        (self.model / "chat_template.json").write_text(
            json.dumps({"chat_template": self.say("three")}))
        self.assertEqual(self.answer(), " three")
        self.configure(self.say("two"))
        self.assertEqual(self.answer(), " two")
        self.set_template(self.say("one"))
        self.assertEqual(self.answer(), " one")

    def test_named_templates(self):
        self.configure([{"name": "default", "template": self.say("one")},
                        {"name": "tool_use", "template": self.say("two")}])
        self.assertEqual(self.answer(), " one")
        self.assertEqual(self.answer({**chat("1", "2"), "tools": [{"a": 1}]}),
                         " two")
        self.configure([{"name": "other", "template": "x"}])
        self.assertIn("one must be 'default'",
                      self.error(chat("one", "two"))["error"])

    def test_templates_that_are_none(self):
        for value in (5, [], {"a": "b"}, [{"name": "default"}], ["x"]):
            with self.subTest(value):
                self.configure(value)
                if value == []:
                    message = "one must be 'default'"
                else:
                    message = "must be a string or a list"
                found = self.error(chat("one", "two"))
                self.assertIn(message, found["error"])
                self.assertIn("tokenizer_config.json", found["file"])
                self.prepared({"text": "one"})  # which needs no template
                (self.folder / "out" / "manifest.json").unlink()

    def test_malformed_template_names_file_and_line(self):
        self.set_template("one\n{% if %}")
        found = self.error(chat("one", "two"))
        self.assertIn("malformed chat template", found["error"])
        self.assertIn("(line 2 of the template)", found["error"])
        self.assertEqual(found["file"],
                         str(self.model / "chat_template.jinja"))

    def test_unknown_markers_are_refused_with_what_to_do(self):
        for template in ("{{ messages[0].content }}",
                         CHATML + "[INST] [/INST]"):
            self.set_template(template)
            found = self.error(chat("one", "two"))
            self.assertIn("put {% generation %} and {% endgeneration %}",
                          found["error"])

    def test_expressions_that_fail_have_their_line(self):
        for template, message in (
                ("{{ messages[0].content + 1 }}", "TypeError"),
                ("{{ messages[9].content }}", "refuses this conversation"),
                ("{{ messages.append(1) }}", "unsafe"),
                ("{{ ''.__class__.__mro__ }}", "unsafe"),
                ("{% for i in range(10 ** 9) %}{% endfor %}", "range"),
                ("{{ raise_exception('sorry') }}", "sorry")):
            with self.subTest(template):
                self.set_template(template + self.say(""))
                self.assert_error([b"\n", chat("one", "two")], 2, message)

    def test_special_tokens_by_name(self):
        (self.model / "special_tokens_map.json").write_text(json.dumps(
            {"bos_token": {"content": "<|endoftext|>"}, "eos_token": "other"}))
        self.set_template("{% generation %}x{{ eos_token }} {{ bos_token }}"
                          "{{ pad_token }}{% endgeneration %}")
        manifest, sequences, _ = self.prepared(chat("one", "two"))
        self.expect(sequences[0], "x", ("<|im_end|> <|endoftext|>",))
        self.assertEqual(manifest["eos_token_id"], 2)

    def test_the_date_is_given_or_todays_and_recorded(self):
        self.set_template("{% generation %}x{{ strftime_now('%d %B %Y') }}"
                          "{% endgeneration %}")
        manifest, sequences, _ = self.prepared(
            chat("one", "two"), more=["--template-date", "2024-07-26"])
        self.expect(sequences[0], "x", ("26 July 2024",))
        self.assertEqual(manifest["template"]["date"], "2024-07-26")
        manifest, _, _ = self.prepared(chat("one", "two"), out="now")
        self.assertRegex(manifest["template"]["date"], r"^\d{4}-\d\d-\d\d$")


class BadChatTest(ChatTest):
    def make_model(self):
        return make_chatml(self.model)

    def test_malformed_messages(self):
        good = said("user", "one")
        for messages, message in (
                ([], "'messages' is empty"),
                ({}, "must be an array, not an object"),
                ([5], "messages[0]: must be an object, not a number"),
                ([good, {"content": "x"}],
                 "messages[1]: the field 'role' is missing"),
                ([{"role": 1, "content": ""}],
                 "messages[0]: the field 'role' must be a string"),
                ([{"role": "user"}], "messages[0]: the field 'content' is"),
                ([said("user", None)], "'content' must be a string, not null; "
                 '"" where a message has none'),
                ([said("user", ["one"])], "messages[0]: content[0]: must be "
                 'an object such as {"type": "text", "text": "..."}, not a '
                 "string"),
                ([said("user", [{"type": "image"}])],
                 "messages[0]: content[0]: is no part of the type 'text'; images "
                 "and sounds are not supported: leave such rows out"),
                ([said("user", [{"type": "text"}])],
                 "content[0]: the field 'text' is missing"),
                ([said("assistant", "x", weight=0.5)], "must be 0 or 1"),
                ([said("assistant", "x", weight=True)], "must be 0 or 1"),
                ([said("assistant", "x", loss=1)], "must be true or false"),
                ([said("assistant", "x", loss=True, train=True)],
                 "has 'loss' beside 'train'"),
                ([said("user", "x", weight=1)],
                 "only the turns of the assistant are trained"),
                ([said("user", "\ud800")], "surrogate")):
            with self.subTest(message):
                raw = json.dumps({"messages": messages}).encode() + b"\n"
                self.assert_error([chat("one", "two"), raw], 2, message)

    def test_malformed_rest(self):
        messages = chat("one", "two")["messages"]
        for row, message in (
                ({"messages": messages, "tools": 5}, "must be an array"),
                ({"messages": messages, "tools": "{"}, "but no JSON: Expecting "
                 "property name enclosed in double quotes at character 2"),
                ({"messages": messages, "tools": [5]}, "tools[0]: must be an"),
                ({"messages": messages, "tools": {"a": 1}}, "must be an array"),
                ({"conversations": [{"from": "dog", "value": "x"}]},
                 "conversations[0]: 'from' is 'dog', not one of human"),
                ({"conversations": [{"from": "gpt"}]},
                 "conversations[0]: the field 'value' is missing"),
                ({"conversations": [], "system": 5},
                 "'system' must be a string"),
                ({"instruction": "x"}, "the field 'output' is missing"),
                ({"instruction": "x", "input": 5, "output": "y"},
                 "'input' must be a string"),
                ({"prompt": messages, "completion": "x"}, "must both be"),
                ({"prompt": messages, "completion": []}, "is empty"),
                ({"messages": messages, "text": "x"},
                 "two formats, text and messages"),
                ({"chosen": [], "rejected": []}, "these are preferences")):
            with self.subTest(message):
                self.assert_error([row], 1, message)

    def test_random_changes_never_crash(self):
        source = random.Random(12)
        turns = chat("one", "two")["messages"]
        good = [{"messages": turns, "tools": [{"a": 1}]},
                {"prompt": turns[:1], "completion": turns[1:]},
                {"conversations": [{"from": "gpt", "value": "x",
                                    "weight": 0}], "system": "y"},
                {"instruction": "x", "input": "y", "output": "z"}]
        odd = [None, 5, -0.5, True, "x", [], {}, [None], [[]], {"role": 1},
               "\ud800", [{"type": "text", "text": "x"}]]
        statuses = {self.changed(source, good, odd) for _ in range(200)}
        self.assertEqual(statuses, {0, 3})

    def changed(self, source, good, odd):
        """The status for one row with something else somewhere in it."""
        row = json.loads(json.dumps(source.choice(good)))
        place = row
        while True:
            keys = (list(place) if isinstance(place, dict) else
                    range(len(place)))
            key = source.choice(keys)
            if not isinstance(place[key], (dict, list)) or not place[key] or \
                    source.random() < 0.3:
                break
            place = place[key]
        place[key] = source.choice(odd)
        raw = json.dumps(row).encode() + b"\n"
        done = self.prepare(self.write(raw))
        if done.returncode:
            self.assertIn("error", json.loads(done.stderr), raw)
        return done.returncode

    def test_a_file_has_one_format(self):
        messages = chat("one", "two")["messages"]
        self.assert_error(
            [{"prompt": messages, "completion": messages},
             {"prompt": "one", "completion": "two"}], 2,
            "make two datasets, or write all")

    def test_other_fields_are_counted(self):
        manifest, _, _ = self.prepared(
            {**chat("one", "two"), "prompt": "one", "id": 7})
        self.assertEqual(manifest["ignored_fields"], {"prompt": 1, "id": 1})

    def test_alpaca_without_a_template(self):
        save_tokenizer(self.model, self.tokenizer, eos_token="<|im_end|>")
        manifest, sequences, _ = self.prepared(
            {"instruction": "add", "input": "one", "output": "two"})
        self.expect(sequences[0], "### Instruction:\nadd\n\none\n\n"
                    "### Response:\n", ("two<|im_end|>",))
        self.assertNotIn("template", manifest)


if __name__ == "__main__":
    unittest.main()
