"""The rooms behind the six doors. Importing it makes the shipped folders importable, also from a wheel."""

import sys
from pathlib import Path

__version__ = "0.1.0"

_shipped = Path(__file__).parent / "_shipped"
if _shipped.is_dir() and str(_shipped) not in sys.path:  # only in an installed wheel
    sys.path.append(str(_shipped))
