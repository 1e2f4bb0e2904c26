"""OpenAI's Responses: the endpoint, its stream of events, and the responses that are kept."""
