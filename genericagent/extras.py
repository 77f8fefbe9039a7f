"""The optional libraries, and the command that adds them to the Python that runs this.

It names the packages themselves: this program under its own name is to be had from its source alone, and what a public
index has under that name is somebody else's.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys

EXTRAS = {  # as in pyproject.toml
    "images": ("Pillow>=10,<14",),
    "socks": ("PySocks>=1.7,<2",),
    "telegram": ("python-telegram-bot>=21.5,<23", "markdown-it-py>=3,<5"),
    "web": ("aiohttp>=3.9,<4", "markdown-it-py>=3,<5"),
}
NEEDED = ("requests", "prompt_toolkit", "rich", "websockets")


def install_command(*packages: str) -> str:
    """What the user types to get these packages, given with their bounds."""
    python, wanted = shlex.quote(sys.executable), " ".join(map(shlex.quote, packages))
    if importlib.util.find_spec("pip") is None and shutil.which("uv"):  # an environment that uv has made
        return f"uv pip install --python {python} {wanted}"
    return f"{python} -m pip install {wanted}"
