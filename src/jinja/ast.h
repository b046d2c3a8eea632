// The syntax tree of a template. Made once by the parser, then read by any number of threads.
// Depth is bounded by the parser (kMaxSyntaxDepth), so walking and destroying a tree by recursion
// is safe.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/value.h"

namespace tandem::jinja {

inline constexpr int kMaxSyntaxDepth = 200;

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  struct Argument {
    enum class Kind { kPositional, kNamed, kUnpackList, kUnpackDict };
    Kind kind;
    std::string name;  // kNamed
    ExpressionPtr value;
  };
  std::vector<Argument> arguments;
};

struct Constant {
  Value value;
};
struct Name {
  std::string name;
};
struct ListLiteral {
  std::vector<ExpressionPtr> items;
};
struct TupleLiteral {
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct Attribute {  // object.name
  ExpressionPtr object;
  std::string name;
};
struct Item {  // object[key]
  ExpressionPtr object;
  ExpressionPtr key;
};
struct Slice {  // object[start:stop:step]; absent parts are null
  ExpressionPtr object;
  ExpressionPtr start;
  ExpressionPtr stop;
  ExpressionPtr step;
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct Filter {
  ExpressionPtr input;  // null in a filter block: the block's text
  std::string name;
  CallArguments arguments;
};
struct Test {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};

enum class UnaryOperator { kNot, kNegate, kPlus };
struct Unary {
  UnaryOperator operation;
  ExpressionPtr operand;
};
enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
struct Binary {
  BinaryOperator operation;
  ExpressionPtr left;
  ExpressionPtr right;
};
enum class LogicOperator { kAnd, kOr };
struct Logic {
  LogicOperator operation;
  ExpressionPtr left;
  ExpressionPtr right;
};
enum class CompareOperator {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};
struct Comparison {  // first op operand op operand ...: every pair must hold
  ExpressionPtr first;
  std::vector<std::pair<CompareOperator, ExpressionPtr>> rest;
};
struct Concatenation {  // a ~ b ~ c
  std::vector<ExpressionPtr> parts;
};
struct Conditional {  // value if condition else otherwise (null: undefined)
  ExpressionPtr value;
  ExpressionPtr condition;
  ExpressionPtr otherwise;
};

struct Expression {
  int line = 1;
  int depth = 1;  // of this tree: 1 + the deepest child's, at most kMaxSyntaxDepth
  std::variant<Constant, Name, ListLiteral, TupleLiteral, DictLiteral, Attribute, Item, Slice, Call,
               Filter, Test, Unary, Binary, Logic, Comparison, Concatenation, Conditional>
      node;
};

struct Statement;
using Body = std::vector<Statement>;

// What a scope begins with: `unset` below are names that are set in it and undefined until then,
// even where the caller gives a variable of that name.
using Variables = std::vector<std::pair<std::string, Value>>;

// What a for or set writes to: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;        // not empty: name.attribute
  std::vector<Target> targets;  // used when `name` is empty
};

struct OutputText {
  std::string text;
};
struct OutputValue {
  ExpressionPtr value;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // or null
  Body body;
  Body otherwise;
  bool is_recursive = false;
  Variables unset;            // of an iteration
  Variables unset_otherwise;  // of the else part
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;  // a chain of Filters whose innermost input is null, or null
  Body body;
  Variables unset;
};
struct MacroDefinition {
  struct Parameter {
    std::string name;
    ExpressionPtr fallback;  // or null
  };
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  Variables unset;
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};
struct CallBlock {
  ExpressionPtr call;  // a Call
  std::shared_ptr<MacroDefinition> caller;
};
struct FilterBlock {
  ExpressionPtr filter;  // as in SetBlock, never null
  Body body;
  Variables unset;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Body body;
  Variables unset;
};
struct Generation {  // marks what the model said; its text is copied
  Body body;
  Variables unset;
};
struct Break {};
struct Continue {};

struct Statement {
  int line = 1;
  std::variant<OutputText, OutputValue, For, If, Set, SetBlock, std::shared_ptr<MacroDefinition>,
               CallBlock, FilterBlock, With, Generation, Break, Continue>
      node;
};

struct SyntaxTree {
  Body body;
  Variables unset;
};

}  // namespace tandem::jinja
