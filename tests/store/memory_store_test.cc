// SPDX-License-Identifier: Apache-2.0
#include "store/memory/memory_store.h"

#include <gtest/gtest.h>

#include "base/manual_clock.h"
#include "store/registry.h"
#include "store/store_harness.h"

namespace tiercel {
namespace {

class MemoryStoreTest : public ::testing::Test {
 protected:
  MemoryStoreTest() { register_all_stores(registry_); }

  Handle open(const std::string& url) {
    Result<std::unique_ptr<Store>> store = registry_.open(url, {clock_});
    EXPECT_TRUE(store) << store.error().to_string();
    return Handle(*std::move(store));
  }

  ManualClock clock_;
  StoreRegistry registry_;
};

TEST_F(MemoryStoreTest, PoolsAreSharedByName) {
  Handle a = open("memory:a");
  Handle b = open("memory:b");
  Handle unnamed = open("memory:");
  ASSERT_EQ(a.put_value(test_key(1), test_value(8, 1)), Code::kOk);
  ASSERT_EQ(unnamed.put_value(test_key(2), test_value(8, 1)), Code::kOk);
  EXPECT_EQ(b.exists_one(test_key(1)), Code::kNotFound);
  EXPECT_EQ(open("memory:a").exists_one(test_key(1)), Code::kOk);
  EXPECT_EQ(open("memory:").exists({test_key(1), test_key(2)}),
            (Codes{Code::kNotFound, Code::kOk}));
}

TEST_F(MemoryStoreTest, PoolsOfTwoRegistriesAreApart) {
  Handle here = open("memory:a");
  ASSERT_EQ(here.put_value(test_key(1), test_value(8, 1)), Code::kOk);
  StoreRegistry other;
  register_all_stores(other);
  Handle there(*other.open("memory:a", {clock_}));
  EXPECT_EQ(there.exists_one(test_key(1)), Code::kNotFound);
}

TEST_F(MemoryStoreTest, APoolLivesAsLongAsAHandleOfIt) {
  {
    Handle first = open("memory:a?bytes=1KiB");
    ASSERT_EQ(first.put_value(test_key(1), test_value(8, 1)), Code::kOk);
  }
  Handle second = open("memory:a?bytes=2KiB");
  EXPECT_EQ(second.exists_one(test_key(1)), Code::kNotFound);
  EXPECT_EQ(second.store().stats().capacity_bytes, 2048U);
}

TEST_F(MemoryStoreTest, HoldsHalfOfTheMemoryThereIsUnlessToldOtherwise) {
  MemoryLimit memory{1000, "a test"};
  StoreRegistry registry;
  add_memory_store(registry, [&] { return memory; });
  const auto capacity = [&](const std::string& url) {
    return Handle(*registry.open(url, {clock_})).store().stats().capacity_bytes;
  };
  EXPECT_EQ(capacity("memory:"), 500U);
  EXPECT_EQ(capacity("memory:?bytes=900B"), 900U);
  EXPECT_EQ(capacity("memory:?bytes=0"), 0U);
  // 0 is no bound, so even where nothing is left there is one.
  memory.bytes = 0;
  EXPECT_EQ(capacity("memory:"), 1U);
  memory = {};
  EXPECT_EQ(capacity("memory:"), 0U);
}

TEST_F(MemoryStoreTest, ALaterHandleTakesTheBoundThatThereIs) {
  MemoryLimit memory{1000, "a test"};
  StoreRegistry registry;
  add_memory_store(registry, [&] { return memory; });
  Handle first(*registry.open("memory:", {clock_}));
  memory.bytes = 600;
  EXPECT_EQ(Handle(*registry.open("memory:", {clock_})).store().stats().capacity_bytes, 500U);
}

TEST_F(MemoryStoreTest, RefusesAnotherCapacityForAnOpenPool) {
  Handle first = open("memory:a?bytes=1KiB");
  EXPECT_EQ(open("memory:a").store().stats().capacity_bytes, 1024U);
  EXPECT_EQ(open("memory:a?bytes=1024").store().stats().capacity_bytes, 1024U);
  const auto refused = registry_.open("memory:a?bytes=2KiB", {clock_});
  ASSERT_EQ(refused.code(), Code::kInvalid);
  const std::string& message = refused.error().message();
  for (const char* part : {"2048", "1024", "'a'"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST_F(MemoryStoreTest, RefusesAPoolNameThatLooksLikeAPath) {
  for (const char* url : {"memory:///a", "memory:a/b", "memory:a%20b"}) {
    const auto refused = registry_.open(url, {clock_});
    ASSERT_EQ(refused.code(), Code::kInvalid);
    EXPECT_NE(refused.error().message().find(url), std::string::npos);
  }
}

TEST_F(MemoryStoreTest, EvictsTheLeastRecentlyUsedFirst) {
  Handle handle = open("memory:?bytes=300");
  for (uint32_t number : {1U, 2U, 3U}) {
    ASSERT_EQ(handle.put_value(test_key(number), test_value(100, number)), Code::kOk);
  }
  ASSERT_EQ(handle.get_value(test_key(1), 100).first, Code::kOk);           // a use
  ASSERT_EQ(handle.put_value(test_key(2), test_value(100, 2)), Code::kOk);  // a use
  ASSERT_EQ(handle.exists_one(test_key(3)), Code::kOk);                     // none
  ASSERT_EQ(handle.get_value(test_key(3), 99).first, Code::kInvalid);       // none
  ASSERT_EQ(handle.put_value(test_key(4), test_value(1, 4)), Code::kOk);
  EXPECT_EQ(handle.exists({test_key(1), test_key(2), test_key(3), test_key(4)}),
            (Codes{Code::kOk, Code::kOk, Code::kNotFound, Code::kOk}));
  EXPECT_EQ(handle.store().stats().evictions, 1U);
  EXPECT_EQ(handle.store().stats().bytes, 201U);
}

TEST_F(MemoryStoreTest, AReplacementEvictsOthersButNeverItself) {
  Handle handle = open("memory:?bytes=300");
  for (uint32_t number : {1U, 2U, 3U}) {
    ASSERT_EQ(handle.put_value(test_key(number), test_value(100, number)), Code::kOk);
  }
  const std::vector<std::byte> larger = test_value(201, 9);
  ASSERT_EQ(handle.put_value(test_key(1), larger, true), Code::kOk);
  EXPECT_EQ(handle.get_value(test_key(1), 201), std::pair(Code::kOk, larger));
  EXPECT_EQ(handle.store().stats().objects, 1U);
  EXPECT_EQ(handle.store().stats().evictions, 2U);
  ASSERT_EQ(handle.put_value(test_key(1), test_value(300, 9), true), Code::kOk);
  EXPECT_EQ(handle.store().stats().bytes, 300U);
}

TEST_F(MemoryStoreTest, ADeadlineCountsFromItsOwnInstant) {
  Handle handle = open("memory:");
  clock_.advance(std::chrono::seconds(5));
  EXPECT_EQ(handle.exists({test_key(1)}, clock_.now()), Codes{Code::kTimeout});
  EXPECT_EQ(handle.exists({test_key(1)}, clock_.now() + Duration(1)), Codes{Code::kNotFound});
}

TEST_F(MemoryStoreTest, IsBusyWhileTooManyCompletionsWait) {
  Handle handle = open("memory:");
  Status status;
  while (status) {
    const std::vector<StorePutItem> puts;
    Result<StoreRequestId> id = handle.store().submit_put(puts, kNoDeadline);
    if (id) {
      handle.note(id);
      ASSERT_LE(handle.given(), 1U << 20) << "no bound";
    } else {
      status = id.error();
    }
  }
  EXPECT_EQ(status.code(), Code::kBusy);
  EXPECT_EQ(handle.take(), handle.given());
  EXPECT_EQ(handle.exists_one(test_key(1)), Code::kNotFound);
}

}  // namespace
}  // namespace tiercel
