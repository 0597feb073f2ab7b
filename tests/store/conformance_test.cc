// SPDX-License-Identifier: Apache-2.0
//
// The Store contract, for every store of the registry (see conformance.h).
#include "store/conformance.h"

namespace tiercel {
namespace {

class StoreConformance : public ConformanceTest {};

INSTANTIATE_TEST_SUITE_P(Stores, StoreConformance, ::testing::ValuesIn(conformance_cases()),
                         case_name);

TEST_P(StoreConformance, ReturnsTheBytesThatWerePut) {
  Handle handle = open_empty();
  uint32_t number = 0;
  for (size_t bytes :
       {1u, 2u, 3u, 4u, 5u, 63u, 64u, 4095u, 4096u, 4097u, 65536u, 1000003u, 5u << 20}) {
    for (size_t pieces = 1; pieces <= kStoreSpanCountMax; ++pieces) {
      const ObjectKey key = test_key(++number);
      const std::vector<std::byte> value = test_value(bytes, number);
      const GuardedBuffer source(value, pieces);
      ASSERT_EQ(handle.put({source.put_item(key)}, far_deadline()), Codes{Code::kOk});
      EXPECT_TRUE(source.guards_are_intact());
      EXPECT_EQ(source.value(), value) << "a put changed what it was given";
      const GuardedBuffer target(bytes, kStoreSpanCountMax + 1 - pieces);
      ASSERT_EQ(handle.get({target.get_item(key)}, far_deadline()), Codes{Code::kOk});
      EXPECT_TRUE(target.value() == value) << bytes << " bytes in " << pieces << " pieces";
      EXPECT_TRUE(target.guards_are_intact());
    }
  }
}

TEST_P(StoreConformance, SkipsEmptySpansBetweenOthers) {
  Handle handle = open_empty();
  std::vector<std::byte> value = test_value(10, 1);
  StorePutItem put{test_key(1), {}, false};
  put.spans[1] = std::span(value).first(4);
  put.spans[3] = std::span(value).subspan(4);
  ASSERT_EQ(handle.put({put}), Codes{Code::kOk});
  EXPECT_EQ(handle.get_value(test_key(1), 10), std::pair(Code::kOk, value));
}

TEST_P(StoreConformance, CopiesTheBytesOfAPut) {
  Handle handle = open_empty();
  const std::vector<std::byte> value = test_value(100, 1);
  {
    std::vector<std::byte> source = value;
    StorePutItem item{test_key(1), {}, false};
    item.spans[0] = source;
    ASSERT_EQ(handle.put({item}), Codes{Code::kOk});
    std::fill(source.begin(), source.end(), std::byte{0});
  }
  EXPECT_EQ(handle.get_value(test_key(1), 100), std::pair(Code::kOk, value));
}

// F24: a client saw only a timeout where the server had a reason. Nothing here has a deadline.
TEST_P(StoreConformance, F24KnowsWhatIsThereAndWhatIsNot) {
  Handle handle = open_empty();
  ASSERT_EQ(handle.put_value(test_key(1), test_value(8, 1)), Code::kOk);
  EXPECT_EQ(handle.exists({test_key(1), test_key(2)}), (Codes{Code::kOk, Code::kNotFound}));
  EXPECT_EQ(handle.get_value(test_key(2), 8).first, Code::kNotFound);
}

// F24, F51: a bad size is told, and no value is ever cut to fit.
TEST_P(StoreConformance, F24F51RefusesAGetOfAnotherLength) {
  Handle handle = open_empty();
  const std::vector<std::byte> value = test_value(100, 1);
  ASSERT_EQ(handle.put_value(test_key(1), value), Code::kOk);
  for (size_t bytes : {1u, 99u, 101u, 200u}) {
    EXPECT_EQ(handle.get_value(test_key(1), bytes).first, Code::kInvalid) << bytes;
  }
  EXPECT_EQ(handle.get_value(test_key(1), 100), std::pair(Code::kOk, value));
}

TEST_P(StoreConformance, KeepsTheFirstValueUnlessToldToReplace) {
  Handle handle = open_empty();
  const std::vector<std::byte> first = test_value(100, 1);
  const std::vector<std::byte> second = test_value(70, 2);
  ASSERT_EQ(handle.put_value(test_key(1), first), Code::kOk);
  EXPECT_EQ(handle.put_value(test_key(1), second), Code::kOk);
  EXPECT_EQ(handle.get_value(test_key(1), 100), std::pair(Code::kOk, first));
  EXPECT_EQ(handle.put_value(test_key(1), second, /*replace=*/true), Code::kOk);
  EXPECT_EQ(handle.get_value(test_key(1), 70), std::pair(Code::kOk, second));
  EXPECT_EQ(handle.put_value(test_key(2), first, /*replace=*/true), Code::kOk);
  EXPECT_EQ(handle.get_value(test_key(2), 100), std::pair(Code::kOk, first));
}

TEST_P(StoreConformance, RemovesAlsoWhatIsNotThere) {
  Handle handle = open_empty();
  ASSERT_EQ(handle.put_value(test_key(1), test_value(8, 1)), Code::kOk);
  ASSERT_EQ(handle.put_value(test_key(2), test_value(8, 2)), Code::kOk);
  EXPECT_EQ(handle.remove({test_key(1), test_key(3)}), (Codes{Code::kOk, Code::kOk}));
  EXPECT_EQ(handle.exists({test_key(1), test_key(2), test_key(3)}),
            (Codes{Code::kNotFound, Code::kOk, Code::kNotFound}));
  const std::vector<std::byte> again = test_value(9, 3);
  ASSERT_EQ(handle.put_value(test_key(1), again), Code::kOk);
  EXPECT_EQ(handle.get_value(test_key(1), 9), std::pair(Code::kOk, again));
}

TEST_P(StoreConformance, ClearsOnlyWhatHasThePrefix) {
  Handle handle = open_empty();
  for (uint32_t number = 0; number < 10; ++number) {
    ASSERT_EQ(handle.put_value(test_key(number, 1), test_value(8, number)), Code::kOk);
    ASSERT_EQ(handle.put_value(test_key(number, 2), test_value(8, number)), Code::kOk);
  }
  EXPECT_EQ(handle.clear(prefix_of(1)), Codes{Code::kOk});
  for (uint32_t number = 0; number < 10; ++number) {
    EXPECT_EQ(handle.exists_one(test_key(number, 1)), Code::kNotFound);
    EXPECT_EQ(handle.get_value(test_key(number, 2), 8),
              std::pair(Code::kOk, test_value(8, number)));
  }
  EXPECT_EQ(handle.clear(prefix_of(1)), Codes{Code::kOk}) << "nothing left to clear is fine";
  EXPECT_EQ(handle.store().submit_clear("", kNoDeadline).code(), Code::kInvalid);
  EXPECT_EQ(handle.exists_one(test_key(0, 2)), Code::kOk);
}

// F30: one key that was there already made the whole batch fail, and index and store drifted apart.
TEST_P(StoreConformance, F30AnswersEachItemOfABatchOnItsOwn) {
  Handle handle = open_empty();
  const std::vector<std::byte> old_value = test_value(50, 100);
  ASSERT_EQ(handle.put_value(test_key(7), old_value), Code::kOk);
  // Seven new, one present, one repeated inside the batch, one invalid.
  std::vector<GuardedBuffer> sources;
  for (uint32_t number = 0; number < 10; ++number) {
    sources.emplace_back(test_value(50 + number, number), 1 + number % 4);
  }
  std::vector<StorePutItem> puts;
  for (uint32_t number = 0; number < 10; ++number) {
    puts.push_back(sources[number].put_item(test_key(number)));
  }
  puts[8].key = test_key(3);
  puts[5].key = ObjectKey();
  Codes expected(10, Code::kOk);
  expected[5] = Code::kInvalid;
  EXPECT_EQ(handle.put(puts), expected);

  Codes there(10, Code::kOk);
  there[5] = there[8] = Code::kNotFound;
  std::vector<ObjectKey> keys;
  for (uint32_t number = 0; number < 10; ++number) keys.push_back(test_key(number));
  EXPECT_EQ(handle.exists(keys), there);
  EXPECT_EQ(Handle(open()).exists(keys), there) << "opened again";
  if (GetParam().counts_held) {
    EXPECT_EQ(handle.store().stats().objects, 8U);
  }

  std::vector<GuardedBuffer> targets;
  std::vector<StoreGetItem> gets;
  for (uint32_t number = 0; number < 10; ++number) {
    targets.emplace_back(number == 7 ? 50 : 50 + number, 1 + (number + 1) % 4);
    gets.push_back(targets.back().get_item(test_key(number)));
  }
  gets[0].spans[0] = gets[0].spans[0].first(1);
  gets[1] = StoreGetItem{test_key(1), {}};
  gets[9].key = test_key(2);  // 59 bytes asked, 52 there
  Codes got = there;
  got[0] = got[1] = got[9] = Code::kInvalid;
  EXPECT_EQ(handle.get(gets), got);
  for (uint32_t number = 0; number < 10; ++number) {
    EXPECT_TRUE(targets[number].guards_are_intact());
    if (got[number] == Code::kOk) {
      EXPECT_EQ(targets[number].value(), number == 7 ? old_value : test_value(50 + number, number));
    }
  }

  EXPECT_EQ(handle.exists({test_key(0), ObjectKey(), test_key(1)}),
            (Codes{Code::kOk, Code::kInvalid, Code::kOk}));
  EXPECT_EQ(handle.remove({test_key(0), ObjectKey(), test_key(1)}),
            (Codes{Code::kOk, Code::kInvalid, Code::kOk}));
  EXPECT_EQ(handle.exists({test_key(0), test_key(1), test_key(2)}),
            (Codes{Code::kNotFound, Code::kNotFound, Code::kOk}));
}

TEST_P(StoreConformance, RefusesAnObjectWithoutBytes) {
  Handle handle = open_empty();
  EXPECT_EQ(handle.put({StorePutItem{test_key(1), {}, false}}), Codes{Code::kInvalid});
  StorePutItem null_item{test_key(1), {}, false};
  null_item.spans[0] = std::span<const std::byte>(static_cast<const std::byte*>(nullptr), 10);
  EXPECT_EQ(handle.put({null_item}), Codes{Code::kInvalid});
  EXPECT_EQ(handle.exists_one(test_key(1)), Code::kNotFound);
  ASSERT_EQ(handle.put_value(test_key(1), test_value(10, 1)), Code::kOk);
  EXPECT_EQ(handle.get({StoreGetItem{test_key(1), {}}}), Codes{Code::kInvalid});
}

TEST_P(StoreConformance, GetsARepeatedKeyIntoBothPlaces) {
  Handle handle = open_empty();
  const std::vector<std::byte> value = test_value(1000, 1);
  ASSERT_EQ(handle.put_value(test_key(1), value), Code::kOk);
  const GuardedBuffer first(1000, 2);
  const GuardedBuffer second(1000, 3);
  EXPECT_EQ(handle.get({first.get_item(test_key(1)), second.get_item(test_key(1))}),
            (Codes{Code::kOk, Code::kOk}));
  EXPECT_EQ(first.value(), value);
  EXPECT_EQ(second.value(), value);
  EXPECT_EQ(handle.remove({test_key(1), test_key(1)}), (Codes{Code::kOk, Code::kOk}));
}

TEST_P(StoreConformance, CompletesAnEmptyBatchWithNoCodes) {
  Handle handle = open_empty();
  ASSERT_EQ(handle.put_value(test_key(1), test_value(8, 1)), Code::kOk);
  const StoreStats before = handle.store().stats();
  EXPECT_EQ(handle.exists({}), Codes{});
  EXPECT_EQ(handle.get({}), Codes{});
  EXPECT_EQ(handle.put({}), Codes{});
  EXPECT_EQ(handle.remove({}), Codes{});
  const StoreStats after = handle.store().stats();
  EXPECT_EQ(after.objects, before.objects);
  EXPECT_EQ(after.bytes, before.bytes);
  EXPECT_EQ(after.failures, before.failures);
}

TEST_P(StoreConformance, DoesNothingAfterTheDeadline) {
  Handle handle = open_empty();
  const std::vector<std::byte> value = test_value(16, 1);
  ASSERT_EQ(handle.put_value(test_key(1), value), Code::kOk);
  const Codes late{Code::kTimeout, Code::kTimeout};
  const GuardedBuffer source(test_value(16, 2), 1);
  const GuardedBuffer target(16);
  const std::vector<std::byte> untouched = target.value();
  EXPECT_EQ(handle.exists({test_key(1), test_key(2)}, passed_deadline()), late);
  EXPECT_EQ(handle.put({source.put_item(test_key(2)), source.put_item(test_key(1), true)},
                       passed_deadline()),
            late);
  EXPECT_EQ(
      handle.get({target.get_item(test_key(1)), target.get_item(test_key(2))}, passed_deadline()),
      late);
  EXPECT_EQ(target.value(), untouched);
  EXPECT_EQ(handle.remove({test_key(1), test_key(2)}, passed_deadline()), late);
  EXPECT_EQ(handle.clear(prefix_of(1), passed_deadline()), Codes{Code::kTimeout});
  EXPECT_EQ(handle.exists_one(test_key(2)), Code::kNotFound);
  EXPECT_EQ(handle.get_value(test_key(1), 16), std::pair(Code::kOk, value));
}

TEST_P(StoreConformance, CompletesEverySubmissionExactlyOnce) {
  Handle handle = open_empty();
  const GuardedBuffer source(test_value(300, 1), 2);
  std::vector<GuardedBuffer> targets;
  std::vector<std::pair<StoreRequestId, size_t>> submitted;
  Store& store = handle.store();
  const auto note = [&](Result<StoreRequestId> id, size_t items) {
    submitted.emplace_back(handle.note(std::move(id)), items);
  };
  for (uint32_t round = 0; round < 50; ++round) {
    const std::vector<ObjectKey> keys{test_key(round), test_key(round + 1)};
    const std::vector<StorePutItem> puts{source.put_item(keys[0])};
    targets.emplace_back(300);
    const std::vector<StoreGetItem> gets{targets[round].get_item(keys[0])};
    note(store.submit_put(puts, kNoDeadline), 1);
    note(store.submit_exists(keys, kNoDeadline), 2);
    note(store.submit_get(gets, kNoDeadline), 1);
    note(store.submit_remove(keys, kNoDeadline), 2);
    note(store.submit_clear(prefix_of(2), kNoDeadline), 1);
    note(store.submit_put({}, kNoDeadline), 0);
  }
  for (const auto& [id, items] : submitted) EXPECT_EQ(handle.wait(id).size(), items);
  EXPECT_EQ(handle.take(), 0U);
  EXPECT_EQ(handle.ended(), handle.given());
}

TEST_P(StoreConformance, PollOfAnIdleStoreReturnsNothing) {
  Handle handle(open());
  std::vector<StoreCompletion> completions{{StoreRequestId(77), {Code::kBusy}}};
  EXPECT_EQ(handle.store().poll(&completions), 0U);
  ASSERT_EQ(completions.size(), 1U) << "poll appends";
  EXPECT_EQ(completions[0].codes, Codes{Code::kBusy});
}

// F24: shutting down is told at once.
TEST_P(StoreConformance, F24RefusesWhatIsSubmittedAfterClose) {
  Handle handle = open_empty();
  ASSERT_TRUE(handle.store().close(far_deadline()));
  const std::vector<ObjectKey> keys{test_key(1)};
  const GuardedBuffer buffer(8);
  const std::vector<StoreGetItem> gets{buffer.get_item(keys[0])};
  const std::vector<StorePutItem> puts{buffer.put_item(keys[0])};
  EXPECT_EQ(handle.store().submit_exists(keys, kNoDeadline).code(), Code::kUnavailable);
  EXPECT_EQ(handle.store().submit_get(gets, kNoDeadline).code(), Code::kUnavailable);
  EXPECT_EQ(handle.store().submit_put(puts, kNoDeadline).code(), Code::kUnavailable);
  EXPECT_EQ(handle.store().submit_remove(keys, kNoDeadline).code(), Code::kUnavailable);
  EXPECT_EQ(handle.store().submit_clear("v1-", kNoDeadline).code(), Code::kUnavailable);
  EXPECT_EQ(handle.take(), 0U);
  EXPECT_TRUE(handle.store().close(far_deadline())) << "closing twice is fine";
  Handle other(open());
  EXPECT_EQ(other.exists_one(test_key(1)), Code::kNotFound) << "other handles go on";
}

TEST_P(StoreConformance, CloseEndsWhatIsInFlight) {
  Handle handle = open_empty();
  const GuardedBuffer source(test_value(4096, 1), 3);
  std::vector<StoreRequestId> ids;
  for (uint32_t number = 0; number < 20; ++number) {
    const std::vector<StorePutItem> puts{source.put_item(test_key(number))};
    ids.push_back(handle.note(handle.store().submit_put(puts, far_deadline())));
  }
  ASSERT_TRUE(handle.store().close(far_deadline()));
  handle.take();
  for (StoreRequestId id : ids) {
    EXPECT_TRUE(handle.has_ended(id));
    EXPECT_EQ(handle.wait(id).size(), 1U);
  }
  EXPECT_EQ(handle.take(), 0U);
}

TEST_P(StoreConformance, HandlesOfOnePlaceSeeEachOthersObjects) {
  Handle first = open_empty();
  Handle second(open());
  const std::vector<std::byte> value = test_value(333, 1);
  ASSERT_EQ(first.put_value(test_key(1), value), Code::kOk);
  EXPECT_EQ(second.exists_one(test_key(1)), Code::kOk);
  EXPECT_EQ(second.get_value(test_key(1), 333), std::pair(Code::kOk, value));
  ASSERT_EQ(second.remove({test_key(1)}), Codes{Code::kOk});
  EXPECT_EQ(first.exists_one(test_key(1)), Code::kNotFound);
}

TEST_P(StoreConformance, TakesRegisteredMemory) {
  std::vector<std::byte> memory(8192);
  Handle handle(open());
  ASSERT_TRUE(handle.store().register_memory(memory));
  std::vector<std::byte> value = test_value(4096, 1);
  std::copy(value.begin(), value.end(), memory.begin());
  StorePutItem put{test_key(1), {}, true};
  put.spans[0] = std::span(memory).first(4096);
  ASSERT_EQ(handle.put({put}), Codes{Code::kOk});
  StoreGetItem get{test_key(1), {}};
  get.spans[0] = std::span(memory).last(4096);
  ASSERT_EQ(handle.get({get}), Codes{Code::kOk});
  EXPECT_TRUE(std::equal(value.begin(), value.end(), memory.begin() + 4096));
  EXPECT_TRUE(handle.store().close(far_deadline()));
}

}  // namespace
}  // namespace tiercel
