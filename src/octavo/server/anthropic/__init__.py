"""Anthropic's Messages: the endpoint, the counting of its tokens, its errors."""
