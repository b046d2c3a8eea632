#include "loadgen/task_file.h"

#include <gtest/gtest.h>

namespace tandem::loadgen {
namespace {

std::string line(const std::string& checker, const std::string& expected) {
  return R"({"version": 1, "id": "a-0", "task": "a", "messages": [{"role": "user", "content": )"
         R"("Hello"}], "checker": ")" +
         checker + R"(", "expected": )" + expected + R"(, "answer": "x"})";
}

AnswerTask task(const std::string& checker, const std::string& expected) {
  Result<std::vector<AnswerTask>> tasks = parse_tasks(line(checker, expected), "test");
  EXPECT_TRUE(tasks.ok()) << tasks.error().message;
  return tasks->front();
}

std::string why_refused(const std::string& text) {
  const Result<std::vector<AnswerTask>> tasks = parse_tasks(text, "f.jsonl");
  return tasks.ok() ? "" : tasks.error().message;
}

TEST(TaskFile, ReadsALineATask) {
  const auto tasks =
      parse_tasks(line("number", "12") + "\r\n\n" + line("exact", "\"a b\""), "test");
  ASSERT_TRUE(tasks.ok());
  ASSERT_EQ(tasks->size(), 2U);
  EXPECT_EQ(tasks->front().id, "a-0");
  EXPECT_EQ(tasks->front().ability, "a");
  EXPECT_EQ(tasks->front().messages[0]["content"], "Hello");
}

TEST(TaskFile, ANumberIsAloneOrTheResultOfAnEquation) {
  const AnswerTask twelve = task("number", "12");
  for (const char* right : {"12", " 12\n", "12.", "5 + 7 = 12", "5+7=12", "= 12", "=12.", "012"}) {
    EXPECT_TRUE(is_right(twelve, right)) << right;
  }
  for (const char* wrong : {"", "13", "12 13", "5 + 8 = 12 apples", "a = 12", "12..", "1 = 2 = 12",
                            "=  12", "+12", "12=", "99999999999999999999", "1 2"}) {
    EXPECT_FALSE(is_right(twelve, wrong)) << wrong;
  }
  EXPECT_TRUE(is_right(task("number", "-3"), "4 - 7 = -3"));
  EXPECT_FALSE(is_right(task("number", "-3"), "3"));
}

TEST(TaskFile, ATextIsTheSameButForWhiteSpaceAtItsEnds) {
  EXPECT_TRUE(is_right(task("exact", R"("a  b")"), " a  b\t\n"));
  EXPECT_FALSE(is_right(task("exact", R"("a  b")"), "a b"));
  EXPECT_FALSE(is_right(task("exact", R"("a")"), ""));
  const AnswerTask either = task("any_of", R"(["yes", " no "])");
  EXPECT_TRUE(is_right(either, "yes"));
  EXPECT_TRUE(is_right(either, "no"));
  EXPECT_FALSE(is_right(either, "yes no"));
}

TEST(TaskFile, APatternMatchesFromEndToEnd) {
  const AnswerTask story = task("pattern", R"("(?:Tom|Ann) saw a (?:red )?[a-c\\-]\\.")");
  EXPECT_TRUE(is_right(story, "Tom saw a red b."));
  EXPECT_TRUE(is_right(story, "Ann saw a -."));
  EXPECT_FALSE(is_right(story, "Ann saw a d."));
  EXPECT_FALSE(is_right(story, "Tom saw a red b"));
  EXPECT_FALSE(is_right(story, "Tom saw a red b.."));
  EXPECT_FALSE(is_right(story, "x Tom saw a red b."));
  EXPECT_TRUE(is_right(task("pattern", R"("é?a")"), "a"));
  EXPECT_TRUE(is_right(task("pattern", R"("é?a")"), "éa"));
  EXPECT_TRUE(is_right(task("pattern", R"("a||b")"), ""));
}

// What would try two ways for each of many characters takes no time here.
TEST(TaskFile, PatternsOfManyWaysAreMatchedAtOnce) {
  std::string pattern;
  for (int i = 0; i < 500; ++i) {
    pattern += "(?:a|a?)?";
  }
  const AnswerTask many = task("pattern", "\"" + pattern + "\"");
  EXPECT_TRUE(is_right(many, std::string(500, 'a')));
  EXPECT_FALSE(is_right(many, std::string(501, 'a')));
  EXPECT_FALSE(is_right(many, std::string(1'000'000, 'a')));
}

TEST(TaskFile, WhatIsNoTaskIsRefusedWithItsLine) {
  EXPECT_EQ(why_refused(""), "f.jsonl: has no task");
  EXPECT_EQ(why_refused("\n\n{"), "f.jsonl:3: not a JSON object");
  EXPECT_EQ(why_refused("{}"), "f.jsonl:1: 'version' is not 1");
  EXPECT_EQ(why_refused(R"({"version": 1, "id": 3})"), "f.jsonl:1: 'id' is not a text");
  EXPECT_EQ(why_refused(R"({"version": 1, "id": "a", "task": "a", "messages": [{}]})"),
            "f.jsonl:1: 'messages' is not a list of messages with role and content");
  EXPECT_EQ(why_refused(line("guess", "1")),
            "f.jsonl:1: 'checker' is 'guess', not exact, any_of, number or pattern");
  for (const auto& [checker, expected] : std::initializer_list<std::pair<const char*, const char*>>{
           {"exact", "1"},
           {"any_of", "[]"},
           {"any_of", "[1]"},
           {"number", "1.5"},
           {"number", "18446744073709551615"},
           {"pattern", "3"}}) {
    EXPECT_EQ(why_refused(line(checker, expected)),
              std::string("f.jsonl:1: 'expected' is not what the checker '") + checker +
                  "' compares with");
  }
  for (const char* pattern : {"a*", "a+", "a{2}", "^a", ".", "(a)", "(?:a", "a)", "[]", "[", "[^a]",
                              "[b-a]", "a??", "?", "\\\\d", "\\\\", "[é]"}) {
    EXPECT_NE(why_refused(line("pattern", std::string("\"") + pattern + "\"")), "") << pattern;
  }
}

TEST(TaskFile, AFileThatIsNotThereIsNamed) {
  const auto tasks = read_tasks("/no/such/file.jsonl");
  ASSERT_FALSE(tasks.ok());
  EXPECT_NE(tasks.error().message.find("/no/such/file.jsonl"), std::string::npos);
}

}  // namespace
}  // namespace tandem::loadgen
