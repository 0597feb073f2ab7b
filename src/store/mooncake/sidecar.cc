// SPDX-License-Identifier: Apache-2.0
#include "store/mooncake/sidecar.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error_text.h"
#include "base/quantity.h"
#include "base/socket_message.h"
#include "store/mooncake/sidecar_program.h"

namespace tiercel {
namespace {

using mooncake::Answer;
using mooncake::Message;

constexpr Duration kBackoffFirst = std::chrono::milliseconds(100);
constexpr Duration kBackoffMax = std::chrono::seconds(5);
// Requests for memory have ids that no other request has.
constexpr uint64_t kMemoryIds = uint64_t{1} << 63;
// And so have those about the segment; nothing depends on their answer.
constexpr uint64_t kSegmentId = ~uint64_t{0};
constexpr std::string_view kUnreachable = "the sidecar has closed its connection";
// How long one that has closed its connection may take to end: a Python on its way out, whose own
// status says more than that we have killed it.
constexpr Duration kEndGrace = std::chrono::seconds(2);
constexpr std::string_view kPythonHelp =
    "; name the Python that has the package (option python), or install it with "
    "scripts/install-deps --for mooncake";

// The program itself comes as the first messages, one for each module and one for the program, so
// that it is always the one of this library.
std::string bootstrap_text() {
  std::string names;
  for (const mooncake::SidecarModule& module : mooncake::kSidecarModules) {
    names.append("'").append(module.name).append("',");
  }
  return "import socket,sys,types\n"
         "c=socket.socket(fileno=3)\n"
         "def load(name,space):\n"
         "  exec(compile(c.recv(1<<18),'tiercel-mooncake-'+name,'exec'),space)\n"
         "for name in (" +
         names +
         "):\n"
         "  sys.modules[name]=types.ModuleType(name)\n"
         "  load(name,sys.modules[name].__dict__)\n"
         "load('sidecar',{'__name__':'__main__','channel':c})\n";
}
static_assert(kChildSocketFd == 3);

std::string config_text(const MooncakeOptions& options, Sidecar::Role role) {
  std::string text;
  const auto add = [&text](std::string_view name, const std::string& value) {
    text.append(name).append("=").append(value).append("\n");
  };
  add("master", options.master);
  add("host", options.host);
  add("metadata", options.metadata);
  add("protocol", options.protocol);
  add("device", options.device);
  add("replicas", std::to_string(options.replicas));
  add("soft_pin", options.soft_pin ? "1" : "0");
  add("connection_pool", options.connection_pool ? "1" : "0");
  add("role", role == Sidecar::Role::kSegment ? "segment" : "client");
  add("prefer_local", options.prefer_local ? "1" : "0");
  add("threads", std::to_string(options.threads));
  return text;
}

Status watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return Error(Code::kUnavailable, "the sidecar cannot be watched: " + limit_error_text(errno));
}

}  // namespace

Result<std::unique_ptr<Sidecar>> Sidecar::create(MooncakeOptions options, Role role) {
  FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) {
    return Error(Code::kUnavailable, "epoll_create1 failed: " + limit_error_text(errno));
  }
  return std::unique_ptr<Sidecar>(new Sidecar(std::move(options), role, std::move(epoll)));
}

Sidecar::Sidecar(MooncakeOptions options, Role role, FileDescriptor epoll)
    : options_(std::move(options)),
      role_(role),
      epoll_(std::move(epoll)),
      buffer_(mooncake::kAnswerBytesMax) {}

Result<size_t> Sidecar::add_memory(int memfd, uint64_t bytes, bool populate) {
  FileDescriptor copy(::fcntl(memfd, F_DUPFD_CLOEXEC, 0));
  if (!copy) {
    return Error(Code::kUnavailable,
                 "the memory of a Mooncake store cannot be shared: " + limit_error_text(errno));
  }
  memories_.push_back({std::move(copy), bytes, populate, 0, false});
  const size_t index = memories_.size() - 1;
  if (state_ == State::kStarting || state_ == State::kReady) {
    if (Status sent = send_memory(index); !sent) {
      memories_.pop_back();
      return sent.error();
    }
    state_ = State::kStarting;
  }
  return index;
}

Status Sidecar::send_memory(size_t index) {
  const Memory& memory = memories_[index];
  const std::vector<std::byte> message =
      mooncake::encode_map(kMemoryIds + index, memory.bytes, memory.populate);
  const int error = send_socket_message(socket_.get(), message, {{memory.fd.get()}});
  if (error == 0) return {};
  return Error(Code::kUnavailable, "memory cannot be handed to the sidecar: " + error_text(error));
}

Status Sidecar::place_segment(int memfd, uint64_t bytes, mooncake::SegmentPlace place) {
  FileDescriptor copy;
  if (place.base != 0) {
    copy.reset(::fcntl(memfd, F_DUPFD_CLOEXEC, 0));
    if (!copy) {
      return Error(Code::kUnavailable,
                   "the segment of a Mooncake store cannot be shared: " + limit_error_text(errno));
    }
  }
  if (!segment_) segment_ = Segment{};
  segment_->fd = std::move(copy);
  segment_->bytes = bytes;
  segment_->place = std::move(place);
  ++segment_->generation;
  segment_->is_told = false;
  tell_segment();
  return {};
}

void Sidecar::tell_segment() {
  const bool hears = state_ == State::kStarting || state_ == State::kReady;
  if (!hears || !segment_ || segment_->is_told || !socket_) return;
  const std::vector<std::byte> message =
      mooncake::encode_segment(kSegmentId, segment_->generation, segment_->bytes, segment_->place);
  // If it has too much to read now, the next poll() tries again.
  const int fd = segment_->fd.get();
  const std::span<const int> fds(&fd, segment_->fd ? 1 : 0);
  segment_->is_told = send_socket_message(socket_.get(), message, fds) == 0;
}

bool Sidecar::start(TimePoint now) {
  if (state_ != State::kDown) return state_ != State::kEnding;
  if (now < retry_at_) return false;
  ++starts_;
  started_ = now;
  if (Status launched = launch(); !launched) {
    fail(now, launched.error().message());
    return false;
  }
  state_ = State::kStarting;
  if (segment_) segment_->is_told = false;
  tell_segment();
  return true;
}

Status Sidecar::launch() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Error(Code::kUnavailable, "no socket for the sidecar: " + limit_error_text(errno));
  }
  FileDescriptor ours(ends[0]);
  FileDescriptor theirs(ends[1]);
  // Ours only: the sidecar waits when we do not read.
  ::fcntl(ours.get(), F_SETFL, ::fcntl(ours.get(), F_GETFL) | O_NONBLOCK);
  has_spoken_ = false;
  is_up_ = false;
  greeting_.clear();
  killed_at_ = kNoDeadline;
  note_.clear();
  refusal_.clear();
  kill_reason_.clear();
  stage_ = "starting " + options_.python;
  for (Memory& memory : memories_) memory.is_mapped = false;
  socket_ = std::move(ours);
  // All of this waits in the socket until the process reads it.
  const std::string config = config_text(options_, role_);
  std::vector<std::string_view> texts;
  for (const mooncake::SidecarModule& module : mooncake::kSidecarModules) {
    texts.push_back(module.text);
  }
  texts.insert(texts.end(), {mooncake::kSidecarProgram, config});
  for (std::string_view text : texts) {
    const int error = send_socket_message(socket_.get(), std::as_bytes(std::span(text)));
    if (error != 0) {
      return Error(Code::kUnavailable, "the sidecar cannot be spoken to: " + error_text(error));
    }
  }
  for (size_t index = 0; index < memories_.size(); ++index) TIERCEL_TRY(send_memory(index));

  ChildStart child;
  child.program = options_.python;
  child.arguments = {
      options_.python, "-I", "-c", bootstrap_text(),
      role_ == Role::kSegment ? "tiercel-mooncake-segment" : "tiercel-mooncake-sidecar"};
  child.log_path = options_.log_path.empty() ? "/dev/null" : options_.log_path;
  TIERCEL_TRY_ASSIGN(process_, ChildProcess::start(std::move(child), std::move(theirs)));
  TIERCEL_TRY(watch(epoll_.get(), socket_.get()));
  return watch(epoll_.get(), process_->event_fd());
}

void Sidecar::kill(std::string why) {
  if (state_ == State::kDown) return;
  if (kill_reason_.empty()) kill_reason_ = std::move(why);
  state_ = State::kEnding;
  killed_at_ = kNoDeadline;
  process_->kill();
}

void Sidecar::ask_to_end() {
  if (state_ == State::kDown) return;
  // It reads the end of what we have to say; we still hear that it is gone.
  if (socket_) ::shutdown(socket_.get(), SHUT_WR);
  if (kill_reason_.empty()) kill_reason_ = "closed";
  state_ = State::kEnding;
}

bool Sidecar::send(std::span<const std::byte> message) {
  const int error = send_socket_message(socket_.get(), message);
  // Another error is the end of the process, of which poll() hears.
  return error != EAGAIN && error != ENOBUFS;
}

bool Sidecar::poll(TimePoint now, std::vector<Message>* replies) {
  if (state_ == State::kDown) return false;
  std::array<epoll_event, 2> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  bool is_changed = false;
  for (int i = 0; i < count; ++i) {
    if (events[static_cast<size_t>(i)].data.fd == process_->event_fd()) is_changed = true;
  }
  if (is_changed) process_->acknowledge();
  const bool has_ended = process_->state() == ChildProcess::State::kEnded;
  // Once more after its end: it may have said why.
  if (socket_ && (count > 0 || has_ended)) read_socket(now, replies);
  tell_segment();
  if (has_ended) {
    fail(now, end_problem());
    return true;
  }
  if (state_ == State::kStarting && now - started_ >= options_.start_timeout) {
    kill("no answer within " + format_duration(options_.start_timeout) + " while " + stage_ +
         (has_spoken_ ? std::string() : " (is it a Python?)" + std::string(kPythonHelp)));
  }
  if (now >= killed_at_) kill(std::string(kUnreachable) + " and does not end");
  return false;
}

// Why the process that has ended did so, by whoever knows best.
std::string Sidecar::end_problem() const {
  if (!refusal_.empty()) return refusal_;
  std::string end = process_->end_text();
  // Whatever we wanted of one that has ended by itself.
  if (!kill_reason_.empty() && process_->was_killed()) return kill_reason_;
  if (has_spoken_) return "the sidecar " + end + (is_up_ ? std::string() : " while " + stage_);
  constexpr std::string_view kOpenOfLog = "could not be started: open of log_path: ";
  if (end.starts_with(kOpenOfLog)) {
    return "the log '" + escaped_path(options_.log_path) +
           "' cannot be opened: " + end.substr(kOpenOfLog.size()) +
           "; name another file (option log)";
  }
  // Somebody else's doing.
  if (process_->was_killed()) return "the Python '" + escaped_path(options_.python) + "' " + end;
  return "the Python '" + escaped_path(options_.python) + "' " + end +
         (end.starts_with("could not") ? "" : " before it ran the sidecar (is it a Python?)") +
         std::string(kPythonHelp);
}

void Sidecar::read_socket(TimePoint now, std::vector<Message>* replies) {
  while (socket_) {
    const ssize_t size = ::recv(socket_.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    // It has ended without reading all that we had sent. What it sent before comes after this.
    if (size < 0 && errno == ECONNRESET) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (size <= 0) {
      // A descriptor that has been hung up would stay readable.
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket_.get(), nullptr);
      socket_.reset();
      state_ = State::kEnding;
      killed_at_ = now + kEndGrace;
      return;
    }
    Result<Message> message = mooncake::decode(std::span(buffer_).first(static_cast<size_t>(size)));
    if (!message) {
      kill(message.error().message());
      continue;
    }
    has_spoken_ = true;
    take(*std::move(message), now, replies);
  }
}

void Sidecar::take(Message message, TimePoint now, std::vector<Message>* replies) {
  switch (message.kind) {
    case Answer::kStage:
      stage_ = std::move(message.text);
      return;
    case Answer::kNote:
      note_ = std::move(message.text);
      return;
    case Answer::kFailed:
      refusal_ = std::move(message.text);
      return;
    case Answer::kUp:
      is_up_ = true;
      greeting_ = std::move(message.text);
      stage_ = "registering memory";
      look_whether_ready(now);
      return;
    case Answer::kReply:
      break;
  }
  if (message.id < kMemoryIds) {
    replies->push_back(std::move(message));
    return;
  }
  if (message.id == kSegmentId) return;
  note_mapped(message);
  look_whether_ready(now);
}

void Sidecar::note_mapped(const Message& reply) {
  const uint64_t index = reply.id - kMemoryIds;
  if (index >= memories_.size() || reply.codes.size() != 1) {
    kill("the sidecar has mapped memory that it was not given");
    return;
  }
  Memory& memory = memories_[index];
  if (reply.codes[0] <= 0) {
    kill("Mooncake does not register " + format_bytes(memory.bytes) + " of memory: code " +
         std::to_string(reply.codes[0]) +
         "; for RDMA raise the limit of locked memory (ulimit -l), the log has more (option log)");
    return;
  }
  memory.address = static_cast<uint64_t>(reply.codes[0]);
  memory.is_mapped = true;
}

void Sidecar::look_whether_ready(TimePoint now) {
  if (state_ != State::kStarting || !is_up_) return;
  if (!std::all_of(memories_.begin(), memories_.end(),
                   [](const Memory& memory) { return memory.is_mapped; })) {
    return;
  }
  state_ = State::kReady;
  problem_.clear();
  backoff_ = Duration(0);
  start_time_ = now - started_;
}

void Sidecar::fail(TimePoint now, std::string problem) {
  problem_ = std::move(problem);
  process_.reset();
  socket_.reset();
  state_ = State::kDown;
  backoff_ = std::clamp(2 * backoff_, kBackoffFirst, kBackoffMax);
  retry_at_ = now + backoff_;
}

TimePoint Sidecar::next_due() const {
  if (state_ == State::kEnding) return killed_at_;
  return state_ == State::kStarting ? started_ + options_.start_timeout : kNoDeadline;
}

}  // namespace tiercel
