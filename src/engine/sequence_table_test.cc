#include "engine/sequence_table.h"

#include <gtest/gtest.h>

#include "engine/test_parts.h"

namespace tandem {
namespace {

using testing::EngineTestParts;

std::vector<int64_t> requests_of(const auto& sequences) {
  std::vector<int64_t> ids;
  for (const LiveSequence* sequence : sequences) {
    ids.push_back(raw(sequence->request));
  }
  return ids;
}

TEST(SequenceTable, QueuesByClassLevelAndArrivalWhoeverComesFirst) {
  EngineTestParts parts;
  Request low;
  low.level = 5;
  parts.add_flex(1, 4);
  parts.add(2, 4, low);
  parts.add(3, 4);
  parts.add_flex(4, 4);
  parts.add(5, 4);
  EXPECT_EQ(requests_of(parts.table.waiting()), (std::vector<int64_t>{3, 5, 2, 1, 4}));
  EXPECT_EQ(parts.table.waiting().size(ServiceClass::kBestEffort), 2U);
  parts.expect_sound();
}

TEST(SequenceTable, QueuesByArrivalAloneIfThePolicyWantsIt) {
  EngineTestParts parts(FcfsOrder::By::kArrival);
  parts.add_flex(1, 4);
  parts.add(2, 4);
  parts.add_flex(3, 4);
  EXPECT_EQ(requests_of(parts.table.waiting()), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(parts.table.waiting().size(ServiceClass::kBestEffort), 2U);
}

TEST(SequenceTable, ARequeuedSequenceIsNotOvertakenByYoungerOnes) {
  EngineTestParts parts;
  parts.add(1, 4);
  LiveSequence& dropped = parts.add_decoding(2, 4);
  parts.add(3, 4);
  parts.mover.drop(dropped);
  EXPECT_EQ(requests_of(parts.table.waiting()), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(parts.table.count(SequenceState::kDropped), 1);
  EXPECT_TRUE(parts.table.running().empty());
  parts.expect_sound();
}

TEST(SequenceTable, ForksStandBehindTheirParentAndShareItsBlocks) {
  EngineTestParts parts;
  Request request;
  request.n = 3;
  LiveSequence& parent = parts.add(1, 6, request);
  EXPECT_EQ(parent.choices, 3);
  parts.table.admit(parent);
  ASSERT_TRUE(parts.kv.grow(parent.kv, 6));
  parent.computed_tokens = 6;
  parts.table.change(parent, SequenceState::kDecoding);
  EXPECT_EQ(parts.table.places_left(8), 5) << "a prompt takes the places of its choices";
  LiveSequence& other = parts.add_decoding(2, 4);
  const int64_t free = parts.kv.free_blocks();
  parts.table.make_forks(parent, parts.kv);
  EXPECT_EQ(parts.kv.free_blocks(), free);
  EXPECT_EQ(requests_of(parts.table.running()), (std::vector<int64_t>{1, 1, 1, 2}));
  EXPECT_EQ(parts.table.running()[1]->choice, 1);
  EXPECT_EQ(parts.table.count(SequenceState::kDecoding), 4);
  EXPECT_EQ(parts.table.of_request(RequestId{1}).size(), 3U);
  EXPECT_EQ(parts.table.places_left(8), 4);
  size_t place = 0;
  EXPECT_EQ(parts.table.running_at(other.id, place), &other);
  EXPECT_EQ(place, 4U);
  EXPECT_EQ(parts.table.running_at(SequenceId{99}, place), nullptr);
  parts.expect_sound();
}

TEST(SequenceTable, AnEndedSequenceKeepsItsBlocksUntilNothingOfItIsInFlight) {
  EngineTestParts parts;
  LiveSequence& sequence = parts.add_decoding(1, 6);
  sequence.in_executor = true;
  parts.table.change(sequence, SequenceState::kFinishing);
  parts.table.remove_ended(parts.kv);
  EXPECT_EQ(parts.table.size(), 1);
  EXPECT_EQ(parts.kv.free_blocks(), 30);
  sequence.in_executor = false;
  parts.table.remove_ended(parts.kv);
  EXPECT_EQ(parts.table.size(), 0);
  EXPECT_EQ(parts.kv.free_blocks(), 32);
  EXPECT_TRUE(parts.table.of_request(RequestId{1}).empty());
  EXPECT_TRUE(parts.table.requests().empty());
}

TEST(SequenceTable, SequencesThatEndWhileTheyWaitGoWhereverTheyStand) {
  EngineTestParts parts;
  std::vector<LiveSequence*> waiting;
  for (int64_t id = 1; id <= 6; ++id) {
    waiting.push_back(&parts.add(id, 4));
  }
  parts.table.change(*waiting[4], SequenceState::kFinishing);
  parts.table.change(*waiting[1], SequenceState::kFinishing);
  parts.table.remove_ended(parts.kv);
  EXPECT_EQ(requests_of(parts.table.waiting()), (std::vector<int64_t>{1, 3, 4, 6}));
  parts.table.change(*waiting[0], SequenceState::kFinishing);
  parts.table.remove_ended(parts.kv);
  EXPECT_EQ(requests_of(parts.table.waiting()), (std::vector<int64_t>{3, 4, 6}));
  parts.expect_sound();
}

TEST(LiveSequence, WhatEveryStepTouchesComesFirst) {
  const LiveSequence sequence;
  const auto* begin = reinterpret_cast<const char*>(&sequence);
  EXPECT_LE(reinterpret_cast<const char*>(&sequence.hashes) - begin,
            static_cast<int64_t>(LiveSequence::kBusyBytes));
  EXPECT_LT(reinterpret_cast<const char*>(&sequence.sink_tag),
            reinterpret_cast<const char*>(&sequence.hashes));
}

}  // namespace
}  // namespace tandem
