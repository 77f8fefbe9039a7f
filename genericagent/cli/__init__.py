"""The command line and its faces: arguments, chat, task mode."""
