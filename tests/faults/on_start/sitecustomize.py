"""Sets the trap that the environment names: in a command that is one process, or in its rank 0."""

import os

from tests.faults.traps import RANK_VARIABLES, VARIABLE, WHERE, Trap

ranks = [os.environ[name] for name in RANK_VARIABLES if name in os.environ]
if ranks == os.environ[WHERE].split():
    Trap.from_text(os.environ[VARIABLE]).set()
