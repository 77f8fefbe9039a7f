"""LLM access: blocks, wire formats, history, transport, usage."""
