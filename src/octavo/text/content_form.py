"""In which form a chat template wants the content of messages."""

from enum import Enum, auto

from jinja2 import nodes

from octavo.text.template_sandbox import TemplateSandbox


class ContentForm(Enum):
    """What stands in `content` of a message."""

    TEXT = auto()
    """A text; parts are joined before."""
    EITHER = auto()
    """A text, or a list of parts: the template looks which."""
    PARTS = auto()
    """A list of parts, always."""


def content_form(source: str) -> ContentForm:
    """What a template does with contents: one that goes through a content as a list wants parts, unless it asks first
    whether it is a text.

    Args:
        source: a template that compiles.
    """
    tree = TemplateSandbox().parse(source)
    if not any(_is_content(loop.iter) for loop in tree.find_all(nodes.For)):
        return ContentForm.TEXT
    asks = any(test.name == "string" and _is_content(test.node) for test in tree.find_all(nodes.Test))
    return ContentForm.EITHER if asks else ContentForm.PARTS


def _is_content(node: nodes.Node) -> bool:
    """`message.content`, `message['content']`, or a variable of this name, filtered or not."""
    match node:
        case nodes.Filter(node=nodes.Node() as filtered):
            return _is_content(filtered)
        case nodes.Getitem(arg=nodes.Const(value="content")) | nodes.Getattr(attr="content"):
            return True
        case nodes.Name(name="content"):
            return True
    return False
