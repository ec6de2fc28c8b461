"""Text to token ids and back: tokenizers, chat prompts, and the parts of a reply."""
