// Two orders, one of each class: latency-sensitive entries go before best effort. Threads: the
// engine's.
#pragma once

#include <memory>
#include <utility>

#include "plan/queue_order.h"

namespace tandem {

class SplitOrder final : public QueueOrder {
 public:
  SplitOrder(std::unique_ptr<QueueOrder> latency_sensitive, std::unique_ptr<QueueOrder> best_effort)
      : latency_sensitive_(std::move(latency_sensitive)), best_effort_(std::move(best_effort)) {}

  [[nodiscard]] bool classes_first() const override { return true; }
  [[nodiscard]] bool reads_prefixes() const override { return best_effort_->reads_prefixes(); }
  void insert(QueueEntry& entry, const QueuePrefix& prefix) override {
    order_of(entry.service_class).insert(entry, prefix);
  }
  void erase(QueueEntry& entry) override { order_of(entry.service_class).erase(entry); }
  [[nodiscard]] bool counts_service() const override {
    return latency_sensitive_->counts_service() || best_effort_->counts_service();
  }
  void count_served(const QueueEntry& entry, const BlockHash& tenant, int32_t prompt_tokens,
                    int32_t output_tokens) override {
    order_of(entry.service_class).count_served(entry, tenant, prompt_tokens, output_tokens);
  }
  [[nodiscard]] std::span<QueueEntry* const> next(const QueueEntry* after) const override {
    if (after != nullptr && after->service_class == ServiceClass::kBestEffort) {
      return best_effort_->next(after);
    }
    const std::span<QueueEntry* const> run = latency_sensitive_->next(after);
    return run.empty() ? best_effort_->next(nullptr) : run;
  }
  [[nodiscard]] QueueEntry* head(ServiceClass service_class) const override {
    return order_of(service_class).head(service_class);
  }
  [[nodiscard]] size_t size(ServiceClass service_class) const override {
    return order_of(service_class).size(service_class);
  }

 private:
  [[nodiscard]] QueueOrder& order_of(ServiceClass service_class) const {
    return service_class == ServiceClass::kBestEffort ? *best_effort_ : *latency_sensitive_;
  }

  std::unique_ptr<QueueOrder> latency_sensitive_;
  std::unique_ptr<QueueOrder> best_effort_;
};

}  // namespace tandem
