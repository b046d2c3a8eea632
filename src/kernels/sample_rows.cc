#include "kernels/sample_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/gemm.h"
#include "kernels/sample_penalties.h"

namespace tandem::kernels {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Longest list of most likely tokens that is sorted; longer top-k goes over the whole row.
constexpr int64_t kMaxListed = kSampleChunk;
constexpr int64_t kListCapacity = 2 * kMaxListed;
// Tokens tried for top-p and min-p before going over the whole row.
constexpr int64_t kNucleusListed = 512;
constexpr int64_t kMaxPieces = 1024;

// Colder is greedy: weights of other logits than the highest would all be 0.
constexpr float kColdest = 1e-20F;

struct Candidate {
  float logit = 0.0F;
  int32_t token = 0;
};

bool comes_before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// Where the order of logits is cut: all above `logit` are kept, and the first `ties` equal to it.
struct Cut {
  float logit = 0.0F;
  int64_t ties = 0;
};

// Unsigned integers in the order of the floats; -0 equals 0.
uint32_t order_key(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
float key_logit(uint32_t key) {
  return std::bit_cast<float>((key & 0x80000000U) != 0 ? key & 0x7fffffffU : ~key);
}

// Three digits of an order key, the highest first.
constexpr int kDigits = 3;
constexpr int kShifts[kDigits] = {21, 10, 0};
constexpr uint32_t kBins[kDigits] = {2048, 2048, 1024};

class Row {
 public:
  Row(float* logits, int64_t vocabulary, const SampleRow& spec, const SampleOps& ops)
      : x_(logits), count_(vocabulary), spec_(spec), ops_(ops) {}

  void run(SampleResult& result) {
    result = {};
    apply_biases_and_penalties(spec_, x_, count_);
    group_ = std::max(kSampleLanes, round_up((count_ + kMaxGroups - 1) / kMaxGroups, kSampleLanes));
    groups_ = (count_ + group_ - 1) / group_;
    const bool usable = ops_.group_maxima(x_, count_, group_, maxima_);
    max_ = usable ? *std::max_element(maxima_, maxima_ + groups_) : -kInfinity;
    if (max_ == -kInfinity) {
      result.token = -1;
      return;
    }
    double log_total = 0.0;
    if (spec_.logprobs >= 0) {
      log_total = std::log(total_weight(1.0F));
      list_most_likely(log_total, result);
    }
    if (spec_.given >= 0) {
      result.token = spec_.given;
    } else {
      result.token = spec_.temperature >= kColdest ? draw() : first_highest();
    }
    if (spec_.logprobs >= 0) {
      const float logit = x_[result.token];
      result.logprob = logprob(logit, log_total);
      const int64_t ties = std::count(x_, x_ + result.token, logit);
      result.rank = static_cast<int32_t>(ops_.count_greater(x_, count_, logit) + ties + 1);
    }
  }

 private:
  [[nodiscard]] float logprob(float logit, double log_total) const {
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(max_) - log_total);
  }

  void list_most_likely(double log_total, SampleResult& result) {
    const int64_t wanted = std::min(spec_.logprobs, kMaxTopLogprobs);
    const int64_t listed = wanted > 0 ? list_highest(wanted) : 0;
    result.top_count = static_cast<int32_t>(listed);
    for (int64_t i = 0; i < listed; ++i) {
      result.top_tokens[i] = list_[i].token;
      result.top_logprobs[i] = logprob(list_[i].logit, log_total);
    }
  }

  [[nodiscard]] int32_t first_highest() const {
    const auto g = std::find(maxima_, maxima_ + groups_, max_) - maxima_;
    return static_cast<int32_t>(std::find(x_ + g * group_, x_ + count_, max_) - x_);
  }

  int32_t draw() {
    // The lower bound keeps -infinity * inverse from becoming NaN.
    inverse_temperature_ = std::max(1.0F / spec_.temperature, std::numeric_limits<float>::min());
    const double u = sample_uniform(spec_.seed, static_cast<uint64_t>(spec_.position));
    const bool top_k = spec_.top_k > 0 && spec_.top_k < count_;
    const bool filtered = top_k || spec_.top_p < 1.0F || spec_.min_p > 0.0F;
    if (filtered && (!top_k || spec_.top_k <= kMaxListed)) {
      const int64_t kept = keep_listed(top_k);
      if (kept > 0) {
        return draw_listed(kept, u);
      }
    }
    if (filtered) {
      filter_row(top_k);
    }
    return draw_from_row(u);
  }

  // Lists the `wanted` <= kMaxListed first tokens of the order; returns how many there are (fewer
  // when the others are -infinity).
  //
  // The wanted-th highest of the group maxima is at most the wanted-th highest logit, so the logits
  // from there up are few and in few groups.
  int64_t list_highest(int64_t wanted) {
    wanted = std::min(wanted, count_);
    float threshold = -kInfinity;
    if (wanted <= groups_) {
      float sorted[kMaxGroups];
      std::copy(maxima_, maxima_ + groups_, sorted);
      std::nth_element(sorted, sorted + wanted - 1, sorted + groups_, std::greater<>());
      threshold = sorted[wanted - 1];
    }
    int64_t listed = 0;
    for (int64_t g = 0; g < groups_ && listed <= kListCapacity; ++g) {
      if (maxima_[g] >= threshold) {
        listed = list_group(g, threshold, listed);
      }
    }
    if (listed > kListCapacity) {
      listed = list_above(cut_by_count(wanted));
    }
    const int64_t kept = std::min(wanted, listed);
    std::partial_sort(list_, list_ + kept, list_ + listed, comes_before);
    return kept;
  }

  // Adds a group's logits from the threshold up; more than kListCapacity when they do not fit.
  int64_t list_group(int64_t g, float threshold, int64_t listed) {
    const int64_t end = std::min((g + 1) * group_, count_);
    for (int64_t i = g * group_; i < end; ++i) {
      if (x_[i] >= threshold && x_[i] > -kInfinity) {
        if (listed == kListCapacity) {
          return kListCapacity + 1;
        }
        list_[listed++] = {x_[i], static_cast<int32_t>(i)};
      }
    }
    return listed;
  }

  int64_t list_above(Cut cut) {
    int64_t listed = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const bool tie = x_[i] == cut.logit && cut.ties > 0;
      if ((x_[i] > cut.logit || tie) && x_[i] > -kInfinity) {
        cut.ties -= tie ? 1 : 0;
        list_[listed++] = {x_[i], static_cast<int32_t>(i)};
      }
    }
    return listed;
  }

  // Applies the filters to a list of the most likely tokens. Returns how many of the list are kept,
  // or 0 when the list is too short to tell.
  int64_t keep_listed(bool top_k) {
    const int64_t listed = list_highest(top_k ? spec_.top_k : kNucleusListed);
    const bool everything = top_k || listed < std::min(kNucleusListed, count_) || listed == count_;
    for (int64_t i = 0; i < listed; ++i) {
      listed_logits_[i] = list_[i].logit;
    }
    ops_.weigh(listed_logits_, listed, max_, inverse_temperature_, weights_);
    double total = 0.0;
    if (spec_.top_p < 1.0F && top_k) {
      for (int64_t i = 0; i < listed; ++i) {
        total += static_cast<double>(weights_[i]);
      }
    } else if (spec_.top_p < 1.0F) {
      float spare[kSampleChunk];
      total = total_weight(inverse_temperature_, spare);
    }
    const double wanted = spec_.top_p < 1.0F ? static_cast<double>(spec_.top_p) * total
                                             : std::numeric_limits<double>::infinity();
    double mass = 0.0;
    for (int64_t i = 0; i < listed; ++i) {
      if (i > 0 && (mass >= wanted || weights_[i] < spec_.min_p)) {
        return i;
      }
      mass += static_cast<double>(weights_[i]);
    }
    return everything ? listed : 0;
  }

  // Draws among the first `kept` of the list, whose weights are in weights_.
  int32_t draw_listed(int64_t kept, double u) {
    double total = 0.0;
    for (int64_t i = 0; i < kept; ++i) {
      list_[i].logit = weights_[i];  // from here on the list holds weights
    }
    std::sort(list_, list_ + kept,
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
    for (int64_t i = 0; i < kept; ++i) {
      total += static_cast<double>(list_[i].logit);
    }
    double mass = 0.0;
    int32_t last = list_[0].token;
    for (int64_t i = 0; i < kept; ++i) {
      mass += static_cast<double>(list_[i].logit);
      last = list_[i].logit > 0.0F ? list_[i].token : last;
      if (mass > u * total) {
        return list_[i].token;
      }
    }
    return last;  // the running sum was rounded below the total
  }

  double total_weight(float inverse_temperature) {
    return total_weight(inverse_temperature, weights_);
  }
  double total_weight(float inverse_temperature, float* spare) {
    double total = 0.0;
    for (int64_t i = 0; i < count_; i += kSampleChunk) {
      const int64_t part = std::min(kSampleChunk, count_ - i);
      total += static_cast<double>(ops_.weigh(x_ + i, part, max_, inverse_temperature, spare));
    }
    return total;
  }

  // The filters over the whole row: tokens that are not kept become -infinity.
  void filter_row(bool top_k) {
    if (top_k) {
      apply(cut_by_count(spec_.top_k));
    }
    if (spec_.top_p < 1.0F) {
      const double total = total_weight(inverse_temperature_);
      apply(cut_by_weight(static_cast<double>(spec_.top_p) * total));
    }
    for (int64_t i = 0; spec_.min_p > 0.0F && i < count_; i += kSampleChunk) {
      const int64_t part = std::min(kSampleChunk, count_ - i);
      ops_.weigh(x_ + i, part, max_, inverse_temperature_, weights_);
      for (int64_t j = 0; j < part; ++j) {
        // The highest is kept whatever min_p is.
        x_[i + j] = weights_[j] < spec_.min_p && x_[i + j] < max_ ? -kInfinity : x_[i + j];
      }
    }
  }

  void apply(Cut cut) {
    for (int64_t i = 0; i < count_; ++i) {
      const bool tie = x_[i] == cut.logit && cut.ties > 0;
      cut.ties -= tie ? 1 : 0;
      if (!tie && !(x_[i] > cut.logit)) {
        x_[i] = -kInfinity;
      }
    }
  }

  // The cut that keeps `wanted` tokens: the key of the wanted-th is found digit by digit.
  [[nodiscard]] Cut cut_by_count(int64_t wanted) const {
    uint32_t prefix = 0;
    uint32_t mask = 0;
    int64_t before = 0;
    for (int digit = 0; digit < kDigits; ++digit) {
      int32_t counts[kBins[0]] = {};
      const uint32_t bin_mask = kBins[digit] - 1;
      for (int64_t i = 0; i < count_; ++i) {
        const uint32_t key = order_key(x_[i]);
        counts[(key >> kShifts[digit]) & bin_mask] += (key & mask) == prefix ? 1 : 0;
      }
      uint32_t bin = bin_mask;
      while (bin > 0 && before + counts[bin] < wanted) {
        before += counts[bin--];
      }
      prefix |= bin << kShifts[digit];
      mask |= bin_mask << kShifts[digit];
    }
    return {key_logit(prefix), wanted - before};
  }

  // The cut that keeps tokens while those before weigh less than `wanted`.
  Cut cut_by_weight(double wanted) {
    uint32_t prefix = 0;
    uint32_t mask = 0;
    double before = 0.0;
    Cut cut;
    for (int digit = 0; digit < kDigits; ++digit) {
      double sums[kBins[0]] = {};
      int32_t counts[kBins[0]] = {};
      const uint32_t bin_mask = kBins[digit] - 1;
      for (int64_t i = 0; i < count_; i += kSampleChunk) {
        const int64_t part = std::min(kSampleChunk, count_ - i);
        ops_.weigh(x_ + i, part, max_, inverse_temperature_, weights_);
        for (int64_t j = 0; j < part; ++j) {
          const uint32_t key = order_key(x_[i + j]);
          if ((key & mask) == prefix) {
            sums[(key >> kShifts[digit]) & bin_mask] += static_cast<double>(weights_[j]);
            ++counts[(key >> kShifts[digit]) & bin_mask];
          }
        }
      }
      // The lowest bin in use, should rounding keep the sum below `wanted`.
      uint32_t lowest = 0;
      while (counts[lowest] == 0) {
        ++lowest;
      }
      uint32_t bin = bin_mask;
      while (bin > lowest && (counts[bin] == 0 || before + sums[bin] < wanted)) {
        before += sums[bin--];
      }
      prefix |= bin << kShifts[digit];
      mask |= bin_mask << kShifts[digit];
      cut.ties = ties_within(wanted - before, sums[bin], counts[bin]);
    }
    cut.logit = key_logit(prefix);
    return cut;
  }

  // How many of `count` equal weights with this sum it takes to weigh `wanted`: at least 1.
  static int64_t ties_within(double wanted, double sum, int64_t count) {
    if (!(wanted < sum)) {
      return count;
    }
    const double needed = std::ceil(wanted / (sum / static_cast<double>(count)));
    return std::clamp<int64_t>(static_cast<int64_t>(needed), 1, count);
  }

  // Draws among all tokens of the row by their weights: first the piece, then the token in it.
  int32_t draw_from_row(double u) {
    const int64_t chunks = (count_ + kSampleChunk - 1) / kSampleChunk;
    const int64_t piece = (chunks + kMaxPieces - 1) / kMaxPieces * kSampleChunk;
    double sums[kMaxPieces] = {};
    double total = 0.0;
    for (int64_t i = 0; i < count_; i += kSampleChunk) {
      const int64_t part = std::min(kSampleChunk, count_ - i);
      const auto sum =
          static_cast<double>(ops_.weigh(x_ + i, part, max_, inverse_temperature_, weights_));
      sums[i / piece] += sum;
      total += sum;
    }
    double mass = 0.0;
    int64_t last_piece = 0;
    for (int64_t p = 0; p * piece < count_; ++p) {
      if (mass + sums[p] > u * total) {
        return draw_from_piece(p * piece, std::min((p + 1) * piece, count_), u * total - mass);
      }
      last_piece = sums[p] > 0.0 ? p : last_piece;
      mass += sums[p];
    }
    // The running sum was rounded below the total.
    const int64_t end = std::min((last_piece + 1) * piece, count_);
    return draw_from_piece(last_piece * piece, end, std::numeric_limits<double>::infinity());
  }

  // The token of begin .. end-1 at which the sum of weights exceeds `wanted`, or the last of any
  // weight.
  int32_t draw_from_piece(int64_t begin, int64_t end, double wanted) {
    double mass = 0.0;
    int64_t last = begin;
    for (int64_t i = begin; i < end; i += kSampleChunk) {
      const int64_t part = std::min(kSampleChunk, end - i);
      ops_.weigh(x_ + i, part, max_, inverse_temperature_, weights_);
      for (int64_t j = 0; j < part; ++j) {
        mass += static_cast<double>(weights_[j]);
        last = weights_[j] > 0.0F ? i + j : last;
        if (mass > wanted) {
          return static_cast<int32_t>(i + j);
        }
      }
    }
    return static_cast<int32_t>(last);
  }

  float* x_;
  int64_t count_;
  const SampleRow& spec_;
  const SampleOps& ops_;
  int64_t group_ = 0;
  int64_t groups_ = 0;
  float max_ = 0.0F;
  float inverse_temperature_ = 1.0F;
  float maxima_[kMaxGroups];
  Candidate list_[kListCapacity];
  float listed_logits_[kMaxListed];
  float weights_[kSampleChunk];
};

}  // namespace

void sample_rows(const SampleArgs& args, int64_t row_begin, int64_t row_end, const SampleOps& ops) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    Row(args.logits + row * args.stride, args.vocabulary, args.rows[row], ops)
        .run(args.results[row]);
    if (args.tokens != nullptr) {
      args.tokens[row] = args.results[row].token;
    }
  }
}

}  // namespace tandem::kernels
