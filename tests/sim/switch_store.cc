// SPDX-License-Identifier: Apache-2.0
#include "switch_store.h"

#include <string>

namespace tiercel::sim {

size_t SwitchStore::poll(std::vector<StoreCompletion>* completions) {
  const size_t before = completions->size();
  for (uint64_t handle = 0; handle < handles_.size(); ++handle) {
    const size_t first = completions->size();
    handles_[handle]->poll(completions);
    for (size_t i = first; i < completions->size(); ++i) {
      StoreCompletion& completion = (*completions)[i];
      completion.id = StoreRequestId(completion.id.value() * 2 + handle);
      --state_.outstanding;
      --outstanding_;
      if (handle == 0) continue;
      for (const Code code : completion.codes) {
        ++state_.codes["store.faulty." + std::string(to_string(code))];
      }
    }
  }
  return completions->size() - before;
}

Status SwitchStore::register_memory(std::span<std::byte> memory) {
  for (const auto& handle : handles_) TIERCEL_TRY(handle->register_memory(memory));
  return {};
}

Status SwitchStore::close(TimePoint deadline) {
  Status first = handles_[0]->close(deadline);
  Status second = handles_[1]->close(deadline);
  return first ? std::move(second) : std::move(first);
}

Result<StoreRequestId> SwitchStore::started(Result<StoreRequestId> id) {
  if (!id) return id;
  ++state_.outstanding;
  ++outstanding_;
  return StoreRequestId(id->value() * 2 + (state_.faulty ? 1 : 0));
}

}  // namespace tiercel::sim
