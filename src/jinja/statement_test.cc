// Statements, with what Python's jinja2 3.1 makes of them in the environment of chat templates.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "jinja/test_support.h"

namespace tandem::jinja {
namespace {

struct Statement {
  const char* source;
  const char* text;
};

std::string render_source(const std::string& source) {
  static const nlohmann::ordered_json variables = nlohmann::ordered_json::parse(R"json({
    "s": "Héllo wörld", "n": null, "i": 7, "x": 2.5, "l": [3, 1, 2],
    "d": {"b": 1, "a": [1, 2], "items": 5},
    "m": [{"role": "user", "content": "hi", "n": {"k": 2}}, {"role": "assistant", "content": null},
          {"role": "user", "content": "  x "}]})json");
  return testing::render(source, variables);
}

void expect_all(std::span<const Statement> cases) {
  for (const Statement& c : cases) EXPECT_EQ(render_source(c.source), c.text) << c.source;
}

TEST(JinjaStatement, MacrosAreThoseOfJinja2) {
  const Statement cases[] = {
      {"{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) "
       "}}{{ m(1, c=4) }}{{ m() }}{{ m(a=1,b=2,c=3)|upper }}",
       "1-2-x;1-3-x;1-2-4;-2-x;1-2-3;"},
      {"{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1,2,3,x=4) }}",
       "1(2, 3){'x': 4}"},
      {"{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m.name }}", "11m"},
      {"{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * fact(n - 1)|int }}{% endif %}{% "
       "endmacro %}{{ fact(10) }}",
       "3628800"},
      {"{% macro outer() %}[{{ caller() }}]{% endmacro %}{% call outer() %}body {{ s }}{% endcall "
       "%}",
       "[body Héllo wörld]"},
      {"{% macro outer() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b) outer() %}{{ a + b }}{% "
       "endcall %}",
       "[3]"},
      {"{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}", "312"},
      {"{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "2"},
      {"{% macro m() %}{% for x in [1] %}{{ x }}{% endfor %}{% endmacro %}{% set ns = "
       "namespace(f=m) %}{{ ns.f() }}",
       "1"},
      {"{{ caller is defined }}{% set loop = 3 %}{{ loop }}", "False3"},
      {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "B"},
      {"{% macro foo(a,b,c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ foo(1, *[2], **{'c': 3}) }}",
       "123"},
      {"{% macro m(x) %}{% set y = x %}{{ y }}{% endmacro %}{{ m(1) }}{{ y is defined }}",
       "1False"},
  };
  expect_all(cases);
}

TEST(JinjaStatement, WhiteSpaceAndCommentsAreThoseOfJinja2) {
  const Statement cases[] = {
      {"{% raw %}{{ x }} {% if %}{% endraw %}!", "{{ x }} {% if %}!"},
      {"a\n  {% raw -%}\n   x\n  {%- endraw %}\nb", "a\nxb"},
      {"  {% if true %}\n  a\n  {% endif %}\nb", "  a\nb"},
      {"  {%+ if true %}\n  a\n  {%- endif +%}\nb", "    a\nb"},
      {"a  {%- if true -%}  b  {%- endif -%}  c", "abc"},
      {"{{- 'a' -}}   b   {{- 'c' }}", "abc"},
      {"line {# comment #} x\n   {# alone #}\ny {#- stripped -#}   z", "line  x\nyz"},
      {"{#- c -#}\n\n x", "x"},
      {"    {{ 1 }}\n  {% set a = 1 %}  {{ a }}", "    1\n  1"},
      {"a\n", "a"},
      {"{%- set x = 5 -%}\n {{ x }}", "5"},
      {"{%if true%}a{%endif%}{{x}}{{-x-}}", "a2.52.5"},
      {"x\n{% set a = 1 %}\n{% set b = 2 %}\n\ny", "x\n\ny"},
      {"{{ 5 }}\n{{ 6 }}", "5\n6"},
      {"{% for x in range(3) -%}\n  {{ x }},\n{%- endfor %}", "0,1,2,"},
      {"{%- for x in m -%}\n    {%- if x.role == 'user' -%}\n        {{ '<u>' + x.content }}\n    "
       "{%- elif x.content is none -%}\n        none\n    {%- endif -%}\n{%- endfor -%}",
       "<u>hinone<u>  x "},
      {"{% for x in l %}{% if loop.first %}{% set z = 1 %}{% endif %}{{ z }}{% endfor %}\n", "1"},
  };
  expect_all(cases);
}

TEST(JinjaStatement, AssignmentsAreThoseOfJinja2) {
  const Statement cases[] = {
      {"{% set x = 1 %}{% for i in l %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "2221"},
      {"{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x "
       "}}",
       "7"},
      {"{% if true %}{% set q = 5 %}{% endif %}{{ q }}", "5"},
      {"{% set x %}block {{ s }}{% endset %}{{ x }}|{{ x|length }}{% set y | upper %}abc{% endset "
       "%}{{ y }}",
       "block Héllo wörld|17ABC"},
      {"{% set x %}{% set inner = 1 %}{% endset %}{{ inner is defined }}", "False"},
      {"{% with a = 1, b = 2 %}{{ a + b }}{% set c = 3 %}{% endwith %}{{ c is defined }}{{ a is "
       "defined }}",
       "3FalseFalse"},
      {"{% set a, b = 1, 2 %}{{ a }}{{ b }}", "12"},
      {"{% set g = m|map(attribute='role') %}{{ g|list }}{{ g|list }}{{ g|first }}",
       "['user', 'assistant', 'user'][]"},
      {"{% set g = [1,2,3]|select %}{{ g|first }}{{ g|list }}{{ 1 if g }}", "1[2, 3]1"},
      {"{% set g = [1,2,3]|select %}{{ 2 in g }}{{ g|list }}", "True[3]"},
      {"{% generation %}gen {{ s }}{% set zq = 1 %}{% endgeneration %}{{ zq is defined }}",
       "gen Héllo wörldFalse"},
      {"{% set j = joiner('; ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}{% set c = "
       "cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}",
       "3; 1; 2abab"},
      {"{% set x = 'a' if zz else 'b' %}{{ x }}{% set y = 1 if false %}{{ y is defined }}",
       "bFalse"},
      {"{% set f = s.upper %}{{ f() }}{{ f is callable }}", "HÉLLO WÖRLDTrue"},
      {"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns.a.a is defined }}", "True"},
      {"{% set a = [] %}{% for x in l %}{% set a = a + [x] %}{% endfor %}{{ a }}", "[]"},
      {"{% set messages = m[1:] %}{% for x in messages %}{{ x.role }}{% endfor %}",
       "assistantuser"},
  };
  expect_all(cases);
}

TEST(JinjaStatement, LoopsAreThoseOfJinja2) {
  const Statement cases[] = {
      {"{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ "
       "loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem }}|{{ "
       "loop.nextitem }};{% endfor %}",
       "1032TrueFalse31|1;2121FalseFalse313|2;3210FalseTrue311|;"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }},{% else %}none{% endfor %}{% for x in [] %}{% "
       "else %}empty{% endfor %}{% for x in zz %}{% else %}undef{% endfor %}",
       "b=1,a=[1, 2],items=5,emptyundef"},
      {"{% for x in l if x > 1 %}{{ x }}{{ loop.length }}{% endfor %}", "3222"},
      {"{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break "
       "%}{% endif %}{{ x }}{% endfor %}",
       "13"},
      {"{% for a, (b, c) in [[1,[2,3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
      {"{% for c in 'héy' %}{{ c }}.{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
       "h.é.y.baitems"},
      {"{% for x in l %}{{ loop.cycle('a','b') }}{{ loop.changed(x > 1) }}{% endfor %}",
       "aTruebTrueaTrue"},
      {"{% for x in [[1,[2,3]],4] recursive %}{% if x is sequence %}({{ loop(x) }}){% else %}{{ x "
       "}}@{{ loop.depth }}{% endif %}{% endfor %}",
       "(1@2(2@33@3))4@1"},
      {"{% for x in [1] %}{% for y in [1,2] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% "
       "endfor %}",
       "121"},
      {"{% for item in m %}{{ item.role }}: {{ item.content }}{{ '\\n' if not loop.last }}{% "
       "endfor %}",
       "user: hi\nassistant: None\nuser:   x "},
      {"{% for k, v in d|items %}{{ k }}{% endfor %}{% for k, v in zz|items %}x{% endfor %}",
       "baitems"},
  };
  expect_all(cases);
}

TEST(JinjaStatement, BlocksAreThoseOfJinja2) {
  const Statement cases[] = {
      {"{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace('a','b')|upper %}aaa{% "
       "endfilter %}",
       "ABC HÉLLO WÖRLDBBB"},
      {"{% if false %}a{% elif i == 7 %}b{% else %}c{% endif %}{% if zz %}x{% endif %}", "b"},
      {"{{ \"}}\" }}{{ {'a': {'b': 1}}['a'] }}{{ \"%}\" }}", "}}{'b': 1}%}"},
      {"{% if m[0].role == 'user' and m[1]['role'] != 'user' %}ok{% endif %}", "ok"},
      {"{{ [l, d, m][0][1:][0] }}{{ (l + [4])[-1] }}{{ (1, 2)[0] }}{{ {'a': 1}.a }}{{ 'abc'[1] }}",
       "1411b"},
      {"{{ dict(**d) }}{{ dict(*[[['a',1]]]) }}", "{'b': 1, 'a': [1, 2], 'items': 5}{'a': 1}"},
      {"{% print 5 %}{% print s, 1 %}", "5Héllo wörld1"},
      {"{{ s | replace(\"l\", \"L\") | upper if s else 'no' }}", "HÉLLO WÖRLD"},
      {"{% if x is not none and x is number and not x is string %}k{% endif %}", "k"},
  };
  expect_all(cases);
}

TEST(JinjaStatement, MistakesAreErrorsWithTheirCause) {
  const Statement cases[] = {
      {"{% for x in n %}{% endfor %}", "'NoneType' object is not iterable"},
      {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1,2) }}",
       "macro 'm' takes not more than 1 argument(s)"},
      {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1,b=2) }}",
       "macro 'm' takes no keyword argument 'b'"},
      {"{% macro outer() %}x{% endmacro %}{% call outer() %}b{% endcall %}",
       "macro 'outer' takes no keyword argument 'caller'"},
      {"{% break %}", "'break' outside of a loop"},
      {"{% for a, b in [[1]] %}{% endfor %}", "not enough values to unpack (expected 2, got 1)"},
      {"{% for a, b in [[1,2,3]] %}{% endfor %}", "too many values to unpack (expected 2)"},
      {"{% set s.x = 1 %}", "cannot assign attribute on non-namespace object"},
      {"{% for x in l %}{{ loop(x) }}{% endfor %}",
       "the loop must have the 'recursive' marker to be called recursively"},
      {"{% include 'x' %}", "a chat template cannot use the statement 'include'"},
      {"{% do l.append(1) %}", "a chat template cannot use the statement 'do'"},
      {"{% if %}{% endif %}", "an expression is expected"},
      {"{{ 1 + }}", "unexpected '}}'"},
      {"{{ 'a }}", "a string is not closed"},
      {"{{ (1 }}", "unexpected '}', expected ')'"},
      {"{{ 1 ) }}", "unexpected ')'"},
      {"{% for x in l %}", "the template ends where 'endfor' is expected"},
      {"{% endfor %}", "a chat template cannot use the statement 'endfor'"},
      {"{% if true %}{% endfor %}", "a chat template cannot use the statement 'endfor'"},
      {"{{ a b }}", "'}}' is expected, not 'b'"},
      {"{# never closed", "a comment is not closed: '#}' is missing"},
      {"{{ n|items }}{% for k in n|items %}{% endfor %}",
       "Can only get item pairs from a mapping."},
      {"{{ foo(1, *[2], **{'a': 3}) }}", "'foo' is undefined"},
  };
  for (const Statement& c : cases) {
    EXPECT_EQ(render_source(c.source), std::string("error: ") + c.text) << c.source;
  }
}

}  // namespace
}  // namespace tandem::jinja
