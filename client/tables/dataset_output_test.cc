#include "client/tables/dataset_output.h"

#include "gtest/gtest.h"

namespace roundhouse::client {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ValidationTextTest, NamesWhatWasFound) {
  v1::ValidateDatasetResponse response;
  response.set_format("messages");
  response.set_rows(9);
  response.set_sequences(8);
  response.set_tokens(400);
  response.set_target_tokens(90);
  response.set_truncated(7);
  response.set_max_sequence_tokens(64);
  for (int line = 1; line <= 5; ++line) response.add_truncated_lines(line);
  v1::DatasetRows* dropped = response.add_dropped();
  dropped->set_reason("too_long");
  dropped->set_rows(1);
  dropped->add_lines(9);
  v1::IgnoredField* field = response.add_ignored_fields();
  field->set_name(
      "i\x1b"
      "d");
  field->set_rows(3);
  v1::DatasetWarning* warning = response.add_warnings();
  warning->set_message("beware");
  warning->set_rows(1);
  warning->add_lines(2);
  const std::string text = ValidationText(response);
  EXPECT_TRUE(Has(text, "format:          messages\n")) << text;
  EXPECT_TRUE(Has(text, "trained tokens:  90\n")) << text;
  EXPECT_TRUE(Has(text, "7 (lines 1, 2, 3, 4, 5, ...)\n")) << text;
  EXPECT_TRUE(Has(text, "1 too_long (line 9)\n")) << text;
  EXPECT_TRUE(Has(text, "i\\x1bd in 3 rows\n")) << text;
  EXPECT_TRUE(Has(text, "beware (line 2)\n")) << text;
  EXPECT_FALSE(Has(text, "packed")) << text;
  response.clear_dropped();
  response.set_packed_rows(4);
  response.set_max_row_tokens(60);
  const std::string packed = ValidationText(response);
  EXPECT_TRUE(Has(packed, "4, the longest 60 tokens\n")) << packed;
  response.set_max_row_tokens(1);
  response.mutable_ignored_fields(0)->set_rows(1);
  const std::string one = ValidationText(response);
  EXPECT_TRUE(Has(one, "4, the longest 1 token\n")) << one;
  EXPECT_TRUE(Has(one, "i\\x1bd in 1 row\n")) << one;
  EXPECT_TRUE(Has(packed, "dropped:         0\n")) << packed;
  EXPECT_FALSE(Has(packed, "held out")) << packed;
  response.mutable_held_out()->set_rows(2);
  const std::string both = ValidationText(response);
  EXPECT_TRUE(Has(both, "\n\nheld out, to evaluate on:\n")) << both;
  EXPECT_TRUE(Has(both, "rows:            2\n")) << both;
}

v1::PreviewDatasetResponse TwoSamples() {
  v1::PreviewDatasetResponse response;
  for (const int line : {2, 5}) {
    v1::DatasetSample* sample = response.add_samples();
    sample->set_line(line);
    sample->set_tokens(3);
    sample->set_target_tokens(1);
    sample->add_spans()->set_text("ask\x1b ");
    v1::DatasetSpan* trained = sample->add_spans();
    trained->set_text("an\x1bswer");
    trained->set_trained(true);
  }
  return response;
}

TEST(PreviewTextTest, TrainedTextIsInBrackets) {
  EXPECT_EQ(PreviewText(TwoSamples(), false),
            "--- line 2: 3 tokens, 1 trained\nask\\x1b [[an\\x1bswer]]\n\n"
            "--- line 5: 3 tokens, 1 trained\nask\\x1b [[an\\x1bswer]]\n");
}

TEST(PreviewTextTest, OfSeveralFilesThePlaceIsShown) {
  v1::PreviewDatasetResponse response = TwoSamples();
  response.mutable_samples(1)->set_place("b.jsonl:3");
  EXPECT_TRUE(Has(PreviewText(response, false), "\n--- b.jsonl:3: 3 tokens"));
}

TEST(PreviewTextTest, OrInColour) {
  const std::string text = PreviewText(TwoSamples(), true);
  EXPECT_TRUE(Has(text, "ask\\x1b \x1b[32man\\x1bswer\x1b[0m\n")) << text;
  EXPECT_FALSE(Has(text, "[[")) << text;
}

}  // namespace
}  // namespace roundhouse::client
