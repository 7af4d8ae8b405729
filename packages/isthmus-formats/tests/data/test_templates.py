"""Chat templates: the texts that Transformers renders, and where the assistant speaks in them."""

import pytest

from isthmus_formats.data.records import DataError, Record, RowError, Turn
from isthmus_formats.data.templates import BUILT_IN, Template, find
from tests.data.conftest import conversation

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
STOPS = ["</s>", "<|im_end|>", "<|eot_id|>"]
TALK = conversation("a", "a", "user: assistant", " assistant\n", "</s>", "b")
WITH_SYSTEM = Record("", (Turn("system", "Be brief."), *TALK.turns))
# Templates as repositories carry them, without the tag of what is generated.
UNTAGGED = {
    "qwen": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "stripping": "{{ bos_token }}{% for m in messages %}\n{%- if loop.index0 % 2 %}"
    "[{{ m['content'] | trim }}]{{ eos_token }}{% else %}({{ m.content.strip() }}){% endif %}\n{% endfor %}",
    "controls": "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
    "{{ m.role }}: {{ m.content }}{{ '</s>' }}{% endfor %}{{ {'é': 1} | tojson }}",
}


def said(record: Record, template: Template) -> list[str]:
    text, spans = template.render(record.turns)
    return [text[begin:end] for begin, end in spans]


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **SPECIAL)


@pytest.mark.parametrize("name", [*BUILT_IN, *UNTAGGED])
@pytest.mark.parametrize("record", [TALK, WITH_SYSTEM, TALK._replace(turns=TALK.turns[:1])])
def test_a_text_is_the_one_of_transformers(name, record, tokenizer):
    source = {**BUILT_IN, **UNTAGGED}[name]
    messages = [{"role": turn.role, "content": turn.text} for turn in record.turns]
    expected = tokenizer.apply_chat_template(messages, chat_template=source, tokenize=False)
    assert Template(source, SPECIAL, STOPS, name).render(record.turns)[0] == expected


@pytest.mark.parametrize(
    ("name", "answers"),
    {
        "alpaca": ["a</s>", " assistant\n</s>", "b</s>"],
        "vicuna": [" a</s>", "  assistant\n</s>", " b</s>"],
        "llama-2": [" a </s>", " assistant </s>", " b </s>"],
        "llama-3": ["a<|eot_id|>", "assistant<|eot_id|>", "b<|eot_id|>"],
        "chatml": ["a<|im_end|>", " assistant\n<|im_end|>", "b<|im_end|>"],
        "qwen": ["a<|im_end|>", " assistant\n<|im_end|>", "b<|im_end|>"],
        "stripping": ["a", "assistant", "b"],
        "controls": [" a</s>", "  assistant\n</s>", " b</s>"],
    }.items(),
)
def test_what_the_assistant_says_is_found_whatever_is_around_it(name, answers):
    template = Template({**BUILT_IN, **UNTAGGED}[name], SPECIAL, STOPS, name)
    assert said(TALK, template) == answers
    assert said(WITH_SYSTEM, template) == answers or name == "stripping"


def test_vicuna_is_fastchats_prompt():
    text, _ = Template(BUILT_IN["vicuna"], SPECIAL, STOPS, "").render(
        conversation("Q1", "A1", "Q2", "A2").turns
    )
    assert text == (
        "<s>A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
        "detailed, and polite answers to the user's questions. USER: Q1 ASSISTANT: A1</s>USER: Q2 ASSISTANT: A2</s>"
    )


def test_alpaca_is_stanfords_prompt():
    template = Template(BUILT_IN["alpaca"], SPECIAL, STOPS, "")
    head = "<s>Below is an instruction that describes a task"
    tail = "Write a response that appropriately completes the request.\n\n### Instruction:\nQ"
    plain, _ = template.render(conversation("Q", "A").turns)
    assert plain == f"{head}. {tail}\n\n### Response:A</s>"
    given, _ = template.render(conversation("Q\n\n### Input:\nI", "A").turns)
    about = ", paired with an input that provides further context. "
    assert given == f"{head}{about}{tail}\n\n### Input:\nI\n\n### Response:A</s>"
    question = given[len("<s>") : -len("A</s>")]  # MindFormers' converter stores it like this
    assert template.render(conversation(question, "A").turns)[0] == given


def test_a_template_that_changes_what_the_assistant_says_is_refused():
    thinks = "{% for m in messages %}{{ m.content.split('</think>')[-1].replace('a', 'b') }}{% endfor %}"
    changing = Template(
        "{% for m in messages %}{{ m.content | upper | length }}{% endfor %}", SPECIAL, STOPS, "x"
    )
    with pytest.raises(RowError, match="changes what the assistant said"):
        changing.render(TALK.turns)
    dropped = Template(thinks, SPECIAL, STOPS, "x")
    with pytest.raises(RowError, match="changes what the assistant said"):
        dropped.render(conversation("q", "why</think>answer").turns)


def test_templates_run_in_a_sandbox():
    escape = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(RowError, match="unsafe"):
        Template(escape, SPECIAL, STOPS, "x").render(TALK.turns)
    with pytest.raises(RowError, match="no tools"):
        Template("{{ raise_exception('no tools') }}", SPECIAL, STOPS, "x").render(TALK.turns)


def test_a_text_with_the_marks_is_refused():
    with pytest.raises(RowError, match="noncharacter"):
        Template(BUILT_IN["chatml"], SPECIAL, STOPS, "").render(conversation("\ufdd0", "x").turns)


def test_a_template_is_found_by_name_path_or_tokenizer(tmp_path):
    path = tmp_path / "own.jinja"
    path.write_text("{{ messages[0].content }}!")
    assert find(str(path), SPECIAL, STOPS, None).render(TALK.turns)[0] == "a!"
    assert find("", SPECIAL, STOPS, "own").render(TALK.turns)[0] == "own"
    for name, special, own, message in [
        ("", SPECIAL, None, "no chat template; give --template alpaca"),
        ("nothing", SPECIAL, None, "No such file or directory; expected alpaca"),
        ("vicuna", {}, None, "has no eos_token"),
        ("", SPECIAL, "{% if %}", "template of the tokenizer: line 1"),
    ]:
        with pytest.raises(DataError, match=message):
            find(name, special, STOPS, own)
