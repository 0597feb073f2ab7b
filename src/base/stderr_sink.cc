// SPDX-License-Identifier: Apache-2.0
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "base/log.h"

namespace tiercel {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// An own spdlog logger, not one of spdlog's global registry, which belongs to the application.
class StderrSink final : public LogSink {
 public:
  StderrSink() : logger_("tiercel", std::make_shared<spdlog::sinks::stderr_sink_st>()) {
    logger_.set_level(spdlog::level::debug);
    logger_.flush_on(spdlog::level::debug);
    logger_.set_pattern("%Y-%m-%dT%H:%M:%S.%e %l tiercel: %v");
    // A closed standard error must not disturb: spdlog would else print its complaint there.
    logger_.set_error_handler([](const std::string&) {});
  }

  void write(LogLevel level, std::string_view line) override {
    logger_.log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
  }

 private:
  spdlog::logger logger_;
};

}  // namespace

std::unique_ptr<LogSink> make_stderr_sink() { return std::make_unique<StderrSink>(); }

}  // namespace tiercel
