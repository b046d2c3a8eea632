// Batches that come, are read ahead, submit lines and go at random, against a simple model.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "jobs/line_order.h"
#include "plan/fcfs_order.h"
#include "scheduler/psm_order.h"
#include "scheduler/split_order.h"
#include "scheduler/vtc_order.h"

namespace tandem::jobs {
namespace {

constexpr int64_t kPlaces = 24;
constexpr int64_t kKnownLines = 60;

class World {
 public:
  World(uint64_t seed, LineOrderOptions options) : random_(seed), order_(std::move(options)) {}

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      if (batches_.size() < 4 && one_in(8)) {
        begin();
      } else if (!batches_.empty()) {
        act(*batches_[below(batches_.size())]);
      }
      check();
    }
    while (!batches_.empty()) {  // a batch that is asked again and again comes to its end
      const int64_t before = given_;
      for (int asked = 0; asked < 200 && given_ == before && !batches_.empty(); ++asked) {
        act(*batches_[below(batches_.size())]);
        check();
      }
      ASSERT_TRUE(given_ > before || batches_.empty()) << "no batch gets a line";
    }
    EXPECT_EQ(order_.known_lines(), 0);
  }
  [[nodiscard]] int64_t given() const { return given_; }

 private:
  struct Batch {
    LineOrder::Batch* in = nullptr;
    int64_t lines = 0;
    int64_t next = 1;  // of the file, for both that read it
    bool reads = false;
    bool ended = false;  // the end of the file was seen
    int64_t ahead = 0;
    std::set<int64_t> known;
    std::set<int64_t> given;
  };

  uint64_t below(uint64_t limit) { return random_() % limit; }
  bool one_in(uint64_t chances) { return below(chances) == 0; }

  void begin() {
    auto batch = std::make_unique<Batch>();
    batch->lines = one_in(6) ? 0 : static_cast<int64_t>(below(200));
    batch->reads = order_.reads_prefixes();
    batch->in = &order_.join({.tenant = std::string(1, static_cast<char>('a' + below(2))),
                              .deadline = one_in(3) ? Nanos::max() : std::chrono::hours(below(3)),
                              .wake = [this] { ++woken_; }});
    batches_.push_back(std::move(batch));
  }

  void act(Batch& batch) {
    if (one_in(2) && batch.reads) {
      read_ahead(batch);
    } else if (one_in(3)) {
      batch.ahead -=
          batch.ahead > 0 ? 1 + static_cast<int64_t>(below(static_cast<uint64_t>(batch.ahead))) : 0;
    } else {
      submit(batch);
    }
    const bool done = batch.ended && batch.known.empty() && batch.ahead == 0;
    if (done || one_in(400)) {
      if (done) {
        EXPECT_EQ(std::ssize(batch.given), batch.lines);
      }
      leave(batch);
    }
  }

  void leave(Batch& batch) {
    if (batch.reads) {
      order_.end_reading(*batch.in);
    }
    order_.leave(*batch.in);
    std::erase_if(batches_, [&batch](const auto& each) { return each.get() == &batch; });
  }

  void read_ahead(Batch& batch) {
    if (known() >= kKnownLines) {
      return;
    }
    const std::atomic<bool> stop{false};
    ASSERT_TRUE(order_.begin_line(*batch.in, stop));
    if (batch.next > batch.lines) {
      end_of_file(batch);
      order_.end_line(*batch.in, nullptr, {});
      order_.end_reading(*batch.in);
      batch.reads = false;
      return;
    }
    const KnownLine line{.place = {.number = batch.next}, .duplicate = batch.next % 7 == 0};
    std::vector<BlockHash> names;
    for (uint64_t depth = below(5), name = 1; depth > 0; --depth) {
      name = name * 3 + below(3);
      names.push_back({name, name});
    }
    order_.end_line(*batch.in, &line, names);
    batch.known.insert(batch.next++);
  }

  void end_of_file(Batch& batch) {
    if (!batch.ended) {
      order_.end_of_file(*batch.in);
    }
    batch.ended = true;
  }

  void submit(Batch& batch) {
    while (order_.max_ahead(*batch.in, batch.ahead) > batch.ahead) {
      const LineOrder::Pick pick = order_.pick(*batch.in);
      int64_t number = 0;
      if (pick.line) {
        number = pick.line->place.number;
        EXPECT_EQ(batch.known.erase(number), 1U) << "line " << number << " is not known";
        EXPECT_EQ(pick.line->duplicate, number % 7 == 0);
      } else if (!pick.others_turn && batch.next <= batch.lines) {
        EXPECT_TRUE(batch.known.empty());
        number = batch.next++;
      } else {
        if (!pick.others_turn) {
          end_of_file(batch);
        }
        return;
      }
      EXPECT_TRUE(batch.given.insert(number).second) << "line " << number << " comes twice";
      ++given_;
      ++batch.ahead;
    }
  }

  [[nodiscard]] int64_t known() const {
    int64_t known = 0;
    for (const auto& batch : batches_) known += std::ssize(batch->known);
    return known;
  }
  void check() {
    int64_t ahead = 0;
    for (const auto& batch : batches_) {
      EXPECT_EQ(order_.known(*batch->in), std::ssize(batch->known));
      ahead += batch->ahead;
    }
    EXPECT_EQ(order_.known_lines(), known());
    EXPECT_LE(ahead, kPlaces * 3 / 2);
  }

  std::mt19937_64 random_;
  LineOrder order_;
  std::vector<std::unique_ptr<Batch>> batches_;
  int64_t given_ = 0;
  int64_t woken_ = 0;
};

TEST(LineWorld, EveryLineComesOnceWhateverTheOrder) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    for (const int32_t utility : {0, 1, 50, 90, 100}) {
      for (const bool fair : {false, true}) {
        const auto make = [&]() -> std::unique_ptr<QueueOrder> {
          std::unique_ptr<QueueOrder> order;
          if (utility == 0) {
            order = fcfs_order(FcfsOrder::By::kClassFirst);
          } else {
            order = std::make_unique<PsmOrder>(utility);
          }
          return fair ? std::make_unique<SplitOrder>(std::make_unique<VtcOrder>(), std::move(order))
                      : std::move(order);
        };
        World world(
            seed,
            {.max_sequences_ahead = kPlaces, .make_order = make, .max_known_lines = kKnownLines});
        world.run(600);
        EXPECT_GT(world.given(), 100) << "seed " << seed << ", utility " << utility;
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::jobs
