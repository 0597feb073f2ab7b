// SPDX-License-Identifier: Apache-2.0
//
// What a `mooncake:` URL says.
#pragma once

#include <cstdint>
#include <string>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "base/option_table.h"

namespace tiercel {

struct StoreUrl;

struct MooncakeOptions {
  std::string master;  // host:port
  std::string python;  // path of the Python that has the package
  std::string host;    // by which peers know this client; empty: its address towards the master
  std::string metadata;
  std::string protocol;
  std::string device;
  uint32_t replicas = 1;
  bool soft_pin = false;
  bool connection_pool = false;
  uint64_t segment_bytes = 0;  // of this node's memory that is given to the pool; 0: none
  std::string segment_socket;  // where it is offered or had; empty: nowhere
  bool prefer_local = true;    // puts go there as long as there is room
  uint32_t threads = 4;        // requests that the sidecar works on at once
  uint64_t buffer_bytes = 0;   // for objects in memory that the sidecar cannot map
  bool populate = true;        // pages of shared memory are provided at the start
  Duration start_timeout{0};   // of the sidecar
  Duration stuck_after{0};     // beyond its deadline, until the sidecar is killed
  std::string log_path;        // of the sidecar; empty: none
};

OptionTable mooncake_option_table();
// kInvalid with the URL and what is wrong in it.
Result<MooncakeOptions> read_mooncake_options(const StoreUrl& url);

// Where the package is unless the URL says otherwise; chosen when Tiercel was configured.
std::string default_mooncake_python();

}  // namespace tiercel
