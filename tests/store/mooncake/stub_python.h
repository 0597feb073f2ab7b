// SPDX-License-Identifier: Apache-2.0
//
// A Python with a package `mooncake` of the test's own, and a port that stands for its master: what
// Mooncake cannot be asked to do at a chosen moment (crash, hang, refuse), the stub does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/file_descriptor.h"
#include "support/temp_folder.h"

namespace tiercel::testing {

// A store that keeps its objects in the sidecar's memory. A segment is mapped, and has at its
// beginning whatever was put by put_from; the file `base` says where. The sidecar finds nothing in
// it unless batch_get_replica_desc is changed.
inline constexpr const char* kStubStore = R"PY(
import ctypes, itertools, mmap, os, signal, sys, time, types
DATA = {}
BASE = os.path.join(os.path.dirname(__file__), "base")
def replica(address, size, endpoint="stub:2", status="COMPLETE"):
    place = types.SimpleNamespace(
        buffer_address=address, size=size, transport_endpoint=endpoint)
    return types.SimpleNamespace(
        status=types.SimpleNamespace(name=status), is_memory_replica=lambda: True,
        get_memory_descriptor=lambda: types.SimpleNamespace(buffer_descriptor=place))
class ReplicateConfig:
    pass
class MooncakeDistributedStore:
    def setup(self, *arguments):
        return 0
    def get_hostname(self):
        return "stub:1"
    def register_buffer(self, address, size):
        return 0
    def unregister_buffer(self, address):
        return 0
    def mount_segment(self, path, size, offset, protocol, location):
        with open(path, "r+b") as file:
            self.segment = mmap.mmap(file.fileno(), size)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.segment))
        with open(BASE + ".new", "w") as file:
            file.write(str(self.base))
        os.rename(BASE + ".new", BASE)
        return {"ret": 0, "segment_ids": ["stub"]}
    def unmount_segment(self, ids):
        return 0
    def put_from(self, key, address, size, config):
        ctypes.memmove(self.base, address, size)
        self.size = size
        return 0
    def get_replica_desc(self, key):
        return [replica(self.base, self.size)]
    def remove(self, key, force):
        return 0
    def batch_get_replica_desc(self, keys):
        return {}
    def batch_is_exist(self, keys):
        return [int(key in DATA) for key in keys]
    def batch_get_into(self, keys, addresses, lengths):
        return self.batch_get_into_multi_buffers(
            keys, [[a] for a in addresses], [[n] for n in lengths])
    def batch_get_into_multi_buffers(self, keys, addresses, lengths):
        codes = []
        for key, places, sizes in zip(keys, addresses, lengths):
            value = DATA.get(key)
            if value is None or len(value) > sum(sizes):
                codes.append(-704 if value is None else -600)
                continue
            offset = 0
            for place, size in zip(places, sizes):
                piece = value[offset:offset + size]
                ctypes.memmove(place, piece, len(piece))
                offset += size
            codes.append(len(value))
        return codes
    def batch_put_session_start(self, keys, sizes, config):
        return [-705 if key in DATA else 0 for key in keys]
    def batch_put_from_multi_buffer_ranges(self, keys, addresses, lengths, offsets):
        for key, places, sizes in zip(keys, addresses, lengths):
            DATA[key] = b"".join(ctypes.string_at(p, n) for p, n in zip(places, sizes))
        return [sum(sizes) for sizes in lengths]
    def batch_put_session_end(self, keys):
        return [0] * len(keys)
    def batch_put_session_revoke(self, keys):
        return [0] * len(keys)
    def upsert_from(self, key, address, size, config):
        DATA[key] = ctypes.string_at(address, size)
        return 0
    def batch_remove(self, keys, force):
        return [0 if DATA.pop(key, None) is not None else -704 for key in keys]
    def remove_by_regex(self, regex, force):
        return 0
    def get_size(self, key):
        return len(DATA[key]) if key in DATA else -704
)PY";

class StubPython {
 public:
  // `changes` are lines in the class body, after the usual ones; without a `version` the package
  // has no metadata.
  explicit StubPython(const std::string& changes = "", const std::string& version = "") {
    make(kStubStore + changes, version);
  }
  // `text` is the whole module mooncake.store.
  struct Module {
    std::string text;
  };
  explicit StubPython(const Module& module) { make(module.text, ""); }

  const std::string& path() const { return path_; }

  // A URL for this Python and a port at which somebody listens and says nothing.
  std::string url(const std::string& options = "") const {
    return "mooncake://127.0.0.1:" + std::to_string(port_) + "?python=" + path_ +
           (options.empty() ? "" : "&" + options);
  }

 private:
  void make(const std::string& store, const std::string& version) {
    std::filesystem::create_directories(folder_.path("mooncake"));
    folder_.write("mooncake/__init__.py", "");
    folder_.write("mooncake/store.py", store);
    path_ = folder_.write("python3",
                          "#!/bin/sh\nshift\nshift\n"
                          "exec python3 -c \"import sys; sys.path.insert(0, '" +
                              folder_.path("") + "'); exec(sys.argv[1])\" \"$@\"\n");
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
    if (!version.empty()) {
      std::filesystem::create_directories(folder_.path("stub.dist-info"));
      folder_.write("stub.dist-info/METADATA",
                    "Metadata-Version: 2.1\nName: mooncake-transfer-engine-non-cuda\nVersion: " +
                        version + "\n");
    }
    listen();
  }

  void listen() {
    listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const place = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    ASSERT_EQ(::bind(listener_.get(), place, size), 0);
    ASSERT_EQ(::listen(listener_.get(), 64), 0);
    ASSERT_EQ(::getsockname(listener_.get(), place, &size), 0);
    port_ = ntohs(address.sin_port);
  }

  TempFolder folder_;
  std::string path_;
  FileDescriptor listener_;
  uint16_t port_ = 0;
};

}  // namespace tiercel::testing
