// SPDX-License-Identifier: Apache-2.0
//
// The rings between control plane and a rank in a process of its own: one operation there and back,
// both sides asleep, against a byte over a Unix socket pair; the same with both sides awake; many
// operations in batches; and what submission costs while the rank's process is stopped.
#include <algorithm>
#include <array>
#include <thread>

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/thread.h"
#include "cli/bench.h"
#include "cli/bench_measure.h"
#include "transfer/process/process_data_plane.h"

namespace tiercel {
namespace {

constexpr double kMicrosecondsPerSecond = 1e6;
constexpr uint32_t kRingOps = 4096;
constexpr uint32_t kBatch = 256;
// Of one run of batches, for each round trip.
constexpr uint32_t kBatchesPerRoundTrip = 1;
constexpr Duration kUpLimit = std::chrono::seconds(20);
constexpr Duration kCloseLimit = std::chrono::seconds(5);
// Longer than a round trip; what a rank may spin.
constexpr Duration kSpin = std::chrono::milliseconds(1);

// A plane with one rank in tiercel-rank that answers everything at once: it has no store, and is
// asked about it.
class RingBench {
 public:
  static Result<std::unique_ptr<RingBench>> open(const Clock& clock, Duration spin) {
    ProcessPlaneOptions options;
    options.ring_ops = kRingOps;
    options.spin = spin;
    TIERCEL_TRY_ASSIGN(options.program, rank_program_beside_this());
    TIERCEL_TRY_ASSIGN(const SlotGeometry geometry, SlotGeometry::for_blocks({{4096}}, 16, 1));
    auto bench = std::unique_ptr<RingBench>(new RingBench(clock));
    TIERCEL_TRY_ASSIGN(bench->plane_, ProcessDataPlane::create(
                                          geometry, std::vector<ProcessRank>(1), clock, options));
    TIERCEL_TRY(bench->plane_->wait_until_up(clock.now() + kUpLimit));
    return bench;
  }

  // Microseconds of each of `count` round trips.
  std::vector<double> round_trips(uint32_t count, bool sleeps) {
    std::vector<double> times;
    times.reserve(count);
    for (uint32_t i = 0; i < count; ++i) {
      times.push_back(kMicrosecondsPerSecond * seconds_of(clock_, [&] { move(1, 1, sleeps); }));
    }
    return times;
  }

  // Operations per second, with as many under way as the ring takes.
  double speed(uint32_t count) {
    return count / seconds_of(clock_, [&] { move(count, kBatch, true); });
  }

  // Microseconds of each submission, with the rank's process stopped: first while its ring has
  // room, then while it has none.
  std::vector<double> submissions_while_stopped(uint32_t count) {
    const auto pid = static_cast<pid_t>(plane_->rank_status(0).pid);
    ::kill(pid, SIGSTOP);
    std::vector<double> times;
    times.reserve(count);
    std::array<BlockOp, 16> ops = {};
    uint32_t taken = 0;
    for (uint32_t i = 0; i < count; ++i) {
      bool is_taken = false;
      for (BlockOp& op : ops) op = question();
      times.push_back(kMicrosecondsPerSecond *
                      seconds_of(clock_, [&] { is_taken = plane_->submit(ops); }));
      if (is_taken) taken += static_cast<uint32_t>(ops.size());
    }
    ::kill(pid, SIGCONT);
    take(taken, true);
    return times;
  }

  Status close() { return plane_->close(clock_.now() + kCloseLimit); }

 private:
  explicit RingBench(const Clock& clock) : clock_(clock) {}

  BlockOp question() {
    BlockOp op;
    op.kind = OpKind::kStoreExists;
    op.job = JobId(1);
    op.item = ++last_item_;
    return op;
  }

  void take(uint32_t count, bool sleeps) {
    std::array<Completion, kBatch> out;
    while (count > 0) {
      const size_t taken = plane_->poll(out);
      count -= std::min(count, static_cast<uint32_t>(taken));
      if (taken == 0 && sleeps) sleep();
    }
  }

  void move(uint32_t count, uint32_t batch, bool sleeps) {
    std::array<Completion, kBatch> out;
    std::array<BlockOp, kBatch> ops = {};
    uint32_t submitted = 0;
    for (uint32_t taken = 0; taken < count;) {
      if (submitted < count && plane_->submit_capacity() >= batch) {
        const uint32_t now = std::min(batch, count - submitted);
        for (uint32_t i = 0; i < now; ++i) ops[i] = question();
        if (plane_->submit(std::span(ops).first(now))) submitted += now;
        if (submitted < count && plane_->submit_capacity() >= batch) continue;
      }
      const auto polled = static_cast<uint32_t>(plane_->poll(out));
      taken += polled;
      if (polled == 0 && sleeps) sleep();
    }
  }

  void sleep() {
    pollfd source{.fd = plane_->completion_fd(), .events = POLLIN, .revents = 0};
    ::poll(&source, 1, -1);
  }

  const Clock& clock_;
  std::unique_ptr<ProcessDataPlane> plane_;
  uint32_t last_item_ = 0;
};

// A thread that sends every byte back, asleep in between.
class EchoThread {
 public:
  static Result<std::unique_ptr<EchoThread>> start() {
    auto echo = std::unique_ptr<EchoThread>(new EchoThread());
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, echo->sockets_.data()) != 0) {
      return Error(Code::kUnavailable, "socket pair could not be made");
    }
    TIERCEL_TRY_ASSIGN(echo->thread_, start_thread("bench-echo", [socket = echo->sockets_[1]] {
                         char byte = 0;
                         while (::read(socket, &byte, 1) == 1 && ::write(socket, &byte, 1) == 1) {
                         }
                       }));
    return echo;
  }
  ~EchoThread() {
    ::close(sockets_[0]);
    if (thread_.joinable()) thread_.join();
    ::close(sockets_[1]);
  }
  EchoThread(const EchoThread&) = delete;
  EchoThread& operator=(const EchoThread&) = delete;

  std::vector<double> round_trips(const Clock& clock, uint32_t count) {
    std::vector<double> times;
    times.reserve(count);
    bool ok = true;
    for (uint32_t i = 0; i < count && ok; ++i) {
      times.push_back(kMicrosecondsPerSecond * seconds_of(clock, [&] {
                        char byte = 0;
                        ok = ::write(sockets_[0], &byte, 1) == 1 &&
                             ::read(sockets_[0], &byte, 1) == 1;
                      }));
    }
    return times;
  }

 private:
  EchoThread() = default;
  std::array<int, 2> sockets_ = {-1, -1};
  std::thread thread_;
};

void add_p99(BenchFigure& figure, const std::vector<double>& p99s) {
  figure.conditions.emplace_back("p99", fmt::format("{:.4g}", spread_of(p99s).median));
}

Status measure_sleeping(const BenchOptions& options, const BenchContext& context,
                        BenchFigures& figures) {
  TIERCEL_TRY_ASSIGN(const auto bench, RingBench::open(context.clock, Duration::zero()));
  TIERCEL_TRY_ASSIGN(const auto echo, EchoThread::start());
  std::vector<double> p99s;
  const Pairs pairs = in_turns(
      options.runs, context,
      [&] {
        const std::vector<double> times = bench->round_trips(options.ring_round_trips, true);
        p99s.push_back(quantile(times, 0.99));
        return quantile(times, 0.5);
      },
      [&] { return quantile(echo->round_trips(context.clock, options.ring_round_trips), 0.5); });
  figures.push_back(paired_figure("ring.round_trip.sleeping", "us", pairs, "at most 50"));
  add_p99(figures.back(), p99s);
  figures.back().conditions.emplace_back("limit_is",
                                         "one byte over a Unix socket pair to a sleeping thread");

  std::vector<double> speeds;
  std::vector<double> submissions;
  const uint32_t ops = options.ring_round_trips * kBatchesPerRoundTrip * kBatch;
  for (uint32_t run = 0; run <= options.runs && !context.stopped(); ++run) {
    const double speed = bench->speed(ops);
    if (run > 0) speeds.push_back(speed / 1e6);
    const auto times = bench->submissions_while_stopped(options.ring_round_trips);
    submissions.insert(submissions.end(), times.begin(), times.end());
  }
  figures.push_back(plain_figure("ring.block_ops", "M/s", speeds, "at least 1"));
  figures.back().conditions.emplace_back("batch", std::to_string(kBatch));
  figures.back().conditions.emplace_back("ring_ops", std::to_string(kRingOps));
  BenchFigure stopped;
  stopped.name = "ring.submit.rank_stopped";
  stopped.value = quantile(submissions, 0.99);
  stopped.unit = "us";
  stopped.value_count = submissions.size();
  stopped.conditions = {{"calls", std::to_string(submissions.size())},
                        {"p50", fmt::format("{:.4g}", quantile(submissions, 0.5))},
                        {"max", fmt::format("{:.4g}", spread_of(submissions).high)},
                        {"batch", "16"},
                        {"reach", "no wait"}};
  figures.push_back(std::move(stopped));
  return bench->close();
}

Status measure_spinning(const BenchOptions& options, const BenchContext& context,
                        BenchFigures& figures) {
  TIERCEL_TRY_ASSIGN(const auto bench, RingBench::open(context.clock, kSpin));
  std::vector<double> p50s;
  std::vector<double> p99s;
  for (uint32_t run = 0; run <= options.runs && !context.stopped(); ++run) {
    const std::vector<double> times = bench->round_trips(options.ring_round_trips, false);
    if (run == 0) continue;
    p50s.push_back(quantile(times, 0.5));
    p99s.push_back(quantile(times, 0.99));
  }
  figures.push_back(plain_figure("ring.round_trip.spinning", "us", p50s, "at most 5"));
  add_p99(figures.back(), p99s);
  return bench->close();
}

}  // namespace

Result<BenchFigures> bench_ring(const BenchOptions& options, const BenchContext& context) {
  BenchFigures figures;
  TIERCEL_TRY(measure_sleeping(options, context, figures));
  if (std::thread::hardware_concurrency() < 2) {
    if (context.note) context.note("ring.round_trip.spinning is left out: one processor only");
    return figures;
  }
  TIERCEL_TRY(measure_spinning(options, context, figures));
  return figures;
}

}  // namespace tiercel
