#include "client/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/text_width.h"

namespace roundhouse::client {
namespace {

Progress Halfway() {
  Progress progress;
  progress.state = v1::RUNNING;
  progress.step = 50;
  progress.total_steps = 100;
  progress.loss = 2.25;
  progress.tokens_per_second = 13200;
  progress.eta = absl::Seconds(83);
  return progress;
}

absl::Time At(int seconds) { return absl::FromUnixSeconds(seconds); }

TEST(ProgressTest, BarShowsEverythingWhereThereIsRoom) {
  EXPECT_EQ(ProgressBar(Halfway(), 200),
            "RUNNING  [####################....................]  step 50/100"
            "  loss 2.2500  13.2k tokens/s  ETA 1:23");
}

TEST(ProgressTest, BarShrinksThenGoesThenFieldsGoFromTheRight) {
  EXPECT_EQ(
      ProgressBar(Halfway(), 80),
      "RUNNING  [########........]  step 50/100  loss 2.2500  13.2k tokens/s"
      "  ETA 1:23");
  EXPECT_EQ(ProgressBar(Halfway(), 70),
            "RUNNING  step 50/100  loss 2.2500  13.2k tokens/s  ETA 1:23");
  EXPECT_EQ(ProgressBar(Halfway(), 40), "RUNNING  step 50/100  loss 2.2500");
  EXPECT_EQ(ProgressBar(Halfway(), 6), "RUNNI");
  EXPECT_EQ(ProgressBar(Halfway(), 0), "");
}

TEST(ProgressTest, NeverWiderThanTheTerminal) {
  Progress progress = Halfway();
  progress.message = std::string(300, 'm');
  for (int columns = 0; columns < 250; ++columns) {
    EXPECT_LE(ProgressBar(progress, columns).size(),
              static_cast<size_t>(std::max(columns - 1, 0)));
  }
}

// An ideograph takes two columns and three bytes.
TEST(ProgressTest, WideCharactersCountAsTwoColumns) {
  Progress progress;
  progress.state = v1::QUEUED;
  for (int i = 0; i < 40; ++i) progress.message += "\xe6\xbc\xa2";
  for (int columns = 0; columns < 100; ++columns) {
    EXPECT_LE(TextWidth(ProgressBar(progress, columns)),
              static_cast<size_t>(std::max(columns - 1, 0)));
  }
  EXPECT_EQ(ProgressBar(progress, 12), "QUEUED  \xe6\xbc\xa2");
  EXPECT_EQ(ProgressBar(progress, 200), "QUEUED  " + progress.message);
}

TEST(ProgressTest, BarStaysInItsBounds) {
  Progress progress = Halfway();
  progress.step = 0;
  EXPECT_NE(ProgressBar(progress, 80).find("[............"), std::string::npos);
  progress.step = 250;
  EXPECT_NE(ProgressBar(progress, 80).find("[###########"), std::string::npos);
  EXPECT_EQ(ProgressBar(progress, 80).find('.'),
            ProgressBar(progress, 80).find(".2500"));
}

// A count for std::string that is negative ends the process.
TEST(ProgressTest, AShareFromTheWireStaysInItsBounds) {
  v1::FineTuningJob job;
  job.set_state(v1::VALIDATING);
  for (const double share : {1.5, 1e300, HUGE_VAL}) {
    job.set_data_read(share);
    const std::string bar = ProgressBar(ProgressOf(job, At(0)), 80);
    EXPECT_EQ(bar,
              "VALIDATING  [" + std::string(40, '#') + "]  data read: 100 %");
    Progress given;
    given.data_read = share;
    EXPECT_NE(ProgressBar(given, 80).find("##]"), std::string::npos);
  }
  for (const double share : {-1.0, -1e300, std::nan("")}) {
    job.set_data_read(share);
    EXPECT_EQ(ProgressBar(ProgressOf(job, At(0)), 80), "VALIDATING");
  }
  job.set_total_steps(-5);
  job.set_data_read(0.5);
  EXPECT_EQ(ProgressBar(ProgressOf(job, At(0)), 80),
            "VALIDATING  [" + std::string(20, '#') + std::string(20, '.') +
                "]  data read: 50 %");
}

TEST(ProgressTest, NothingIsMadeUpBeforeTheFirstStep) {
  Progress progress;
  progress.state = v1::QUEUED;
  progress.message = "waits for job b2";
  EXPECT_EQ(ProgressBar(progress, 80), "QUEUED  waits for job b2");
  EXPECT_EQ(ProgressLine(progress), "QUEUED: waits for job b2");
}

TEST(ProgressTest, DataThatAreRead) {
  v1::FineTuningJob job;
  job.set_state(v1::VALIDATING);
  job.set_data_read(0.439);
  const Progress progress = ProgressOf(job, At(0));
  EXPECT_EQ(ProgressBar(progress, 60),
            "VALIDATING  [############................]  data read: 43 %");
  EXPECT_EQ(ProgressLine(progress), "VALIDATING data read: 43 %");
}

TEST(ProgressTest, PlainLine) {
  EXPECT_EQ(ProgressLine(Halfway()),
            "RUNNING step 50/100, loss 2.2500, 13.2k tokens/s, ETA 1:23");
}

TEST(ProgressTest, OfAJob) {
  v1::FineTuningJob job;
  job.set_state(v1::RUNNING);
  job.set_step(2);
  job.mutable_eta()->set_seconds(140);
  job.set_tokens_per_second(5);
  job.set_message("two\nlines\x1b[2J");
  Progress progress = ProgressOf(job, At(100));
  EXPECT_EQ(progress.eta, absl::Seconds(40));
  EXPECT_FALSE(progress.loss.has_value());
  EXPECT_EQ(progress.message, "two lines\\x1b[2J");
  job.set_state(v1::PAUSED);
  progress = ProgressOf(job, At(100));
  EXPECT_FALSE(progress.eta.has_value());
  EXPECT_EQ(progress.tokens_per_second, 0);
}

TEST(ProgressPrinterTest, PlainLinesAreBounded) {
  std::ostringstream stream;
  ProgressPrinter printer({.stream = &stream});
  Progress progress = Halfway();
  progress.eta.reset();
  for (int second = 0; second < 12; ++second) {
    progress.step = second;
    printer.Update(progress, At(second));
  }
  // Unchanged: no line however long ago the last was.
  progress.step = 10;
  printer.Update(progress, At(100));
  progress.state = v1::FINALIZING;
  printer.Update(progress, At(100));
  printer.Finish();
  EXPECT_EQ(stream.str(),
            "RUNNING step 0/100, loss 2.2500, 13.2k tokens/s\n"
            "RUNNING step 5/100, loss 2.2500, 13.2k tokens/s\n"
            "RUNNING step 10/100, loss 2.2500, 13.2k tokens/s\n"
            "FINALIZING step 10/100, loss 2.2500, 13.2k tokens/s\n");
}

TEST(ProgressPrinterTest, RedrawsOneLine) {
  std::ostringstream stream;
  int columns = 30;
  ProgressPrinter printer({.stream = &stream,
                           .redraw = true,
                           .columns = [&columns] { return columns; }});
  printer.Update(Halfway(), At(0));
  columns = 10;
  printer.Update(Halfway(), At(0));
  printer.Note("a note");
  printer.Update(Halfway(), At(0));
  printer.Finish();
  printer.Finish();
  EXPECT_EQ(stream.str(),
            "\r\x1b[JRUNNING  step 50/100\r"
            "\r\x1b[JRUNNING\r"
            "\r\x1b[Ja note\n"
            "\r\x1b[JRUNNING\r"
            "\r\x1b[JRUNNING\r\n");
}

TEST(ProgressPrinterTest, ColorsTheStateOnly) {
  std::ostringstream stream;
  ProgressPrinter printer(
      {.stream = &stream, .redraw = true, .color = true, .columns = [] {
         return 30;
       }});
  printer.Update(Halfway(), At(0));
  EXPECT_EQ(stream.str(), "\r\x1b[J\x1b[36mRUNNING\x1b[0m  step 50/100\r");
}

}  // namespace
}  // namespace roundhouse::client
