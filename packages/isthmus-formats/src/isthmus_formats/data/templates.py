"""Chat templates: a conversation as text, with the places of what the assistant said.

Templates are Jinja, as Hugging Face tokenizers carry them, and run in a sandbox. The text to train on is what stands
between ``{% generation %}`` and ``{% endgeneration %}``; in a template without them, the content of the assistant's
messages, the spaces before each, and the special token after it. The model writes these spaces itself: SentencePiece
makes a token of its own of the last one before a digit or a Chinese character.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.sandbox

from isthmus_formats.data.forms import PREAMBLE, WITH_INPUT, WITHOUT_INPUT
from isthmus_formats.data.records import DataError, RowError, Turn, UsageError

Spans = list[tuple[int, int]]

# Unicode noncharacters, which no text has: they mark what the assistant said while a template runs.
_BEGIN, _END = "\ufdd0", "\ufdd1"
_MARK = re.compile(f"[{_BEGIN}{_END}]")
_CHANGED = "the template changes what the assistant said; put {% generation %} around it in the template"

_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
_ANSWER = "{% generation %}{{ m.content + eos_token }}{% endgeneration %}"

# The text around messages, as the models' own repositories give it.
BUILT_IN = {
    # Stanford Alpaca's training script; a question that already has a preamble keeps it.
    "alpaca": "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}"
    f"{{% if not m.content.startswith('{PREAMBLE}') %}}"
    f"{{{{ {WITH_INPUT!r} if '\n\n### Input:\n' in m.content else {WITHOUT_INPUT!r} }}}}"
    "{{ '### Instruction:\n' + m.content + '\n\n### Response:' }}{% else %}{{ m.content }}{% endif %}"
    f"{{% elif m.role == 'assistant' %}}{_ANSWER}{{% else %}}{{{{ m.content + '\n\n' }}}}{{% endif %}}{{% endfor %}}",
    # FastChat's vicuna_v1.1, where nothing follows the colon of an empty message.
    "vicuna": "{{ bos_token }}{% if messages[0].role != 'system' %}"
    f"{{{{ {_SYSTEM!r} + ' ' }}}}{{% endif %}}"
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + ' ' }}{% else %}"
    "{{ 'USER:' if m.role == 'user' else 'ASSISTANT:' }}{% if m.content %}"
    "{% if m.role == 'user' %}{{ ' ' + m.content + ' ' }}{% else %}"
    "{% generation %}{{ ' ' + m.content + eos_token }}{% endgeneration %}{% endif %}{% endif %}{% endif %}"
    "{% endfor %}",
    "llama-2": "{% set n = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% set n.system = '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' %}{% elif m.role == 'user' %}"
    "{{ bos_token + '[INST] ' + (n.system + m.content).strip() + ' [/INST]' }}{% set n.system = '' %}{% else %}"
    "{% generation %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endgeneration %}{% endif %}{% endfor %}",
    "llama-3": "{{ bos_token }}{% for m in messages %}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content.strip() + '<|eot_id|>' }}{% endgeneration %}{% else %}"
    "{{ m.content.strip() + '<|eot_id|>' }}{% endif %}{% endfor %}",
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}"
    "{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}",
}


class _Generation(jinja2.ext.Extension):
    """The tag of what a model generates; marks it in the output."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_mark_caller"), [], [], body).set_lineno(line)

    @staticmethod
    def _mark_caller(caller: Any) -> str:
        return f"{_BEGIN}{caller()}{_END}"


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


@cache
def _environment() -> jinja2.Environment:
    """Return what Hugging Face gives to a template, no more."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = lambda value, ensure_ascii=False, **options: json.dumps(
        value, ensure_ascii=ensure_ascii, **options
    )
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


class Template:
    """A chat template with the special tokens of a tokenizer.

    Args:
        source: Jinja.
        special: names and texts of special tokens: ``bos_token``, ``eos_token`` and so on.
        stops: special tokens that may end a message.
        name: what errors call it.

    Raises:
        DataError: it is not valid Jinja.
    """

    def __init__(self, source: str, special: Mapping[str, str], stops: Sequence[str], name: str) -> None:
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise DataError(f"template {name}: line {error.lineno}: {error.message}") from None
        self._special = special
        self._stops = tuple(stops)
        self._tagged = re.search(r"{%-?\s*generation\b", source) is not None

    def render(self, turns: Sequence[Turn]) -> tuple[str, Spans]:
        """Return a conversation as text, and the places of what the assistant said, as characters.

        Raises:
            RowError: the template refuses the conversation.
        """
        if any(_MARK.search(turn.text) for turn in turns):
            raise RowError("a text with the noncharacter U+FDD0 or U+FDD1")
        if self._tagged:
            return _remove_marks(self._text(turns))
        text = self._text(turns)
        for mark in _mark_turn, _mark_inside:
            try:
                found, spans = _remove_marks(self._text([mark(turn) for turn in turns]))
            except RowError:
                continue
            if found == text:
                return text, [(self._begin(text, begin), self._stop(text, end)) for begin, end in spans]
        raise RowError(_CHANGED)

    def _text(self, turns: Sequence[Turn], add_generation_prompt: bool = False) -> str:
        messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        try:
            return self._template.render(
                messages=messages, add_generation_prompt=add_generation_prompt, **self._special
            )
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise RowError(f"the template refuses the conversation: {error}") from None

    @cached_property
    def _prompt_has_space(self) -> bool:
        """Whether the prompt for an answer ends with a space, so that the model does not write it."""
        question = [Turn("user", "?")]
        try:
            prompt = self._text(question, add_generation_prompt=True)
            return prompt != self._text(question) and prompt.endswith(" ")
        except RowError:
            return False

    def _begin(self, text: str, begin: int) -> int:
        """Return the place of the spaces before a message, which the model writes if the prompt has none."""
        return begin if self._prompt_has_space else len(text[:begin].rstrip(" "))

    def _stop(self, text: str, end: int) -> int:
        """Return the end of the special token that follows a message, if one does."""
        return next((end + len(stop) for stop in self._stops if text.startswith(stop, end)), end)


def _mark_turn(turn: Turn) -> Turn:
    """Mark the text of an assistant's turn."""
    is_said = turn.role == "assistant" and turn.text
    return Turn(turn.role, f"{_BEGIN}{turn.text}{_END}") if is_said else turn


def _mark_inside(turn: Turn) -> Turn:
    """Mark the text of an assistant's turn inside its white space, which templates may strip."""
    core = turn.text.strip()
    if turn.role != "assistant" or not core:
        return turn
    lead, _, trail = turn.text.partition(core)
    return Turn(turn.role, f"{lead}{_BEGIN}{core}{_END}{trail}")


def _remove_marks(text: str) -> tuple[str, Spans]:
    """Return a text without its marks, and the places between them.

    Raises:
        RowError: they are not in pairs.
    """
    marks = list(_MARK.finditer(text))
    if "".join(mark[0] for mark in marks) != (_BEGIN + _END) * (len(marks) // 2):
        raise RowError(_CHANGED)
    places = [mark.start() - index for index, mark in enumerate(marks)]
    return _MARK.sub("", text), list(zip(places[::2], places[1::2], strict=True))


def find(name: str, special: Mapping[str, str], stops: Sequence[str], own: str | None) -> Template:
    """Return a template: built in, a file, or by default the tokenizer's own.

    Args:
        name: name or path; "" for the tokenizer's.
        special: see :class:`Template`.
        stops: see :class:`Template`.
        own: the tokenizer's template.

    Raises:
        DataError: there is none, or the tokenizer lacks a token that a built-in one needs.
    """
    if not name:
        if own is None:
            raise DataError(
                f"the tokenizer has no chat template; give --template {'|'.join(BUILT_IN)} or a file"
            )
        return Template(own, special, stops, "of the tokenizer")
    if name not in BUILT_IN:
        try:
            return Template(Path(name).read_text(encoding="utf-8"), special, stops, name)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise UsageError(
                f"--template {name}: {reason}; expected {', '.join(BUILT_IN)}, or a file of Jinja"
            ) from None
    source = BUILT_IN[name]
    if "eos_token" in source and "eos_token" not in special:
        raise DataError(
            f"--template {name}: the tokenizer has no eos_token; name it in tokenizer_config.json"
        )
    return Template(source, special, stops, name)
