"""The OpenAI door: agents as models, for clients of chat completions and responses. See docs/openai.md."""
