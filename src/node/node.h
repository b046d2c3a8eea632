// A node: the devices of this machine that Tandem uses, and the models that it serves on them, an
// instance each. One device and one instance today. open is quick (small files only) so that a
// server can listen and say "loading" while load works.
//
// Threads: open and load on one thread; the rest from any.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "node/instance.h"
#include "node/node_device.h"
#include "node/node_options.h"
#include "node/planned_model.h"

namespace tandem {

class Node {
 public:
  static Result<std::unique_ptr<Node>> open(NodeOptions options, const Clock& clock);
  // The same for a model that open_model has opened, with the options as that left them.
  static Result<std::unique_ptr<Node>> create(NodeOptions options, SoleModel opened,
                                              const Clock& clock);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Loads all instances, one after the other.
  Status load(const std::function<void(const model::LoadProgress&)>& progress,
              const latency::ProfileProgress& profile_progress);

  // At least one.
  [[nodiscard]] std::span<const std::unique_ptr<Instance>> instances() const { return instances_; }

  // Called on an engine's thread when its engine has failed for good; to be set before load.
  void set_failure_listener(const std::function<void()>& on_failed);
  // Why the first instance that has failed did so; empty: none has.
  [[nodiscard]] std::string failure() const;

  // Of all instances together.
  [[nodiscard]] FrontendLoad request_load() const;
  void drain();                     // refuse new requests, finish accepted ones
  void cancel_all();                // and end those too
  [[nodiscard]] bool idle() const;  // nothing accepted is unfinished
  [[nodiscard]] std::string metrics_text() const;
  [[nodiscard]] std::string status_json() const;  // a list: Instance::status_json() of each

 private:
  Node() = default;

  std::vector<std::unique_ptr<NodeDevice>> devices_;
  std::vector<std::unique_ptr<Instance>> instances_;
};

}  // namespace tandem
