// Names of the flags that give a command the memory of a node. Plain data.
#pragma once

#include <string>

namespace tandem {

// Names without dashes, which errors name.
struct MemoryFlags {
  std::string device = "device-memory";
  std::string host = "host-memory";
};

}  // namespace tandem
