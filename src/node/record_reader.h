// Reads a record file (record_file.h) back, line by line, and puts the lines together that belong
// to one call of Engine::advance. Knows no more of them than their kinds; whoever uses a line
// checks it. One thread.
#pragma once

#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// The record's lines, one after another, up to the line that closes it. A record without that line
// was cut.
class RecordReader {
 public:
  explicit RecordReader(const std::filesystem::path& path) : file_(path) {}
  [[nodiscard]] bool opened() const { return file_.is_open(); }
  [[nodiscard]] bool cut() const { return cut_; }
  // After the end: whether there is more, as no record has it.
  bool goes_on() { return ended_ && !cut_ && file_.peek() != std::ifstream::traits_type::eof(); }

  std::optional<nlohmann::json> next() {
    std::string line;
    if (ended_) {
      return std::nullopt;
    }
    nlohmann::json parsed;
    do {
      parsed = std::getline(file_, line) ? nlohmann::json::parse(line, nullptr, false)
                                         : nlohmann::json();
    } while (parsed.is_object() && parsed.contains("refusal"));  // nothing came of those
    if (!parsed.is_object() || parsed.contains("end")) {
      ended_ = true;
      cut_ = !parsed.is_object() || parsed["end"] != "closed";
      return std::nullopt;
    }
    return parsed;
  }

 private:
  std::ifstream file_;
  bool ended_ = false;
  bool cut_ = false;
};

// What one call of Engine::advance did: it committed a step or not, absorbed what the tiers said
// and inputs, planned once or more.
struct Group {
  std::vector<nlohmann::json> inputs;
  std::vector<nlohmann::json> expected;  // result, then plans
  // Of a group with a result and no plan: "ready" of the plan that comes next, which is shown what
  // the step's binds saw. Null: there is none.
  nlohmann::json later_ready;

  [[nodiscard]] bool only_result() const {
    return inputs.empty() && expected.size() == 1 && expected.back().contains("result");
  }
  [[nodiscard]] bool has_result() const {
    return !expected.empty() && expected.front().contains("result");
  }
  [[nodiscard]] bool plans() const { return !expected.empty() && expected.back().contains("plan"); }
};

// Splits the record into groups: a result, what the tiers said behind anything but a result, or an
// input after a plan, begins a new one.
class GroupReader {
 public:
  explicit GroupReader(RecordReader& reader) : reader_(reader) {}

  std::optional<Group> next() {
    if (!look_ahead(1)) {
      return std::nullopt;
    }
    Group group = std::move(ahead_.front());
    ahead_.pop_front();
    if (group.has_result() && !group.plans()) {
      group.later_ready = ready_of_next_plan();
    }
    return group;
  }
  // The group that was returned is the last one.
  [[nodiscard]] bool at_end() { return !look_ahead(1); }

 private:
  static constexpr size_t kMostAhead = 4096;  // groups between a result and the next plan

  // False: so many groups do not follow.
  bool look_ahead(size_t groups) {
    while (ahead_.size() < groups) {
      std::optional<Group> group = read();
      if (!group.has_value()) {
        return false;
      }
      ahead_.push_back(*std::move(group));
    }
    return true;
  }

  nlohmann::json ready_of_next_plan() {
    for (size_t i = 0; i < kMostAhead && look_ahead(i + 1); ++i) {
      const Group& group = ahead_[i];
      if (group.has_result()) {
        break;
      }
      if (group.plans()) {
        const nlohmann::json& plan = group.expected.front();
        return plan.contains("ready") ? plan["ready"] : nlohmann::json();
      }
    }
    return {};
  }

  std::optional<Group> read() {
    Group group;
    while (true) {
      std::optional<nlohmann::json> line =
          held_.has_value() ? std::exchange(held_, std::nullopt) : reader_.next();
      if (!line.has_value()) {
        break;
      }
      const bool is_result = line->contains("result");
      const bool is_plan = line->contains("plan");
      const bool begun = !group.inputs.empty() || !group.expected.empty();
      const bool is_tiers = line->contains("tiers");
      if (begun &&
          (is_result || (!is_plan && group.plans()) || (is_tiers && !group.only_result()))) {
        held_ = std::move(line);
        return group;
      }
      (is_result || is_plan ? group.expected : group.inputs).push_back(std::move(*line));
    }
    if (group.inputs.empty() && group.expected.empty()) {
      return std::nullopt;
    }
    return group;
  }

  RecordReader& reader_;
  std::optional<nlohmann::json> held_;
  std::deque<Group> ahead_;  // read, and not returned yet
};

}  // namespace tandem
