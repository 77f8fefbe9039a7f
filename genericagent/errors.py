"""The one exception tree. Each of these is shown to the user as one clear line; anything else is a bug.

GAError
├── UsageError        the command was called wrongly (exit 2)
├── ConfigError       configuration is missing or broken (exit 1)
├── SessionError      a saved session cannot be opened or is held by somebody else
│   └── NoSuchSession there is none of that name
├── ToolError         a tool refuses; its text becomes the tool's result for the model
├── Aborted           the user stopped the work
├── BudgetError       the next model call might cross a cap on money
├── LLMError          a model call failed
└── Undelivered       a messenger did not take a message
"""

from __future__ import annotations


class GAError(Exception):
    """Base of all expected errors: what happened, why, and what to do, in one line."""


class UsageError(GAError):
    """The command line or an API was used wrongly."""


class ConfigError(GAError):
    """Configuration is missing or broken; names the file, and the line where there is one."""


class SessionError(GAError):
    """A saved session cannot be opened, is not a session, or is in use."""


class NoSuchSession(SessionError):
    """None has that id or name."""


class ToolError(GAError):
    """A tool refuses or fails in an expected way; the model reads the text as the tool's result."""


class Aborted(GAError):
    """The user stopped the work."""


class BudgetError(GAError):
    """The next model call might cross a cap on money; says what was spent."""


class LLMError(GAError):
    """A model call failed.

    `status` is the HTTP status or None; `retryable` tells whether the same call may succeed later;
    `retry_after` is the provider's wish in seconds or None (0 counts as a wish).
    """

    def __init__(
        self, message: str, *, retryable: bool = False, retry_after: float | None = None, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status


class Undelivered(GAError):
    """A messenger did not take a message. Its kinds are in genericagent/faces/outgoing.py."""
