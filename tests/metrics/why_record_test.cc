// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tiercel/why.h"

namespace tiercel {
namespace {

constexpr std::array kAllReasons = {
    WhyReason::kNotCached,      WhyReason::kStoreAbsent,  WhyReason::kStoreNotAsked,
    WhyReason::kStoreFailed,    WhyReason::kInFlight,     WhyReason::kGroupMissing,
    WhyReason::kNoDeviceBlock,  WhyReason::kLoadFailed,   WhyReason::kNoHostSpace,
    WhyReason::kBehindGap,      WhyReason::kCleared,      WhyReason::kClosed,
    WhyReason::kSaveNoSpace,    WhyReason::kSaveFailed,   WhyReason::kSaveDropped,
    WhyReason::kSaveParentGone, WhyReason::kSaveFiltered, WhyReason::kPutFailed,
    WhyReason::kPutDropped};

TEST(WhyReason, EveryReasonHasAWordOfItsOwn) {
  std::set<std::string_view> words;
  for (const WhyReason reason : kAllReasons) words.insert(to_string(reason));
  EXPECT_EQ(words.size(), kAllReasons.size());
  EXPECT_FALSE(words.contains("unknown"));
  EXPECT_EQ(to_string(static_cast<WhyReason>(255)), "unknown");
}

TEST(WhyRecord, SpansThatTouchAndAgreeAreOne) {
  WhyRecord record;
  record.add({.first = 0, .count = 2, .reason = WhyReason::kNotCached});
  record.add({.first = 2, .count = 3, .reason = WhyReason::kNotCached});
  record.add({.first = 5, .count = 0, .reason = WhyReason::kNotCached});
  ASSERT_EQ(record.spans().size(), 1u);
  EXPECT_EQ(record.spans()[0].count, 5u);
}

TEST(WhyRecord, SpansThatDifferOrDoNotTouchStayApart) {
  WhyRecord record;
  record.add({.first = 0, .count = 1, .reason = WhyReason::kLoadFailed, .code = Code::kTimeout});
  record.add({.first = 1, .count = 1, .reason = WhyReason::kLoadFailed, .code = Code::kCorrupt});
  record.add({.first = 2, .count = 1, .reason = WhyReason::kBehindGap, .code = Code::kCorrupt});
  record.add({.first = 4, .count = 1, .reason = WhyReason::kBehindGap, .code = Code::kCorrupt});
  EXPECT_EQ(record.spans().size(), 4u);
}

TEST(WhyRecord, KeepsABoundedNumberAndSaysSo) {
  WhyRecord record;
  for (uint32_t i = 0; i < WhyRecord::kSpanCountMax; ++i) record.add({.first = 2 * i, .count = 1});
  EXPECT_FALSE(record.truncated);
  record.add({.first = 1000, .count = 1});
  EXPECT_TRUE(record.truncated);
  EXPECT_EQ(record.spans().size(), WhyRecord::kSpanCountMax);
  EXPECT_NE(record.to_string().find("not kept"), std::string::npos);
}

TEST(WhyRecord, TellsBlocksReasonsAndCodes) {
  WhyRecord record;
  record.request = RequestId(7);
  record.served_blocks = 3;
  record.add({.first = 3, .count = 2, .reason = WhyReason::kStoreFailed, .code = Code::kTimeout});
  record.add({.first = 5, .count = 1, .reason = WhyReason::kBehindGap});
  EXPECT_EQ(record.to_string(),
            "request 7: 3 blocks served\n"
            "  blocks 3 to 4: store_failed (timeout)\n"
            "  blocks 5 to 5: behind_gap\n");
}

TEST(WhyRecord, TellsWhatTheStoreSaid) {
  WhyRecord record;
  record.add({.first = 0, .count = 1, .reason = WhyReason::kStoreFailed, .code = Code::kTimeout});
  record.store_reason = ReasonText::of("the master cannot be reached");
  EXPECT_NE(record.to_string().find("\n  store: the master cannot be reached\n"),
            std::string::npos);
  record.start(1);
  EXPECT_EQ(record.to_string().find("store:"), std::string::npos) << "a new look";
}

}  // namespace
}  // namespace tiercel
