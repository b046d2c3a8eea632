#include "batches/input_check.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/units.h"
#include "jobs/batch_input.h"
#include "openai/batch_line.h"
#include "openai/json_input.h"

namespace tandem::batches {
namespace {

class Checker {
 public:
  Checker(openai::Endpoint endpoint, const openai::ModelDirectory& models,
          const BatchOptions& options)
      : endpoint_(endpoint), models_(models), options_(options) {}

  // What is wrong with the line.
  std::optional<BatchFault> check(const jobs::InputLine& line) {
    if (line.too_long) {
      return BatchFault{std::string(openai::kLineTooLong),
                        fmt::format("the line is longer than {}", exact_bytes(options_.line_bytes)),
                        "", line.place.number};
    }
    const openai::BatchLine parsed = openai::parse_batch_line(line.text, models_.limits().json);
    if (parsed.error) {
      return BatchFault{parsed.error_code, parsed.error->message, parsed.error->param,
                        line.place.number};
    }
    if (!custom_ids_.insert(*parsed.custom_id).second) {
      return BatchFault{std::string(openai::kDuplicateCustomId),
                        "an earlier line has this custom_id; give each line its own", "custom_id",
                        line.place.number};
    }
    if (parsed.endpoint != endpoint_) {
      return BatchFault{"mismatched_endpoint",
                        "the line's 'url' is not the 'endpoint' of the batch; make a batch for "
                        "each endpoint",
                        "url", line.place.number};
    }
    return check_model(parsed.body, line.place.number);
  }
  [[nodiscard]] const std::set<std::string>& names() const { return names_; }

 private:
  [[nodiscard]] std::optional<BatchFault> check_model(const std::string& body, int64_t number) {
    const Result<openai::Json> json =
        openai::parse_object(body, models_.limits().json, "the line's 'body'");
    if (!json.ok()) {
      return BatchFault{"invalid_body", json.error().message, json.error().param, number};
    }
    const Result<const openai::OfferedModel*> model =
        models_.find_for(openai::FieldReader(*json, "body."));
    if (!model.ok()) {
      return BatchFault{"model_not_found", model.error().message, "body.model", number};
    }
    names_.insert((*model)->parse.model.names.front());
    if (const auto named = openai::FieldReader(*json, "body.").string("model");
        named.ok() && !named->value_or("").empty()) {
      names_.insert(**named);
    }
    return std::nullopt;
  }

  const openai::Endpoint endpoint_;
  const openai::ModelDirectory& models_;
  const BatchOptions& options_;
  std::unordered_set<std::string> custom_ids_;
  std::set<std::string> names_;  // of models
};

}  // namespace

Result<InputCheck> check_input(const std::filesystem::path& input, openai::Endpoint endpoint,
                               const openai::ModelDirectory& models, const BatchOptions& options,
                               const std::function<bool()>& should_stop) {
  ASSIGN_OR_RETURN(jobs::BatchInput lines, jobs::BatchInput::open(input, options.line_bytes));
  Checker checker(endpoint, models, options);
  InputCheck result;
  while (result.faults.size() < InputCheck::kMaxFaults) {
    if (should_stop()) {
      result.stopped = true;
      return result;
    }
    ASSIGN_OR_RETURN(const std::optional<jobs::InputLine> line, lines.next());
    if (!line) {
      break;
    }
    if (++result.lines > options.file_lines) {
      result.faults = {{"too_many_lines",
                        fmt::format("the file has more than {} requests; split it, or raise "
                                    "--batch-file-lines",
                                    options.file_lines),
                        "", std::nullopt}};
      return result;
    }
    if (std::optional<BatchFault> fault = checker.check(*line)) {
      result.faults.push_back(std::move(*fault));
    }
  }
  result.models.assign(checker.names().begin(), checker.names().end());
  if (result.lines == 0) {
    result.faults.push_back({"empty_file", "the file has no requests", "", std::nullopt});
  }
  return result;
}

}  // namespace tandem::batches
