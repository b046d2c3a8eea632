#include "openai/json_builder.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

namespace tandem::openai {

bool JsonBuilder::add(Json value) {
  if (frames_.empty()) {
    root_ = std::move(value);
  } else if (frames_.back().kind == Kind::kArray) {
    frames_.back().values.push_back(std::move(value));
  } else {
    members_.back().value = std::move(value);
  }
  return true;
}

bool JsonBuilder::end_array() {
  Json list(std::move(frames_.back().values));
  frames_.pop_back();
  return add(std::move(list));
}

bool JsonBuilder::end_object() {
  const size_t first = frames_.back().first_member;
  frames_.pop_back();
  const size_t last = drop_repeated_names(first);
  Json::object_t object;
  object.reserve(last - first);
  for (size_t i = first; i < last; ++i) {
    object.emplace_back(std::move(members_[i].name), std::move(members_[i].value));
  }
  members_.resize(first);
  return add(Json(std::move(object)));
}

// Of members from `first` on with the same name the first stays, with the last one's value. Returns
// where the members end now.
size_t JsonBuilder::drop_repeated_names(size_t first) {
  if (members_.size() < first + 2) {
    return members_.size();
  }
  std::vector<size_t> by_name(members_.size() - first);
  std::iota(by_name.begin(), by_name.end(), first);
  std::ranges::stable_sort(by_name, {},
                           [this](size_t i) -> std::string_view { return members_[i].name; });
  std::vector<bool> repeated;
  for (size_t i = 1, kept = 0; i < by_name.size(); ++i) {
    if (members_[by_name[i]].name != members_[by_name[kept]].name) {
      kept = i;
      continue;
    }
    repeated.resize(by_name.size());
    repeated[by_name[i] - first] = true;
    members_[by_name[kept]].value = std::move(members_[by_name[i]].value);
  }
  if (repeated.empty()) {
    return members_.size();
  }
  size_t last = first;
  for (size_t i = first; i < members_.size(); ++i) {
    if (!repeated[i - first]) {
      if (last != i) {
        members_[last] = std::move(members_[i]);
      }
      ++last;
    }
  }
  return last;
}

bool JsonBuilder::parse_error(size_t /*position*/, const std::string& /*last_token*/,
                              const Json::exception& error) {
  error_ = error.what();
  return false;
}

}  // namespace tandem::openai
