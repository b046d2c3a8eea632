// Whose a name is, and when a loop's else part runs: what Python's jinja2 3.1 makes of it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "jinja/test_support.h"

namespace tandem::jinja {
namespace {

TEST(JinjaNames, AreThoseThatJinja2DecidesOnBeforeRunning) {
  const testing::Case cases[] = {
      {"{% for a in m %}{{ add_generation_prompt }}{% endfor %}{% set add_generation_prompt = "
       "false %}",
       ""},
      {"{% for a in m %}{{ x }}{% endfor %}{% set x = 1 %}{{ x }}", "1"},
      {"{{ x }}{% for a in m %}{{ x }}{% endfor %}{% set x = 1 %}{{ x }}", "2.52.52.52.51"},
      {"{% if l %}{{ x }}{% endif %}{% for a in l %}{{ x }}{% endfor %}{% set x = 1 %}",
       "2.52.52.52.5"},
      {"{% if l %}{% set x = 1 %}{% endif %}{% for a in l %}{{ x }}{% endfor %}", "111"},
      {"{% for a in l %}{{ x }}{% endfor %}{% if l %}{% set x = 1 %}{% endif %}{{ x }}",
       "2.52.52.51"},
      {"{% for a in l %}{{ x }}{% endfor %}{% if n %}{% set x = 1 %}{% else %}{% set x = 2 %}{% "
       "endif %}{{ x }}",
       "2.52.52.52"},
      {"{% macro f() %}[{{ x }}]{% endmacro %}{{ f() }}{% set x = 1 %}{{ f() }}", "[][1]"},
      {"{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f() }}{{ f(3) }}{{ x }}", "[][3]2.5"},
      {"{% with y = x %}{{ y }}{{ x }}{% endwith %}{% set x = 1 %}", "2.52.5"},
      {"{% with a = 1 %}{{ x }}{% endwith %}{% set x = 1 %}", ""},
      {"{% set t %}{{ x }}{% endset %}{% set x = 1 %}{{ t }}|{{ x }}", "|1"},
      {"{% filter upper %}{{ s }}{% endfilter %}{% set s = 'b' %}{{ s }}", "b"},
      {"{% filter upper %}{{ s }}{% set s = 'inner' %}{{ s }}{% endfilter %}{{ s }}",
       "HÉLLO WÖRLDINNERHéllo wörld"},
      {"{% generation %}{{ x }}{% endgeneration %}{% set x = 1 %}{{ x }}", "1"},
      {"{% macro g() %}{{ caller(1) }}{% endmacro %}{% call(a) g() %}{{ x }}{{ a }}{% endcall %}{% "
       "set x = 1 %}",
       "1"},
      {"{% for a in l %}{% for b in l %}{{ x }}{% endfor %}{% set x = a %}{{ x }}{% endfor %}{{ x "
       "}}",
       "2.52.52.532.52.52.512.52.52.522.5"},
      {"{% for a in l %}{% set x = a %}{% for b in [1] %}{{ x }}{% endfor %}{% endfor %}{{ x }}",
       "3122.5"},
      {"{% for a in l if x %}{{ a }}{% endfor %}{% set x = 1 %}", ""},
      {"{% for a in [] %}{% else %}{{ x }}{% endfor %}{% set x = 1 %}", ""},
      {"{% for x in l %}{{ x }}{% endfor %}{{ x }}", "3122.5"},
      {"{% for a in l %}{{ range is defined }}{% endfor %}{% set range = 1 %}", "FalseFalseFalse"},
      {"{% for a in l %}{{ f is defined }}{% endfor %}{% macro f() %}{% endmacro %}{{ f is defined "
       "}}",
       "FalseFalseFalseTrue"},
      {"{% set ns = namespace(x=0) %}{% for a in l %}{% set ns.x = a %}{% endfor %}{{ ns.x }}{{ x "
       "}}",
       "22.5"},
      {"{% for a in l %}{% set k, v = a, x %}{{ k }}{{ v }}{% endfor %}", "32.512.522.5"},
      {"{% for a in l %}{% with b = 1 %}{{ k }}{% endwith %}{% set k, v = a, x %}{% endfor %}{{ k "
       "}}",
       ""},
  };
  testing::expect_all(cases);
}

TEST(JinjaNames, ADefaultSeesTheParametersAndNotWhatTheyHide) {
  const testing::Case cases[] = {
      {"{% set l2 = [1] %}{% macro r(l2=l2) %}{{ l2 }}{% endmacro %}{{ r() }}{{ r(5) }}", "5"},
      {"{% macro r(a=b, b=1) %}{{ a }}/{{ b }}{% endmacro %}{{ r() }};{{ r(b=5) }};{{ r(1, 2) }}",
       "/1;5/5;1/2"},
      {"{% macro r(a, b=a, x=x) %}{{ a }}/{{ b }}/{{ x }}{% endmacro %}{{ r(1) }};{{ r(1, x=2) }}",
       "1/1/;1/1/2"},
  };
  testing::expect_all(cases);
}

TEST(JinjaNames, TheLoopOfALoopCannotBeAssigned) {
  const testing::Case cases[] = {
      {"{% for a in l %}{% set loop = 1 %}{% endfor %}",
       "error: inside a for, 'loop' cannot be assigned to"},
      {"{% for loop in l %}{% endfor %}", "error: inside a for, 'loop' cannot be assigned to"},
      {"{% set loop = 1 %}{{ loop }}", "1"},
  };
  testing::expect_all(cases);
}

// What a scope begins with is paid for in every iteration.
TEST(JinjaNames, ScopesThatBeginWithManyNamesAreBounded) {
  std::string inner;
  std::string sets;
  for (int i = 0; i < 2000; ++i) {
    inner += "{{ a" + std::to_string(i) + " }}";
    sets += "{% set a" + std::to_string(i) + " = 1 %}";
  }
  const std::string source = "{% for i in range(100000) %}{% if i < 0 %}{% for j in [] %}" + inner +
                             "{% endfor %}{% endif %}{% if i < 99999 %}{% continue %}{% endif %}" +
                             sets + "{% endfor %}";
  const auto result = testing::try_render(source, {});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("than a rendering may"), std::string::npos);
}

TEST(JinjaLoops, ElseRunsUnlessAnIterationCameToItsEnd) {
  const testing::Case cases[] = {
      {"{% for a in m %}{% if a.role == 'user' %}{% break %}{% endif %}{% else %}X{% endfor %}",
       "X"},
      {"{% for a in m %}{% continue %}{% else %}X{% endfor %}", "X"},
      {"{% for a in l %}{{ a }}{% if loop.index == 2 %}{% break %}{% endif %}{% else %}X{% endfor "
       "%}",
       "31"},
      {"{% for a in l %}{% if a == 1 %}{{ a }}{% else %}{% continue %}{% endif %}{% else %}X{% "
       "endfor %}",
       "1"},
      {"{% for a in l %}{% break %}{% else %}X{% endfor %}", "X"},
      {"{% for a in l %}{% for b in l %}{% break %}{% else %}{{ a }}{% if a == 1 %}{% break %}{% "
       "endif %}{% endfor %}{% endfor %}",
       "31"},
  };
  testing::expect_all(cases);
}

}  // namespace
}  // namespace tandem::jinja
