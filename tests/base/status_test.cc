// SPDX-License-Identifier: Apache-2.0
#include "tiercel/status.h"

#include <memory>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return Error(Code::kInvalid, "value is odd");
  return value / 2;
}

Status check_positive(int value) {
  if (value <= 0) return Error(Code::kInvalid, "value is not positive");
  return {};
}

TEST(Code, EveryCodeHasItsOwnLowerCaseWord) {
  std::set<std::string_view> words;
  for (uint8_t value = 0; value <= 10; ++value) {
    const std::string_view word = to_string(static_cast<Code>(value));
    EXPECT_NE(word, "unknown") << int{value};
    EXPECT_TRUE(words.insert(word).second) << word;
    for (char letter : word) EXPECT_TRUE((letter >= 'a' && letter <= 'z') || letter == '_') << word;
  }
}

TEST(Code, ValueOutOfRangeIsUnknown) {
  EXPECT_EQ(to_string(static_cast<Code>(11)), "unknown");
  EXPECT_EQ(to_string(static_cast<Code>(255)), "unknown");
}

TEST(Error, TextIsCodeAndMessage) {
  EXPECT_EQ(Error(Code::kInvalid, "block_tokens is 0; allowed: 1 to 65536").to_string(),
            "invalid: block_tokens is 0; allowed: 1 to 65536");
  EXPECT_EQ(Error(Code::kTimeout, "").to_string(), "timeout");
}

TEST(Error, KnowsWhereItWasMade) {
  const int line = __LINE__ + 1;
  const Error error(Code::kInternal, "x");
  EXPECT_EQ(error.line(), line);
  EXPECT_NE(std::string_view(error.file()).find("status_test.cc"), std::string_view::npos);
}

TEST(Result, CodeIsOkExactlyWithAValue) {
  EXPECT_EQ(half(4).code(), Code::kOk);
  EXPECT_EQ(half(3).code(), Code::kInvalid);
  EXPECT_EQ(check_positive(1).code(), Code::kOk);
  EXPECT_EQ(check_positive(0).code(), Code::kInvalid);
}

TEST(Result, AndThenChainsFunctionsThatReturnResults) {
  EXPECT_EQ(half(12).and_then(half).value(), 3);
  const Result<int> const_result = 12;
  EXPECT_EQ(const_result.and_then(half).value(), 6);
  const auto second_fails = half(6).and_then(half);
  ASSERT_FALSE(second_fails.has_value());
  EXPECT_EQ(second_fails.error().message(), "value is odd");
}

TEST(Result, AndThenDoesNotCallAfterAnError) {
  bool called = false;
  const auto result = half(3).and_then([&](int value) -> Result<std::string> {
    called = true;
    return std::to_string(value);
  });
  EXPECT_FALSE(called);
  EXPECT_EQ(result.code(), Code::kInvalid);
}

TEST(Result, AndThenCrossesBetweenStatusAndValue) {
  EXPECT_EQ(half(4).and_then(check_positive).code(), Code::kOk);
  EXPECT_EQ(half(-4).and_then(check_positive).code(), Code::kInvalid);
  EXPECT_EQ(check_positive(1).and_then([] { return half(8); }).value(), 4);
  EXPECT_EQ(check_positive(0).and_then([] { return half(8); }).code(), Code::kInvalid);
}

TEST(Result, MapReturnsAResult) {
  Result<std::string> text = half(8).map([](int value) { return std::to_string(value); });
  EXPECT_EQ(text.value(), "4");
  Status status = half(8).map([](int) {});
  EXPECT_TRUE(status.has_value());
  EXPECT_EQ(half(3).map([](int value) { return value; }).code(), Code::kInvalid);
  EXPECT_EQ(check_positive(1).map([] { return 7; }).value(), 7);
  EXPECT_EQ(check_positive(0).map([] { return 7; }).code(), Code::kInvalid);
}

TEST(Result, ChainsMoveOnlyValues) {
  Result<std::unique_ptr<int>> owned =
      half(10).map([](int value) { return std::make_unique<int>(value); });
  const auto moved =
      std::move(owned).and_then([](std::unique_ptr<int> value) -> Result<std::unique_ptr<int>> {
        *value += 1;
        return value;
      });
  EXPECT_EQ(**moved, 6);
}

TEST(Result, ConvertsFromOwnerOfADerivedClass) {
  struct Base {
    virtual ~Base() = default;
  };
  struct Derived : Base {};
  const Result<std::unique_ptr<Base>> result = std::make_unique<Derived>();
  EXPECT_NE(result->get(), nullptr);
}

TEST(Result, CopyOfABoolResultKeepsItsValue) {
  Result<bool> no = false;
  Result<bool> copy(no);
  EXPECT_FALSE(copy.value());
  std::vector<Result<bool>> list;
  list.emplace_back(no);
  EXPECT_FALSE(list[0].value());
  Result<bool> failed = Error(Code::kBusy, "later");
  Result<bool> failed_copy(failed);
  EXPECT_EQ(failed_copy.code(), Code::kBusy);
}

TEST(Result, TryReturnsTheError) {
  auto work = [](int value) -> Result<int> {
    TIERCEL_TRY(check_positive(value));
    TIERCEL_TRY_ASSIGN(const int first, half(value));
    TIERCEL_TRY_ASSIGN(const int second, half(first));
    return second;
  };
  EXPECT_EQ(work(12).value(), 3);
  EXPECT_EQ(work(0).error().message(), "value is not positive");
  EXPECT_EQ(work(6).error().message(), "value is odd");
}

}  // namespace
}  // namespace tiercel
