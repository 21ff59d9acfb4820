#include "server/hub/hub_client.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/hub/fake_hub.h"

namespace roundhouse {
namespace {

class HubClientTest : public testing::Test {
 protected:
  HubClientTest() {
    hub_.AddModel(100'000);
    const ModelPullsOptions options = hub_.Options();
    source_ = *options.make_source("", [] { return false; });
    client_ = std::make_unique<HubClient>(
        *options.hub, source_.get(),
        HubPatience{
            .tries = 3, .moved_bytes = 20, .first_wait = absl::Seconds(1)},
        [this](const std::string& why, absl::Duration time) {
          waits_.push_back(time);
          why_ = why;
          return goes_on_;
        });
  }

  HubFile Weights() const {
    return {.name = "model.safetensors",
            .bytes = 100'000,
            .sha256 = std::string(64, 'a')};
  }
  // What comes of the weights from there on.
  absl::Status Read(uint64_t from) {
    data_.clear();
    return client_->Read("org/tiny", kFakeCommit, Weights(), from,
                         [this](absl::string_view piece) {
                           data_.append(piece.data(), piece.size());
                           return taken_;
                         });
  }
  std::string Expected(uint64_t from) const {
    return hub_.Data("model.safetensors").substr(from);
  }
  void Next(FakeHub::Answer answer) {
    hub_.Next("model.safetensors", std::move(answer));
  }
  using Begins = std::vector<uint64_t>;

  FakeHub hub_;
  std::unique_ptr<WebSource> source_;
  std::unique_ptr<HubClient> client_;
  std::vector<absl::Duration> waits_;
  std::string why_;
  bool goes_on_ = true;
  std::string data_;
  absl::Status taken_;
};

TEST_F(HubClientTest, WhatBreaksGoesOnWhereItBroke) {
  Next(FakeHub::CutAfter(20));
  Next(FakeHub::CutAfter(19));
  Next(FakeHub::CutAfter(20));
  ASSERT_TRUE(Read(5).ok());
  EXPECT_EQ(data_, Expected(5));
  EXPECT_EQ(hub_.Begins("model.safetensors"), (Begins{5, 25, 44, 64}));
  // What moves is a new beginning.
  EXPECT_EQ(waits_, (std::vector<absl::Duration>{
                        absl::Seconds(1), absl::Seconds(2), absl::Seconds(1)}));
}

TEST_F(HubClientTest, ItGivesUpWhereNothingMoves) {
  for (int i = 0; i < 3; ++i) Next(FakeHub::Status(503));
  const absl::Status status = Read(0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_NE(status.message().find("answered 503, 3 times in a row; what has "
                                  "come is kept"),
            std::string::npos)
      << status;
  EXPECT_EQ(waits_.size(), 2u);
}

TEST_F(HubClientTest, ItGivesUpWhereLittleMoves) {
  for (int i = 0; i < 3; ++i) Next(FakeHub::CutAfter(19));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Read(0)));
  EXPECT_EQ(data_.size(), 3 * 19u);
  // The file's end is enough, however little is before it.
  for (int i = 0; i < 2; ++i) Next(FakeHub::Status(503));
  Next(FakeHub::CutAfter(10));
  EXPECT_TRUE(Read(99'990).ok());
  EXPECT_EQ(data_, Expected(99'990));
}

TEST_F(HubClientTest, ItWaitsAsLongAsTheHubAsksWithinReason) {
  Next(FakeHub::Status(429, absl::Seconds(30)));
  ASSERT_TRUE(Read(0).ok());
  EXPECT_EQ(waits_, std::vector<absl::Duration>{absl::Seconds(30)});
  EXPECT_NE(why_.find("429"), std::string::npos);
  Next(FakeHub::Status(429, absl::Hours(1)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Read(0)));
  EXPECT_EQ(waits_.size(), 1u);
}

TEST_F(HubClientTest, AnAnswerThatEndsEarlyIsABreak) {
  Next([](const FakeHub::Request&, const std::string& data,
          const WebSink& sink) -> absl::StatusOr<WebHead> {
    const WebHead head{.status = 200};  // says no length
    if (absl::Status taken = sink(head, data.substr(0, 7)); !taken.ok()) {
      return taken;
    }
    return head;
  });
  ASSERT_TRUE(Read(0).ok());
  EXPECT_EQ(data_, Expected(0));
  EXPECT_EQ(hub_.Begins("model.safetensors"), (Begins{0, 7}));
}

TEST_F(HubClientTest, AHubThatBeginsAtTheBeginningIsSkippedOver) {
  Next([this](const FakeHub::Request&, const std::string&,
              const WebSink& sink) -> absl::StatusOr<WebHead> {
    const std::string whole = Expected(0);
    const WebHead head{.status = 200, .total = whole.size()};
    for (size_t at = 0; at < whole.size(); at += 777) {
      absl::Status taken = sink(head, whole.substr(at, 777));
      if (!taken.ok()) return taken;
    }
    return head;
  });
  ASSERT_TRUE(Read(50'001).ok());
  EXPECT_EQ(data_, Expected(50'001));
}

TEST_F(HubClientTest, OtherSizesAndPlacesAreRefused) {
  const auto sends = [](WebHead head, const std::string& bytes) {
    return [head, bytes](const FakeHub::Request&, const std::string&,
                         const WebSink& sink) -> absl::StatusOr<WebHead> {
      if (absl::Status taken = sink(head, bytes); !taken.ok()) return taken;
      return head;
    };
  };
  Next(sends({.status = 200, .total = 99'999}, "x"));
  EXPECT_NE(Read(0).message().find("sends 99999 bytes, and lists 100000"),
            std::string::npos);
  Next(sends({.status = 206, .begin = 11, .total = 100'000}, "x"));
  EXPECT_NE(Read(10).message().find("bytes from 11 on, asked for those from "
                                    "10"),
            std::string::npos);
  Next(sends({.status = 200}, std::string(100'001, 'x')));
  const absl::Status status = Read(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_NE(status.message().find("more than the 100000 bytes"),
            std::string::npos);
  EXPECT_TRUE(waits_.empty());
}

TEST_F(HubClientTest, RefusalsSayWhatAnAdminWouldDo) {
  for (const int status : {401, 403}) {
    Next(FakeHub::Status(status));
    const absl::Status refused = Read(0);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << status;
    EXPECT_NE(refused.message().find("--hub-token-file"), std::string::npos);
  }
  Next(FakeHub::Status(404));
  EXPECT_TRUE(absl::IsNotFound(Read(0)));
  Next(FakeHub::Status(416));
  EXPECT_TRUE(absl::IsFailedPrecondition(Read(7)));
  Next(FakeHub::Status(418));
  EXPECT_TRUE(absl::IsFailedPrecondition(Read(0)));
  EXPECT_TRUE(waits_.empty());
}

TEST_F(HubClientTest, WhoeverTakesItEndsIt) {
  taken_ = absl::ResourceExhaustedError("disk");
  EXPECT_EQ(Read(0), taken_);
  // No fault of the hub, whatever the code is: it is not asked again.
  taken_ = absl::UnavailableError("too many open files");
  EXPECT_EQ(Read(0), taken_);
  EXPECT_EQ(hub_.Begins("model.safetensors"), (Begins{0, 0}));
  EXPECT_TRUE(waits_.empty());
  taken_ = absl::OkStatus();
  goes_on_ = false;
  Next(FakeHub::Status(500));
  EXPECT_TRUE(absl::IsCancelled(Read(0)));
}

TEST_F(HubClientTest, AListingComesAfterABreak) {
  hub_.Next("?blobs=true", FakeHub::CutAfter(30));
  const auto listing = client_->List({.id = "org/tiny"});
  ASSERT_TRUE(listing.ok()) << listing.status();
  EXPECT_EQ(listing->commit, kFakeCommit);
  EXPECT_TRUE(absl::IsNotFound(client_->List({.id = "org/no"}).status()));
}

TEST_F(HubClientTest, AListingIsBounded) {
  hub_.Next("?blobs=true",
            [](const FakeHub::Request&, const std::string&,
               const WebSink& sink) -> absl::StatusOr<WebHead> {
              const WebHead head{.status = 200};
              while (true) {
                absl::Status taken = sink(head, std::string(1 << 20, ' '));
                if (!taken.ok()) return taken;
              }
            });
  const auto listing = client_->List({.id = "org/tiny"});
  EXPECT_TRUE(absl::IsFailedPrecondition(listing.status()));
  EXPECT_NE(listing.status().message().find("more than 16777216 bytes"),
            std::string::npos);
}

TEST_F(HubClientTest, ASmallFileIsChecked) {
  HubFile config{.name = "config.json",
                 .bytes = 2,
                 .git_sha1 = "9e26dfeeb6e641a33dae4961196235bdb965b21b"};
  EXPECT_EQ(*client_->ReadWhole("org/tiny", kFakeCommit, config), "{}");
  config.git_sha1[0] = '0';
  EXPECT_TRUE(absl::IsFailedPrecondition(
      client_->ReadWhole("org/tiny", kFakeCommit, config).status()));
  const auto expect_too_long = [&](const std::string& name, uint64_t most) {
    config.name = name;
    config.bytes = most + 1;
    EXPECT_NE(client_->ReadWhole("org/tiny", kFakeCommit, config)
                  .status()
                  .message()
                  .find(std::to_string(most) + " are read of such a file"),
              std::string::npos);
  };
  expect_too_long("config.json", kMaxWholeBytes);
  expect_too_long("model.safetensors.index.json", kMaxHubIndexBytes);
}

TEST_F(HubClientTest, WhatGoesIntoMemoryHasALimitOfTime) {
  EXPECT_TRUE(client_->List({.id = "org/tiny"}).ok());
  const HubFile config{.name = "config.json",
                       .bytes = 2,
                       .git_sha1 = "9e26dfeeb6e641a33dae4961196235bdb965b21b"};
  EXPECT_TRUE(client_->ReadWhole("org/tiny", kFakeCommit, config).ok());
  EXPECT_TRUE(Read(0).ok());
  const std::vector<FakeHub::Request> requests = hub_.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].limit, kWholeAnswerLimit);
  EXPECT_EQ(requests[1].limit, kWholeAnswerLimit);
  EXPECT_EQ(requests[2].limit, absl::InfiniteDuration());
}

TEST(WebSourceTest, ContentRanges) {
  WebHead head;
  ASSERT_TRUE(ReadContentRange("bytes 10-99/100", &head));
  EXPECT_EQ(head.begin, 10u);
  EXPECT_EQ(head.total, 100u);
  head = {};
  ASSERT_TRUE(ReadContentRange("bytes 0-0/*", &head));
  EXPECT_FALSE(head.total.has_value());
  for (const char* text :
       {"", "bytes", "bytes 1-2", "bytes 2-1/9", "bytes 1-9/9", "bytes -1/9",
        "bytes x-y/z", "items 1-2/3", "bytes 1-2/3/4", "bytes */5"}) {
    EXPECT_FALSE(ReadContentRange(text, &head)) << text;
  }
}

}  // namespace
}  // namespace roundhouse
