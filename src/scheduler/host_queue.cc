#include "scheduler/host_queue.h"

#include <algorithm>
#include <utility>

namespace tandem {

void HostQueue::sort(std::span<const SequenceView> offloaded, std::vector<SequenceView>& sorted) {
  places_.clear();
  for (size_t i = 0; i < offloaded.size(); ++i) {
    places_.push_back({offloaded[i].id, i});
  }
  std::ranges::sort(places_, {}, &Place::id);
  queued_.assign(offloaded.size(), false);
  sorted.clear();
  std::vector<SequenceId> order;
  order.reserve(offloaded.size());
  for (const SequenceId id : order_) {
    const auto place = std::ranges::lower_bound(places_, id, {}, &Place::id);
    if (place != places_.end() && place->id == id && !queued_[place->index]) {
      queued_[place->index] = true;
      order.push_back(id);
      sorted.push_back(offloaded[place->index]);
    }
  }
  for (size_t i = 0; i < offloaded.size(); ++i) {
    if (!queued_[i]) {
      order.push_back(offloaded[i].id);
      sorted.push_back(offloaded[i]);
    }
  }
  order_ = std::move(order);
}

void HostQueue::push_front(std::span<const SequenceId> ids) {
  order_.insert(order_.begin(), ids.rbegin(), ids.rend());
}

}  // namespace tandem
