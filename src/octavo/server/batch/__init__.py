"""OpenAI's batch files: requests in lines, answered through the same application that answers HTTP."""
