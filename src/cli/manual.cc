#include "cli/manual.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

namespace tandem::cli {
namespace {

// `text` as roff prints it: a hyphen stays a hyphen that can be copied, and no line is a request.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '`' || c == '\'') {
      out += c == '`' ? "\\(ga" : "\\(aq";
    } else {
      out += c;
    }
  }
  return out.starts_with('.') ? "\\&" + out : out;
}

// In the arguments of a macro.
std::string macro_argument(std::string_view text) {
  std::string out = plain(text);
  for (size_t at = 0; (at = out.find('"', at)) != std::string::npos; at += 4) {
    out.replace(at, 1, "\\(dq");
  }
  return '"' + out + '"';
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  });
  return text;
}

// Paragraphs, and examples as they are written.
std::string paragraphs(const std::string& text) {
  std::string out;
  std::istringstream lines(text);
  bool example = false;
  for (std::string line; std::getline(lines, line);) {
    const bool is_example = line.starts_with("  ");
    if (is_example != example) {
      out += is_example ? ".PP\n.nf\n" : ".fi\n";
      example = is_example;
    }
    out += line.empty() ? ".PP\n" : plain(line) + "\n";
  }
  return out + (example ? ".fi\n" : "");
}

std::string value_text(const OptionOutline& option) {
  switch (option.value) {
    case ValueKind::kNone:
      return "";
    case ValueKind::kNumber:
      return "N";
    case ValueKind::kText:
      return "VALUE";
    case ValueKind::kChoice:
      break;
  }
  const std::string choices = choices_text(option.choices);
  return choices.empty() ? "VALUE" : choices;
}

std::string option_text(const OptionOutline& option) {
  std::string names;
  for (const std::string& flag : option.flags) {
    names += (names.empty() ? "\\fB" : ", \\fB") + plain(flag) + "\\fR";
  }
  if (option.flags.empty()) {
    names = "\\fI" + plain(option.place) + "\\fR";
    names += option.choices.empty() ? "" : ": \\fI" + plain(value_text(option)) + "\\fR";
  } else if (const std::string value = value_text(option); !value.empty()) {
    names += " \\fI" + plain(value) + "\\fR" + (option.takes_many ? " ..." : "");
  }
  std::string help = option.help;
  if (!option.default_text.empty()) {
    help += fmt::format(" [{}]", option.default_text);
  }
  return fmt::format(".TP\n{}\n{}\n", names, plain(help));
}

// The options of each group together, the groups in the order of their first option.
std::string options_text(const CommandOutline& command) {
  std::vector<std::string> groups;
  for (const OptionOutline& option : command.options) {
    if (std::ranges::count(groups, option.group) == 0) {
      groups.push_back(option.group);
    }
  }
  std::string out;
  for (const std::string& group : groups) {
    if (groups.size() > 1) {
      out += fmt::format(".PP\n\\fI{}\\fR\n", plain(group));
    }
    for (const OptionOutline& option : command.options) {
      out += option.group == group ? option_text(option) : "";
    }
  }
  return out;
}

std::string synopsis(const CommandOutline& command) {
  std::string places;
  for (const OptionOutline& option : command.options) {
    if (!option.place.empty()) {
      places += " [" + upper(option.place) + "]";
    }
  }
  return command.path + (command.commands.empty() ? " [OPTION]..." + places : " COMMAND");
}

// A section for each command that does something itself.
std::string command_sections(const CommandOutline& command) {
  std::string out;
  for (const CommandOutline& inner : command.commands) {
    if (!inner.commands.empty()) {
      out += command_sections(inner);
      continue;
    }
    out += fmt::format(".SH {}\n{}.\n.PP\n.nf\n  {}\n.fi\n{}{}", macro_argument(upper(inner.path)),
                       plain(inner.help), plain(synopsis(inner)), options_text(inner),
                       paragraphs(inner.footer));
  }
  return out;
}

}  // namespace

std::string manual_page(const CommandOutline& program, const std::string& version,
                        const std::vector<ManualSection>& more) {
  const size_t colon = program.help.find(": ");
  const std::string summary =
      colon == std::string::npos ? program.help : program.help.substr(colon + 2);
  std::string out = fmt::format(
      ".\\\" Written by `{0} manual`.\n.TH {1} 1 \"\" \"{0} {2}\" \"\"\n.SH NAME\n{0} \\- {3}\n.SH "
      "SYNOPSIS\n{4}\n.SH COMMANDS\n",
      program.name, macro_argument(upper(program.name)), plain(version), plain(summary),
      plain(synopsis(program)));
  for (const CommandOutline& command : program.commands) {
    out += fmt::format(".TP\n\\fB{}\\fR\n{}\n", plain(command.name), plain(command.help));
    for (const CommandOutline& inner : command.commands) {
      out += fmt::format(".TP\n\\fB{} {}\\fR\n{}\n", plain(command.name), plain(inner.name),
                         plain(inner.help));
    }
  }
  out += ".SH OPTIONS\n" + options_text(program) + command_sections(program);
  for (const ManualSection& section : more) {
    out += fmt::format(".SH {}\n{}", macro_argument(section.title), paragraphs(section.text));
  }
  return out;
}

}  // namespace tandem::cli
