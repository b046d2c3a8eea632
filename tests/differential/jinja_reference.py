"""jinja2 as transformers sets it up for chat templates."""
import datetime
import json
import signal

import jinja2
import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes

NOW = 1_700_000_000  # what strftime_now() tells
SECONDS = 2  # that a rendering may take


class Generation(jinja2.ext.Extension):
    """{% generation %}, which transformers adds to find what the assistant said."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _text(self, context, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(form):
    return (datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=NOW)).strftime(form)


def environment():
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


class Reference:
    def __init__(self):
        self.environment = environment()
        signal.signal(signal.SIGALRM, self._late)

    @staticmethod
    def _late(*_):
        raise TimeoutError

    def render(self, template, variables):
        """{"text": ...}, {"error": ...}, or None where it took too long to wait for."""
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            return {"text": self.environment.from_string(template).render(**variables)}
        except TimeoutError:
            return None
        except Exception as error:  # whatever a template can bring about
            return {"error": f"{type(error).__name__}: {error}"}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
