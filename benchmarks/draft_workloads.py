"""Four kinds of work for drafts: an edit of code, quotes from a text, JSON by a schema, free chat. Texts of our own."""

from dataclasses import dataclass

import msgspec

from octavo.request.structured import StructuredKind, StructuredSpec

CODE = '''class Shelf:
    """Books in the order in which they were put there."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.books = []

    def put(self, book):
        """Puts a book at the end; the shelf must have room."""
        if len(self.books) >= self.capacity:
            raise ValueError("the shelf is full")
        self.books.append(book)

    def take(self, title):
        """Takes the first book of a title away, and returns it."""
        for place, book in enumerate(self.books):
            if book.title == title:
                return self.books.pop(place)
        raise KeyError(title)

    def titles(self):
        """All titles, in order."""
        return [book.title for book in self.books]

    def free_places(self):
        """How many more books there is room for."""
        return self.capacity - len(self.books)


def fill(shelf, books):
    """Puts books on a shelf until it is full, and returns those that are left."""
    left = list(books)
    while left and shelf.free_places() > 0:
        shelf.put(left.pop(0))
    return left
'''

LETTER = """The harbour of Lindvik was built in 1874 by the engineer Maren Holt. Its two moles are 310 and 260 metres
long. Until the railway came in 1902, the mail boat Sigrun called there every Tuesday and Friday. The
lighthouse on the northern mole was lit for the first time on 3 October 1881, and its keeper, Anders Brekke,
kept a diary for thirty-one years. In it he noted each ship, each storm and each birth in the town. The
winter of 1893 was the hardest: the harbour lay under ice for forty-seven days, and the town lived on dried
fish and on potatoes from the cellars of the manor. The fish hall burned down in 1911 and was built again in
brick by Holt's son Eskil. Today the hall is a museum. The diary lies in its first room."""

PEOPLE = {
    "type": "object",
    "properties": {
        "people": {
            "type": "array",
            "minItems": 4,
            "maxItems": 6,
            "items": {
                "type": "object",
                "properties": {
                    "first_name": {"type": "string", "maxLength": 20},
                    "occupation": {"type": "string", "maxLength": 30},
                    "year_of_birth": {"type": "integer", "minimum": 1800, "maximum": 2000},
                    "is_living": {"type": "boolean"},
                    "preferred_language": {"enum": ["English", "Norwegian", "German"]},
                },
                "required": ["first_name", "occupation", "year_of_birth", "is_living", "preferred_language"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["people"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Workload:
    """Questions of one kind."""

    name: str
    questions: tuple[str, ...]
    schema: dict[str, object] | None = None
    """Of the answers; None: any text."""

    def spec(self) -> StructuredSpec | None:
        """The shape of the answers."""
        if self.schema is None:
            return None
        source = msgspec.json.encode(self.schema).decode()
        return StructuredSpec(kind=StructuredKind.JSON_SCHEMA, source=source, compact=True)


WORKLOADS = (
    Workload(
        "code edit",
        (
            f"Rename the method `put` to `place_book` everywhere. Answer with the whole file only.\n\n{CODE}",
            f"Rename the class `Shelf` to `Bookcase` everywhere. Answer with the whole file only.\n\n{CODE}",
        ),
    ),
    Workload(
        "extraction",
        (
            f"{LETTER}\n\nCopy all sentences that hold a year, word for word, as a list.",
            f"{LETTER}\n\nQuote what is said of the lighthouse, its keeper and the diary, word for word.",
        ),
    ),
    Workload("JSON by schema", ("Describe five people of a small Norwegian town around 1900 as JSON.",), PEOPLE),
    Workload(
        "free chat",
        (
            "What makes a good walk in the mountains?",
            "Tell me a short story about a clock that runs backwards.",
            "Why is the sky blue, and why are sunsets red?",
        ),
    ),
)
