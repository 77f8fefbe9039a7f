"""Faces of the agent beside the terminal: one file each, on chat_common."""
