// SPDX-License-Identifier: Apache-2.0
//
// RankSession: makes the calling process the host of one rank worker. For an engine whose device
// memory no other process can map: each of its workers joins the control plane of its instance and
// runs the rank in a thread of its own.
//
//   RankParts parts;
//   parts.rank = my_rank;
//   parts.device_memory = {{blocks, block_count * payload_bytes}};
//   auto session = RankSession::join("/run/engine/tiercel/main.sock", std::move(parts));
//   std::thread worker([&] { status = (*session)->run(); });
//   ...
//   (*session)->stop();
//   worker.join();
//
// What the two processes share: a channel of two rings, the host memory of this rank, and a socket
// that is a life line in both directions. All of it is checked on arrival; addresses never travel.
// Nothing of the process is touched beside this: no signal handlers, no threads, no environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/key.h"
#include "tiercel/status.h"
#include "tiercel/store.h"
#include "tiercel/transfer.h"

namespace tiercel {

class DeviceCopier;

// What this process brings along.
struct RankParts {
  uint32_t rank = 0;
  // The device in its plainest form, one span per group, block i at i × payload bytes. The engine
  // owns the memory; it must outlive the session.
  std::vector<std::span<std::byte>> device_memory;
  // Any other layout; stands in for device_memory, is borrowed and must outlive the session. Called
  // by the thread that is in run().
  DeviceCopier* copier = nullptr;
  // Null: the store that the control plane names by its URL, if it names one.
  std::unique_ptr<Store> store;
  // Refuse a control plane with another namespace; nothing: any will do.
  std::optional<Namespace> name_space;
  // For each step of joining: to connect, and to be welcomed.
  Duration step_timeout = std::chrono::seconds(10);
  bool huge_pages = true;  // for the mapping of the host memory
  // Deadlines of operations are in its time; null: the system's, which all processes share. Must
  // outlive the session.
  const Clock* clock = nullptr;
};

// Ownership: owns the worker, its store, and this side of all that is shared.
// Threads:   run() on one thread, once; stop() and stats() from any. Destroy once run() has
// returned:
//            the destructor unmaps the host memory and hangs up, and until then the control plane
//            keeps in quarantine what the rank had under way.
class RankSession {
 public:
  // Joins the control plane behind `socket_path`. kInvalid if either side refuses the other
  // (protocol version, user, rank, namespace, sizes of the device): trying again never helps.
  // kUnavailable if nobody listens there, kBusy if the rank has a host already, kTimeout with the
  // step that took too long, kNoSpace if memory or descriptors are missing: try again later.
  static Result<std::unique_ptr<RankSession>> join(const std::string& socket_path, RankParts parts);
  virtual ~RankSession() = default;

  // Executes jobs until the control plane closes (ok), stop() is called (kCancelled), the control
  // plane is gone (kUnavailable: join again once there is a new one) or breaks the protocol
  // (kCorrupt). kTimeout if it closed and the store still holds on; then destroy the session, which
  // leaves it to the store's destructor. In every case nothing is copied any more.
  virtual Status run() = 0;

  // Makes run() end soon, also if it has not begun.
  virtual void stop() = 0;

  virtual uint32_t rank() const = 0;
  virtual RankStats stats() const = 0;
};

}  // namespace tiercel
