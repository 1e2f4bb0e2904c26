"""How large a shape may be. Beyond these it is refused, whatever the backend could do: time and memory of a compilation
stay bounded. Documented in docs/structured_output.md."""

MAX_SOURCE_BYTES = 1 << 20
"""Of a schema, an expression, a grammar, or all choices together."""
MAX_NESTING = 64
"""Of the groups of a regular expression or a grammar."""
MAX_SCHEMA_NESTING = 100
"""Of the brackets of a schema's JSON."""
MAX_REGEX_SIZE = 100_000
"""Characters of a regular expression when its counted repetitions are written out."""
MAX_PATTERN_PROPERTIES = 32
"""Patterns of keys in one object: each is compared with each."""
MAX_OPTIONAL_PROPERTIES = 450
"""Declared in one object and not required: each may come next, and makes four of MAX_ROW_ITEMS."""
MAX_DEFINITIONS = 1_000
"""Places of a schema that references lead to."""
MAX_JOINED_PATTERNS = 8
"""Patterns and formats that one text must match at the same time: their automata multiply."""
MAX_CHOICES = 20_000
MAX_ENUM_VALUES = 20_000
MAX_LENGTH = 1_000_000
"""Of minLength, maxLength and the like."""
MAX_GRAMMAR_RULES = 2_000
MAX_REPETITIONS = 10_000
"""In a counted repetition of a grammar."""
MAX_ROW_ITEMS = 2_000
"""Ways in which a parser may stand in a text at one time. The worst grammars take time by their square: 0.1 s for a
token at this bound."""
MAX_LEXER_STATES = 100_000
"""States of a compiled grammar's lexer, 1 to 2 KB each. They come into being as answers reach them."""
MAX_EXACT_INT = 2**53 - 1
"""Numbers beyond it are not exact where JSON is read with float64."""
MAX_MULTIPLE_OF = 10_000
"""As a whole number, without its decimal point: an automaton counts remainders."""
MAX_DECIMALS = 15
MAX_COMMON_MULTIPLE = 100_000
"""Of all multipleOf of a schema, in units of the last decimal: schemas may be joined, and multiples with them."""
