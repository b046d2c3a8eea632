// The outcome of something that a caller can get wrong: a value or an Error. Not for "full" (use
// optional or false) and not for bugs (use CHECK). Errors carry text for the person who can cure
// them: what is wrong, where, and what to do.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace tandem {

enum class ErrorCode {
  kInvalidArgument,    // the request or file is wrong; HTTP 400
  kUnauthenticated,    // no or wrong key; HTTP 401
  kForbidden,          // key known, action not allowed; HTTP 403
  kNotFound,           // no such model, path or file; HTTP 404
  kPayloadTooLarge,    // HTTP 413
  kOverloaded,         // refused now, worth another try later; HTTP 429 (a setting)
  kUnavailable,        // loading, draining or broken; HTTP 503
  kResourceExhausted,  // memory, disk or descriptors; HTTP 503
  kUnsupported,        // understood but not built; HTTP 400
  kIo,                 // reading or writing a file failed; HTTP 500
  kInternal,           // HTTP 500
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // one sentence or two: name, cause, cure
  std::string param;    // the field or flag at fault, or empty
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  [[nodiscard]] T& value() & {
    CHECK(ok(), "value() of an error: {}", error().message);
    return std::get<0>(state_);
  }
  [[nodiscard]] const T& value() const& {
    CHECK(ok(), "value() of an error: {}", error().message);
    return std::get<0>(state_);
  }
  [[nodiscard]] T&& value() && {
    CHECK(ok(), "value() of an error: {}", error().message);
    return std::get<0>(std::move(state_));
  }
  [[nodiscard]] const Error& error() const { return std::get<1>(state_); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT

  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};
using Status = Result<void>;

inline Error invalid_argument(std::string message, std::string param = {}) {
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(param)};
}

}  // namespace tandem

#define TANDEM_CONCAT_INNER(a, b) a##b
#define TANDEM_CONCAT(a, b) TANDEM_CONCAT_INNER(a, b)

// Returns the error of a Result or Status from the surrounding function.
#define RETURN_IF_ERROR(expression)                                         \
  do {                                                                      \
    if (auto status_ = (expression); !status_.ok()) return status_.error(); \
  } while (false)

// ASSIGN_OR_RETURN(auto x, f()): x = value of f(), or returns its error.
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_INNER(TANDEM_CONCAT(result_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_INNER(name, target, expression) \
  auto name = (expression);                              \
  if (!name.ok()) return name.error();                   \
  target = std::move(name).value()
