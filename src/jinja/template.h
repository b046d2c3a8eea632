// A Jinja template of the kind that Hugging Face models carry, rendered as Python's jinja2 3.1 does
// in the environment of transformers: sandboxed, trim_blocks, lstrip_blocks, loop controls,
// generation blocks, tojson = json.dumps without ASCII escapes. Left out: import, include, extends
// and block, the filters that make HTML or texts for people, and random. Neither a template nor its
// input is trusted: work, memory, output and nesting are bounded. Threads: a parsed template may be
// rendered by any number of threads at once. Nothing is thrown.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "jinja/work.h"

namespace tandem::jinja {

struct SyntaxTree;

// A variable of a template. ordered_json, because templates print objects in the order of their
// keys.
struct Variable {
  std::string name;
  const nlohmann::ordered_json* value;  // borrowed for the call
};

class Template {
 public:
  // A source that is not a template gives kInvalidArgument with the line.
  static Result<Template> parse(std::string_view source);

  // `now` is what strftime_now() tells. Errors are kInvalidArgument: the message given to
  // raise_exception() as it is, or what is wrong with its line; kResourceExhausted when memory runs
  // out.
  [[nodiscard]] Result<std::string> render(const std::vector<Variable>& variables,
                                           std::chrono::local_seconds now,
                                           const Limits& limits = Limits()) const;

 private:
  explicit Template(std::shared_ptr<const SyntaxTree> tree) : tree_(std::move(tree)) {}
  std::shared_ptr<const SyntaxTree> tree_;
};

}  // namespace tandem::jinja
