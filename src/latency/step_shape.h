// What a step's time depends on, as a few sums: nothing in it grows with the number of sequences,
// so it is made once and then kept up to date while a plan grows. Plain data.
//
// Units: rows (one token's activation), tokens of context, and (row, attended token) pairs. A row
// at position p attends to p + 1 tokens, itself included. A sliding window is not looked at: where
// a model has one, attention beyond it is overestimated.
#pragma once

#include <cstdint>

namespace tandem::latency {

struct StepShape {
  // Rows of prompts, also of ones that are computed again (OmniServe 3.3: c_PA, its share of n).
  int32_t prefill_rows = 0;
  int32_t prefill_slices = 0;
  int64_t prefill_pairs = 0;    // sum over these rows of the tokens that each attends to
  int64_t prefix_products = 0;  // sum over these slices of rows x tokens before the slice
  // Residents that compute their newest token (g, c_DA).
  int32_t decode_rows = 0;
  int64_t decode_context = 0;  // sum of the tokens that each attends to
  // Rows of logits of residents: one for each decode and each slice that ends its prompt.
  int32_t logit_rows = 0;
  // Rows of offloaded sequences.
  int64_t visits = 0;          // summed over the stages 0 .. layers - 1 that they visit
  int32_t visitor_logits = 0;  // at the last stage
  // Of a step with lanes, whose second lane is computed by itself, behind the first one's stages.
  bool has_lanes = false;
  int64_t second_visits = 0;  // of `visits`
  int32_t second_stages = 0;  // of the stages 0 .. layers - 1 that the second lane visits
  int32_t second_logits = 0;  // of `visitor_logits`

  // Rows of residents (n).
  [[nodiscard]] int64_t rows() const { return int64_t{prefill_rows} + decode_rows; }
  [[nodiscard]] bool empty() const { return rows() == 0 && visits == 0 && visitor_logits == 0; }

  // The next `rows` tokens of a prompt of which `computed_tokens` are done. Needs rows > 0.
  // `logit_rows` are sampled from the last of them: 0 inside the prompt, several where n > 1.
  void add_prefill(int64_t computed_tokens, int32_t rows, int32_t logits) {
    const int64_t count = rows;
    prefill_rows += rows;
    prefill_slices += 1;
    prefill_pairs += count * computed_tokens + count * (count + 1) / 2;
    prefix_products += count * computed_tokens;
    logit_rows += logits;
  }
  // One decode; `context_tokens` counts all that it attends to, the new token included.
  void add_decode(int64_t context_tokens) {
    decode_rows += 1;
    decode_context += context_tokens;
    logit_rows += 1;
  }

  friend bool operator==(const StepShape&, const StepShape&) = default;
};

// Error and correction are kept apart for these.
enum class Regime : uint8_t { kDecode, kMixed, kPrefill };
inline constexpr int kRegimes = 3;

constexpr Regime regime_of(const StepShape& shape) {
  return shape.prefill_rows == 0  ? Regime::kDecode
         : shape.decode_rows == 0 ? Regime::kPrefill
                                  : Regime::kMixed;
}

}  // namespace tandem::latency
