#include "jinja/template.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "jinja/interpreter.h"
#include "jinja/json.h"
#include "jinja/parser.h"

namespace tandem::jinja {
namespace {

constexpr size_t kMaxSourceBytes = size_t{1} << 20;

Error as_error(const Failure& failure, int line) {
  if (failure.kind == FailureKind::kTemplate) return invalid_argument(failure.message);
  const std::string where =
      line > 0 ? fmt::format("chat template, line {}", line) : "chat template";
  return invalid_argument(fmt::format("{}: {}", where, failure.message));
}

}  // namespace

Result<Template> Template::parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return invalid_argument(fmt::format("chat template: {} bytes are more than the limit of {}",
                                        source.size(), kMaxSourceBytes));
  }
  if (const auto invalid = find_invalid_utf8(source)) {
    return invalid_argument(fmt::format("chat template: byte {} is not valid UTF-8", *invalid));
  }
  try {
    return Template(std::make_shared<const SyntaxTree>(parse_template(source)));
  } catch (const Failure& failure) {
    return as_error(failure, 0);  // the parser puts the line into the message
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResourceExhausted, "chat template: no memory to read it", {}};
  }
}

Result<std::string> Template::render(const std::vector<Variable>& variables,
                                     std::chrono::local_seconds now, const Limits& limits) const {
  Interpreter interpreter(limits, now);
  try {
    std::vector<std::pair<std::string, Value>> values;
    for (const Variable& variable : variables) {
      values.emplace_back(variable.name, from_json(*variable.value, interpreter.work()));
    }
    return interpreter.render(*tree_, std::move(values));
  } catch (const Failure& failure) {
    return as_error(failure, interpreter.current_line());
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResourceExhausted, "chat template: no memory to render it", {}};
  }
}

}  // namespace tandem::jinja
