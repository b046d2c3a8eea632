#include "text/stop_strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace tandem::text {

Result<std::shared_ptr<const StopStrings>> StopStrings::compile(std::vector<std::string> strings) {
  auto result = std::make_shared<StopStrings>();
  result->strings_ = std::move(strings);
  result->nodes_.emplace_back();
  for (size_t i = 0; i < result->strings_.size(); ++i) {
    const std::string& string = result->strings_[i];
    if (string.empty()) {
      return invalid_argument(
          fmt::format("stop string {} is empty, which would end every text at once; leave it out",
                      i),
          "stop");
    }
    if (find_invalid_utf8(string)) {
      return invalid_argument(fmt::format("stop string {} is not valid UTF-8", i), "stop");
    }
    int32_t node = 0;
    for (const char c : string) {
      const auto byte = static_cast<uint8_t>(c);
      int32_t next = result->child(node, byte);
      if (next == kNone) {
        next = static_cast<int32_t>(result->nodes_.size());
        result->children_.insert(IntMap::key(static_cast<uint32_t>(node), byte),
                                 {static_cast<uint32_t>(next), 0});
        result->nodes_.push_back(
            {.parent = node, .byte = byte, .depth = result->nodes_[node].depth + 1});
      }
      node = next;
    }
    if (result->nodes_[node].longest == kNone) {  // of equal strings the first is named
      result->nodes_[node].longest = static_cast<int32_t>(i);
    }
  }
  result->link();
  return std::shared_ptr<const StopStrings>(std::move(result));
}

int32_t StopStrings::child(int32_t node, uint8_t byte) const {
  const IntMap::Value* value = children_.find(IntMap::key(static_cast<uint32_t>(node), byte));
  return value == nullptr ? kNone : static_cast<int32_t>(value->first);
}

int32_t StopStrings::step(int32_t node, uint8_t byte) const {
  while (true) {
    const int32_t next = child(node, byte);
    if (next != kNone) {
      return next;
    }
    if (node == 0) {
      return 0;
    }
    node = nodes_[node].fail;
  }
}

// Sets `fail` and inherits `longest`, by depth: a node's fail is always nearer to the root than the
// node.
void StopStrings::link() {
  std::vector<int32_t> by_depth(nodes_.size());
  std::iota(by_depth.begin(), by_depth.end(), 0);
  std::ranges::stable_sort(by_depth, {}, [this](int32_t node) { return nodes_[node].depth; });
  for (const int32_t at : by_depth) {
    Node& node = nodes_[at];
    if (node.depth == 0) {
      continue;
    }
    node.fail = node.parent == 0 ? 0 : step(nodes_[node.parent].fail, node.byte);
    if (node.longest == kNone) {
      node.longest = nodes_[node.fail].longest;
    }
  }
}

StopCut StopStringCutter::push(std::string_view text) {
  if (strings_ == nullptr) {
    return {std::string(text), std::nullopt};
  }
  held_.append(text);
  const size_t old_bytes = held_.size() - text.size();
  for (size_t i = 0; i < text.size(); ++i) {
    node_ = strings_->step(node_, static_cast<uint8_t>(text[i]));
    const int32_t found = strings_->nodes_[node_].longest;
    if (found == StopStrings::kNone) {
      continue;
    }
    const size_t end = old_bytes + i + 1;
    const size_t length = strings_->strings_[found].size();
    CHECK(length <= end, "stop string of {} bytes found {} bytes after what was sent", length, end);
    StopCut cut{held_.substr(0, options_.include_stop_string_in_output ? end : end - length),
                static_cast<size_t>(found)};
    held_.clear();
    node_ = 0;
    return cut;
  }
  return {take_sendable(), std::nullopt};
}

std::string StopStringCutter::pass(std::string_view text) {
  if (strings_ == nullptr) {
    return std::string(text);
  }
  held_.append(text);
  for (const char byte : text) {
    node_ = strings_->step(node_, static_cast<uint8_t>(byte));
  }
  return take_sendable();
}

// All but what may be the beginning of a stop string.
std::string StopStringCutter::take_sendable() {
  const size_t sendable = held_.size() - static_cast<size_t>(strings_->nodes_[node_].depth);
  std::string text = held_.substr(0, sendable);
  held_.erase(0, sendable);
  return text;
}

std::string StopStringCutter::flush() {
  node_ = 0;
  return std::exchange(held_, {});
}

}  // namespace tandem::text
