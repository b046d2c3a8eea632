#include "scheduler/fill_binder.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

constexpr int32_t kStages = 8;

std::vector<int32_t> bound(FillBinder binder, const BindView& view) {
  BindDecision decision{{99}};  // left over from another call
  binder.bind(view, decision);
  return decision.visitors;
}

BindView group(int32_t first_stage, std::span<const int32_t> ready,
               std::span<const int32_t> credits) {
  return {.first_stage = first_stage,
          .last_stage = kStages,
          .row_room = 100,
          .logit_room = 100,
          .ready = ready,
          .credits = credits};
}

TEST(FillBinder, EveryReadyVisitorJoinsWhereThereIsRoom) {
  const std::vector<int32_t> ready{3, 0, 5};
  const std::vector<int32_t> credits{100, 100, 100};
  EXPECT_EQ(bound(FillBinder(), group(2, ready, credits)), ready);
}

TEST(FillBinder, CreditsAreSharedByTheGroupAndTheLowestStageTakesFirst) {
  const std::vector<int32_t> ready{3, 4, 5};
  const std::vector<int32_t> credits{5, 5, 5};
  EXPECT_EQ(bound(FillBinder(), group(2, ready, credits)), (std::vector<int32_t>{3, 2, 0}));
}

TEST(FillBinder, RowsAndTheCapHoldAtEachStageByItself) {
  const std::vector<int32_t> ready{9, 9};
  const std::vector<int32_t> credits{100, 100};
  BindView view = group(0, ready, credits);
  view.row_room = 4;
  EXPECT_EQ(bound(FillBinder(), view), (std::vector<int32_t>{4, 4}));
  EXPECT_EQ(bound(FillBinder(2), view), (std::vector<int32_t>{2, 2}));
  EXPECT_EQ(bound(FillBinder(0), view), (std::vector<int32_t>{0, 0}));
}

TEST(FillBinder, TheLastStageNeedsLogitRowsAndNoCredits) {
  const std::vector<int32_t> ready{2, 6};
  const std::vector<int32_t> credits{2, 0};
  BindView view = group(kStages - 1, ready, credits);
  EXPECT_EQ(bound(FillBinder(), view), (std::vector<int32_t>{2, 6}));
  view.logit_room = 1;
  EXPECT_EQ(bound(FillBinder(), view), (std::vector<int32_t>{2, 1}));
  view.logit_room = 0;
  EXPECT_EQ(bound(FillBinder(), view), (std::vector<int32_t>{2, 0}));
}

TEST(FillBinder, AnEmptyGroupAndNegativeRoomBindNothing) {
  EXPECT_TRUE(bound(FillBinder(), group(3, {}, {})).empty());
  const std::vector<int32_t> ready{1};
  const std::vector<int32_t> credits{1};
  BindView view = group(0, ready, credits);
  view.row_room = -1;
  EXPECT_EQ(bound(FillBinder(), view), std::vector<int32_t>{0});
}

TEST(FillBinderDeathTest, ANegativeCapIsABug) { EXPECT_DEATH(FillBinder(-1), "cap of -1"); }

}  // namespace
}  // namespace tandem
