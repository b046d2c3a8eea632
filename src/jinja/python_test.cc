// Sequences, str.format(), methods and filters where jinja2's or Python's way is easily missed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "jinja/test_support.h"

namespace tandem::jinja {
namespace {

TEST(JinjaSequences, ReversedGeneratorsAreLists) {
  const testing::Case cases[] = {
      {"{{ (m|selectattr('role', 'equalto', 'user')|reverse)[0].content }}", "yo"},
      {"{{ l|select|reverse, l|map('string')|reverse|length, l|select|reverse|tojson }}",
       "([2, 1, 3], 3, '[2, 1, 3]')"},
      {"{{ (l|reverse)|list, 'abc'|reverse, {'a': 1, 'b': 2}|reverse|list, range(3)|reverse|list, "
       "nope|reverse|list }}",
       "([2, 1, 3], 'cba', ['b', 'a'], [2, 1, 0], [])"},
      {"{{ {'a': 1, 'b': 2}.items()|reverse|list, {'a': 1}|items|reverse, (1, 2)|reverse|list }}",
       "([('b', 2), ('a', 1)], [('a', 1)], [2, 1])"},
  };
  testing::expect_all(cases);
}

TEST(JinjaSequences, SortLooksForEqualKeysBeforeItAsksForAnOrder) {
  const testing::Case cases[] = {
      {"{{ [none, none]|sort, [{}, {}]|sort, m|sort(attribute='priority')|length, "
       "m|sort(attribute='name')|map(attribute='role')|list }}",
       "([None, None], [{}, {}], 3, ['user', 'assistant', 'user'])"},
      {"{{ m|sort(attribute='role,content')|map(attribute='content')|list if false, [2, 1.0, 1, "
       "true]|sort, ['b', 'A', 'a']|sort, ['b', 'A', 'a']|sort(reverse=true) }}",
       "(Undefined, [1.0, 1, True, 2], ['A', 'a', 'b'], ['b', 'A', 'a'])"},
      {"{{ [nope, nope]|sort|length, [[1], [1]]|sort }}", "(2, [[1], [1]])"},
  };
  testing::expect_all(cases);
}

TEST(JinjaFormat, FieldsReachIntoArgumentsAndSpecsHoldFields) {
  const testing::Case cases[] = {
      {"{{ '{:>{w}}|{:.{1}}'.format('a', 2, w=4) if false, '{:>{w}}|'.format('a', w=4), "
       "'{:{}}|'.format('a', 3), '{0:{1}.{2}}|'.format('abc', 5, 2) }}",
       "(Undefined, '   a|', 'a  |', 'ab   |')"},
      {"{{ '{0[0]} {0[a]} {1.role} {m[content]}'.format({'a': 1, 0: 2}, m[0], m=m[0]), "
       "'{0.role[0]}'.format(m[0]) }}",
       "('2 1 user hi', 'u')"},
      {"{{ '{!s:>5}|{!r:<7}|{!a}'.format(none, 'é', 'é'), '{!s:^8}|'.format([1, 2]) }}",
       "(\" None|'é'    |'\\\\xe9'\", ' [1, 2] |')"},
      {"{{ '{:05}|{:<05}|{:05}|{:+05}'.format(-3, 4, 'a', 2.5), '{:*<05d}'.format(7) }}",
       "('-0003|40000|a0000|+02.5', '7****')"},
      {"{{ '%s' % (1,), '%%' % {}, '%%' % [1], '%c%c' % ('é', 65), '%a' % 'é' }}",
       "('1', '%', '%', 'éA', \"'\\\\xe9'\")"},
  };
  testing::expect_all(cases);
}

TEST(JinjaMethods, OfCharactersAreThosePythonHas) {
  const testing::Case cases[] = {
      {"{{ 'abC'.swapcase(), 'Straße'.casefold(), 'Straße'.swapcase(), 'a\\tb'.expandtabs(), "
       "'a\\tbc\\n\\td'.expandtabs(4) }}",
       "('ABc', 'strasse', 'sTRASSE', 'a       b', 'a   bc\\n    d')"},
      {"{{ 'Abc Def'.istitle(), 'ABc'.istitle(), 'abc'.istitle(), ''.istitle(), '1 A'.istitle() }}",
       "(True, False, False, False, True)"},
      {"{{ 'abc'.isascii(), 'é'.isascii(), ''.isascii(), 'a b'.isprintable(), "
       "'a\\n'.isprintable(), ''.isprintable() }}",
       "(True, False, True, True, False, True)"},
      {"{{ 'a_1'.isidentifier(), '1a'.isidentifier(), 'é'.isidentifier(), ''.isidentifier(), "
       "'a-b'.isidentifier() }}",
       "(True, False, True, False, False)"},
      {"{{ '²'.isdigit(), '²'.isdecimal(), '²'.isnumeric(), '½'.isdigit(), '½'.isnumeric(), "
       "'٣'.isdecimal(), 'Ⅷ'.isnumeric(), 'Ⅷ'.isalnum(), '²'.isalpha() }}",
       "(True, False, True, False, True, True, True, True, False)"},
  };
  testing::expect_all(cases);
}

TEST(JinjaMethods, RangesHaveTheirs) {
  const testing::Case cases[] = {
      {"{{ range(3).count(1), range(3).count('x'), range(1, 9, 2).index(5), range(1, 9, 2).step, "
       "range(1, 9, 2)[-1:], range(9)[2:8:2], range(5)[::-1], range(3)[5:] }}",
       "(1, 0, 2, 2, range(7, 9, 2), range(2, 8, 2), range(4, -1, -1), range(3, 3))"},
  };
  testing::expect_all(cases);
}

TEST(JinjaFilters, OddInputsGiveWhatJinja2Gives) {
  const testing::Case cases[] = {
      {"{{ 5|truncate if false, 'ab'|truncate, [1, 2]|truncate(3), nope|truncate, 'ﬁn ²½ a'|title, "
       "'²½ x'|wordcount }}",
       "(Undefined, 'ab', [1, 2], Undefined, 'FIn ²½ A', 2)"},
      {"{{ 3.0 is odd, 2.5 is odd, 4.0 is even, 2.5 is even, true is odd, 7 is odd, -3 is odd }}",
       "(True, False, True, False, True, True, True)"},
      {"{{ 'inf'|int(7), 'nan'|int(8), 'nan'|float|int(9), '1e3'|int, ' 5 '|int }}",
       "(7, 8, 9, 1000, 5)"},
      {"{{ ('<'|safe).join(['<', '>'|safe, 1]), 'x'.join(['<'|safe]) }}",
       "(Markup('&lt;<><1'), '<')"},
  };
  testing::expect_all(cases);
}

TEST(JinjaFormat, MistakesAreErrorsWithTheirCause) {
  const testing::Case cases[] = {
      {"{{ '{:>5}'.format(none) }}",
       "error: unsupported format string passed to NoneType.__format__"},
      {"{{ '{:+}'.format('a') }}", "error: Sign not allowed in string format specifier"},
      {"{{ '{:=5}'.format('a') }}", "error: '=' alignment not allowed in string format specifier"},
      {"{{ '{:.2}'.format(3) }}", "error: Precision not allowed in integer format specifier"},
      {"{{ '{} {0}'.format(1) }}", "error: a format cannot mix numbered fields with '{}'"},
      {"{{ '{:{:{}}}'.format(1,2,3) }}", "error: Max string recursion exceeded"},
      {"{{ '{'.format(1) }}", "error: Single '{' encountered in format string"},
      {"{{ '{a'.format(1) }}", "error: expected '}' before end of string"},
      {"{{ '{0[}'.format(1) }}", "error: expected '}' before end of string"},
      {"{{ '{0[0]x}'.format([1]) }}",
       "error: Only '.' or '[' may follow ']' in format field specifier"},
      {"{{ '{!x}'.format(1) }}", "error: Unknown conversion specifier 'x'"},
      {"{{ '{:>5}'.format(nope) }}",
       "error: unsupported format string passed to Undefined.__format__"},
      {"{{ 5|truncate }}", "error: object of type 'int' has no len()"},
      {"{{ 'abc' is odd }}", "error: not all arguments converted during string formatting"},
      {"{{ dict(nope) }}", "error: 'nope' is undefined"},
      {"{{ '%c' % 'ab' }}", "error: %c requires int or char"},
      {"{{ range(3).index(7) }}", "error: 7 is not in range"},
      {"{{ 'a b c d e f'|list|truncate(3, true, '') }}",
       "error: what truncate cuts must be str, not list"},
      {"{{ 'a'.encode() }}", "error: 'str object' has no attribute 'encode'"},
      {"{{ '1e309'|float|int }}", "error: cannot convert float infinity to integer"},
      {"{{ 1e100|int }}", "error: an integer grows past 128 bits"},
      {"{{ ('1' * 40)|int }}", "error: an integer grows past 128 bits"},
      {"{{ ('0x' ~ 'f' * 40)|int(0, 16) }}", "error: an integer grows past 128 bits"},
      {"{{ 'a'|pprint }}", "error: jinja2's filter 'pprint' is not supported in chat templates."},
      {"{{ 'a'|urlencode }}",
       "error: jinja2's filter 'urlencode' is not supported in chat templates."},
      {"{{ '\\N{BULLET}' }}",
       "error: a string holds a broken \\x or \\u escape, or \\N{...}, which is not supported"},
  };
  testing::expect_all(cases);
}

}  // namespace
}  // namespace tandem::jinja
