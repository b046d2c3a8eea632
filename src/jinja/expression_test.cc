// Expressions, with what Python's jinja2 3.1 makes of them in the environment of chat templates.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "jinja/test_support.h"

namespace tandem::jinja {
namespace {

struct Case {
  const char* expression;
  const char* text;
};

std::string render_expression(const std::string& expression) {
  static const nlohmann::ordered_json variables = nlohmann::ordered_json::parse(R"json({
    "s": "Héllo wörld", "e": "", "n": null, "t": true, "f": false, "i": 7, "neg": -3, "x": 2.5,
    "l": [3, 1, 2], "ls": ["b", "A", "c"], "d": {"b": 1, "a": [1, 2], "items": 5},
    "m": [{"role": "user", "content": "hi", "n": {"k": 2}}, {"role": "assistant", "content": null},
          {"role": "user", "content": "  x "}],
    "big": 18446744073709551615, "nl": "a\nb\n\nc", "uni": "Straße ǆ ΑΣ ΑΣΑ İ 🙂"})json");
  return testing::render("{{ " + expression + " }}", variables);
}

void expect_all(std::span<const Case> cases) {
  for (const Case& c : cases) EXPECT_EQ(render_expression(c.expression), c.text) << c.expression;
}

TEST(JinjaExpression, OperatorsAreThoseOfJinja2) {
  const Case cases[] = {
      {"1 + 2 * 3", "7"},
      {"2 ** 3 ** 2", "64"},
      {"-2 ** 2", "4"},
      {"t and 'a', f or 'b', n and 1, not t, not n, '' or 'd', 0 or zz",
       "('a', 'b', None, False, True, 'd', Undefined)"},
      {"1 if true else 2 + 3, (1 if false else 2) + 3", "(1, 5)"},
      {"170141183460469231731687303715884105727 , 12345678901234567890",
       "(170141183460469231731687303715884105727, 12345678901234567890)"},
  };
  expect_all(cases);
}

TEST(JinjaExpression, LiteralsAreThoseOfJinja2) {
  const Case cases[] = {
      {"\"a\" \"b\" 'c'", "abc"},
      {"{'a': 1, \"b\": [1,2], 3: none}", "{'a': 1, 'b': [1, 2], 3: None}"},
      {"uni, [uni]", "('Straße ǆ ΑΣ ΑΣΑ İ 🙂', ['Straße ǆ ΑΣ ΑΣΑ İ 🙂'])"},
      {"'yes' if t else 'no', 'yes' if f, 'x' if f else 'y' if f else 'z', ('a' if f) is defined",
       "('yes', Undefined, 'z', False)"},
      {"(1,2,3)[1:], (1,)*3, [0]*3, 'ab'*2, 3*'x', [1]+[2], (1,)+(2,), 'x'*-1",
       "((2, 3), (1, 1, 1), [0, 0, 0], 'abab', 'xxx', [1, 2], (1, 2), '')"},
      {"{'a':{}}, {'a':{'b':{}}}", "({'a': {}}, {'a': {'b': {}}})"},
      {"[ 1 , 2 , ], (1,), {'a':1,}", "([1, 2], (1,), {'a': 1})"},
      {"'\\q' , '\\101', '\\0'", "('\\\\q', 'A', '\\x00')"},
      {"\"tab\\there\"", "tab\there"},
  };
  expect_all(cases);
}

TEST(JinjaExpression, IndexingAreThoseOfJinja2) {
  const Case cases[] = {
      {"7 // 2, -7 // 2, 7 % -3, -7 % 3, 7 / 2, 7.5 // 2, -7.5 % 2",
       "(3, -4, -2, 2, 3.5, 3.0, 0.5)"},
      {"1e3, 1.0, 1e16, 1e15, 1.5e-5, 0.0001, 123456789.123, 1_000, 0x1F, 0b11, 0o17",
       "(1000.0, 1.0, 1e+16, 1000000000000000.0, 1.5e-05, 0.0001, 123456789.123, 1000, 31, 3, 15)"},
      {"'it\\'s' ~ 1 ~ none ~ true ~ 1.0", "it's1NoneTrue1.0"},
      {"[1, 'a', \"it's\", None, True, 1.5, {'k': 'v'}, (1,), ()]",
       "[1, 'a', \"it's\", None, True, 1.5, {'k': 'v'}, (1,), ()]"},
      {"s[0], s[-1], s[1:3], s[::-1], s[-3:], s[10:2:-2]",
       "('H', 'd', 'él', 'dlröw olléH', 'rld', 'drwo')"},
      {"l[0], l[-1], l[1:], l[::-1], l[5]", "(3, 2, [1, 2], [2, 1, 3], Undefined)"},
      {"l.index(1), l.count(3), (1,2).index(2)", "(1, 1, 1)"},
      {"1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, true == 1, 'a' < 'b', [1,2] < [1,3], (1,2) == (1,2), [1] "
       "== (1,), none == none, zz == yy, 1 != 2, 1 >= 1, 2 <= 1",
       "(True, False, True, True, True, True, True, False, True, True, True, True, False)"},
      {"n.foo", ""},
      {"n.foo is defined, n.foo, i.foo, s.foo, l.foo, l['a'], s['a'], i[0], n[0]",
       "(False, Undefined, Undefined, Undefined, Undefined, Undefined, Undefined, Undefined, "
       "Undefined)"},
      {"d[[1]], d[zz], l[zz], l['0']", "(Undefined, Undefined, Undefined, Undefined)"},
      {"s.__class__", ""},
      {"s.__class__ is defined, d.__class__, d._x is defined, l.append is defined, d.pop is "
       "defined",
       "(False, Undefined, False, False, False)"},
      {"d.a.0, d.a.1, l.0", "(1, 2, 3)"},
      {"joiner(', ')(), cycler(1,2).next()", "('', 1)"},
      {"0.1 + 0.2, 1/3, 100000000000000000000.0, 5e-324, 1.7976931348623157e308, -0.0, "
       "123456789012345680.0",
       "(0.30000000000000004, 0.3333333333333333, 1e+20, 5e-324, 1.7976931348623157e+308, -0.0, "
       "1.2345678901234568e+17)"},
  };
  expect_all(cases);
}

TEST(JinjaExpression, FiltersAreThoseOfJinja2) {
  const Case cases[] = {
      {"d.items()|list, d.keys()|list, d.values()|list, d.items()",
       "([('b', 1), ('a', [1, 2]), ('items', 5)], ['b', 'a', 'items'], [1, [1, 2], 5], "
       "dict_items([('b', 1), ('a', [1, 2]), ('items', 5)]))"},
      {"m|map(attribute='n.k', default='?')|list", "[2, '?', '?']"},
      {"m|map('length')|list, ls|map('upper')|join('-')", "([3, 2, 2], 'B-A-C')"},
      {"m|selectattr('role','equalto','user')|list|length", "2"},
      {"m|selectattr('content')|list|length, m|rejectattr('content')|list|length", "(2, 1)"},
      {"m|selectattr('content','none')|list, m|selectattr('zz','defined')|list",
       "([{'role': 'assistant', 'content': None}], [])"},
      {"[1,2,3,4]|select('odd')|list, [1,2,3,4]|reject('odd')|list, [0,1]|select|list",
       "([1, 3], [2, 4], [1])"},
      {"[1,2,3]|select('gt', 1)|list, [1,2,3]|select('in',[1,3])|list, [1,2]|select('==',2)|list",
       "([2, 3], [1, 3], [2])"},
      {"l|sort, ls|sort, ls|sort(case_sensitive=true), l|sort(reverse=true), "
       "m|sort(attribute='role')|map(attribute='role')|join(',')",
       "([1, 2, 3], ['A', 'b', 'c'], ['A', 'b', 'c'], [3, 2, 1], 'assistant,user,user')"},
      {"['b','B','a','A']|unique|list, ['b','B']|unique(true)|list, [1,1.0,true,2]|unique|list",
       "(['b', 'a'], ['b', 'B'], [1, 2])"},
      {"d|dictsort, {'B':2,'a':1}|dictsort, {'B':2,'a':1}|dictsort(true), "
       "{'B':2,'a':1}|dictsort(by='value'), {'B':2,'a':1}|dictsort(reverse=true)",
       "([('a', [1, 2]), ('b', 1), ('items', 5)], [('a', 1), ('B', 2)], [('B', 2), ('a', 1)], "
       "[('a', 1), ('B', 2)], [('B', 2), ('a', 1)])"},
      {"l|first, l|last, []|first, ''|first, s|first, s|last, d|first",
       "(3, 2, Undefined, Undefined, 'H', 'd', 'b')"},
      {"l|reverse|list, s|reverse, nl|indent, nl|indent(2, true), nl|indent(2, blank=true), "
       "nl|indent('>>'), ''|indent(first=true), 'a\\n'|indent",
       "([2, 1, 3], 'dlröw olléH', 'a\\n    b\\n\\n    c', '  a\\n  b\\n\\n  c', 'a\\n  b\\n  \\n  "
       "c', 'a\\n>>b\\n\\n>>c', '    ', 'a\\n')"},
      {"s|upper, s|lower, s|capitalize", "('HÉLLO WÖRLD', 'héllo wörld', 'Héllo wörld')"},
      {"s|title, 'hello-world (foo) [bar'|title", "('Héllo Wörld', 'Hello-World (Foo) [Bar')"},
      {"uni|upper", "STRASSE Ǆ ΑΣ ΑΣΑ İ 🙂"},
      {"uni.upper()", "STRASSE Ǆ ΑΣ ΑΣΑ İ 🙂"},
      {"uni|lower", "straße ǆ ας ασα i̇ 🙂"},
      {"uni|capitalize", "Straße ǆ ας ασα i̇ 🙂"},
      {"uni.title()", "Straße ǅ Ας Ασα İ 🙂"},
      {"d.get('a'), d.get('zz'), d.get('zz', 3), d['items'], d|items|list",
       "([1, 2], None, 3, 5, [('b', 1), ('a', [1, 2]), ('items', 5)])"},
      {"l|length, s|length, d|length, zz|length, uni|length", "(3, 11, 3, 0, 19)"},
      {"for_|list", "[]"},
      {"range(3)|list, range(1,10,3)|list, range(5,0,-2)|list, range(3), range(0), range(3)[1], "
       "range(10)[2:8:2], range(3)|length",
       "([0, 1, 2], [1, 4, 7], [5, 3, 1], range(0, 3), range(0, 0), 1, range(2, 8, 2), 3)"},
      {"'a b c'|truncate(3), 'hello world foo bar'|truncate(11), 'hello world foo "
       "bar'|truncate(11, true), 'hello world foo'|truncate(9, false, '..', 0), 'a b-c "
       "d'|wordcount",
       "('a b c', 'hello...', 'hello wo...', 'hello..', 4)"},
      {"'abc'|replace('b','x'), 'aaa'|replace('a','b',2), 5|replace(5,6), '  a '|trim, "
       "'xax'|trim('x'), 5|trim",
       "('axc', 'bba', '6', 'a', 'a', '5')"},
      {"[1,2,3]|join(','), [1,none,true]|join, m|join(',', attribute='role'), 'abc'|join('-'), "
       "zz|join",
       "('1,2,3', '1NoneTrue', 'user,assistant,user', 'a-b-c', '')"},
      {"5|string, none|string, [1]|string, 5|upper", "('5', 'None', '[1]', '5')"},
      {"[1,2,3,4,5]|batch(2)|list, [1,2,3,4,5]|batch(2,'x')|list, [1,2,3,4,5]|slice(2)|list, "
       "[1,2,3,4,5]|slice(3,'x')|list",
       "([[1, 2], [3, 4], [5]], [[1, 2], [3, 4], [5, 'x']], [[1, 2, 3], [4, 5]], [[1, 2], [3, 4], "
       "[5, 'x']])"},
      {"m|groupby('role'), m|groupby('role')|map(attribute='grouper')|list, "
       "m|groupby('role')|map(attribute='list')|map('length')|list",
       "([('assistant', [{'role': 'assistant', 'content': None}]), ('user', [{'role': 'user', "
       "'content': 'hi', 'n': {'k': 2}}, {'role': 'user', 'content': '  x '}])], ['assistant', "
       "'user'], [1, 2])"},
      {"m[0].role, m[0]['role'], m[-1].content|trim, m[0].content.upper()",
       "('user', 'user', 'x', 'HI')"},
      {"n|map('upper')|list, e|select|list", "([], [])"},
  };
  expect_all(cases);
}

TEST(JinjaExpression, TestsAreThoseOfJinja2) {
  const Case cases[] = {
      {"l[7] is defined, d.zzz is defined, d['b'], d.b, d.items is callable",
       "(False, False, 1, 1, True)"},
      {"n is none, n is not none, zz is defined, zz is undefined, s is string, i is number, i is "
       "integer, x is float, t is boolean, d is mapping, l is sequence, l is iterable, s is "
       "iterable, d is iterable, i is iterable, t is true, f is false, i is odd, i is even, 9 is "
       "divisibleby 3, 9 is divisibleby(2), i is eq 7, i is equalto(7), i is in [7], i is ne 7, i "
       "is lt 8, range is callable, s is sequence, t is integer, t is number, n is iterable",
       "(True, False, False, True, True, True, True, True, True, True, True, True, True, True, "
       "False, True, True, True, False, True, False, True, True, True, False, True, True, True, "
       "False, True, False)"},
      {"zz is string, zz is iterable, zz is sequence, zz is mapping, zz is callable, zz is none",
       "(False, True, True, False, True, False)"},
      {"x is divisibleby 2", "False"},
      {"not n is none, not t is false, i is not odd, not i in l", "(False, True, False, True)"},
      {"'s'|attr('upper') is callable, d|attr('b') is defined, d|attr('items') is callable",
       "(True, False, True)"},
      {"'a' if s is defined and s else 'b', s is string and i is number or f", "('a', True)"},
      {"1.0 == 1, 1 is sameas 1, none is sameas none, 1.5 * 2, 10 / 5, 3 * 1.0, 2 ** -1, 2 ** 0.5, "
       "1e308 * 10",
       "(True, True, True, 3.0, 2.0, 3.0, 0.5, 1.4142135623730951, inf)"},
      {"lorem is undefined and (lorem is defined or true)", "True"},
  };
  expect_all(cases);
}

TEST(JinjaExpression, TextMethodsAreThoseOfJinja2) {
  const Case cases[] = {
      {"s.split(), 'a,b,,c'.split(','), 'a,b,c'.split(',',1), 'a,b,c'.rsplit(',',1), ' a  b "
       "'.split(), ' a b c '.split(none,1), ' a b c '.rsplit(none, 1), ''.split(), ''.split(',')",
       "(['Héllo', 'wörld'], ['a', 'b', '', 'c'], ['a', 'b,c'], ['a,b', 'c'], ['a', 'b'], ['a', 'b "
       "c '], [' a b', 'c'], [], [''])"},
      {"s.startswith('Hé'), s.endswith(('x','ld')), s.find('w'), s.find('zz'), s.rfind('l'), "
       "s.index('o'), s.count('l'), s.replace('l','L',1), s.replace('','.')",
       "(True, True, 6, -1, 9, 4, 3, 'HéLlo wörld', '.H.é.l.l.o. .w.ö.r.l.d.')"},
      {"'  x '.strip(), '  x '.lstrip(), '  x '.rstrip(), 'xxaxx'.strip('x'), 'abc'.strip('ca')",
       "('x', 'x ', '  x', 'a', 'b')"},
      {"'a\\nb\\r\\nc\\x0bd'.splitlines(), 'a\\nb\\n'.splitlines(true), 'a-b-c'.partition('-'), "
       "'a-b-c'.rpartition('-'), 'abc'.partition('x')",
       "(['a', 'b', 'c', 'd'], ['a\\n', 'b\\n'], ('a', '-', 'b-c'), ('a-b', '-', 'c'), ('abc', '', "
       "''))"},
      {"'x'.center(5), 'x'.ljust(3) ~ '|', 'x'.rjust(3), '5'.zfill(3), '-5'.zfill(4), "
       "'ab'.center(5,'*'), 'ab'|center(7)",
       "('  x  ', 'x  |', '  x', '005', '-005', '**ab*', '   ab  ')"},
      {"'abc'.isalpha(), '12'.isdigit(), ' '.isspace(), 'aB'.islower(), 'AB'.isupper(), "
       "'a1'.isalnum(), 'a' is lower, 'A' is upper, '1' is lower",
       "(True, True, True, False, True, True, True, True, False)"},
      {"'prefix-x'.removeprefix('prefix-'), 'x.py'.removesuffix('.py')", "('x', 'x')"},
  };
  expect_all(cases);
}

TEST(JinjaExpression, FormattingAreThoseOfJinja2) {
  const Case cases[] = {
      {"'{} {}'.format(1,'a'), '{0} {1} {0}'.format('a',2), "
       "'{x:>5}|{y:.2f}|{z:05d}'.format(x='a',y=1.005,z=42), '{{}}'.format(), '{!r}'.format('a')",
       "('1 a', 'a 2 a', '    a|1.00|00042', '{}', \"'a'\")"},
      {"'%s is %d and %.2f %5s|%-5s|%05d %x %%' % ('a', 3, 1.5, 'b', 'c', 42, 255)",
       "a is 3 and 1.50     b|c    |00042 ff %"},
      {"'%s' % 'x', '%s' % [1], '%(a)s' % {'a': 1}, '%s'|format('q')", "('x', '[1]', '1', 'q')"},
      {"strftime_now('%d %b %Y'), strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %p %I %y %U %W %w %u %V "
       "%G %e %-d %-m %-I %% %c %x %X %D %T %F %a %f|%z|%Z|%h %C %n%t %R')",
       "('15 Jan 2026', '2026-01-15 12:00:00 Thursday January 015 PM 12 26 02 02 4 4 03 2026 15 15 "
       "1 12 % Thu Jan 15 12:00:00 2026 01/15/26 12:00:00 01/15/26 12:00:00 2026-01-15 Thu "
       "000000|||Jan 20 \\n\\t 12:00')"},
      {"'%d' % 3.9, '%d' % true, '%5.1f|' % 2.25, '%+d' % 3, '%e' % 12345.678, '%g' % 0.0001, '%g' "
       "% 1e10, '%r' % 'a', '%c' % 65, '% d' % 5, '%#x' % 255, '%o' % 8",
       "('3', '1', '  2.2|', '+3', '1.234568e+04', '0.0001', '1e+10', \"'a'\", 'A', ' 5', '0xff', "
       "'10')"},
      {"'{:,}'.format(1234567), '{:.3}'.format('abcdef'), '{:^7}|'.format('a'), "
       "'{:<4}|'.format(1), '{:*>4}'.format(1), '{:+}'.format(1), '{:%}'.format(0.5), "
       "'{:e}'.format(1.5), '{:g}'.format(1.5), '{:.1f}'.format(3), '{:x}'.format(255), "
       "'{:#x}'.format(255), '{:b}'.format(5), '{:08.3f}'.format(-3.14159), '{:.3}'.format(3.0), "
       "'{}'.format(none), '{:s}'.format('a')",
       "('1,234,567', 'abc', '   a   |', '1   |', '***1', '+1', '50.000000%', '1.500000e+00', "
       "'1.5', '3.0', 'ff', '0xff', '101', '-003.142', '3.0', 'None', 'a')"},
  };
  expect_all(cases);
}

TEST(JinjaExpression, NumbersAreThoseOfJinja2) {
  const Case cases[] = {
      {"l|sum, m|map(attribute='role')|list, [1.5,2]|sum, [[1],[2]]|sum(start=[])",
       "(6, ['user', 'assistant', 'user'], 3.5, [1, 2])"},
      {"l|min, l|max, ls|min, ls|max, []|min", "(1, 3, 'A', 'c', Undefined)"},
      {"'3'|int, '3.7'|int, 'x'|int, 'x'|int(5), 3.9|int, '0x1f'|int(0,16), 'ff'|int(base=16), "
       "none|int, ' 12 '|int, true|int, '1_0'|int",
       "(3, 3, 0, 5, 3, 31, 255, 0, 12, 1, 10)"},
      {"'3.5'|float, 'x'|float, 'x'|float(1.5), 3|float, '1e3'|float, 'nan'|float, '-inf'|float",
       "(3.5, 0.0, 1.5, 3.0, 1000.0, nan, -inf)"},
      {"2.5|round, 3.5|round, 2.675|round(2), 1234.5|round(-2), 42|round, 1.23456|round(3,'ceil'), "
       "1.23456|round(3,'floor'), 15|round(-1), 25|round(-1), 1.1|round(method='floor'), "
       "(-0.1)|round(method='ceil')",
       "(2.0, 4.0, 2.67, 1200.0, 42, 1.235, 1.234, 20, 20, 1.0, 0.0)"},
      {"-3|abs, -3.5|abs, neg|abs, true|abs", "(3, 3.5, 3, 1)"},
      {"-1|abs, -(1)|abs, 1 - -1, +1, - 1 + 2", "(1, 1, 2, 1, 1)"},
      {"l|map('string')|list, ['1','2']|map('int')|sum, [[1,2],[3]]|map('first')|list, "
       "['a']|map('replace','a','b')|list",
       "(['3', '1', '2'], 3, [1, 3], ['b'])"},
  };
  expect_all(cases);
}

TEST(JinjaExpression, JsonAreThoseOfJinja2) {
  const Case cases[] = {
      {"\"\\x41\\u00e9\\n\\t\\\\\" | tojson", "\"Aé\\n\\t\\\\\""},
      {"s|tojson, d|tojson, m|tojson, m|tojson(indent=2), d|tojson(indent=4), []|tojson(indent=2), "
       "{}|tojson(indent=1), {'a':[]}|tojson(indent=1), (1,2)|tojson, {1:2, none:3, true:4, "
       "1.5:5}|tojson",
       "('\"Héllo wörld\"', '{\"b\": 1, \"a\": [1, 2], \"items\": 5}', '[{\"role\": \"user\", "
       "\"content\": \"hi\", \"n\": {\"k\": 2}}, {\"role\": \"assistant\", \"content\": null}, "
       "{\"role\": \"user\", \"content\": \"  x \"}]', '[\\n  {\\n    \"role\": \"user\",\\n    "
       "\"content\": \"hi\",\\n    \"n\": {\\n      \"k\": 2\\n    }\\n  },\\n  {\\n    \"role\": "
       "\"assistant\",\\n    \"content\": null\\n  },\\n  {\\n    \"role\": \"user\",\\n    "
       "\"content\": \"  x \"\\n  }\\n]', '{\\n    \"b\": 1,\\n    \"a\": [\\n        1,\\n        "
       "2\\n    ],\\n    \"items\": 5\\n}', '[]', '{}', '{\\n \"a\": []\\n}', '[1, 2]', '{\"1\": "
       "4, \"null\": 3, \"1.5\": 5}')"},
      {"d|tojson(sort_keys=true), s|tojson(true), uni|tojson, uni|tojson(ensure_ascii=true), "
       "d|tojson(separators=(',',':')), d|tojson(indent='\\t'), 1e20|tojson, big|tojson, big, big "
       "+ 1, 'nan'|float|tojson, \"</script>&'\"|tojson",
       "('{\"a\": [1, 2], \"b\": 1, \"items\": 5}', '\"H\\\\u00e9llo w\\\\u00f6rld\"', '\"Straße ǆ "
       "ΑΣ ΑΣΑ İ 🙂\"', '\"Stra\\\\u00dfe \\\\u01c6 \\\\u0391\\\\u03a3 "
       "\\\\u0391\\\\u03a3\\\\u0391 \\\\u0130 \\\\ud83d\\\\ude42\"', "
       "'{\"b\":1,\"a\":[1,2],\"items\":5}', '{\\n\\t\"b\": 1,\\n\\t\"a\": "
       "[\\n\\t\\t1,\\n\\t\\t2\\n\\t],\\n\\t\"items\": 5\\n}', '1e+20', '18446744073709551615', "
       "18446744073709551615, 18446744073709551616, 'NaN', '\"</script>&\\'\"')"},
      {"'<b>'|e, '<b>'|escape ~ '<', '<b>'|safe + '<i>', '<i>' + '<b>'|safe, \"<'\\\"&>\"|e, "
       "'<'|safe|upper, ('<'|safe) is escaped, ('<'|safe)|tojson, ['<'|safe]",
       "(Markup('&lt;b&gt;'), '&lt;b&gt;<', Markup('<b>&lt;i&gt;'), Markup('&lt;i&gt;<b>'), "
       "Markup('&lt;&#39;&#34;&amp;&gt;'), Markup('<'), True, '\"<\"', [Markup('<')])"},
  };
  expect_all(cases);
}

TEST(JinjaExpression, MarkupAreThoseOfJinja2) {
  const Case cases[] = {
      {"'<'|safe|e, '<'|e|e, '<'|forceescape, ('a'|safe)[0] + '<', ('<'|safe) ~ '<', "
       "['<'|safe,'<']|join('&')",
       "(Markup('<'), Markup('&lt;'), Markup('&lt;'), Markup('a&lt;'), '<<', '<&<')"},
  };
  expect_all(cases);
}

TEST(JinjaExpression, FunctionsAreThoseOfJinja2) {
  const Case cases[] = {
      {"1 in l, 4 not in l, 'll' in s, 'b' in d, 'x' in zz, 3 in range(5), 'a' in ('a','b')",
       "(True, True, True, True, False, True, True)"},
      {"namespace(a=1), namespace(a=1).a, namespace({'b':2}).b, namespace(a=1).zz is defined",
       "(<Namespace {'a': 1}>, 1, 2, False)"},
      {"dict(a=1,b=2), dict({'a':1},b=3), dict([('x',1)])",
       "({'a': 1, 'b': 2}, {'a': 1, 'b': 3}, {'x': 1})"},
  };
  expect_all(cases);
}

TEST(JinjaExpression, MistakesAreErrorsWithTheirCause) {
  const Case cases[] = {
      {"m|map(attribute='role')|list, m|map(attribute='n.k')|list",
       "'dict object' has no attribute 'n'"},
      {"l.append(4)", "access to attribute 'append' of 'list' object is unsafe."},
      {"d.update({'a':1})", "access to attribute 'update' of 'dict' object is unsafe."},
      {"zz|default('d'), n|default('d'), n|default('d', true), e|default('q', boolean=true), zz|d, "
       "zz.foo|default('a')",
       "'zz' is undefined"},
      {"zz.foo", "'zz' is undefined"},
      {"zz + 'a'", "'zz' is undefined"},
      {"'a' + 1", "can only concatenate str (not \"int\") to str"},
      {"'a' + n", "can only concatenate str (not \"NoneType\") to str"},
      {"1 + 'a'", "unsupported operand type(s) for +: 'int' and 'str'"},
      {"n + 'a'", "unsupported operand type(s) for +: 'NoneType' and 'str'"},
      {"[1] + 'a'", "can only concatenate list (not \"str\") to list"},
      {"1 / 0", "division by zero"},
      {"1 // 0", "integer division or modulo by zero"},
      {"1 % 0", "integer modulo by zero"},
      {"-'a'", "bad operand type for unary -: 'str'"},
      {"n[1:]", "'NoneType' object is not subscriptable"},
      {"zz[1:]", "'zz' is undefined"},
      {"zz[1]", "'zz' is undefined"},
      {"d.b.c.e", "'int object' has no attribute 'c'"},
      {"5 < 'a'", "'<' not supported between instances of 'int' and 'str'"},
      {"none < 1", "'<' not supported between instances of 'NoneType' and 'int'"},
      {"'a' in 5", "argument of type 'int' is not iterable"},
      {"1 in 'a'", "'in <string>' requires string as left operand, not int"},
      {"i()", "'int' object is not callable"},
      {"zz()", "'zz' is undefined"},
      {"s.nope()", "'str object' has no attribute 'nope'"},
      {"d.nope()", "'dict object' has no attribute 'nope'"},
      {"i|length", "object of type 'int' has no len()"},
      {"n|length", "object of type 'NoneType' has no len()"},
      {"n|list", "'NoneType' object is not iterable"},
      {"range(1000000)",
       "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000)."},
      {"zz|tojson", "Object of type Undefined is not JSON serializable"},
      {"range(2)|tojson", "Object of type range is not JSON serializable"},
      {"namespace()|tojson", "Object of type Namespace is not JSON serializable"},
      {"raise_exception('boom')", "boom"},
      {"raise_exception()", "raise_exception() is missing its argument 'message'"},
      {"''.__class__.__mro__", "access to attribute '__class__' of 'str' object is unsafe."},
      {"l|map('nofilter')|list", "No filter named 'nofilter'."},
      {"l|nofilter", "No filter named 'nofilter'."},
      {"l is notest", "No test named 'notest'."},
      {"\"a\" ~ \"b\" * 2 ~ 1 + 2", "can only concatenate str (not \"int\") to str"},
      {"1 + 2 ~ 3, 1 ~ 2 + 3", "unsupported operand type(s) for +: 'int' and 'str'"},
      {"'a\\", "a string is not closed"},
      {"b'", "a string is not closed"},
      {"'%d' % 'a'", "%d format: a real number is required, not str"},
      {"'%s %s' % ('a',)", "not enough arguments for format string"},
      {"'%s' % ('a','b')", "not all arguments converted during string formatting"},
      {"'{'.format()", "Single '{' encountered in format string"},
      {"'{a}'.format(b=1)", "the format names 'a', which is not given"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(render_expression(c.expression), std::string("error: ") + c.text) << c.expression;
  }
}

}  // namespace
}  // namespace tandem::jinja
