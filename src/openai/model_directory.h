// The models that a server offers: for each the front end that runs its requests and the text side
// that makes them. A body's "model", a model's own name or an alias, says which one is meant;
// without it, the first is. Fixed once made. Threads: any. Borrows front ends and text services.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "openai/generation_request.h"
#include "request/frontend.h"

namespace tandem::openai {

// What serves one model. Its names are those of `frontend.model()`.
struct ModelServices {
  Frontend& frontend;
  const text::Tokenizer& tokenizer;
  const text::ChatTemplate& chat_template;
  GenerationDefaults defaults;
};

struct OfferedModel {
  Frontend& frontend;
  ParseContext parse;
};

class ModelDirectory {
 public:
  // At least one model; no name may stand for two of them.
  ModelDirectory(const std::vector<ModelServices>& models, const RequestLimits& limits,
                 const std::function<std::chrono::local_seconds()>& local_time);

  // kNotFound (code "model_not_found"): there is no model of this name; the error lists all names.
  [[nodiscard]] Result<const OfferedModel*> find(std::string_view name) const;
  // The model that the field "model" of a body names.
  [[nodiscard]] Result<const OfferedModel*> find_for(const FieldReader& body) const;

  [[nodiscard]] std::span<const OfferedModel> models() const { return models_; }
  [[nodiscard]] const RequestLimits& limits() const { return limits_; }

 private:
  RequestLimits limits_;
  std::vector<OfferedModel> models_;
};

struct RoutedGeneration {
  const OfferedModel* model = nullptr;
  GenerationRequest request;
};

// Reads a body for the model that it names. Errors as of find() and parse_generation() for one
// model.
[[nodiscard]] Result<RoutedGeneration> parse_generation(Endpoint endpoint, std::string_view body,
                                                        const ModelDirectory& models);

}  // namespace tandem::openai
