#include "node/loaded_model.h"

#include <utility>

namespace tandem {
namespace {

Result<model::Weights> weights_of(const PlannedModel& model,
                                  const std::function<void(const model::LoadProgress&)>& progress) {
  if (!model.device.caps().needs_weights) {
    return model::hollow_weights(model.folder.config, model.format,
                                 model.device.device().formats());
  }
  model::LoadOptions load;
  load.format = model.format;
  load.on_progress = progress;
  return model::load_weights(model.folder.path, model.folder.config, model.device.device(), load);
}

}  // namespace

Status check_weights(const PlannedModel& model) {
  if (!model.device.caps().needs_weights) {
    return {};
  }
  return model::check_weights(model.folder.path, model.folder.config, model.format,
                              model.device.device().formats());
}

Result<std::unique_ptr<LoadedModel>> load_model(
    const PlannedModel& model, const std::function<void(const model::LoadProgress&)>& progress,
    std::function<void()> on_step) {
  auto loaded = std::make_unique<LoadedModel>();
  ASSIGN_OR_RETURN(loaded->weights, weights_of(model, progress));
  ExecutorOptions options = model.plan.executor;
  if (model.plan.host.kv_blocks > 0) {
    loaded->binder = std::make_unique<LateBinder>();
    options.host.binder = loaded->binder.get();
  }
  ASSIGN_OR_RETURN(loaded->executor,
                   ForwardExecutor::create(model.folder.config, loaded->weights,
                                           model.device.device(), options, std::move(on_step)));
  return loaded;
}

}  // namespace tandem
