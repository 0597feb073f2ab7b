// SPDX-License-Identifier: Apache-2.0
//
// The control plane takes no lock and does not wait, and in steady state it allocates nothing per
// block. Seen from outside: the functions that lock, wait or allocate are replaced in this program
// and count what the control thread does while it is inside Cache.
#include <mutex>

#include <dlfcn.h>
#include <pthread.h>

#include "cache/cache_fixture.h"

#ifndef TIERCEL_SANITIZED
namespace {

thread_local bool counting = false;
thread_local uint64_t locks = 0;
thread_local uint64_t allocations = 0;

template <typename Function>
Function next_definition(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static const auto next = next_definition<int (*)(pthread_mutex_t*)>("pthread_mutex_lock");
  if (counting) ++locks;
  return next(mutex);
}
extern "C" int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  static const auto next =
      next_definition<int (*)(pthread_cond_t*, pthread_mutex_t*)>("pthread_cond_wait");
  if (counting) ++locks;
  return next(condition, mutex);
}
extern "C" void* __libc_malloc(size_t size);  // NOLINT: glibc's own name
extern "C" void* malloc(size_t size) {
  if (counting) ++allocations;
  return __libc_malloc(size);
}

namespace tiercel {
namespace {

// A data plane of fixed memory that completes everything at the next poll, so that only Cache is
// measured.
class InstantPlane final : public DataPlane {
 public:
  InstantPlane() { done_.reserve(1 << 16); }
  uint32_t rank_count() const override { return 1; }
  size_t submit_capacity() const override { return (1 << 16) - done_.size(); }
  bool submit(std::span<const BlockOp> ops) override {
    for (const BlockOp& op : ops) {
      const Code code = op.kind == OpKind::kStoreExists ? Code::kNotFound : Code::kOk;
      done_.push_back(Completion{op.job, op.item, 0, code, 0});
    }
    return true;
  }
  size_t poll(std::span<Completion> out) override {
    const size_t count = std::min(out.size(), done_.size());
    std::copy_n(done_.end() - static_cast<ptrdiff_t>(count), count, out.begin());
    done_.resize(done_.size() - count);
    return count;
  }
  int completion_fd() const override { return -1; }
  RankStats stats(uint32_t) const override { return {}; }
  Status close(TimePoint) override { return {}; }

 private:
  std::vector<Completion> done_;
};

class ControlPlane : public ::testing::Test {
 protected:
  void SetUp() override {
    CacheConfig config = test_config(2000, 1, true);
    config.request_blocks_max = 1024;
    cache_ = *Cache::create(config, plane_, clock_);
    for (uint32_t i = 0; i < kPrompts; ++i) prompts_.push_back(test_keys(kBlocks, i * 100000));
    device_.resize(kBlocks);
  }

  // One whole life of a request, everything inside Cache counted.
  void serve(uint64_t id, const std::vector<BlockKey>& keys) {
    CacheEvent events[16];
    const RequestId request(id);
    counting = true;
    const Match match = cache_->match(keys, 0);
    if (match.possible_blocks > match.ready_blocks) {
      (void)cache_->prefetch(request, keys, 0, kNoDeadline);
      for (int i = 0; i < 8; ++i) (void)cache_->poll(events);
    }
    (void)cache_->load(request, keys, 0, device_, kNoDeadline);
    for (int i = 0; i < 8; ++i) (void)cache_->poll(events);
    (void)cache_->save(request, keys, 0, device_);
    (void)cache_->commit(request, keys.size() * 4);
    for (int i = 0; i < 8; ++i) (void)cache_->poll(events);
    (void)cache_->finish(request);
    (void)cache_->poll(events);
    (void)cache_->stats();
    counting = false;
  }

  static constexpr uint32_t kPrompts = 8;
  static constexpr uint32_t kBlocks = 500;  // more than fit: there is eviction all the time
  ManualClock clock_;
  InstantPlane plane_;
  std::unique_ptr<Cache> cache_;
  std::vector<std::vector<BlockKey>> prompts_;
  std::vector<DeviceBlockId> device_;
};

// F28: a call that should have been asynchronous blocked the main loop.
TEST_F(ControlPlane, F28TakesNoLock) {
  locks = 0;
  for (uint64_t id = 0; id < 40; ++id) serve(id, prompts_[id % kPrompts]);
  EXPECT_EQ(locks, 0u);
  EXPECT_GT(cache_->stats().evicted_blocks, 1000u);
  std::mutex mutex;
  counting = true;
  mutex.lock();
  counting = false;
  mutex.unlock();
  EXPECT_EQ(locks, 1u) << "the count itself must work";
}

TEST_F(ControlPlane, AllocatesNothingPerBlockInSteadyState) {
  uint64_t id = 0;
  for (; id < 64; ++id) serve(id, prompts_[id % kPrompts]);
  allocations = 0;
  for (; id < 128; ++id) serve(id, prompts_[id % kPrompts]);
  // Per request a few (its entry in the table by id, a piece of a queue); never one per block.
  EXPECT_LT(allocations, 64u * 24);
  EXPECT_GT(allocations, 0u) << "the count itself must work";
}

}  // namespace
}  // namespace tiercel
#endif
