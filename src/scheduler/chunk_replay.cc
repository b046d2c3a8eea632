#include "scheduler/chunk_replay.h"

#include <algorithm>

#include "latency/questions.h"

namespace tandem {

int32_t chunk_within(const latency::StepTimeModel& model, const latency::StepShape& shape,
                     const ChunkAsk& ask, Nanos limit, LeastChunk least) {
  const int32_t most = std::min(ask.pending_tokens, ask.most_tokens);
  if (most < 1) {
    return 0;
  }
  const int32_t tile = least == LeastChunk::kTile ? std::min(most, kTileTokens) : 0;
  if (limit == Nanos::max()) {
    return most;
  }
  return std::max(tile, latency::largest_chunk(model, shape,
                                               {.computed_tokens = ask.computed_tokens,
                                                .pending_tokens = ask.pending_tokens,
                                                .last_logits = ask.choices,
                                                .most_tokens = most},
                                               limit));
}

std::vector<Nanos> replay_prompts(const latency::StepTimeModel& model, ReplayRules rules,
                                  std::span<const PromptAhead> prompts) {
  std::vector<Nanos> done(prompts.size(), Nanos::max());
  Nanos now{0};
  size_t next = 0;
  int64_t computed_of_next = prompts.empty() ? 0 : prompts[0].computed_tokens;
  for (int32_t step = 0; step < kReplaySteps && next < prompts.size(); ++step) {
    latency::StepShape shape = rules.decodes;
    int32_t room = rules.step_tokens - static_cast<int32_t>(shape.rows());
    const size_t first = next;
    LeastChunk least = LeastChunk::kTile;
    room = std::max(room, kTileTokens);
    while (next < prompts.size()) {
      const PromptAhead& prompt = prompts[next];
      const auto pending =
          static_cast<int32_t>(prompt.computed_tokens + prompt.pending_tokens - computed_of_next);
      const int32_t chunk = chunk_within(
          model, shape, {computed_of_next, pending, prompt.choices, room}, rules.limit, least);
      if (chunk == 0) {
        break;
      }
      least = LeastChunk::kNothing;
      room -= chunk;
      shape.add_prefill(computed_of_next, chunk, chunk == pending ? prompt.choices : 0);
      computed_of_next += chunk;
      if (chunk < pending) {
        break;
      }
      ++next;
      computed_of_next = next < prompts.size() ? prompts[next].computed_tokens : 0;
    }
    now += model.step_time(shape) + rules.apart;
    rules.decodes.decode_context += rules.decodes.decode_rows;
    for (size_t i = first; i < next; ++i) {
      done[i] = now;
      for (int32_t choice = 0; choice < prompts[i].choices; ++choice) {
        rules.decodes.add_decode(prompts[i].computed_tokens + prompts[i].pending_tokens + 1);
      }
    }
  }
  return done;
}

}  // namespace tandem
