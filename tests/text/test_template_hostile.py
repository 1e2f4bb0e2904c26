"""A template comes with a model file: it must not reach Python, run for ever or fill memory."""

import pytest

from octavo.errors import InvalidRequestError, ModelFileError
from octavo.text.template import ChatTemplate
from octavo.text.template_budget import RenderBudget, TemplateLimitError, TemplateLimits, text_size

MESSAGES = [{"role": "user", "content": "Hi"}]
LIMITS = TemplateLimits(max_characters=100_000, max_work_characters=1_000_000, max_cpu_s=0.3)
NESTED = "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
LOOP = "{% for i in range(99999) %}"
GROWING = "{% set ns = namespace(x='aaaa', l=[]) %}{% for i in range(9999) %}{% set "


def render(source: str) -> str:
    return ChatTemplate(source, limits=LIMITS).render(MESSAGES)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ namespace(__class__=1) }}",
        "{{ dict.mro() }}",
        "{% include 'other' %}",
        "{% import 'other' as other %}",
        "{{ lipsum() }}",
        "{{ (1).to_bytes(9, 'big') }}",
        "{{ 'x'.translate({120: 'y'}) }}",
    ],
)
def test_python_is_out_of_reach(source: str) -> None:
    with pytest.raises(InvalidRequestError, match="the chat template fails on this conversation at line 1"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''['__class__'] }}",
        "{{ ''|attr('__class__') }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__self__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ messages|map(attribute='__class__')|join }}",
        "{{ dict.__globals__ }}",
    ],
)
def test_what_is_hidden_is_empty(source: str) -> None:
    assert render(source) == ""


@pytest.mark.parametrize(
    "source",
    [
        LOOP + LOOP + LOOP + "{% endfor %}" * 3,
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{% for i in range(9) recursive %}{% if loop.depth < 9 %}{{ loop(range(99999)) }}{% endif %}{% endfor %}",
        "{% set a, b = 'x' * 40000, 'x' * 39999 ~ 'x' %}" + LOOP + LOOP + "{{ '' if a == b }}{% endfor %}{% endfor %}",
    ],
)
def test_endless_work_is_stopped(source: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"it ran for more than 0\.3 s"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(1000000000) %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    ],
)
def test_ranges_and_recursion_have_an_end(source: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"Range too big|maximum recursion depth"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 1000000000 }}",
        "{{ 1000000000 * 'x' }}",
        "{{ [1] * 1000000000 }}",
        "{{ 10 ** 100000000 }}",
        "{% set ns = namespace(x=9) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
        GROWING + "ns.x = ns.x + ns.x %}{% endfor %}",
        GROWING + "ns.x = ns.x ~ ns.x %}{% endfor %}",
        GROWING + "ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}",
        GROWING + "ns.l = ns.l + ['x' * 90000] %}{% endfor %}",
        GROWING + "ns.l = ns.l + [('x' * 90000)[i:]] %}{% endfor %}",
        GROWING + "ns.l = ns.l + [('x' * 90000)|upper] %}{% endfor %}",
        GROWING + "ns.l = ns.l + [('x' * 90000).upper()] %}{% endfor %}",
        "{{ range(99999)|list }}",
        NESTED,
        NESTED.replace("60", "11") + "{{ [ns.x] * 9000 == [] }}",
        NESTED.replace("60", "11") + "{{ ([ns.x] * 9000)|sort }}",
        NESTED.replace("60", "11") + "{{ ns.x is eq([ns.x] * 9000) }}",
        NESTED.replace("60", "11") + "{{ ([ns.x] * 9000)|string }}",
        "{% set ns = namespace(x={}) %}{% for i in range(60) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}",
        "{% set ns = namespace(x={}) %}{% for i in range(60) %}{% set ns.x = dict(a=ns.x, b=ns.x) %}{% endfor %}",
        "{% set ns = namespace(x=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '%.1000000000f' % 1 }}",
        "{{ '%1000000000d'|format(1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{w}}'.format(1, w=1000000000) }}",
        "{{ '{a:{w}}'.format_map({'a': 1, 'w': 1000000000}) }}",
        "{% set a = 'x' * 90000 %}{{ '{0}{0}{0}'.format(a)[:1] }}{{ '%s%s' % (a, a) }}",
        "{{ 'x'.ljust(1000000000) }}",
        "{{ 'x'.center(width=1000000000) }}",
        "{{ 'x'.zfill(1000000000) }}",
        "{{ '\t'.expandtabs(1000000000) }}",
        "{{ 'x'.encode().center(1000000000) }}",
        "{{ 'x\ny'|indent(1000000000) }}",
        "{% set a = 'x' * 90000 %}{{ a.replace('x', a) }}",
        "{% set a = 'x' * 90000 %}{{ a|replace('x', a) }}",
        "{% set a = 'x' * 90000 %}{{ a.join([a] * 100) }}",
        "{% set a = 'x' * 90000 %}{{ ([a] * 100)|join(a) }}",
        "{% set a = 'x' * 9000 %}{% for i in range(9999) %}{{ a }}{% endfor %}",
        "{% for i in range(9999) %}" + "t" * 900 + "{% endfor %}",
        "{% set x %}{% for i in range(9999) %}" + "t" * 900 + "{% endfor %}{% endset %}",
    ],
)
def test_texts_and_lists_stay_small(source: str) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"makes a text of more|more than \d+ character|columns or more|more than 4096 bits"
    ):
        render(source)


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("{% if %}", "line 1: Expected an expression"),
        ("a\n{{ x", "line 2: unexpected end of template"),
        ("{% generation %}", "endgeneration"),
        ("{{ 'a'|nosuch }}", "No filter named 'nosuch'"),
        ("{{ 'a' is nosuch }}", "No test named 'nosuch'"),
        ("{% macro f() %}{{ varargs }}{% endmacro %}", "varargs in a macro is not supported"),
        ("{{ " + "(" * 5000 + ")" * 5000 + " }}", "too deeply nested"),
        ("{% if 1 %}" * 2000 + "{% endif %}" * 2000, "too deeply nested"),
        ("{% for a in b %}" * 30 + "{% endfor %}" * 30, "too deeply nested"),
        ("x" * (2**20 + 1), "1048577 characters"),
    ],
)
def test_a_broken_template_is_refused_when_it_is_loaded(source: str, fault: str) -> None:
    with pytest.raises(ModelFileError, match=f"^tokenizer.chat_template: .*{fault}"):
        ChatTemplate(source, origin="tokenizer.chat_template")


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("\n{{ nosuch.a.b }}", "at line 2: 'nosuch' is undefined"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ messages[9].role }}", "no element 9"),
        ("{{ {'a': messages[0].content.upper}|tojson }}", "not JSON serializable"),
        ("{{ raise_exception('no system role') }}", "the chat template refuses this conversation: no system role"),
    ],
)
def test_a_failing_template_names_its_fault(source: str, fault: str) -> None:
    with pytest.raises(InvalidRequestError, match=fault) as caught:
        render(source)
    assert caught.value.field == "messages"


def test_size_of_text_counts_what_is_written_twice_twice() -> None:
    shared = ["x" * 100]
    assert text_size([shared, shared], 10**9) > 200
    assert text_size({"a": "x" * 100}.values(), 10**9) > 100
    assert text_size(["x" * 100] * 10, 200) <= 400


def test_the_clock_of_the_budget_is_an_argument() -> None:
    times = iter([0.0, 1.0, 2.1])
    budget = RenderBudget(TemplateLimits(max_cpu_s=2.0), clock=lambda: next(times))
    budget.step()
    with pytest.raises(TemplateLimitError):
        budget.step()
