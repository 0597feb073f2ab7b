// SPDX-License-Identifier: Apache-2.0
#include "store/mooncake/mooncake_options.h"

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "base/random.h"
#include "store/registry.h"

namespace tiercel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What a URL says, as the registry hands it to the store.
Result<MooncakeOptions> read(const std::string& url) {
  std::optional<Result<MooncakeOptions>> options;
  StoreInfo info;
  info.scheme = "mooncake";
  info.summary = "Notes its options";
  info.options = mooncake_option_table();
  info.open = [&](const StoreUrl& parsed, const StoreContext&) -> Result<std::unique_ptr<Store>> {
    options = read_mooncake_options(parsed);
    return Error(Code::kUnavailable, "only noted");
  };
  StoreRegistry registry;
  registry.add(std::move(info));
  const SystemClock clock;
  const Result<std::unique_ptr<Store>> store = registry.open(url, {clock});
  return options ? *options : store.error();
}

void expect_refused(const std::string& url, std::string_view part) {
  const Result<MooncakeOptions> options = read(url);
  ASSERT_FALSE(options) << url;
  EXPECT_EQ(options.code(), Code::kInvalid) << url;
  EXPECT_NE(options.error().message().find(part), std::string::npos) << options.error().message();
  EXPECT_NE(options.error().message().find("allowed"), std::string::npos)
      << "it does not say what is: " << options.error().message();
}

TEST(MooncakeOptions, TheMasterIsHostAndPort) {
  for (const char* master : {"127.0.0.1:50051", "master:1", "a.b-c.example:65535", "[::1]:50051",
                             "[2001:db8::10:2]:7", "[::ffff:10.0.0.1]:7"}) {
    for (const std::string& url :
         {std::string("mooncake://") + master, std::string("mooncake:") + master,
          std::string("mooncake://") + master + "/"}) {
      const Result<MooncakeOptions> options = read(url);
      ASSERT_TRUE(options) << url << ": " << options.error().message();
      EXPECT_EQ(options->master, master);
    }
  }
  EXPECT_TRUE(read("mooncake://[fe80::1%25eth0]:7"));
}

TEST(MooncakeOptions, RefusesWhatIsNoAddress) {
  for (const char* master : {"",
                             "//",
                             "//host",
                             "//host:",
                             "//:1",
                             "//host:0",
                             "//host:65536",
                             "//host:-1",
                             "//host:1x",
                             "//host:%201",
                             "//host:1:2",
                             "//::1:1",
                             "//[::1:1",
                             "//::1]:1",
                             "//[]:1",
                             "//[::1]",
                             "//[:1",
                             "//]:1",
                             "//[::1]x:1",
                             "//x[::1]:1",
                             "//[host]:1",
                             "//[1.2.3.4]:1",
                             "//[::g]:1",
                             "//a/b:1",
                             "//user@host:1",
                             "//[::1%25]:1",
                             "//[[::1]]:1"}) {
    const Result<MooncakeOptions> options = read(std::string("mooncake:") + master);
    ASSERT_FALSE(options) << master;
    EXPECT_NE(options.error().message().find("not of the form host:port"), std::string::npos)
        << options.error().message();
  }
}

// Mooncake's clients look such masters up; ours would have to watch them too.
TEST(MooncakeOptions, RefusesMastersWithHighAvailabilityInWords) {
  for (const char* url : {"mooncake:etcd://10.0.0.1:2379", "mooncake://etcd://10.0.0.1:2379",
                          "mooncake:redis://10.0.0.1:6379", "mooncake:k8s://name:1"}) {
    expect_refused(url, "high availability");
  }
}

TEST(MooncakeOptions, RefusesTextThatDoesNotReachMooncakeAsItIs) {
  for (const char* option : {"host", "metadata", "protocol", "device"}) {
    for (const char* text : {"%FF", "a%0Ab", "%C3%A4", "%7F"}) {
      expect_refused("mooncake://h:1?" + std::string(option) + "=" + text,
                     std::string(option) + " '");
    }
  }
  expect_refused("mooncake://m%C3%BCller:1", "the master '");
  expect_refused("mooncake://a%0Ab:1", "the master '");
  EXPECT_TRUE(read("mooncake://h:1?log=/tmp/%FF")) << "a path is of bytes";
}

TEST(MooncakeOptions, RefusesAPythonThatDependsOnTheFolder) {
  for (const char* python : {"python3", "bin/python3", "./python3", "~/python3"}) {
    expect_refused("mooncake://h:1?python=" + std::string(python), "not an absolute path");
  }
  EXPECT_EQ(read("mooncake://h:1?python=/a/python3").value().python, "/a/python3");
}

TEST(MooncakeOptions, WithoutOptionsTheDefaultsHold) {
  const MooncakeOptions options = read("mooncake://h:1").value();
  EXPECT_EQ(options.python, default_mooncake_python());
  EXPECT_EQ(options.host, "");
  EXPECT_EQ(options.metadata, "P2PHANDSHAKE");
  EXPECT_EQ(options.protocol, "tcp");
  EXPECT_EQ(options.device, "");
  EXPECT_EQ(options.replicas, 1U);
  EXPECT_FALSE(options.soft_pin);
  EXPECT_FALSE(options.connection_pool);
  EXPECT_EQ(options.threads, 4U);
  EXPECT_EQ(options.buffer_bytes, uint64_t{64} << 20);
  EXPECT_TRUE(options.populate);
  EXPECT_EQ(options.start_timeout, seconds(30));
  EXPECT_EQ(options.stuck_after, seconds(15));
  EXPECT_EQ(options.log_path, "");
}

TEST(MooncakeOptions, EachOptionGoesWhereItBelongs) {
  const MooncakeOptions options =
      read(
          "mooncake://h:1?python=/p&host=10.0.0.7&metadata=http://m:8080/metadata&protocol=rdma"
          "&device=mlx5_0,mlx5_1&replicas=3&soft_pin=true&connection_pool=on&threads=7"
          "&buffer_bytes=5MiB&populate=no&start_timeout=2s&stuck_after=30ms&log=/l")
          .value();
  EXPECT_EQ(options.python, "/p");
  EXPECT_EQ(options.host, "10.0.0.7");
  EXPECT_EQ(options.metadata, "http://m:8080/metadata");
  EXPECT_EQ(options.protocol, "rdma");
  EXPECT_EQ(options.device, "mlx5_0,mlx5_1");
  EXPECT_EQ(options.replicas, 3U);
  EXPECT_TRUE(options.soft_pin);
  EXPECT_TRUE(options.connection_pool);
  EXPECT_EQ(options.threads, 7U);
  EXPECT_EQ(options.buffer_bytes, uint64_t{5} << 20);
  EXPECT_FALSE(options.populate);
  EXPECT_EQ(options.start_timeout, seconds(2));
  EXPECT_EQ(options.stuck_after, milliseconds(30));
  EXPECT_EQ(options.log_path, "/l");
}

TEST(MooncakeOptions, RefusesValuesOutOfRange) {
  for (const char* option :
       {"replicas=0", "replicas=17", "threads=1", "threads=33", "buffer_bytes=1KiB",
        "start_timeout=10ms", "stuck_after=1ms", "stuck_after=2h", "soft_pin=maybe"}) {
    expect_refused(std::string("mooncake://h:1?") + option, "");
  }
}

// Whatever stands in a path or in a value, the answer is options or words, and what is taken can be
// written in lines.
TEST(MooncakeOptions, AnyTextIsTakenOrRefusedInWords) {
  Random random(7);
  const std::string letters = "ab01:[]/%@.-_?&= \t\n\x7f\xc3\xa4\xff";
  int taken = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    const uint64_t size = random.below(12);
    for (uint64_t i = 0; i < size; ++i) text += letters[random.below(letters.size())];
    if (random.chance(0.5)) text += ":1";
    const Result<MooncakeOptions> options =
        read(random.chance(0.7) ? "mooncake://" + text : "mooncake://h:1?host=" + text);
    if (!options) {
      EXPECT_FALSE(options.error().message().empty());
      continue;
    }
    ++taken;
    for (const std::string& line : {options->master, options->host}) {
      for (const char c : line) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << line;
    }
  }
  EXPECT_GT(taken, 100);
}

}  // namespace
}  // namespace tiercel
