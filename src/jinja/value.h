// The values a template works with: Python's None, bool, int, float, str, list, tuple, dict, range
// and generator, plus jinja2's Undefined, namespace and callables. Values share their contents and,
// namespaces apart, nothing changes them after they are made (the sandbox of chat templates refuses
// append() and its like), so copies are cheap and cycles can only pass through namespaces, which
// the interpreter owns and empties at the end. Integers have 128 bits: what JSON can hold, and
// overflow is a failure instead of a wrong number. Threads: a value may be read by many; generators
// (consumed by reading) and namespaces belong to one rendering.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/work.h"

namespace tandem::jinja {

__extension__ using Int = __int128;
__extension__ using UnsignedInt = unsigned __int128;

class Value;
class Interpreter;
struct Arguments;

struct None {};

struct Undefined {
  // Why it is undefined; the text of the failure when it is used.
  std::shared_ptr<const std::string> message;
};

struct Text {
  std::string text;
  bool is_markup = false;  // marked safe: `+` escapes what is joined to it
};

enum class SequenceKind { kList, kTuple, kGroup, kGenerator, kKeys, kValues, kItems };

struct Sequence;
struct Callable;
struct Object;
class Dict;

struct Range {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  [[nodiscard]] int64_t size() const;
};

// It has more than 25 public methods, because each kind of value has a constructor and an accessor.
class Value {
 public:
  using TextRef = std::shared_ptr<const Text>;
  using SequenceRef = std::shared_ptr<const Sequence>;
  using DictRef = std::shared_ptr<const Dict>;
  using RangeRef = std::shared_ptr<const Range>;
  using CallableRef = std::shared_ptr<const Callable>;
  using Any = std::variant<None, Undefined, bool, Int, double, TextRef, SequenceRef, DictRef,
                           RangeRef, CallableRef, Object*>;

  Value() = default;                                          // None
  Value(Undefined undefined) : any_(std::move(undefined)) {}  // NOLINT: implicit on purpose
  Value(TextRef text) : any_(std::move(text)) {}              // NOLINT
  Value(SequenceRef sequence) : any_(std::move(sequence)) {}  // NOLINT
  Value(DictRef dict) : any_(std::move(dict)) {}              // NOLINT
  Value(RangeRef range) : any_(std::move(range)) {}           // NOLINT
  Value(CallableRef callable) : any_(std::move(callable)) {}  // NOLINT
  Value(Object* object) : any_(object) {}                     // NOLINT: owned by the interpreter
  static Value boolean(bool value) { return Value(Any(value)); }
  static Value integer(Int value) { return Value(Any(value)); }
  static Value real(double value) { return Value(Any(value)); }
  static Value string(std::string text);
  static Value markup(std::string text);
  static Value undefined(std::string message);

  [[nodiscard]] bool is_none() const { return std::holds_alternative<None>(any_); }
  [[nodiscard]] bool is_undefined() const { return std::holds_alternative<Undefined>(any_); }
  [[nodiscard]] bool is_string() const { return std::holds_alternative<TextRef>(any_); }
  [[nodiscard]] bool is_dict() const { return std::holds_alternative<DictRef>(any_); }

  // Null when the value is of another type.
  [[nodiscard]] const bool* as_bool() const { return std::get_if<bool>(&any_); }
  [[nodiscard]] const double* as_real() const { return std::get_if<double>(&any_); }
  [[nodiscard]] const Text* as_text() const { return pointee<TextRef>(); }
  [[nodiscard]] const Sequence* as_sequence() const { return pointee<SequenceRef>(); }
  [[nodiscard]] const Dict* as_dict() const { return pointee<DictRef>(); }
  [[nodiscard]] const Range* as_range() const { return pointee<RangeRef>(); }
  [[nodiscard]] const Callable* as_callable() const { return pointee<CallableRef>(); }
  [[nodiscard]] Object* as_object() const {
    const auto* object = std::get_if<Object*>(&any_);
    return object == nullptr ? nullptr : *object;
  }
  // An int or a bool, which Python counts as one.
  [[nodiscard]] std::optional<Int> as_integer() const;
  // An int, bool or float.
  [[nodiscard]] std::optional<double> as_number() const;
  [[nodiscard]] bool is_plain_integer() const { return std::holds_alternative<Int>(any_); }
  // Null unless a sequence of that kind.
  [[nodiscard]] const Sequence* as_kind(SequenceKind kind) const;

  [[nodiscard]] const std::string& undefined_message() const;  // needs is_undefined()

 private:
  explicit Value(Any any) : any_(std::move(any)) {}
  template <class Ref>
  [[nodiscard]] auto pointee() const -> decltype(std::declval<Ref>().get()) {
    const Ref* ref = std::get_if<Ref>(&any_);
    return ref == nullptr ? nullptr : ref->get();
  }
  Any any_;
};

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  int depth = 1;
  std::vector<Value> items;
  mutable size_t consumed = 0;  // kGenerator only: items already given out
};

struct Callable {
  std::string name;
  std::string type_name;  // "Macro", "function", "builtin_function_or_method"
  std::function<Value(Interpreter&, const Arguments&)> call;
};

// A namespace(), or another object whose attributes a template may read (loop) but not set.
struct Object {
  explicit Object(std::string type) : type_name(std::move(type)) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  [[nodiscard]] virtual std::optional<Value> find(std::string_view name) const;
  // nullopt: it cannot be called.
  [[nodiscard]] virtual std::optional<Value> call(Interpreter& /*interpreter*/,
                                                  const Arguments& /*arguments*/) const {
    return std::nullopt;
  }
  void set(std::string_view name, Value value);

  std::string type_name;  // "Namespace", "LoopContext", ...
  bool is_namespace = false;
  std::vector<std::pair<std::string, Value>> attributes;
};

// Insertion ordered. Keys are hashable values; 1, 1.0 and True are the same key, as in Python.
class Dict {
 public:
  struct Entry {
    Value key;
    Value value;
  };
  // Replaces the value of an equal key. Fails on a key that cannot be hashed and past
  // kMaxValueDepth.
  void set(Value key, Value value, Work& work);
  [[nodiscard]] const Value* find(const Value& key, Work& work) const;  // null when absent
  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] size_t size() const { return entries_.size(); }
  [[nodiscard]] int depth() const { return depth_; }

 private:
  [[nodiscard]] const Entry* locate(const Value& key, size_t hash, Work& work) const;
  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, uint32_t>
      index_;  // by hash, filled once entries_ is no longer short
  int depth_ = 1;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Fails past kMaxValueDepth; charges `work` for the items.
Value make_sequence(SequenceKind kind, std::vector<Value> items, Work& work);
inline Value make_list(std::vector<Value> items, Work& work) {
  return make_sequence(SequenceKind::kList, std::move(items), work);
}
Value make_dict(Dict dict);
// A string, its bytes charged to `work`.
Value make_string(std::string text, Work& work);
// A string that is markup when `model` is.
Value make_string_like(const Text& model, std::string text, Work& work);

int value_depth(const Value& value);
bool is_truthy(const Value& value);
// Python's name of the type: "str", "NoneType", "list".
std::string_view type_name(const Value& value);
// jinja2's way to name an object in the message of an undefined attribute: "dict object", "None".
std::string object_name(const Value& value);

// len(); fails on what has none.
int64_t length_of(const Value& value, Work& work);
// All items that iterating gives, consuming a generator. Fails on what cannot be iterated.
std::vector<Value> items_of(const Value& value, Work& work);
bool is_iterable(const Value& value);

}  // namespace tandem::jinja
