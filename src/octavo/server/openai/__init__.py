"""OpenAI's endpoints: models, completions, chat completions."""
