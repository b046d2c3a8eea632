"""Makes random chat templates, with the words that published ones use, and variables to render them with."""

TEXTS = ["user", "assistant", "system", "tool", "hello world", "  pad  ", "a,b,c", "A-B", "", "x.y", "one\ntwo\n\nfour\n", "42", "-7", "3.14",
         "it's", '"q"', "<think>a</think>b", "Straße İ ﬁn", "ΑΣ ǆ", "tab\tx", "²½ ٣ Ⅷ", "{%}", "中文 😀", "a\u0301", "é\u00a0\u2028z", "\\n"]
NAMES = ["x", "y", "item", "s", "n", "items", "add_generation_prompt", "content", "loop_messages"]
KEYS = ["role", "content", "name", "a", "b", "items", "k"]
LISTS = ["messages", "tools", "numbers", "words", "mixed", "messages[1:]", "[1, 2, 3]", "['b', 'a', 'C']", "(1, 'x')", "[[1, 2], [3]]", "range(3)",
         "range(1, 9, 2)", "[none, none]", "[]", "table.items()", "table.values()", "table|dictsort", "[{'a': 2}, {'a': 1}]", "[true, 1, 1.0]"]
FORMATS = ["{}", "{0}-{1}", "{:>5}|", "{:<5}|", "{:^7}|", "{:.2f}", "{:05d}", "{a}", "{0[0]}", "{0[a]}", "{0.role}", "{!r}", "{!s:>4}|", "{:,}", "{:x}", "{{}}",
           "{:*^9}", "{:+}", "{:e}", "{:g}", "{:>{a}}|", "{:.{1}}", "{!a}", "{:%}"]
PERCENTS = ["%s", "%d-%s", "%5.2f", "%-5s|", "%05d", "%r", "%x", "%%", "%(a)s", "%g", "%c", "%+d", "%10.3s|"]


def quoted(text, mark="'"):
    out = text.replace("\\", "\\\\").replace(mark, "\\" + mark).replace("\n", "\\n").replace("\t", "\\t")
    return mark + out + mark


class Maker:
    """Everything random comes from `random`; the same seed makes the same templates."""

    def __init__(self, random):
        self.random = random
        self.depth = 0
        self.loops = 0

    # Variables.
    def value(self, depth=0):
        kind = self.random.randrange(10 if depth < 3 else 7)
        if kind < 3:
            return self.random.choice(TEXTS)
        if kind < 5:
            return self.random.choice([0, 1, 2, -3, 7, 10, 2**31, 2**53 + 1])
        if kind == 5:
            return self.random.choice([0.5, 2.0, -1.25, 1e16, 1e-5, 1e22, 0.1])
        if kind == 6:
            return self.random.choice([True, False, None])
        if kind < 9:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return {self.random.choice(KEYS): self.value(depth + 1) for _ in range(self.random.randrange(4))}

    def message(self):
        message = {"role": self.random.choice(["user", "assistant", "system", "tool"])}
        kind = self.random.randrange(8)
        if kind < 5:
            message["content"] = self.random.choice(TEXTS)
        elif kind < 7:
            message["content"] = self.random.choice([None, [{"type": "text", "text": self.random.choice(TEXTS)}]])
        if self.random.random() < 0.2:
            message["tool_calls"] = [{"type": "function", "function": {"name": "f", "arguments": self.value(1)}}]
        return message

    def variables(self):
        made = {"messages": [self.message() for _ in range(self.random.randrange(5))],
                "tools": self.random.choice([None, [{"type": "function", "function": {"name": "w", "parameters": self.value(1)}}]]),
                "add_generation_prompt": self.random.random() < 0.5, "bos_token": "<s>", "eos_token": "</s>",
                "s": self.random.choice(TEXTS), "n": self.random.randrange(-3, 9), "g": self.random.choice([0.5, 2.0, -1.25, 1e16]),
                "numbers": [self.random.randrange(-3, 9) for _ in range(self.random.randrange(5))],
                "words": [self.random.choice(TEXTS) for _ in range(self.random.randrange(5))],
                "mixed": [self.value(1) for _ in range(self.random.randrange(4))],
                "table": {key: self.value(1) for key in self.random.sample(KEYS, self.random.randrange(5))}}
        for name in ("x", "item", "content"):  # of which templates have their own, too
            if self.random.random() < 0.4:
                made[name] = self.value(1)
        return made

    # Expressions. Each kind gives what is usually of the type it is named after.
    def expression(self, kinds=("text", "text", "number", "condition", "list", "table", "any")):
        self.depth += 1
        try:
            kind = self.random.choice(kinds)
            leaf = self.depth > 3 or self.random.random() < 0.3
            return getattr(self, ("leaf_" if leaf else "deep_") + kind)()
        finally:
            self.depth -= 1

    def pick(self, *choices):
        chosen = self.random.choice(choices)
        return chosen() if callable(chosen) else chosen

    def text(self):
        return self.expression(("text",) * 9 + ("any",))

    def number(self):
        return self.expression(("number",) * 9 + ("any",))

    def list(self):
        return self.expression(("list",) * 9 + ("any",))

    def condition(self):
        return self.expression(("condition",) * 9 + ("any",))

    def any(self):
        return self.expression()

    def literal(self):
        return quoted(self.random.choice(TEXTS), self.pick("'", '"'))

    def leaf_text(self):
        return self.pick(self.literal, self.literal, "s", "bos_token", "message.role", "message['content']", "messages[0].role", "content")

    def leaf_number(self):
        return self.pick("0", "1", "2", "3", "10", "-1", "n", "g", "1.5", "loop.index", "loop.revindex0", "messages|length", "12345678901234567890")

    def leaf_condition(self):
        return self.pick("true", "false", "add_generation_prompt", "loop.first", "loop.last", "n > 2", "tools", "message.content is defined")

    def leaf_list(self):
        return self.pick(*LISTS)

    def leaf_table(self):
        return self.pick("table", "messages[0]", "message", "{}", "{'a': 1, 'b': [2]}", "dict(a='x', k=3)", "{1: 2, '1': 3}", "tools[0].function")

    def leaf_any(self):
        return self.pick(*NAMES, "none", "ns.v", "nothing", "table.a", "mixed[0]", "messages[-1]", "loop.previtem", "loop.nextitem", "i", "helper")

    def slice(self):
        part = lambda: self.pick("", "", "1", "-1", "2", "-2", "0", "n")
        return self.pick("::-1", f"{part()}:{part()}", f"{part()}:{part()}:{self.pick('', '1', '2', '-1', '-2')}")

    def deep_text(self):
        text, other, any_ = self.text, self.text, self.any
        return self.pick(
            lambda: f"({text()} ~ {any_()})",
            lambda: f"({text()} + {other()})",
            lambda: f"({text()}).{self.pick('strip', 'lstrip', 'rstrip', 'upper', 'lower', 'title', 'capitalize', 'swapcase', 'casefold', 'expandtabs')}()",
            lambda: f"({text()}).{self.pick('strip', 'lstrip', 'rstrip', 'removeprefix', 'removesuffix')}({other()})",
            lambda: f"({any_()})|{self.pick('trim', 'upper', 'lower', 'title', 'capitalize', 'string', 'escape', 'safe', 'forceescape', 'first', 'last', 'tojson', 'list', 'reverse', 'center(9)')}",
            lambda: f"({text()}).replace({other()}, {other()}{self.pick('', ', 1')})",
            lambda: f"({any_()})|replace({other()}, {other()})",
            lambda: f"({text()})[{self.slice()}]",
            lambda: f"({text()})[{self.number()}]",
            lambda: f"({any_()})|tojson({self.pick('indent=4', 'indent=2', 'ensure_ascii=true', 'sort_keys=true', 'indent=0', 'separators=(quote, quote)', 'true')})",
            lambda: f"({self.list()})|join({self.pick('', text)})",
            lambda: f"({text()}).join({self.list()})",
            lambda: f"({text()})|indent({self.pick('', '2', '4, true', 'width=3, blank=true', quoted('> '))})",
            lambda: f"({any_()})|default({text()}{self.pick('', ', true')})",
            lambda: f"({text()} if {self.condition()} else {other()})",
            lambda: f"({text()} if {self.condition()})",
            lambda: f"({quoted(self.pick(*PERCENTS))} % {self.pick(any_, lambda: f'({any_()}, {any_()})')})",
            lambda: f"{quoted(self.pick(*FORMATS))}.format({self.pick(any_, lambda: f'{any_()}, {any_()}', lambda: f'{any_()}, a={self.number()}')})",
            lambda: f"({any_()})|truncate({self.pick('5', '3, true', '9, false, ' + quoted('..'), '4, true, ' + quoted(''))})",
            lambda: f"({text()}).{self.pick('ljust(5)', 'rjust(9, ' + quoted('*') + ')', 'center(8)', 'zfill(6)')}",
            lambda: f"({text()}).split({self.pick('', text, 'none, 1')})[{self.pick('0', '-1', '1')}]",
            lambda: f"({text()}).{self.pick('partition', 'rpartition')}({other()})[{self.pick('0', '1', '2')}]",
            lambda: f"({text()} {self.pick('and', 'or')} {other()})",
            lambda: f"({text()} * {self.pick('0', '2', '-1')})",
            lambda: f"helper({any_()}{self.pick('', lambda: f', {any_()}', lambda: f', y={any_()}')})",
            lambda: f"strftime_now({quoted(self.pick('%d %b %Y', '%Y-%m-%d', '%H:%M:%S', '%A %j'))})")

    def deep_number(self):
        number = self.number
        return self.pick(
            lambda: f"({number()} {self.pick('+', '-', '*', '//', '%', '/')} {self.pick('1', '2', '3', number)})",
            lambda: f"({self.leaf_number()} ** {self.pick('2', '3', '0.5', '-1')})",
            lambda: f"({self.any()})|{self.pick('length', 'count', 'int', 'float', 'abs', 'round', 'round(1)', 'int(5)', 'sum', 'min', 'max')}",
            lambda: f"({self.text()}).{self.pick('find', 'rfind', 'index', 'count')}({self.text()}{self.pick('', ', 1', ', 0, 3')})",
            lambda: f"({self.leaf_text()})|wordcount",
            lambda: f"({self.list()})|sum(attribute={quoted(self.pick(*KEYS))})",
            lambda: f"({self.list()})[{number()}]",
            lambda: f"({self.list()}).{self.pick('index', 'count')}({self.any()})",
            lambda: f"-{self.pick('n', 'g', '3', '(n)')}",
            lambda: f"({number()} if {self.condition()} else {number()})")

    def test(self):
        return self.pick("defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable", "true",
                         "false", "callable", "odd", "even", "lower", "upper", "divisibleby 2", "eq 1", "in [1, 'user']", "sameas none", "escaped")

    def deep_condition(self):
        any_ = self.any
        return self.pick(
            lambda: f"({any_()} is {self.pick('', 'not ')}{self.test()})",
            lambda: f"({any_()} {self.pick('==', '!=', '<', '<=', '>', '>=')} {any_()})",
            lambda: f"({self.number()} {self.pick('==', '<', '>=')} {self.number()})",
            lambda: f"({any_()} {self.pick('in', 'not in')} {self.pick(self.list, self.text, any_)})",
            lambda: f"({self.condition()} {self.pick('and', 'or')} {self.condition()})",
            lambda: f"not {self.condition()}",
            lambda: f"({self.text()}).{self.pick('startswith', 'endswith')}({self.text()})",
            lambda: f"({self.text()}).{self.pick('isdigit', 'isalpha', 'isalnum', 'isspace', 'isupper', 'islower', 'istitle', 'isascii', 'isprintable', 'isdecimal', 'isnumeric', 'isidentifier')}()",
            lambda: f"(1 {self.pick('<', '==')} {self.number()} {self.pick('<', '<=')} 9)")

    def deep_list(self):
        many = self.list
        test = lambda: quoted(self.pick("equalto", "string", "defined", "none", "number", "odd"))
        key = lambda: quoted(self.pick(*KEYS))
        return self.pick(
            lambda: f"({many()})|{self.pick('list', 'reverse', 'reverse|list', 'unique|list', 'sort', 'sort(reverse=true)', 'first', 'last')}",
            lambda: f"({many()})|sort(attribute={key()})",
            lambda: f"({many()})|{self.pick('select', 'reject')}({self.pick('', test)})|{self.pick('list', 'reverse', 'list|first', 'list|length')}",
            lambda: f"({many()})|{self.pick('selectattr', 'rejectattr')}({key()}{self.pick('', ', ' + quoted('defined'), lambda: ', ' + quoted('equalto') + ', ' + self.any())})|{self.pick('list', 'reverse', 'list|first')}",
            lambda: f"({many()})|map({self.pick('attribute=' + key(), 'attribute=' + key() + ', default=' + quoted('d'), quoted('upper'), quoted('length'), quoted('tojson'), quoted('trim'))})|{self.pick('list', 'reverse', 'unique|list', 'join')}",
            lambda: f"({many()})|batch(2{self.pick('', ', 0')})|list",
            lambda: f"({many()})|slice(2)|list",
            lambda: f"({many()})|groupby({key()})|{self.pick('list', 'length', 'map(attribute=' + quoted('grouper') + ')|list')}",
            lambda: f"({many()})[{self.slice()}]",
            lambda: f"({many()} + {many()})",
            lambda: f"({self.text()}).{self.pick('split()', 'splitlines()', 'split(' + quoted(',') + ')')}",
            lambda: f"[{self.any()}, {self.any()}]",
            lambda: f"({self.expression(('table',))}).{self.pick('items', 'keys', 'values')}()",
            lambda: f"({self.expression(('table',))})|{self.pick('items', 'list', 'dictsort', 'dictsort(false, ' + quoted('value') + ')')}|list")

    def deep_table(self):
        return self.pick(
            lambda: f"({self.list()})[{self.number()}]",
            lambda: f"{{{quoted(self.pick(*KEYS))}: {self.any()}, 'z': {self.any()}}}",
            lambda: f"dict({self.pick(*KEYS)}={self.any()})",
            lambda: f"(({self.list()})|first)",
            lambda: f"namespace(a={self.any()})")

    def deep_any(self):
        return self.pick(
            lambda: f"({self.expression(('table',))}).{self.pick(*KEYS)}",
            lambda: f"({self.expression(('table',))})[{quoted(self.pick(*KEYS))}]",
            lambda: f"({self.expression(('table',))}).get({self.text()}{self.pick('', ', 1')})",
            lambda: f"({self.any()} {self.pick('and', 'or')} {self.any()})",
            lambda: f"({self.any()} if {self.condition()} else {self.any()})",
            self.deep_text, self.deep_number, self.deep_condition)

    # Statements. `accept` says which expressions may stand in them.
    def template(self, accept):
        self.accept = accept
        head = "{% set quote = ',' %}{% set ns = namespace(v=0) %}"
        if self.random.random() < 0.7:
            head += "{% macro helper(x, y=" + self.pick("2", "x", "y", "n", "s") + ") %}{{ x }}/{{ y }}{% endmacro %}\n"
        return head + self.block(0)

    def tag(self, inside):
        return "{%" + self.pick(" ", " ", " ", "- ") + inside + self.pick(" ", " ", " ", " -") + "%}"

    def block(self, depth):
        return "".join(self.statement(depth) for _ in range(self.random.randrange(1, 5)))

    def good(self, make):
        if self.random.random() < 0.4:
            return self.pick("s", "n", "x", "item", "content", "messages|length", "words", "bos_token")
        for _ in range(4):
            expression = make()
            if self.accept(expression):
                return expression
        return self.pick("s", "n", "bos_token")

    def statement(self, depth):
        simple = [self.output, self.output, self.output, self.data, self.data, self.set_value, self.set_value, self.set_namespace, self.comment]
        nested = [self.condition_block, self.condition_block, self.loop, self.loop, self.loop, self.set_block, self.with_block, self.filter_block,
                  self.generation, self.macro, self.call]
        if self.loops:
            simple += [self.leave, self.output_loop]
        return self.random.choice(simple if depth > 2 else simple + nested)(depth + 1)

    def data(self, _):
        return self.pick("\n", "  ", "text", " a\n", "\n\n", "<|im_start|>", "  \n  ", "\r\n", "{ }", "{{ '{{' }}", "{% raw %}{{ x }}{% endraw %}")

    def comment(self, _):
        return self.pick("{# c #}", "{#- c -#}\n", "  {# {{ x }} #}\n")

    def output(self, _):
        if self.random.random() < 0.4:
            return "{{ " + self.pick(*NAMES) + " }}"
        return "{{" + self.pick(" ", "- ") + self.good(self.any) + self.pick(" ", " -") + "}}"

    def output_loop(self, _):
        return "{{ loop." + self.pick("index", "index0", "revindex", "first", "last", "length", "depth", "cycle('a', 'b')", "changed(x)", "previtem", "nextitem") + " }}"

    def set_value(self, _):
        return self.tag(f"set {self.pick(*NAMES)} = {self.good(self.any)}")

    def set_namespace(self, _):
        return self.tag(f"set ns.v = {self.good(self.any)}")

    def leave(self, _):
        return self.tag(f"if {self.good(self.condition)}") + self.tag(self.pick("break", "continue")) + self.tag("endif")

    def condition_block(self, depth):
        made = self.tag(f"if {self.good(self.condition)}") + self.block(depth)
        if self.random.random() < 0.3:
            made += self.tag(f"elif {self.good(self.condition)}") + self.block(depth)
        if self.random.random() < 0.4:
            made += self.tag("else") + self.block(depth)
        return made + self.tag("endif")

    def loop(self, depth):
        name = self.pick("message", "message", "item", "x", "i", "k, item")
        over = self.good(self.list) if name != "k, item" else self.pick("table.items()", "table|items", "table|dictsort")
        head = f"for {name} in {over}"
        if self.random.random() < 0.2:
            head += f" if {self.good(self.condition)}"
        self.loops += 1
        made = self.tag(head) + self.block(depth)
        self.loops -= 1
        if self.random.random() < 0.3:
            outside, self.loops = self.loops, 0
            made += self.tag("else") + self.block(depth)
            self.loops = outside
        return made + self.tag("endfor")

    def enclosed(self, depth):
        outside, self.loops = self.loops, 0
        made = self.block(depth)
        self.loops = outside
        return made

    def set_block(self, depth):
        return self.tag(f"set {self.pick(*NAMES)}{self.pick('', ' | trim', ' | upper')}") + self.enclosed(depth) + self.tag("endset")

    def with_block(self, depth):
        return self.tag(f"with {self.pick(*NAMES)} = {self.good(self.any)}") + self.block(depth) + self.tag("endwith")

    def filter_block(self, depth):
        return self.tag(f"filter {self.pick('upper', 'trim', 'indent(2)', 'replace(quote, s|string)')}") + self.enclosed(depth) + self.tag("endfilter")

    def generation(self, depth):
        return self.tag("generation") + self.enclosed(depth) + self.tag("endgeneration")

    def macro(self, depth):
        name = self.pick("helper", "render_it")
        default = self.pick("x", "y", "n", "item", "'d'", "nothing")
        made = self.tag(f"macro {name}(x, y={default})") + self.enclosed(depth) + self.pick("", "{{ varargs }}", "{{ kwargs }}") + self.tag("endmacro")
        return made + self.pick("", lambda: "{{ " + f"{name}({self.pick('', 's', 'x', 'n, 2')})" + " }}")

    def call(self, depth):
        made = "{% macro around(x=1) %}<{{ caller(x) if x else caller() }}>{% endmacro %}"
        return made + self.tag(f"call({self.pick('x', 'item', 'y=1')}) around({self.pick('', '0', 's')})") + self.enclosed(depth) + self.tag("endcall")
