// SPDX-License-Identifier: Apache-2.0
#include "cli/store_check.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include <fmt/core.h>
#include <poll.h>

#include "base/arena.h"
#include "base/quantity.h"
#include "base/random.h"

namespace tiercel {
namespace {

using Codes = std::vector<Code>;

// What a store may still take beyond the deadline to let go of memory.
constexpr Duration kLetGo = std::chrono::minutes(2);
// What cleaning up may take once somebody has asked for the end.
constexpr Duration kLastWords = std::chrono::seconds(2);

Namespace random_namespace(Random& random) {
  Namespace name_space;
  for (std::byte& byte : name_space.bytes) byte = static_cast<std::byte>(random.next());
  return name_space;
}

void fill(std::span<std::byte> memory, Random& random) {
  size_t offset = 0;
  while (offset < memory.size()) {
    const uint64_t word = random.next();
    const size_t size = std::min(sizeof word, memory.size() - offset);
    std::memcpy(memory.data() + offset, &word, size);
    offset += size;
  }
}

Duration median(std::vector<Duration> times) {
  if (times.empty()) return Duration(0);
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

class Checker {
 public:
  Checker(Store& store, const StoreCheckOptions& options, const Clock& clock, uint64_t seed)
      : store_(store),
        options_(options),
        clock_(clock),
        random_(seed),
        name_space_(random_namespace(random_)) {}

  StoreCheckReport run() {
    if (take_memory() && connect() && keep_the_contract()) measure();
    look_at_state();
    clean_up();
    return std::move(report_);
  }

 private:
  ObjectKey key(uint32_t number) const {
    BlockKey block;
    std::memcpy(block.bytes.data(), &number, sizeof number);
    return ObjectKey(name_space_, GroupId(0), Slice{}, block);
  }

  std::span<std::byte> source(size_t bytes) { return arena_->memory().first(bytes); }
  std::span<std::byte> target(size_t bytes) { return arena_->memory().last(bytes); }

  bool is_stopped() {
    if (options_.stop != nullptr && options_.stop->load()) report_.stopped = true;
    return report_.stopped;
  }

  bool passed(std::string name, std::string result) {
    report_.steps.push_back({std::move(name), std::move(result), false});
    return true;
  }
  // Nothing that was still waited for has failed when somebody asks for the end.
  bool failed(std::string name, std::string result) {
    if (is_stopped()) return false;
    report_.steps.push_back({std::move(name), std::move(result), true});
    return false;
  }

  // What a code means for whoever looks for the fault.
  std::string explain(Code code) const {
    const std::string state = store_.state() == "ok" ? "" : ": " + store_.state();
    switch (code) {
      case Code::kTimeout:
        return "no answer within " + format_duration(options_.deadline) + state +
               "; the service hangs, or the network to it is slow or cut";
      case Code::kUnavailable:
        return "the store cannot be used" + state;
      case Code::kNoSpace:
        return "the store has no room; nobody gives it memory, all of it is held by what was read "
               "a moment ago, or the object is too large for it";
      case Code::kNotFound:
        return "an object is gone that was there a moment ago; the pool is very small, or the "
               "memory of its owner was just lost";
      case Code::kInvalid:
        return "an object has another length than it was put with; somebody else writes under "
               "our keys";
      default:
        return "it answers '" + std::string(to_string(code)) + "'" + state;
    }
  }

  // Timeout: the store let the deadline pass and kept the memory, or somebody asked for the end.
  Codes wait(const Result<StoreRequestId>& id) {
    return wait_until(id, clock_.now() + options_.deadline + kLetGo,
                      [this] { return is_stopped(); });
  }

  template <typename Gives>
  Codes wait_until(const Result<StoreRequestId>& id, TimePoint limit, Gives gives_up) {
    if (!id) return {id.code()};
    std::vector<StoreCompletion> completions;
    while (clock_.now() < limit && !gives_up()) {
      completions.clear();
      store_.poll(&completions);
      for (StoreCompletion& completion : completions) {
        if (completion.id == *id) return std::move(completion.codes);
      }
      pollfd source{.fd = store_.completion_fd(), .events = POLLIN, .revents = 0};
      constexpr int kLookMs = 100;
      if (source.fd >= 0) ::poll(&source, 1, kLookMs);
    }
    left_open_ = id;
    return {Code::kTimeout};
  }

  TimePoint deadline() const { return clock_.now() + options_.deadline; }

  // The first code that is not `expected`.
  static Code first_other(const Codes& codes, Code expected) {
    const auto other =
        std::find_if(codes.begin(), codes.end(), [&](Code code) { return code != expected; });
    return other == codes.end() ? expected : *other;
  }

  std::vector<StorePutItem> puts(uint32_t count, uint64_t bytes, bool replace = false) {
    std::vector<StorePutItem> items;
    for (uint32_t i = 0; i < count; ++i) {
      items.push_back({key(i), {source(count * bytes).subspan(i * bytes, bytes)}, replace});
    }
    return items;
  }
  std::vector<StoreGetItem> gets(uint32_t count, uint64_t bytes) {
    std::vector<StoreGetItem> items;
    for (uint32_t i = 0; i < count; ++i) {
      items.push_back({key(i), {target(count * bytes).subspan(i * bytes, bytes)}});
    }
    return items;
  }
  std::vector<ObjectKey> keys(uint32_t count) const {
    std::vector<ObjectKey> keys;
    for (uint32_t i = 0; i < count; ++i) keys.push_back(key(i));
    return keys;
  }

  uint32_t count_of(uint64_t bytes) const {
    return static_cast<uint32_t>(std::max<uint64_t>(1, options_.batch_bytes / bytes));
  }

  bool take_memory() {
    uint64_t bytes = 4096;
    for (uint64_t size : options_.sizes) bytes = std::max(bytes, size * count_of(size));
    ArenaOptions arena;
    if (store_.wants_shared_memory()) arena.kind = ArenaKind::kMemfd;
    arena.prefault = true;
    Result<std::unique_ptr<Arena>> made = Arena::create(2 * bytes, arena);
    if (!made) return failed("memory", made.error().message());
    arena_ = *std::move(made);
    const Status registered = arena_->fd() < 0
                                  ? store_.register_memory(arena_->memory())
                                  : store_.register_shared_memory(arena_->memory(), arena_->fd());
    if (!registered) return failed("memory", registered.error().message());
    fill(source(bytes), random_);
    return true;
  }

  bool connect() {
    const TimePoint begun = clock_.now();
    const Code code = first_other(wait(store_.submit_exists(keys(1), deadline())), Code::kNotFound);
    if (code != Code::kNotFound) return failed("connect", explain(code));
    return passed("connect", format_duration(clock_.now() - begun));
  }

  bool keep_the_contract() {
    constexpr uint64_t kBytes = 4096;
    has_put_ = true;
    Code code = first_other(wait(store_.submit_put(puts(1, kBytes), deadline())), Code::kOk);
    if (code != Code::kOk) return failed("put", explain(code));
    passed("put", "ok");
    if (!get_and_compare(1, kBytes)) return false;
    passed("get", "the bytes that were put");
    code = first_other(wait(store_.submit_exists(keys(1), deadline())), Code::kOk);
    if (code != Code::kOk) return failed("exists", explain(code));
    passed("exists", "ok");
    fill(source(kBytes), random_);
    code = first_other(wait(store_.submit_put(puts(1, kBytes, true), deadline())), Code::kOk);
    if (code != Code::kOk) return failed("replace", explain(code));
    if (!get_and_compare(1, kBytes)) return false;
    passed("replace", "the new bytes");
    code = first_other(wait(store_.submit_remove(keys(1), deadline())), Code::kOk);
    if (code != Code::kOk) return failed("remove", explain(code));
    code = first_other(wait(store_.submit_exists(keys(1), deadline())), Code::kNotFound);
    if (code != Code::kNotFound) return failed("remove", "the object is still there");
    return passed("remove", "ok");
  }

  bool get_and_compare(uint32_t count, uint64_t bytes) {
    const Code code =
        first_other(wait(store_.submit_get(gets(count, bytes), deadline())), Code::kOk);
    if (code != Code::kOk) return failed("get", explain(code));
    return compare(count * bytes);
  }

  bool compare(uint64_t bytes) {
    if (std::memcmp(source(bytes).data(), target(bytes).data(), bytes) == 0) return true;
    return failed("get",
                  "other bytes came back than were put; Tiercel would count them as a miss, but "
                  "something between here and the store damages what it carries");
  }

  void measure() {
    for (uint64_t bytes : options_.sizes) {
      const uint32_t count = count_of(bytes);
      std::vector<Duration> put;
      std::vector<Duration> exists;
      std::vector<Duration> get;
      uint64_t local_before = 0;
      for (uint32_t round = 0; round <= options_.rounds && !is_stopped(); ++round) {
        const TimePoint begun = clock_.now();
        Code code = first_other(wait(store_.submit_put(puts(count, bytes), deadline())), Code::kOk);
        const TimePoint written = clock_.now();
        if (code != Code::kOk) return give_up("put", bytes, code);
        code = first_other(wait(store_.submit_exists(keys(count), deadline())), Code::kOk);
        const TimePoint asked = clock_.now();
        if (code != Code::kOk) return give_up("exists", bytes, code);
        code = first_other(wait(store_.submit_get(gets(count, bytes), deadline())), Code::kOk);
        const TimePoint read = clock_.now();
        if (code != Code::kOk) return give_up("get", bytes, code);
        if (!compare(count * bytes)) return;
        code = first_other(wait(store_.submit_remove(keys(count), deadline())), Code::kOk);
        if (code != Code::kOk) return give_up("remove", bytes, code);
        if (round == 0) {
          local_before = store_.stats().local_hits;
          continue;
        }
        put.push_back(written - begun);
        exists.push_back(asked - written);
        get.push_back(read - asked);
      }
      if (put.empty()) return;
      const auto local = static_cast<double>(store_.stats().local_hits - local_before);
      report_.speeds.push_back({bytes, count, median(put), median(exists), median(get),
                                local / static_cast<double>(count * get.size())});
    }
  }

  void give_up(std::string_view call, uint64_t bytes, Code code) {
    failed(fmt::format("{} of {}", call, format_bytes(bytes)), explain(code));
  }

  // What is not right though everything works, such as a log that cannot be written.
  void look_at_state() {
    const std::string state = store_.state();
    if (!report_.failed() && !is_stopped() && state != "ok") passed("state", state);
  }

  // As far as the store lets us. Whoever has asked for the end may still have put something.
  void clean_up() {
    const Duration allowed =
        is_stopped() ? std::min(kLastWords, options_.deadline) : options_.deadline;
    const TimePoint limit = clock_.now() + allowed;
    if (has_put_) {
      // A put that is still on its way would come after the removal.
      wait_until(left_open_, limit, [] { return false; });
      const auto id = store_.submit_clear(object_key_prefix(name_space_), limit);
      static_cast<void>(wait_until(id, limit + kLastWords, [] { return false; }));
    }
    static_cast<void>(store_.close(clock_.now() + allowed).has_value());
  }

  Store& store_;
  const StoreCheckOptions& options_;
  const Clock& clock_;
  Random random_;
  const Namespace name_space_;
  std::unique_ptr<Arena> arena_;
  StoreCheckReport report_;
  bool has_put_ = false;
  // What was given up.
  Result<StoreRequestId> left_open_ = Error(Code::kNotFound, "nothing is open");
};

}  // namespace

StoreCheckReport check_store(Store& store, const StoreCheckOptions& options, const Clock& clock,
                             uint64_t seed) {
  return Checker(store, options, clock, seed).run();
}

}  // namespace tiercel
