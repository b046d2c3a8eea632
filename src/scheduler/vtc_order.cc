#include "scheduler/vtc_order.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace tandem {

namespace {

constexpr size_t kMostTenants =
    1024;                          // more are kept only while they wait or have been served more
constexpr size_t kExtension = 32;  // entries by which the line becomes longer

}  // namespace

void VtcOrder::insert(QueueEntry& entry, const QueuePrefix& prefix) {
  if (tenants_.size() > kMostTenants && waiting_tenants_ + kMostTenants / 2 < tenants_.size()) {
    forget_absent();
  }
  Tenant& tenant = tenants_[prefix.tenant];
  if (tenant.levels.empty()) {
    tenant.served = std::max(tenant.served, min_served());
    ++waiting_tenants_;
  }
  const bool is_new = tenant.levels[entry.level].emplace(key_of(entry), &entry).second;
  CHECK(is_new, "sequence {} waits already", raw(entry.id));
  waiting_.emplace(&entry, &tenant);
  ++sizes_[static_cast<size_t>(entry.service_class)];
  line_.begun = false;
}

void VtcOrder::erase(QueueEntry& entry) {
  const auto found = waiting_.find(&entry);
  CHECK(found != waiting_.end(), "sequence {} does not wait", raw(entry.id));
  Tenant& tenant = *found->second;
  waiting_.erase(found);
  Waiting& level = tenant.levels.at(entry.level);
  level.erase(key_of(entry));
  if (level.empty()) {
    tenant.levels.erase(entry.level);
  }
  --sizes_[static_cast<size_t>(entry.service_class)];
  waiting_tenants_ -= tenant.levels.empty() ? 1 : 0;
  last_ = &tenant;
  line_.begun = false;
}

void VtcOrder::count_served(const QueueEntry& /*entry*/, const BlockHash& tenant,
                            int32_t prompt_tokens, int32_t output_tokens) {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) {
    return;  // it was forgotten, and its sequences run on
  }
  found->second.served += prompt_tokens + kOutputWeight * output_tokens;
  line_.begun = false;
}

// The counter to which that of a tenant that comes back is raised.
int64_t VtcOrder::min_served() const {
  if (waiting_tenants_ == 0) {
    return last_ == nullptr ? 0 : last_->served;
  }
  int64_t lowest = std::numeric_limits<int64_t>::max();
  for (const auto& [name, tenant] : tenants_) {
    lowest = tenant.levels.empty() ? lowest : std::min(lowest, tenant.served);
  }
  return lowest;
}

// Forgets tenants whose counter would be raised anyway when they come back.
void VtcOrder::forget_absent() {
  const int64_t lowest = min_served();
  std::erase_if(tenants_, [this, lowest](const auto& named) {
    const Tenant& tenant = named.second;
    return &tenant != last_ && tenant.levels.empty() && tenant.served <= lowest;
  });
}

QueueEntry* VtcOrder::head(ServiceClass service_class) const {
  for (auto run = next(nullptr); !run.empty(); run = next(run.back())) {
    const auto found = std::ranges::find(run, service_class, &QueueEntry::service_class);
    if (found != run.end()) {
      return *found;
    }
  }
  return nullptr;
}

size_t VtcOrder::size(ServiceClass service_class) const {
  return sizes_[static_cast<size_t>(service_class)];
}

std::span<QueueEntry* const> VtcOrder::next(const QueueEntry* after) const {
  if (after == nullptr) {
    return line_from(0);
  }
  if (!line_.begun) {
    begin_line();
  }
  auto place = line_.places.find(after);
  while (place == line_.places.end()) {
    CHECK(extend_line(), "sequence {} does not wait", raw(after->id));
    place = line_.places.find(after);
  }
  return line_from(place->second + 1);
}

void VtcOrder::begin_line() const {
  line_.entries.clear();
  line_.entries.reserve(waiting_.size());  // spans of it stay valid while it is made longer
  line_.places = {};
  line_.served.clear();
  line_.begun = true;
  begin_level(std::numeric_limits<int32_t>::min());
}

bool VtcOrder::begin_level(int64_t lowest) const {
  line_.heap.clear();
  int64_t level = std::numeric_limits<int64_t>::max();
  for (const auto& [name, tenant] : tenants_) {
    for (const auto& [number, waiting] : tenant.levels) {
      level = number >= lowest ? std::min<int64_t>(level, number) : level;
    }
  }
  if (level == std::numeric_limits<int64_t>::max()) {
    return false;
  }
  line_.level = static_cast<int32_t>(level);
  for (const auto& [name, tenant] : tenants_) {
    const auto waiting = tenant.levels.find(line_.level);
    if (waiting != tenant.levels.end()) {
      const auto first = waiting->second.begin();
      const int64_t served = line_.served.try_emplace(&tenant, tenant.served).first->second;
      line_.heap.push_back({served, first->first, &tenant, first});
    }
  }
  std::make_heap(line_.heap.begin(), line_.heap.end());
  return true;
}

bool VtcOrder::extend_line() const {
  const size_t before = line_.entries.size();
  while (line_.entries.size() < before + kExtension) {
    if (line_.heap.empty()) {
      if (line_.entries.size() == waiting_.size() || !begin_level(int64_t{line_.level} + 1)) {
        break;
      }
    }
    std::pop_heap(line_.heap.begin(), line_.heap.end());
    Candidate& picked = line_.heap.back();
    QueueEntry* const entry = picked.next->second;
    line_.places.emplace(entry, line_.entries.size());
    line_.entries.push_back(entry);
    int64_t& served = line_.served.at(picked.tenant);
    served += entry->was_admitted ? 0 : entry->prompt_tokens;
    picked.served = served;
    if (++picked.next == picked.tenant->levels.at(line_.level).end()) {
      line_.heap.pop_back();
      continue;
    }
    picked.key = picked.next->first;
    std::push_heap(line_.heap.begin(), line_.heap.end());
  }
  return line_.entries.size() > before;
}

std::span<QueueEntry* const> VtcOrder::line_from(size_t place) const {
  if (!line_.begun) {
    begin_line();
  }
  while (place >= line_.entries.size() && extend_line()) {
  }
  return std::span(line_.entries).subspan(std::min(place, line_.entries.size()));
}

}  // namespace tandem
