#include "device/cuda/prefill_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/prefill_trial.h"

namespace tandem::device::cuda {
namespace {

static_assert(PrefillTrialResult::kNever == PrefillChoice::kNever);

std::string wanted_kernels() {
  const char* text = std::getenv(kPrefillVariable);  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr || *text == '\0' ? "ampere" : text;
}

// Why there is nothing to try; empty: there is.
std::string absence(const PrefillQuestion& question) {
  if (!question.flashinfer) {
    return fmt::format("FlashInfer's kernels are not used or not built (see {})",
                       kAttentionVariable);
  }
  if (!flash::hopper::serves(64)) {
    return "this build has not got them; run tools/gpu/install_nvcc.sh and build again, for an "
           "architecture list with 90a";
  }
  if (question.gpu.major != 9 || question.gpu.minor != 0) {
    return fmt::format("{} has compute capability {}.{}, they need 9.0", question.gpu.name,
                       question.gpu.major, question.gpu.minor);
  }
  return "";
}

Error refusal(const std::string& why) {
  return {ErrorCode::kUnavailable,
          fmt::format("{}=hopper: FlashInfer's kernels for Hopper cannot serve: {}; leave it out, "
                      "or set it to ampere",
                      kPrefillVariable, why),
          kPrefillVariable};
}

std::string text_of(cudaError_t error) {
  return fmt::format("{} ({}, CUDA error {})", cudaGetErrorString(error), cudaGetErrorName(error),
                     static_cast<int>(error));
}

// Why they cannot serve after a trial; empty: they can.
std::string fault_of(const PrefillTrialResult& result) {
  if (result.error == cudaErrorMemoryAllocation) {
    return "too little GPU memory to try them";
  }
  if (result.error != cudaSuccess) {
    return text_of(result.error);
  }
  return result.agree() ? ""
                        : fmt::format("results differ by {:.1f} % from the kernels' for every GPU",
                                      100 * result.difference);
}

// "heads of 128: 0.31 % apart, 1.52 times as quick at 67584 rows x heads, used from 67584 on".
std::string findings(int32_t head_dim, const PrefillTrialResult& result, int64_t from) {
  std::string text = fmt::format("heads of {}: {:.2f} % apart", head_dim, 100 * result.difference);
  for (const PrefillTrialResult::Timed& each : result.timed) {
    text += fmt::format(", {:.2f} times as quick at {} rows x heads", each.usual_us / each.tried_us,
                        each.row_heads);
  }
  return text +
         (from == PrefillChoice::kNever ? ", not used" : fmt::format(", used from {} on", from));
}

Error loss(cudaError_t error) {
  return {ErrorCode::kUnavailable,
          fmt::format("the GPU failed while FlashInfer's kernels for Hopper were tried: {}. Start "
                      "again with {}=ampere, which leaves them out",
                      text_of(error), kPrefillVariable),
          kPrefillVariable};
}

}  // namespace

bool PrefillChoice::hopper(const flash::Shape& shape, int64_t count, int64_t rows,
                           int64_t max_context) const {
  const int64_t from = shape.head_dim == 64 ? from_64 : from_128;
  return rows * shape.heads >= from && rows >= rows_each * count &&
         (shape.window == 0 || max_context <= shape.window);
}

Result<PrefillChoice> choose_prefill(const PrefillQuestion& question, GpuHealth& health) {
  const std::string wanted = wanted_kernels();
  if (wanted != "auto" && wanted != "ampere" && wanted != "hopper") {
    return invalid_argument(
        fmt::format("{}={}: give ampere (not FlashInfer's kernels for Hopper), auto (if they "
                    "pay) or hopper",
                    kPrefillVariable, wanted),
        kPrefillVariable);
  }
  const bool forced = wanted == "hopper";
  PrefillChoice choice{.rows_each = forced ? 0 : flash::kTileRows};
  const std::string absent = absence(question);
  if (wanted == "ampere" || !absent.empty()) {
    return forced ? Result<PrefillChoice>(refusal(absent)) : choice;
  }
  int processors = 0;
  if (const cudaError_t error =
          cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, question.gpu.index);
      !health.ok(error, "asking for its multiprocessors")) {
    return *health.failure();
  }
  std::vector<std::string> found;
  for (const int32_t head_dim : {64, 128}) {
    const PrefillTrialResult result = try_prefill({.tried = question.tried,
                                                   .head_dim = head_dim,
                                                   .processors = processors,
                                                   .timed = !forced,
                                                   .room = question.room,
                                                   .room_bytes = question.room_bytes});
    if (result.lost) {
      health.ok(result.error, "trying kernels");
      return loss(result.error);
    }
    const std::string fault = fault_of(result);
    if (!fault.empty()) {
      if (forced) {
        return refusal(fault);
      }
      log::warn("prompts: FlashInfer's kernels for Hopper are not used: heads of {}: {}", head_dim,
                fault);
      return PrefillChoice{};
    }
    int64_t& from = head_dim == 64 ? choice.from_64 : choice.from_128;
    from = forced ? 0 : result.pays_from();
    found.push_back(findings(head_dim, result, from));
  }
  log::info("prompts: FlashInfer's kernels for Hopper: {}", fmt::join(found, "; "));
  return choice;
}

}  // namespace tandem::device::cuda
