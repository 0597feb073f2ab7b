// SPDX-License-Identifier: Apache-2.0
//
// Status and Result<T>: how every call in Tiercel reports failure.
//
// Errors are values. A Code says what the caller can do about it; the message says what was wrong,
// with what value, and what to do. No exception crosses a public function. A success allocates
// nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tl/expected.hpp>

namespace tiercel {

// Split by what the caller does next, not by where the error arose. The first eight are the
// statuses of the Store contract; the numeric values travel in completion records and must not
// change.
enum class Code : uint8_t {
  kOk = 0,
  kNotFound = 1,     // there is no such thing; not a fault
  kCorrupt = 2,      // found, but its bytes do not prove to be what was asked for
  kNoSpace = 3,      // would not fit; retrying makes sense only after something was given back
  kBusy = 4,         // a bounded queue is full; try again later
  kTimeout = 5,      // the deadline passed
  kUnavailable = 6,  // the other side is away
  kInvalid = 7,      // the request itself is wrong; retrying never helps
  kCancelled = 8,    // given up on request of the caller
  kUnsupported = 9,  // a legal request that this build or backend cannot serve
  kInternal = 10,    // a bug in Tiercel
};

// Lower-case word for logs, JSON and Python, such as "not_found"; "unknown" for a value out of
// range.
std::string_view to_string(Code code);

class Error {
 public:
  Error(Code code, std::string message, const char* file = __builtin_FILE(),
        int line = __builtin_LINE())
      : code_(code), line_(line), file_(file), message_(std::move(message)) {}

  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  const char* file() const { return file_; }
  int line() const { return line_; }

  // "invalid: block_tokens is 0; allowed: 1 to 65536"
  std::string to_string() const;

 private:
  Code code_;
  int line_;
  const char* file_;
  std::string message_;
};

template <typename T>
class Result;

namespace internal {

// Calls `function` with the value of `result`, or with nothing where it is a Result<void>.
template <typename ResultType, typename Function>
decltype(auto) invoke_with_value(ResultType&& result, Function&& function) {
  if constexpr (std::is_void_v<typename std::remove_cvref_t<ResultType>::value_type>) {
    return std::invoke(std::forward<Function>(function));
  } else {
    return std::invoke(std::forward<Function>(function), *std::forward<ResultType>(result));
  }
}

template <typename ResultType, typename Function>
auto and_then(ResultType&& result, Function&& function) {
  using Next = std::remove_cvref_t<decltype(invoke_with_value(std::forward<ResultType>(result),
                                                              std::forward<Function>(function)))>;
  static_assert(std::is_base_of_v<tl::expected<typename Next::value_type, Error>, Next>,
                "and_then needs a function that returns a Result");
  if (!result.has_value()) return Next(std::forward<ResultType>(result).error());
  return invoke_with_value(std::forward<ResultType>(result), std::forward<Function>(function));
}

template <typename ResultType, typename Function>
auto map(ResultType&& result, Function&& function) {
  using Value = std::remove_cvref_t<decltype(invoke_with_value(std::forward<ResultType>(result),
                                                               std::forward<Function>(function)))>;
  if (!result.has_value()) return Result<Value>(std::forward<ResultType>(result).error());
  if constexpr (std::is_void_v<Value>) {
    invoke_with_value(std::forward<ResultType>(result), std::forward<Function>(function));
    return Result<Value>();
  } else {
    return Result<Value>(
        invoke_with_value(std::forward<ResultType>(result), std::forward<Function>(function)));
  }
}

}  // namespace internal

// Either a T or an Error. Derives from tl::expected to become [[nodiscard]] and to be replaceable
// by std::expected in this one file.
//
// and_then(f): f(value), which returns a Result, or the error. map(f): f(value) as a Result, or the
// error. They stand in for the inherited ones, which refuse and return other types than Result.
template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
  using Base = tl::expected<T, Error>;

 public:
  using Base::Base;
  Result(Error error) : Base(tl::unexpect, std::move(error)) {}  // NOLINT: implicit by design

  // Without the first, copying a Result<bool> that is not const would ask it for its has_value().
  Result(Result& other) : Base(static_cast<const Base&>(other)) {}
  Result(const Result&) = default;
  Result(Result&&) = default;
  Result& operator=(const Result&) = default;
  Result& operator=(Result&&) = default;

  Code code() const { return this->has_value() ? Code::kOk : this->error().code(); }

  template <typename Function>
  auto and_then(Function&& function) const& {
    return internal::and_then(*this, std::forward<Function>(function));
  }
  template <typename Function>
  auto and_then(Function&& function) && {
    return internal::and_then(std::move(*this), std::forward<Function>(function));
  }
  template <typename Function>
  auto map(Function&& function) const& {
    return internal::map(*this, std::forward<Function>(function));
  }
  template <typename Function>
  auto map(Function&& function) && {
    return internal::map(std::move(*this), std::forward<Function>(function));
  }
};

template <>
class [[nodiscard]] Result<void> : public tl::expected<void, Error> {
  using Base = tl::expected<void, Error>;

 public:
  using Base::Base;
  Result() = default;
  Result(Error error) : Base(tl::unexpect, std::move(error)) {}  // NOLINT: implicit by design

  Code code() const { return this->has_value() ? Code::kOk : this->error().code(); }

  template <typename Function>
  auto and_then(Function&& function) const& {
    return internal::and_then(*this, std::forward<Function>(function));
  }
  template <typename Function>
  auto and_then(Function&& function) && {
    return internal::and_then(std::move(*this), std::forward<Function>(function));
  }
  template <typename Function>
  auto map(Function&& function) const& {
    return internal::map(*this, std::forward<Function>(function));
  }
  template <typename Function>
  auto map(Function&& function) && {
    return internal::map(std::move(*this), std::forward<Function>(function));
  }
};

using Status = Result<void>;

}  // namespace tiercel

// Returns the error of `expression` from the calling function, if there is one.
#define TIERCEL_TRY(expression)                                      \
  do {                                                               \
    auto tiercel_status_ = (expression);                             \
    if (!tiercel_status_) return std::move(tiercel_status_).error(); \
  } while (false)

#define TIERCEL_CONCAT_INNER_(a, b) a##b
#define TIERCEL_CONCAT_(a, b) TIERCEL_CONCAT_INNER_(a, b)

// TIERCEL_TRY_ASSIGN(auto x, f()): x becomes the value, or the calling function returns the error.
#define TIERCEL_TRY_ASSIGN(declaration, expression)                       \
  auto TIERCEL_CONCAT_(tiercel_result_, __LINE__) = (expression);         \
  if (!TIERCEL_CONCAT_(tiercel_result_, __LINE__))                        \
    return std::move(TIERCEL_CONCAT_(tiercel_result_, __LINE__)).error(); \
  declaration = *std::move(TIERCEL_CONCAT_(tiercel_result_, __LINE__))
