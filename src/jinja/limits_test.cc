// Templates and inputs that mean harm: each must end soon, with an error, and leave nothing behind
// (the sanitizer runs see to the last).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "jinja/test_support.h"

namespace tandem::jinja {
namespace {

using ::testing::TestWithParam;

std::string repeated(const std::string& piece, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += piece;
  return out;
}

// Small limits, so that running into them takes no time.
Limits small_limits() {
  Limits limits;
  limits.max_steps = 200'000;
  limits.max_allocated_bytes = size_t{8} << 20;
  limits.max_output_bytes = size_t{1} << 20;
  return limits;
}

std::string error_of(const std::string& source) {
  const Result<std::string> result =
      testing::try_render(source, nlohmann::ordered_json::object(), small_limits());
  return result.ok() ? "no error" : result.error().message;
}

TEST(JinjaLimits, DeepSyntaxIsRefusedByTheParser) {
  const std::string sources[] = {
      "{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}",
      "{{ " + repeated("not ", 50000) + "1 }}",
      "{{ " + repeated("-", 50000) + "1 }}",
      "{{ " + repeated("1+", 50000) + "1 }}",
      "{{ a" + repeated(".a", 50000) + " }}",
      "{{ a" + repeated("|e", 50000) + " }}",
      "{{ a" + repeated("[0]", 50000) + " }}",
      "{{ " + repeated("1 if 1 else ", 50000) + "1 }}",
      repeated("{% if 1 %}", 5000),
      "{% for " + repeated("(", 5000) + "a" + repeated(")", 5000) + " in [] %}{% endfor %}",
  };
  for (const std::string& source : sources) {
    EXPECT_NE(error_of(source).find("nested too deeply"), std::string::npos)
        << source.substr(0, 40);
  }
}

TEST(JinjaLimits, EndlessRecursionIsStopped) {
  EXPECT_EQ(error_of("{% macro m() %}{{ m() }}{% endmacro %}\n{{ m() }}"),
            "chat template, line 1: maximum recursion depth exceeded");
  EXPECT_NE(error_of("{% for x in [[1]] recursive %}{{ loop([[x]]) }}{% endfor %}").find("deep"),
            std::string::npos);
  EXPECT_NE(error_of("{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}").find("recursion"),
            std::string::npos);
}

TEST(JinjaLimits, EndlessWorkIsStopped) {
  const char* sources[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% set s = 'x' * 100000 %}{% for a in range(100000) %}{{ s[99999] }}{% endfor %}",
      "{% set n = namespace(s=[1]) %}{% for a in range(90) %}{% set n.s = [n.s, n.s] %}{% endfor "
      "%}{{ n.s }}",
      "{% set n = namespace(s=[1]) %}{% for a in range(90) %}{% set n.s = [n.s, n.s] %}{% endfor %}"
      "{{ n.s|tojson }}",
      "{% set n = namespace(s=[1], t=[1]) %}{% for a in range(90) %}{% set n.s = [n.s, n.s] %}"
      "{% set n.t = [n.t, n.t] %}{% endfor %}{{ n.s == n.t }}",
      "{{ ('a' * 100000)|replace('a', 'b' * 100000) }}",
      "{{ ('a' * 100000)|replace('', 'b' * 100000) }}",
      "{{ range(10000)|join('x' * 10000) }}",
      "{% for a in range(100000) %}{{ 'x' * 10000 }}{% endfor %}",
  };
  for (const char* source : sources) {
    EXPECT_NE(error_of(source).find("than a rendering may"), std::string::npos)
        << source << ": " << error_of(source);
  }
}

TEST(JinjaLimits, HugeResultsAreRefusedBeforeTheyAreMade) {
  const char* sources[] = {
      "{{ 'x' * 9999999999999 }}",
      "{{ [1] * 9999999999999 }}",
      "{{ 'x'.center(999999999999) }}",
      "{{ 'x'.ljust(9223372036854775807) }}",
      "{{ '%9999999d' % 1 }}",
      "{{ 'a\\nb'|indent(99999999999) }}",
      "{{ [1]|tojson(indent=99999999999) }}",
      "{{ [1]|batch(99999999999, 'x')|list }}",
      "{{ [1]|slice(99999999999)|list }}",
      "{% set n = namespace(s='x') %}{% for a in range(90) %}{% set n.s = n.s + n.s %}{% endfor %}",
      "{% set n = namespace(s=[1]) %}{% for a in range(90) %}{% set n.s = n.s + n.s %}{% endfor %}",
  };
  for (const char* source : sources) {
    EXPECT_NE(error_of(source).find("than a rendering may"), std::string::npos)
        << source << ": " << error_of(source);
  }
  EXPECT_NE(error_of("{{ range(1000000) }}").find("Range too big"), std::string::npos);
  EXPECT_NE(error_of("{{ '%999999999999d' % 1 }}").find("too large"), std::string::npos);
  EXPECT_NE(error_of("{{ '%.99999f' % 1 }}").find("too large"), std::string::npos);
}

TEST(JinjaLimits, DeepValuesAreRefused) {
  const std::string deepen =
      "{% set n = namespace(s=[1]) %}{% for a in range(10000) %}{% set n.s = ";
  EXPECT_NE(error_of(deepen + "[n.s] %}{% endfor %}").find("nested too deeply"), std::string::npos);
  EXPECT_NE(error_of(deepen + "{'a': n.s} %}{% endfor %}").find("nested too deeply"),
            std::string::npos);

  nlohmann::ordered_json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = nlohmann::ordered_json::array({deep});
  const Result<std::string> result = testing::try_render("{{ v }}", {{"v", deep}});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("nested more than"), std::string::npos);
}

TEST(JinjaLimits, ChainsOfNamespacesAndMacrosAreTakenApartWithoutRecursion) {
  Limits limits;
  limits.max_steps = 1'000'000;
  const char* sources[] = {
      "{% set n = namespace(p=none) %}{% for a in range(20000) %}{% set n.p = namespace(p=n.p) "
      "%}{% endfor %}ok",
      "{% set n = namespace(p=none) %}{% for a in range(20000) %}{% set q = n.p %}"
      "{% macro m() %}{{ q }}{% endmacro %}{% set n.p = m %}{% endfor %}ok",
  };
  for (const char* source : sources) {
    const auto result = testing::try_render(source, nlohmann::ordered_json::object(), limits);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(*result, "ok");
  }
}

TEST(JinjaLimits, IntegersThatDoNotFitAreErrorsNotWrongNumbers) {
  const std::string smallest = "(-170141183460469231731687303715884105727 - 1)";
  for (const std::string& expression :
       {std::string("9 ** 9 ** 9"), std::string("2 ** 126 * 2"), "-" + smallest,
        smallest + " // -1", smallest + "|abs", smallest + " - 1",
        std::string("170141183460469231731687303715884105727|round(-38)")}) {
    EXPECT_NE(error_of("{{ " + expression + " }}").find("past 128 bits"), std::string::npos)
        << expression;
  }
  EXPECT_EQ(testing::render("{{ " + smallest + " % -1 }} {{ '%d' % " + smallest + " }}", {}),
            "0 -170141183460469231731687303715884105728");
  EXPECT_NE(error_of("{{ 9999999999999999999999999999999999999999999 }}").find("too large"),
            std::string::npos);
}

TEST(JinjaLimits, SlicesOutsideTheTextAreEmptyOrCut) {
  EXPECT_EQ(testing::render("{{ 'abc'[170141183460469231731687303715884105727:] }}"
                            "{{ 'abc'[::9223372036854775807] }}{{ 'abc'[::-9223372036854775807] }}"
                            "{{ [1, 2][-99999999999999999999:99999999999999999999:3] }}"
                            "{{ range(0, 1000000000000, 900000000000)[::1000000]|list }}",
                            {}),
            "ac[1][0]");
}

TEST(JinjaLimits, ALoopThatIsKeptStaysReadable) {
  EXPECT_EQ(testing::render(
                "{% set n = namespace() %}{% for x in [1, 2] %}{% set n.l = loop %}{% endfor %}"
                "{{ n.l.index }}{{ n.l.nextitem }}{{ n.l.previtem }}{{ n.l.revindex }}",
                {}),
            "211");
}

TEST(JinjaLimits, BrokenTextIsRefused) {
  EXPECT_NE(error_of("{{ '\xff' }}").find("not valid UTF-8"), std::string::npos);
  EXPECT_NE(error_of("{{ '\\ud800' }}").find("escape"), std::string::npos);
  const Result<std::string> result = testing::try_render("{{ v }}", {{"v", "\xc3("}});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("not valid UTF-8"), std::string::npos);
  EXPECT_EQ(testing::render(std::string("a\0{{ 1 }}", 9), {}), std::string("a\0"
                                                                           "1",
                                                                           3));
}

TEST(JinjaLimits, AnErrorTellsItsLine) {
  EXPECT_EQ(error_of("a\nb\n{{ 1 +\n 'x' }}"),
            "chat template, line 3: unsupported operand type(s) for +: 'int' and 'str'");
  EXPECT_EQ(error_of("{% macro m() %}\n{{ zz.a }}{% endmacro %}\n\n{{ m() }}"),
            "chat template, line 2: 'zz' is undefined");
  EXPECT_EQ(error_of("{% macro m() %}\nx{% endmacro %}\n\n{{ 1 + m() }}"),
            "chat template, line 4: unsupported operand type(s) for +: 'int' and 'str'");
  EXPECT_EQ(error_of("x\n{% if %}"), "chat template: line 2: an expression is expected");
}

TEST(JinjaLimits, TheSandboxHidesPythonAndKeepsValuesUnchanged) {
  EXPECT_EQ(error_of("{{ ''.__class__.__mro__ }}"),
            "chat template, line 1: access to attribute '__class__' of 'str' object is unsafe.");
  EXPECT_EQ(error_of("{{ [].append(1) }}"),
            "chat template, line 1: access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_EQ(error_of("{{ {}.update({}) }}"),
            "chat template, line 1: access to attribute 'update' of 'dict' object is unsafe.");
}

}  // namespace
}  // namespace tandem::jinja
