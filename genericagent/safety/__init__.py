"""What protects the user: from text that drives the terminal, now; policy, sandbox and redaction join it here."""
