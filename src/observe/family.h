#pragma once

#include <prometheus/registry.h>

namespace tandem::observe {

// The registry's family of that name, made with prometheus::BuildCounter() and its like.
template <class Builder>
auto& family(Builder builder, const char* name, const char* help, prometheus::Registry& registry) {
  return builder.Name(name).Help(help).Register(registry);
}

}  // namespace tandem::observe
