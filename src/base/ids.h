// Names of things, as types that do not mix.
#pragma once

#include <cstdint>
#include <functional>

namespace tandem {

enum class RequestId : int64_t {};   // unique in the life of a process, in order of arrival
enum class SequenceId : int64_t {};  // one token stream of a request; unique in an engine's life
enum class BlockId : int32_t {};     // index of a KV block in its tier's pool

using TokenId =
    int32_t;  // index into the vocabulary; arithmetic on it is normal, so a plain integer

template <class Id>
constexpr auto raw(Id id) {
  return static_cast<std::underlying_type_t<Id>>(id);
}

}  // namespace tandem
