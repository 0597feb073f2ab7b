// SPDX-License-Identifier: Apache-2.0
#include "base/fork_guard.h"

#include <string>

#include <sys/mman.h>
#include <unistd.h>

namespace tiercel {
namespace {

// The kernel rounds it up to a page.
constexpr size_t kWipedBytes = 1;

// Null if there is no memory that is wiped in a child.
char* map_wiped_on_fork() {
  void* const page =
      ::mmap(nullptr, kWipedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
#ifdef MADV_WIPEONFORK
  if (::madvise(page, kWipedBytes, MADV_WIPEONFORK) == 0) return static_cast<char*>(page);
#endif
  ::munmap(page, kWipedBytes);
  return nullptr;
}

}  // namespace

ForkGuard::ForkGuard() : maker_(::getpid()) {
  char* const page = map_wiped_on_fork();
  if (page != nullptr) *page = 1;
  page_ = page;
}

ForkGuard::~ForkGuard() {
  if (page_ != nullptr) ::munmap(const_cast<char*>(page_), kWipedBytes);
}

bool ForkGuard::is_inherited() const {
  return page_ != nullptr ? *page_ == 0 : ::getpid() != maker_;
}

Status ForkGuard::check(std::string_view what) const {
  if (!is_inherited()) return {};
  return Error(Code::kUnavailable,
               std::string(what) + " was made by process " + std::to_string(maker_) +
                   " and cannot be used in process " + std::to_string(::getpid()) +
                   ", which was forked off from it; make another one here, after the fork");
}

}  // namespace tiercel
