#include "device/cpu/stream_queue.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <variant>

namespace tandem::device {
namespace {

// Entries are told apart by the numbers of their events.
struct Numbered {
  StreamQueue queue;
  int64_t pushed = 0;
  int64_t taken = 0;

  void push(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      queue.push(RecordEntry{++pushed, nullptr});
    }
    queue.publish();
  }
  void take(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const StreamEntry* entry = queue.front();
      ASSERT_NE(entry, nullptr);
      ASSERT_EQ(std::get<RecordEntry>(*entry).event, ++taken);
      queue.pop();
    }
  }
  void take_all() {
    take(pushed - taken);
    EXPECT_EQ(queue.front(), nullptr);
  }
};

TEST(StreamQueue, GivesWhatWasPushedInOrder) {
  Numbered numbered;
  for (int64_t round = 1; round <= 40; ++round) {
    numbered.push(round * 37);
    numbered.take(round * 18);
  }
  numbered.take_all();
}

TEST(StreamQueue, ShowsNothingBeforeItIsPublished) {
  StreamQueue queue;
  queue.push(RecordEntry{1, nullptr});
  EXPECT_EQ(queue.front(), nullptr);
  queue.publish();
  EXPECT_NE(queue.front(), nullptr);
}

// Wherever the stream stands, at a segment's end with nothing consumed of the next one too, the
// issuing thread may go all the way around and add segments.
TEST(StreamQueue, AStreamGoesOnWhereItStoodHoweverMuchWasPushedMeanwhile) {
  constexpr int64_t kSegment = 256;
  for (int64_t place = 0; place <= 2 * kSegment + 1; ++place) {
    Numbered numbered;
    numbered.push(place);
    numbered.take_all();
    numbered.push(3 * kSegment + 1);
    numbered.take_all();
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << "at " << place;
  }
}

}  // namespace
}  // namespace tandem::device
