// Lines of a record file: the stages of a plan; an arrival, read and written again.
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "node/record_lines.h"
#include "node/request_json.h"

namespace tandem {
namespace {

constexpr int32_t kLastStage = 32;

void read_stages_of(const nlohmann::json& line) {
  try {
    const Result<RecordedStages> stages = read_stages(line, kLastStage);
    CHECK(stages.ok() || !stages.error().message.empty());
    if (stages.ok()) {
      for (const auto& [sequence, stage] : *stages) {
        CHECK(raw(sequence) >= 0 && stage >= 0 && stage <= kLastStage);
      }
    }
  } catch (const nlohmann::json::exception&) {
    // A field of another type, which a replay reports as a broken record.
  }
}

}  // namespace

TANDEM_FUZZ_TARGET(input) {
  while (!input.empty()) {
    const std::string_view text = input.substr(0, input.find('\n'));
    input.remove_prefix(std::min(text.size() + 1, input.size()));
    const auto line = nlohmann::json::parse(text, nullptr, false);
    if (!line.is_object()) {
      continue;
    }
    read_stages_of(line);
    const Result<Request> request = request_from_json(line);
    if (!request.ok()) {
      CHECK(!request.error().message.empty());
      continue;
    }
    CHECK(!request->prompt.empty() && request->n >= 1 && request->sampling.max_tokens >= 1);
    CHECK(!request->slo.ttft || request->slo.ttft->target(1 << 20) >= Nanos{0});
    fuzz::use(request_to_json(*request)
                  .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                  .size());
  }
}
}  // namespace tandem
