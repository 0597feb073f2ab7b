// SPDX-License-Identifier: Apache-2.0
#include "transfer/shared_reason.h"

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

TEST(SharedReason, GivesWhatWasSetLast) {
  SharedReason shared;
  EXPECT_TRUE(shared.get().empty());
  shared.set(ReasonText::of("the first"));
  shared.set(ReasonText::of("it"));
  EXPECT_EQ(shared.get().view(), "it");
  shared.set({});
  EXPECT_TRUE(shared.get().empty());
}

// Whoever writes may be another process, and broken.
TEST(SharedReason, AnyBitsAreAPrintableText) {
  for (int fill : {0x00, 0x7e, 0x80, 0xfe, 0xff}) {
    SharedReason shared;
    std::memset(static_cast<void*>(&shared), fill, sizeof shared);
    const ReasonText reason = shared.get();
    for (const char c : reason.view()) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << fill;
  }
}

// In the middle of a text for ever, as a writer that was killed leaves it.
TEST(SharedReason, AReaderDoesNotWaitForAWriterThatNeverEnds) {
  SharedReason shared;
  std::memset(static_cast<void*>(&shared), 0x41, sizeof shared);
  EXPECT_TRUE(shared.get().empty());
}

TEST(SharedReason, AReaderNeverSeesAMixtureOfTwoTexts) {
  SharedReason shared;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int round = 0; round < 20'000; ++round) {
      shared.set(ReasonText::of(std::string(ReasonText::kBytesMax, round % 2 == 0 ? 'a' : 'b')));
    }
    done.store(true);
  });
  do {
    const ReasonText reason = shared.get();
    const std::string_view text = reason.view();
    EXPECT_EQ(text.find_first_not_of(text.substr(0, 1)), std::string_view::npos) << text;
  } while (!done.load());
  writer.join();
  EXPECT_EQ(shared.get().view(), std::string(ReasonText::kBytesMax, 'b'));
}

}  // namespace
}  // namespace tiercel
