// A variable of the environment that has a value for the length of a scope.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace tandem {

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) {  // NOLINT(concurrency-mt-unsafe)
      before_ = before;
    }
    setenv(name, value, 1);  // NOLINT(concurrency-mt-unsafe)
  }
  ~Variable() {
    if (before_.has_value()) {
      setenv(name_, before_->c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    } else {
      unsetenv(name_);  // NOLINT(concurrency-mt-unsafe)
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

}  // namespace tandem
