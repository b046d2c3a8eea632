// Test help: calls into the cuBLASLt that the host plays (cublaslt.cc), whose file is
// CUBLASLT_ON_HOST.
#pragma once

#include <dlfcn.h>

namespace tandem::device::cuda {

template <class Answer, class... Numbers>
Answer played_call(const char* name, Numbers... numbers) {
  void* library = dlopen(CUBLASLT_ON_HOST, RTLD_NOW | RTLD_LOCAL);
  const auto function = reinterpret_cast<Answer (*)(Numbers...)>(dlsym(library, name));
  dlclose(library);  // the device under test keeps it open, or nothing is to be kept
  return function(numbers...);
}

// What the played library does with its algorithms, until the end of a test.
class PlayedAlgorithms {
 public:
  ~PlayedAlgorithms() {
    for (int i = 0; i < 4; ++i) {
      played_call<void>("cublaslt_on_host_delay", i, 0);
      played_call<void>("cublaslt_on_host_break", i, 0);
    }
    played_call<void>("cublaslt_on_host_advise", 4);
  }
  PlayedAlgorithms() = default;
  PlayedAlgorithms(const PlayedAlgorithms&) = delete;
  PlayedAlgorithms& operator=(const PlayedAlgorithms&) = delete;

  // All others take 3 ms longer.
  void only_quick(int algorithm) const {
    for (int i = 0; i < 4; ++i) {
      played_call<void>("cublaslt_on_host_delay", i, i == algorithm ? 0 : 3000);
    }
  }
  void broken(int algorithm) const { played_call<void>("cublaslt_on_host_break", algorithm, 1); }
  void advise(int count) const { played_call<void>("cublaslt_on_host_advise", count); }
};

}  // namespace tandem::device::cuda
