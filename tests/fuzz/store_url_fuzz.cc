// SPDX-License-Identifier: Apache-2.0
//
// Store URLs, of the stores that reach for nothing outside this process: any text is refused with
// words that name it, or opens a store that takes an object and closes.
#include <array>
#include <vector>

#include "base/manual_clock.h"
#include "fuzz_target.h"
#include "store/registry.h"

namespace tiercel::fuzz {
namespace {

// Other schemes might touch files or the network.
bool is_harmless(std::string_view url) {
  const std::string_view head = url.substr(0, url.find(':'));
  const std::string_view scheme = head.substr(head.rfind('+') + 1);
  return head.size() == url.size() || scheme.empty() || scheme.starts_with("memor");
}

void use(Store& store, ManualClock& clock) {
  const std::array<ObjectKey, 1> keys = {ObjectKey(Namespace{}, GroupId(0), Slice{}, BlockKey{})};
  const TimePoint deadline = clock.now() + std::chrono::seconds(1);
  std::array<std::byte, 16> payload{};
  std::array<StorePutItem, 1> put{};
  put[0].key = keys[0];
  put[0].spans[0] = payload;
  size_t submitted = 0;
  if (store.submit_put(put, deadline)) ++submitted;
  if (store.submit_exists(keys, deadline)) ++submitted;
  clock.advance(std::chrono::seconds(2));
  std::vector<StoreCompletion> completions;
  store.poll(&completions);
  require(store.close(clock.now() + std::chrono::seconds(1)).has_value(), "a store closes");
  store.poll(&completions);
  require(completions.size() == submitted, "what was submitted completes once");
  for (const StoreCompletion& completion : completions) {
    require(completion.codes.size() == 1, "a completion has a code per item");
  }
}

}  // namespace
}  // namespace tiercel::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tiercel;  // NOLINT: the one function of this program
  const std::string_view url = fuzz::Input({data, size}).rest();
  if (!fuzz::is_harmless(url)) return 0;
  StoreRegistry registry;
  register_all_stores(registry);
  ManualClock clock;
  const auto store = registry.open(url, StoreContext{clock});
  if (store) {
    fuzz::use(**store, clock);
    return 0;
  }
  fuzz::require(store.code() == Code::kInvalid, "what is no store URL is invalid");
  fuzz::require(!store.error().message().empty(), "an error says what is wrong");
  return 0;
}
