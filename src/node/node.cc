#include "node/node.h"

#include <algorithm>
#include <utility>

namespace tandem {

Result<std::unique_ptr<Node>> Node::open(NodeOptions options, const Clock& clock) {
  ASSIGN_OR_RETURN(SoleModel opened, open_model(options, clock));
  return create(std::move(options), std::move(opened), clock);
}

Result<std::unique_ptr<Node>> Node::create(NodeOptions options, SoleModel opened,
                                           const Clock& clock) {
  std::unique_ptr<Node> node(new Node());
  node->devices_.push_back(std::move(opened.device));
  ASSIGN_OR_RETURN(std::unique_ptr<Instance> instance,
                   Instance::create(std::move(options), std::move(opened.model), clock));
  node->instances_.push_back(std::move(instance));
  return node;
}

// A device's last call of a completion listener may still be on its way when the engine has seen
// its step end: devices end before the instances, which hold the listeners.
Node::~Node() {
  for (const auto& instance : instances_) {
    instance->stop();
  }
  for (const auto& device : devices_) {
    device->report_pace();
    device->end();
  }
}

Status Node::load(const std::function<void(const model::LoadProgress&)>& progress,
                  const latency::ProfileProgress& profile_progress) {
  for (const auto& instance : instances_) {
    RETURN_IF_ERROR(instance->load(progress, profile_progress));
  }
  return {};
}

void Node::set_failure_listener(const std::function<void()>& on_failed) {
  for (const auto& instance : instances_) {
    instance->frontend().set_failure_listener(on_failed);
  }
}

std::string Node::failure() const {
  for (const auto& instance : instances_) {
    if (std::string reason = instance->frontend().failure(); !reason.empty()) {
      return reason;
    }
  }
  return {};
}

FrontendLoad Node::request_load() const {
  FrontendLoad sum;
  for (const auto& instance : instances_) {
    const FrontendLoad own = instance->frontend().load();
    sum.running += own.running;
    sum.waiting += own.waiting;
  }
  return sum;
}

void Node::drain() {
  for (const auto& instance : instances_) {
    instance->frontend().drain();
  }
}

void Node::cancel_all() {
  for (const auto& instance : instances_) {
    instance->frontend().cancel_all();
  }
}

bool Node::idle() const {
  return std::ranges::all_of(instances_,
                             [](const auto& instance) { return instance->frontend().idle(); });
}

std::string Node::metrics_text() const {
  std::string text;
  for (const auto& instance : instances_) {
    text += instance->metrics_text();
  }
  return text;
}

std::string Node::status_json() const {
  std::string json;
  for (const auto& instance : instances_) {
    json += (json.empty() ? "[" : ",") + instance->status_json();
  }
  return json + "]";
}

}  // namespace tandem
