"""The jinja2 environment of chat templates: Hugging Face's dialect, sandboxed, with every costly operation on
a budget.

The compiled code of a template asks the budget at each loop iteration, call, concatenation, slice and output.
Where jinja2 has no hook for that, the code generator below writes the question into the compiled code.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jinja2 import TemplateSyntaxError, nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from octavo.text.template_filters import budget_of, template_filters, template_functions, template_tests
from octavo.text.template_operations import INTERCEPTED, charge_call, charge_operator, check_brace_format

_COUNTED = "counted"
_COMPARISONS = {
    "eq": "==",
    "ne": "!=",
    "gt": ">",
    "gteq": ">=",
    "lt": "<",
    "lteq": "<=",
    "in": "in",
    "notin": "not in",
}


class GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}`: marks the assistant's words for training; here, plain
    content."""

    tags = {"generation"}  # noqa: RUF012 - the name and kind that jinja2 expects

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class BudgetedCode(CodeGenerator):
    """Compiles concatenations, slices, literals and comparisons into calls that ask the budget."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - jinja2's name
        self.write("environment.concatenated(context, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802 - jinja2's name
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.made(context, ")
        super().visit_Getitem(node, frame)
        self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802 - jinja2's name
        self._write_built(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802 - jinja2's name
        self._write_built(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802 - jinja2's name
        if node.ctx == "load":
            self._write_built(super().visit_Tuple, node, frame)
        else:  # the targets of an assignment
            super().visit_Tuple(node, frame)

    def visit_Operand(self, node: nodes.Operand, frame: Frame) -> None:  # noqa: N802 - jinja2's name
        self.write(f" {_COMPARISONS[node.op]} environment.built(context, ")
        self.visit(node.expr, frame)
        self.write(")")

    def _write_built(self, write: Callable[[Any, Frame], None], node: nodes.Node, frame: Frame) -> None:
        self.write("environment.built(context, ")
        write(node, frame)
        self.write(")")

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return f"environment.made(context, {super()._output_const_repr(group)})"


class BraceFormat:
    """`str.format` of one text, as jinja2 sandboxes it."""

    def __init__(self, text: str, wrapped: Callable[..., str]) -> None:
        check_brace_format(text)
        self.text = text
        self._wrapped = wrapped

    def __call__(self, *args: Any, **kwargs: Any) -> str:  # a format's own arguments
        return self._wrapped(*args, **kwargs)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Compiles templates. Rendering needs a RenderBudget under BUDGET among the variables."""

    code_generator_class = BudgetedCode
    intercepted_binops = INTERCEPTED

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationTag, LoopControlExtension],
            finalize=_output,
        )
        self.filters = {**template_filters(), _COUNTED: _counted}
        self.tests.update(template_tests())
        self.globals.update(template_functions())
        del self.globals["lipsum"]

    def _generate(
        self, source: nodes.Template, name: str | None, filename: str | None, defer_init: bool = False
    ) -> str:
        for loop in source.find_all(nodes.For):
            counted = nodes.Filter(loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno, environment=self)
            loop.iter = counted
        for macro in source.find_all(nodes.Macro):
            _refuse_collected_arguments(macro)
        return super()._generate(source, name, filename, defer_init)

    def call(self, context: Context, called: Any, /, *args: Any, **kwargs: Any) -> Any:  # a template's own arguments
        budget = budget_of(context)
        budget.step()
        arguments = (*args, *kwargs.values())
        if isinstance(called, BraceFormat):
            budget.charge_text_of((called.text, arguments))
        charge_call(budget, called, arguments)
        if isinstance(called, LoopContext) and args:  # a recursive loop: a new iterable
            args = (_counted(context, args[0]), *args[1:])
        return super().call(context, called, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        charge_operator(budget_of(context), operator, left, right)
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        # Methods of numbers (int.to_bytes) and str.translate make texts of any size from small ones.
        if isinstance(obj, int | float) or attr == "translate":
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        return None if wrapped is None else BraceFormat(value.__self__, wrapped)

    def concatenated(self, context: Context, parts: tuple[Any, ...]) -> str:
        """What `a ~ b` gives."""
        budget_of(context).charge_text_of(parts)
        return "".join(map(str, parts))

    def built(self, context: Context, value: Any) -> Any:
        """A container, or one side of a comparison, now checked."""
        budget_of(context).check_size(value)
        return value

    def made(self, context: Context, value: Any) -> Any:
        """Literal text or a slice, now charged for: neither is larger than what it comes from."""
        budget_of(context).charge(len(value))
        return value


def _refuse_collected_arguments(macro: nodes.Macro) -> None:
    """`varargs` and `kwargs` make containers of a call's arguments, past all checks."""
    for name in macro.find_all(nodes.Name):
        if name.name in ("varargs", "kwargs"):
            raise TemplateSyntaxError(f"{name.name} in a macro is not supported", name.lineno)


@pass_context
def _counted(context: Context, iterable: Iterable[Any]) -> Iterator[Any]:
    """The same items, each a step of the budget."""
    return _steps(context, iter(iterable))


def _steps(context: Context, items: Iterator[Any]) -> Iterator[Any]:
    budget = budget_of(context)
    for item in items:
        budget.step()
        yield item


@pass_context
def _output(context: Context, value: Any) -> Any:
    """jinja2's `finalize`: sees the value of every `{{ ... }}` before it becomes text."""
    budget_of(context).charge_text_of(value)
    return value
