#include "text/vocabulary.h"

#include <fmt/format.h>

#include "text/json_fields.h"

namespace tandem::text {

Status Vocabulary::add(std::string_view text, int64_t id, std::string_view where) {
  if (id < 0 || id >= kMostTokens) {
    return bad_file(where, fmt::format("the token \"{}\" has the id {}; ids go from 0 to {}", text,
                                       id, kMostTokens - 1));
  }
  const auto index = static_cast<size_t>(id);
  if (index < texts_.size() && texts_[index] != nullptr) {
    if (*texts_[index] == text) {
      return {};
    }
    return bad_file(where, fmt::format("the tokens \"{}\" and \"{}\" have the same id {}",
                                       *texts_[index], text, id));
  }
  if (index >= texts_.size()) {
    texts_.resize(index + 1, nullptr);
  }
  const auto [at, inserted] = ids_.try_emplace(std::string(text), static_cast<TokenId>(id));
  texts_[index] = &at->first;
  return {};
}

bool Vocabulary::has(TokenId id) const {
  return id >= 0 && id < size() && texts_[static_cast<size_t>(id)] != nullptr;
}

std::string_view Vocabulary::text(TokenId id) const {
  return has(id) ? std::string_view(*texts_[static_cast<size_t>(id)]) : std::string_view();
}

std::optional<TokenId> Vocabulary::find(std::string_view text) const {
  const auto at = ids_.find(text);
  return at == ids_.end() ? std::nullopt : std::optional<TokenId>(at->second);
}

}  // namespace tandem::text
