// SPDX-License-Identifier: Apache-2.0
//
// What a rank and its control plane tell each other: handshake messages of any bytes are refused or
// mean what they say; a channel in which the other side has written anything leads nobody astray.
// The first byte chooses whom the input is for.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "base/manual_clock.h"
#include "fuzz_target.h"
#include "transfer/device_copier.h"
#include "transfer/process/messages.h"
#include "transfer/process/outstanding_ops.h"
#include "transfer/rank_channel.h"
#include "transfer/rank_loop.h"
#include "transfer/rank_port.h"
#include "transfer/rank_worker.h"

namespace tiercel::fuzz {
namespace {

constexpr uint32_t kRingOps = 8;
constexpr uint32_t kDeviceBlocks = 2;
constexpr size_t kPayloadBytes = 40;
constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};

std::vector<std::byte> rest_of(Input& input) {
  const std::string_view rest = input.rest();
  const auto bytes = std::as_bytes(std::span(rest));
  return {bytes.begin(), bytes.end()};
}

void check_messages(std::span<const std::byte> bytes) {
  if (const auto hello = decode_hello(bytes)) {
    require(hello->rank < kRankCountMax, "a rank that is accepted can be");
  }
  if (const auto welcome = decode_welcome(bytes)) {
    require(check_welcome(*welcome).has_value(), "what is accepted could have been sent");
    const std::vector<std::byte> again = encode_welcome(*welcome);
    require(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()),
            "what is accepted is sent as it came");
  }
  const Status ready = decode_ready(bytes);
  require(ready || !ready.error().message().empty(), "an error says what is wrong");
}

class Memory {
 public:
  explicit Memory(size_t bytes) : lines_(bytes / kCacheLineBytes + 1) {}
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(lines_)); }

 private:
  struct CacheLine {
    alignas(kCacheLineBytes) std::array<std::byte, kCacheLineBytes> bytes;
  };
  std::vector<CacheLine> lines_;
};

// Writes some bytes of the input somewhere behind the channel's header.
void scribble(Input& input, std::span<std::byte> channel) {
  const size_t begin = kCacheLineBytes * 2;
  const size_t at = begin + input.u16() % (channel.size() - begin);
  const size_t count = std::min<size_t>(input.byte(), channel.size() - at);
  input.fill(channel.subspan(at, count));
}

// The control plane's side: the rank writes what it likes.
void lie_to_control(Input& input) {
  Memory memory(RankChannel::bytes(kRingOps));
  const RankChannel channel =
      RankChannel::format(memory.bytes(), {.ring_ops = kRingOps, .rank = 0, .geometry = {}});
  EventFd wake = EventFd::create().value();
  RankPort port(channel, wake);
  OutstandingOps outstanding(kRingOps);
  uint32_t next_item = 0;
  while (!input.empty()) {
    std::vector<BlockOp> ops(input.byte() % (port.capacity() + 1));
    for (BlockOp& op : ops) op.item = next_item++;
    if (port.submit(ops)) {
      for (const BlockOp& op : ops) outstanding.add(op, TimePoint{});
    }
    scribble(input, memory.bytes());
    std::array<Completion, 3> out;
    const size_t before = port.in_flight();
    const size_t count = port.poll(out);
    require(count <= before, "no more completions than operations");
    require(port.in_flight() == before - count && port.in_flight() <= kRingOps, "counted right");
    for (size_t i = 0; i < count; ++i) {
      static_cast<void>(outstanding.remove(out[i].job, out[i].item));
    }
    const StoreHealth health = port.stats().store;
    require(health.condition <= StoreCondition::kOpen && health.cause <= Code::kInternal,
            "statistics of any bits are statistics");
    port.is_broken();
    // A plane has cut it off by now; what it has given it is the rank's alone to lose.
    if (outstanding.size() != port.in_flight()) return;
  }
}

// The rank's side: the control plane writes what it likes.
void lie_to_rank(Input& input) {
  ManualClock clock;
  const auto geometry = SlotGeometry::for_blocks({{kPayloadBytes}}, 4, 2).value();
  std::vector<std::byte> host(geometry.tier_bytes(0) + 2 * kGuardBytes, kGuard);
  std::vector<std::byte> device(kPayloadBytes * kDeviceBlocks + 2 * kGuardBytes, kGuard);
  const auto inner = [](std::vector<std::byte>& whole) {
    return std::span(whole).subspan(kGuardBytes, whole.size() - 2 * kGuardBytes);
  };
  ContiguousCopier copier = ContiguousCopier::create({{inner(device), kPayloadBytes}}).value();
  RankWorkerOptions options;
  auto worker = RankWorker::create(options, geometry, inner(host), &copier, nullptr, clock).value();
  Memory memory(RankChannel::bytes(kRingOps));
  const RankChannel channel =
      RankChannel::format(memory.bytes(), {.ring_ops = kRingOps, .rank = 0, .geometry = {}});
  EventFd wake = EventFd::create().value();
  EventFd announced = EventFd::create().value();
  RankLoop loop(*worker, channel, wake, Announcer(channel.words().announced, announced), clock);
  while (!input.empty() && !loop.peer_broke()) {
    scribble(input, memory.bytes());
    for (int i = 0; i < 16 && loop.step(); ++i) {
    }
  }
  static_cast<void>(loop.close(clock.now()).has_value());
  for (const auto* whole : {&host, &device}) {
    const std::span<const std::byte> bytes(*whole);
    for (const auto guard : {bytes.first(kGuardBytes), bytes.last(kGuardBytes)}) {
      require(std::all_of(guard.begin(), guard.end(), [](std::byte b) { return b == kGuard; }),
              "nothing is written beside the memory of the rank");
    }
  }
}

// The rank's look at a header of any bytes.
void check_header(Input& input) {
  Memory memory(RankChannel::bytes(kRingOps));
  const ChannelFacts facts{.ring_ops = kRingOps, .rank = 0, .geometry = {}};
  RankChannel::format(memory.bytes(), facts);
  std::vector<std::byte> good(memory.bytes().begin(),
                              memory.bytes().begin() + sizeof(ChannelHeader));
  const size_t at = input.byte() % sizeof(ChannelHeader);
  input.fill(memory.bytes().subspan(at, std::min<size_t>(8, sizeof(ChannelHeader) - at)));
  const bool is_same = std::equal(good.begin(), good.end(), memory.bytes().begin());
  require(RankChannel::open(memory.bytes(), facts).has_value() == is_same,
          "a channel is opened exactly if its header is what was agreed on");
}

}  // namespace
}  // namespace tiercel::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tiercel::fuzz;  // NOLINT: the one function of this program
  Input input({data, size});
  switch (input.byte() % 4) {
    case 0:
      check_messages(rest_of(input));
      break;
    case 1:
      lie_to_control(input);
      break;
    case 2:
      lie_to_rank(input);
      break;
    default:
      check_header(input);
      break;
  }
  return 0;
}
