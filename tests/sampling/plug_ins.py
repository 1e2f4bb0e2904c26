"""Processors for tests, as the source of a package."""

MORE = """
import numpy as np
from octavo.errors import InvalidRequestError

class Base:
    def __init__(self, vocab_size):
        self.vocab_size = vocab_size

    def check(self, args):
        pass

class Push(Base):
    def check(self, args):
        args["token_id"] + 0
        if args["token_id"] >= self.vocab_size:
            raise ValueError(f"token_id must be below {self.vocab_size}")

    def process(self, requests, logits):
        for request, row in zip(requests, logits):
            row[request.args["token_id"]] += request.args.get("by", 50.0)

class Faulty(Base):
    def process(self, requests, logits):
        logits += 100.0  # what a call that raises has done is undone
        for request, row in zip(requests, logits):
            row -= 100.0
            if len(request.output_token_ids) == request.args["at"]:
                match request.args["how"]:
                    case "raise": raise RuntimeError("secret of the house")
                    case "refuse": raise InvalidRequestError("mood", "bad", "must be good")
                    case "nan": row[3] = np.nan
                    case "none": row[:] = -np.inf

def not_one(vocab_size):
    return 7
"""
