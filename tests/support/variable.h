// A variable of the environment that has a value for the length of a scope.
#pragma once

#include <cstdlib>

namespace tandem {

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    setenv(name, value, 1);  // NOLINT(concurrency-mt-unsafe)
  }
  ~Variable() { unsetenv(name_); }  // NOLINT(concurrency-mt-unsafe)
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
};

}  // namespace tandem
