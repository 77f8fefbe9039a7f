"""What every messenger needs beside the conversation: Markdown in messages of a limited size, and a state that survives."""
