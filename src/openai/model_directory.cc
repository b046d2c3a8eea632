#include "openai/model_directory.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/check.h"

namespace tandem::openai {

ModelDirectory::ModelDirectory(const std::vector<ModelServices>& models,
                               const RequestLimits& limits,
                               const std::function<std::chrono::local_seconds()>& local_time)
    : limits_(limits) {
  CHECK(!models.empty(), "a directory without models");
  models_.reserve(models.size());
  std::set<std::string_view> taken;
  for (const ModelServices& services : models) {
    const ServedModel& model = services.frontend.model();
    const std::set<std::string_view> names(model.names.begin(), model.names.end());
    CHECK(!names.empty(), "a served model without a name");
    for (const std::string_view name : names) {
      CHECK(taken.insert(name).second, "two models are called '{}'", name);
    }
    models_.push_back({.frontend = services.frontend,
                       .parse = {.model = model,
                                 .tokenizer = services.tokenizer,
                                 .chat_template = services.chat_template,
                                 .defaults = services.defaults,
                                 .limits = limits,
                                 .local_time = local_time}});
  }
}

Result<const OfferedModel*> ModelDirectory::find(std::string_view name) const {
  if (name.empty()) {
    return &models_.front();
  }
  std::vector<std::string_view> names;
  for (const OfferedModel& offered : models_) {
    for (const std::string& own : offered.parse.model.names) {
      if (own == name) {
        return &offered;
      }
      names.emplace_back(own);
    }
  }
  return unknown_model(name, names);
}

Result<const OfferedModel*> ModelDirectory::find_for(const FieldReader& body) const {
  ASSIGN_OR_RETURN(const auto name, body.string("model"));
  return find(name.value_or(""));
}

Result<RoutedGeneration> parse_generation(Endpoint endpoint, std::string_view body,
                                          const ModelDirectory& models) {
  ASSIGN_OR_RETURN(const Json json, parse_object(body, models.limits().json));
  const FieldReader fields(json);
  ASSIGN_OR_RETURN(const OfferedModel* model, models.find_for(fields));
  ASSIGN_OR_RETURN(GenerationRequest request, parse_generation(endpoint, fields, model->parse));
  return RoutedGeneration{model, std::move(request)};
}

}  // namespace tandem::openai
