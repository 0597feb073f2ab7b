// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include <fmt/core.h>

#include "base/option_table.h"
#include "cli/replay_report.h"

namespace tiercel {
namespace {

// 1234567 as "1,234,567".
std::string grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t end = digits.size(); end > 3; end -= 3) digits.insert(end - 3, ",");
  return digits;
}

double share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

class Text {
 public:
  void line(std::string_view name, std::string_view value) {
    text_ += fmt::format("  {:<24} {}\n", name, value);
  }
  void heading(std::string_view text) { text_ += fmt::format("{}\n", text); }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void add_hits(const ReplayReport& report, Text& text) {
  const bool any_skipped = report.skipped_lines > 0;
  text.line("requests",
            grouped(report.requests) +
                (any_skipped ? fmt::format("  ({} bad lines skipped, first {})",
                                           grouped(report.skipped_lines), report.first_skipped)
                             : std::string()));
  text.line("blocks", fmt::format("{:>14}  of {} tokens", grouped(report.blocks),
                                  report.options.block_tokens));
  text.line("hit", fmt::format("{:>14}  {:.2f} %", grouped(report.hit_blocks),
                               share(report.hit_blocks, report.blocks)));
  for (const TierReport& tier : report.tiers) {
    text.line("  in " + tier.name, fmt::format("{:>14}  {:.2f} %", grouped(tier.hit_blocks),
                                               share(tier.hit_blocks, report.blocks)));
  }
  text.line("infinite cache", fmt::format("{:>14}  {:.2f} %", grouped(report.ceiling_hit_blocks),
                                          share(report.ceiling_hit_blocks, report.blocks)));
  if (report.optimum_hit_blocks) {
    text.line("offline optimum",
              fmt::format("{:>14}  {:.2f} %", grouped(*report.optimum_hit_blocks),
                          share(*report.optimum_hit_blocks, report.blocks)));
  }
  text.line("tokens not recomputed",
            fmt::format("{:>14}  {:.2f} % of {}", grouped(report.tokens_saved),
                        share(report.tokens_saved, report.tokens), grouped(report.tokens)));
}

void add_paths(const ReplayReport& report, Text& text) {
  if (report.options.metadata_only) {
    text.line("bytes moved", "none (metadata only)");
    return;
  }
  static constexpr struct {
    OpKind kind;
    std::string_view name;
  } kPaths[] = {{OpKind::kLoad, "host to device"},    {OpKind::kSave, "device to host"},
                {OpKind::kDiskGet, "disk to host"},   {OpKind::kDiskPut, "host to disk"},
                {OpKind::kStoreGet, "store to host"}, {OpKind::kStorePut, "host to store"}};
  for (const auto& [kind, name] : kPaths) {
    const PathStats& path = report.paths.path(kind);
    if (path.ops == 0) continue;
    const double rate =
        path.busy_ns == 0 ? 0 : static_cast<double>(path.bytes) / static_cast<double>(path.busy_ns);
    text.line(name, fmt::format("{:>14}  {:.2f} GB/s a rank{}", format_bytes(path.bytes), rate,
                                path.failed == 0
                                    ? std::string()
                                    : fmt::format("  ({} failed, of these {} corrupt)",
                                                  grouped(path.failed), grouped(path.corrupt))));
  }
}

void add_disk(const ReplayReport& report, Text& text) {
  if (!report.options.disk.exists()) return;
  const CacheStats& cache = report.cache;
  text.line("disk tier",
            fmt::format("{:>14}  of {} slots used; {} blocks found at the start{}",
                        grouped(cache.disk_slots_used), grouped(cache.disk_slots_total),
                        grouped(cache.disk_recovered_blocks),
                        cache.disk_unreachable_blocks == 0
                            ? std::string()
                            : fmt::format(", {} without the block before them",
                                          grouped(cache.disk_unreachable_blocks))));
  const uint64_t payload = report.paths.path(OpKind::kDiskPut).bytes;
  if (payload > 0) {
    text.line("write amplification",
              fmt::format("{:>14.3f}  bytes written to the files for each of payload",
                          static_cast<double>(report.paths.disk_written_bytes) /
                              static_cast<double>(payload)));
  }
  if (cache.disk.opened > 0) {
    text.line("disk given up", fmt::format("{:>14}  times; now {}", grouped(cache.disk.opened),
                                           to_string(cache.disk)));
  }
}

// Only when the store has failed: otherwise there is nothing to tell.
void add_store(const ReplayReport& report, Text& text) {
  const StoreHealth& store = report.cache.store;
  const std::vector<std::string>& reasons = report.store_reasons;
  const bool has_failed = std::any_of(reasons.begin(), reasons.end(),
                                      [](const std::string& reason) { return !reason.empty(); });
  if (store.opened == 0 && !has_failed) return;
  text.line("store", fmt::format("{}; given up {} time{}, {} calls refused meanwhile",
                                 to_string(store), grouped(store.opened),
                                 store.opened == 1 ? "" : "s", grouped(store.refused)));
  for (size_t rank = 0; rank < reasons.size(); ++rank) {
    // Ranks mostly share their fate.
    const auto first = std::find(reasons.begin(), reasons.end(), reasons[rank]);
    if (reasons[rank].empty() || first != reasons.begin() + static_cast<std::ptrdiff_t>(rank)) {
      continue;
    }
    text.line(fmt::format("  of rank {}", rank), reasons[rank]);
  }
}

void add_losses(const ReplayReport& report, Text& text) {
  if (report.killed_ranks + report.cache.memory_losses > 0) {
    text.line("ranks lost", fmt::format("{:>14}  {} killed; {} came back, with empty host memory",
                                        grouped(report.cache.memory_losses),
                                        grouped(report.killed_ranks), grouped(report.comebacks())));
  }
  for (size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const RankStatus& status = report.ranks[rank];
    if (status.state == RankState::kUp) continue;
    text.line(fmt::format("  rank {}", rank),
              fmt::format("{} after {} starts: {}",
                          status.is_given_up ? "GIVEN UP" : to_string(status.state), status.starts,
                          status.last_error));
  }
}

void add_check(const ReplayReport& report, Text& text) {
  if (report.options.metadata_only) return;
  if (report.mismatches == 0) {
    text.line("mismatches", fmt::format("{:>14}  every loaded block was compared on every rank",
                                        grouped(report.mismatches)));
  } else {
    text.line("MISMATCHES",
              fmt::format("{:>14}  first: {}", grouped(report.mismatches), report.first_mismatch));
  }
}

void add_cost(const ReplayReport& report, Text& text) {
  const auto times = [](const TimesReport& t) {
    return fmt::format("{:.1f} / {:.1f} / {:.1f} us  (median / 99 % / longest)", t.p50, t.p99,
                       t.max);
  };
  text.line("control per request", times(report.control_us));
  text.line("  of it hashing", times(report.hash_us));
  text.line("index", fmt::format("{:.1f} bytes a block", report.index_bytes_per_block));
  text.line("time", fmt::format("{:.2f} s", report.wall_seconds));
  text.line("peak memory", format_bytes(report.peak_rss_bytes));
}

}  // namespace

std::string to_text(const ReplayReport& report) {
  Text text;
  const ReplayOptions& options = report.options;
  text.heading(fmt::format(
      "{}: {} host blocks{}{}, policy {}, {}{}", escaped_path(options.trace),
      grouped(options.host_blocks),
      options.device_blocks == 0
          ? std::string()
          : fmt::format(", {} device blocks", grouped(options.device_blocks)),
      options.store.empty() ? std::string() : ", store " + escaped_path(options.store),
      options.policy,
      options.metadata_only
          ? std::string("metadata only")
          : fmt::format("{} rank{} with {} a block", options.ranks, options.ranks == 1 ? "" : "s",
                        format_bytes(options.block_bytes)),
      report.complete ? "" : "  (INCOMPLETE)"));
  for (const std::string& note : report.notes) text.heading("  " + note);
  add_hits(report, text);
  add_paths(report, text);
  add_disk(report, text);
  add_store(report, text);
  add_losses(report, text);
  add_check(report, text);
  add_cost(report, text);
  if (!report.failure.empty()) text.line("FAILED", report.failure);
  return text.take();
}

}  // namespace tiercel
