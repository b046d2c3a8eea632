// How a command of `tandem` ends: 0 done, 1 failed, 2 usage. Threads: any.
#pragma once

#include "base/result.h"

namespace tandem::cli {

// 2 if the command is wrong, so that it would fail again; 1 if it failed here and now. Service
// managers restart a server after 1 only.
inline int exit_code_of(ErrorCode code) {
  return code == ErrorCode::kInvalidArgument || code == ErrorCode::kUnsupported ||
                 code == ErrorCode::kNotFound
             ? 2
             : 1;
}

}  // namespace tandem::cli
