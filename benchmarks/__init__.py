"""How fast expkit is: the same work as a hand-written loop, measured side by side."""
