// SPDX-License-Identifier: Apache-2.0
#include "store/memory/memory_store.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/quantity.h"
#include "store/registry.h"
#include "store/store_items.h"

namespace tiercel {
namespace {

// Completions that wait to be polled; more is kBusy.
constexpr size_t kWaitingCompletionsMax = 4096;

class MemoryStore final : public Store {
 public:
  MemoryStore(std::shared_ptr<MemoryPool> pool, const Clock& clock)
      : pool_(std::move(pool)), clock_(clock) {}

  Result<StoreRequestId> submit_exists(std::span<const ObjectKey> keys,
                                       TimePoint deadline) override {
    return submit(keys, deadline, &StoreStats::exists, [this](const ObjectKey& key) {
      return pool_->contains(key) ? Code::kOk : Code::kNotFound;
    });
  }

  Result<StoreRequestId> submit_get(std::span<const StoreGetItem> items,
                                    TimePoint deadline) override {
    return submit(items, deadline, &StoreStats::gets, [this](const StoreGetItem& item) {
      const Code code = pool_->get(item);
      if (code == Code::kOk) ++counts_.get_hits;
      return code;
    });
  }

  Result<StoreRequestId> submit_put(std::span<const StorePutItem> items,
                                    TimePoint deadline) override {
    return submit(items, deadline, &StoreStats::puts,
                  [this](const StorePutItem& item) { return pool_->put(item); });
  }

  Result<StoreRequestId> submit_remove(std::span<const ObjectKey> keys,
                                       TimePoint deadline) override {
    return submit(keys, deadline, &StoreStats::removes, [this](const ObjectKey& key) {
      pool_->remove(key);
      return Code::kOk;
    });
  }

  Result<StoreRequestId> submit_clear(std::string_view prefix, TimePoint deadline) override {
    if (prefix.empty()) {
      return Error(Code::kInvalid,
                   "clear of a memory store with an empty prefix; name at least one namespace");
    }
    TIERCEL_TRY(accepts());
    const bool late = has_passed(deadline, clock_.now());
    if (!late) pool_->clear(prefix);
    return complete({late ? Code::kTimeout : Code::kOk});
  }

  size_t poll(std::vector<StoreCompletion>* completions) override {
    const size_t count = waiting_.size();
    std::move(waiting_.begin(), waiting_.end(), std::back_inserter(*completions));
    waiting_.clear();
    return count;
  }

  int completion_fd() const override { return -1; }

  Status register_memory(std::span<std::byte>) override { return {}; }

  StoreStats stats() const override {
    StoreStats stats = pool_->stats();
    stats.gets = counts_.gets;
    stats.get_hits = counts_.get_hits;
    stats.puts = counts_.puts;
    stats.removes = counts_.removes;
    stats.exists = counts_.exists;
    stats.failures = counts_.failures;
    return stats;
  }

  Status close(TimePoint) override {
    closed_ = true;
    return {};
  }

 private:
  Status accepts() const {
    if (closed_) return Error(Code::kUnavailable, "the memory store is closed");
    if (waiting_.size() >= kWaitingCompletionsMax) {
      return Error(Code::kBusy, std::to_string(waiting_.size()) +
                                    " completions of the memory store wait; poll them first");
    }
    return {};
  }

  template <typename Item, typename Operation>
  Result<StoreRequestId> submit(std::span<const Item> items, TimePoint deadline,
                                uint64_t StoreStats::*counter, Operation operation) {
    TIERCEL_TRY(accepts());
    counts_.*counter += items.size();
    const bool late = has_passed(deadline, clock_.now());
    std::vector<Code> codes;
    codes.reserve(items.size());
    for (const Item& item : items) {
      codes.push_back(late                   ? Code::kTimeout
                      : is_well_formed(item) ? operation(item)
                                             : Code::kInvalid);
    }
    return complete(std::move(codes));
  }

  StoreRequestId complete(std::vector<Code> codes) {
    counts_.failures +=
        static_cast<uint64_t>(std::count_if(codes.begin(), codes.end(), [](Code code) {
          return code != Code::kOk && code != Code::kNotFound;
        }));
    const StoreRequestId id(++last_id_);
    waiting_.push_back({id, std::move(codes)});
    return id;
  }

  // Shared with the other handles of the pool, which may live in other threads.
  const std::shared_ptr<MemoryPool> pool_;
  const Clock& clock_;
  bool closed_ = false;
  uint64_t last_id_ = 0;
  std::vector<StoreCompletion> waiting_;
  StoreStats counts_;  // of this handle; what is held is the pool's
};

// The pools that are open through one registry, by name. A pool lives as long as a handle of it.
class PoolDirectory {
 public:
  explicit PoolDirectory(std::function<MemoryLimit()> memory) : memory_(std::move(memory)) {}

  Result<std::shared_ptr<MemoryPool>> open(const StoreUrl& url) {
    const bool is_given = url.options.is_set("bytes");
    const auto wanted =
        is_given ? static_cast<uint64_t>(url.options.get_integer("bytes")) : uint64_t{0};
    MutexLock lock(mutex_);
    std::erase_if(pools_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<MemoryPool>& entry = pools_[url.path];
    std::shared_ptr<MemoryPool> pool = entry.lock();
    if (pool == nullptr) {
      pool = std::make_shared<MemoryPool>(is_given ? wanted : usual_capacity());
      entry = pool;
    } else if (is_given && pool->capacity_bytes() != wanted) {
      return Error(Code::kInvalid, "store URL '" + escaped_path(url.text) + "': bytes is " +
                                       std::to_string(wanted) + ", but the pool '" + url.path +
                                       "' is open with " + std::to_string(pool->capacity_bytes()) +
                                       "; give the same number, or none, or another pool name");
    }
    return pool;
  }

 private:
  // Half, because objects cost more than their payload and others need memory too; 0, no bound,
  // where nobody knows how much there is.
  uint64_t usual_capacity() const {
    const size_t available = memory_().bytes;
    return available == SIZE_MAX ? 0 : std::max<uint64_t>(1, available / 2);
  }

  const std::function<MemoryLimit()> memory_;
  Mutex mutex_;
  std::map<std::string, std::weak_ptr<MemoryPool>> pools_ TIERCEL_GUARDED_BY(mutex_);
};

Status check_pool_name(const StoreUrl& url) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (url.path.find_first_not_of(kAllowed) == std::string::npos) return {};
  return Error(Code::kInvalid, "store URL '" + escaped_path(url.text) + "': the pool name '" +
                                   escaped_path(url.path) +
                                   "' may hold letters, digits, '.', '_' and '-' only, such as "
                                   "memory:pool-a");
}

}  // namespace

std::unique_ptr<Store> make_memory_store(std::shared_ptr<MemoryPool> pool, const Clock& clock) {
  return std::make_unique<MemoryStore>(std::move(pool), clock);
}

void register_memory_store(StoreRegistry& registry) {
  add_memory_store(registry, available_memory);
}

void add_memory_store(StoreRegistry& registry, std::function<MemoryLimit()> memory) {
  StoreInfo info;
  info.scheme = "memory";
  info.summary =
      "Objects in this process's memory, shared by all handles of one registry that name the same "
      "pool; the path is the pool's name and may be empty";
  info.options.add(make_option(
      "bytes", OptionType::kBytes,
      "Most payload that the pool holds, least recently used objects go first; 0 is no bound, "
      "without it half of the memory that is available when the pool is opened",
      ""));
  // Shared by the copies of the function that the registry may make; it is the registry's state.
  auto pools = std::make_shared<PoolDirectory>(std::move(memory));
  info.open = [pools](const StoreUrl& url,
                      const StoreContext& context) -> Result<std::unique_ptr<Store>> {
    TIERCEL_TRY(check_pool_name(url));
    TIERCEL_TRY_ASSIGN(std::shared_ptr<MemoryPool> pool, pools->open(url));
    return make_memory_store(std::move(pool), context.clock);
  };
  registry.add(std::move(info));
}

}  // namespace tiercel
